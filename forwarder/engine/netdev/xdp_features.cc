// SPDX-License-Identifier: Apache-2.0

#include "engine/netdev/xdp_features.h"

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "engine/netdev/netlink.h"

namespace splitplane {
namespace {

// linux/netdev.h of Linux 6.3
constexpr uint8_t kDeviceGet = 1;          // NETDEV_CMD_DEV_GET
constexpr uint16_t kIfindex = 1;           // NETDEV_A_DEV_IFINDEX
constexpr uint16_t kFeatures = 3;          // NETDEV_A_DEV_XDP_FEATURES
constexpr const char* kChanges = "mgmt";   // its multicast group

NetlinkRequest generic_request(uint16_t family, uint8_t command) {
    NetlinkRequest request(family, 0);
    request.body(genlmsghdr{command, 1, 0});
    return request;
}

}  // namespace

XdpFeatures::XdpFeatures() {
    NetlinkRequest request = generic_request(GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
    request.attribute(CTRL_ATTR_FAMILY_NAME, std::string("netdev"));
    const NetlinkAnswer answer = ask_netlink(NETLINK_GENERIC, request);
    if (answer.error != 0 || answer.messages.empty()) return;
    const NetlinkAttributes family(std::span(answer.messages.front()).subspan(GENL_HDRLEN));
    const std::span<const char> id = family.payload(CTRL_ATTR_FAMILY_ID);
    if (id.size() < sizeof family_) return;
    std::copy_n(id.data(), sizeof family_, reinterpret_cast<char*>(&family_));
    for (const auto& each : family.nested(CTRL_ATTR_MCAST_GROUPS).all()) {
        const NetlinkAttributes group(each);
        const std::optional<uint32_t> number = group.number(CTRL_ATTR_MCAST_GRP_ID);
        if (group.text(CTRL_ATTR_MCAST_GRP_NAME) != kChanges || !number) continue;
        changes_ = Descriptor(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_GENERIC));
        sockaddr_nl address{};
        address.nl_family = AF_NETLINK;
        ::bind(changes_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
        ::setsockopt(changes_.get(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &*number, sizeof *number);
    }
}

std::optional<uint64_t> XdpFeatures::of(uint32_t ifindex) const {
    if (!known()) return std::nullopt;
    NetlinkRequest request = generic_request(family_, kDeviceGet);
    request.attribute(kIfindex, ifindex);
    const NetlinkAnswer answer = ask_netlink(NETLINK_GENERIC, request);
    if (answer.error != 0 || answer.messages.empty()) return std::nullopt;
    return xdp_features_in(answer.messages.front());
}

bool XdpFeatures::forget_changes() {
    std::array<char, 1 << 12> octets;
    bool any = false;
    // Lost ones (ENOBUFS) are changes as well.
    while (::recv(changes_.get(), octets.data(), octets.size(), MSG_DONTWAIT) >= 0 || errno == ENOBUFS) any = true;
    return any;
}

std::optional<uint64_t> xdp_features_in(std::span<const char> message) {
    if (message.size() < GENL_HDRLEN) return std::nullopt;
    return NetlinkAttributes(message.subspan(GENL_HDRLEN)).long_number(kFeatures);
}

}  // namespace splitplane
