// SPDX-License-Identifier: Apache-2.0

#include "engine/netdev/virtual_function.h"

#include <linux/if_link.h>
#include <linux/rtnetlink.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/netdev/netlink.h"

namespace splitplane {
namespace {

namespace fs = std::filesystem;

// By the bus and not by the interface's name: /sys may show another network namespace.
fs::path device(const std::string& bus) { return fs::path("/sys/bus/pci/devices") / bus; }

// The number of a virtual function: which link of its NIC leads to it.
std::optional<uint32_t> number_of(const fs::path& nic, const fs::path& function) {
    std::error_code error;
    for (uint32_t number = 0; fs::exists(nic / ("virtfn" + std::to_string(number)), error); ++number) {
        if (fs::equivalent(nic / ("virtfn" + std::to_string(number)), function, error)) return number;
    }
    return std::nullopt;
}

std::optional<VirtualFunctionRights> ask_rights(const std::string& nic, uint32_t function) {
    NetlinkRequest request(RTM_GETLINK, 0);
    request.body(ifinfomsg{});
    request.attribute(IFLA_IFNAME, nic);
    request.attribute(IFLA_EXT_MASK, RTEXT_FILTER_VF);
    const NetlinkAnswer answer = ask_netlink(NETLINK_ROUTE, request);
    if (answer.error != 0 || answer.messages.empty()) return std::nullopt;
    return rights_in(answer.messages.front(), function);
}

}  // namespace

uint32_t virtual_functions(const std::string& bus) {
    uint32_t count = 0;
    if (!bus.empty()) std::ifstream(device(bus) / "sriov_numvfs") >> count;
    return count;
}

std::optional<VirtualFunctionRights> rights_in(std::span<const char> message, uint32_t function) {
    if (message.size() < sizeof(ifinfomsg)) return std::nullopt;
    const NetlinkAttributes facts(message.subspan(NLMSG_ALIGN(sizeof(ifinfomsg))));
    for (const auto& each : facts.nested(IFLA_VFINFO_LIST).all()) {
        ifla_vf_trust trust;
        ifla_vf_spoofchk check;
        const std::span<const char> trusts = NetlinkAttributes(each).payload(IFLA_VF_TRUST);
        const std::span<const char> checks = NetlinkAttributes(each).payload(IFLA_VF_SPOOFCHK);
        if (trusts.size() < sizeof trust || checks.size() < sizeof check) continue;
        std::memcpy(&trust, trusts.data(), sizeof trust);
        std::memcpy(&check, checks.data(), sizeof check);
        if (trust.vf != function) continue;
        // A driver that has no such setting says ~0.
        constexpr uint32_t kUnknown = ~0u;
        return VirtualFunctionRights{trust.setting != 0, check.setting != 0 && check.setting != kUnknown};
    }
    return std::nullopt;
}

std::string virtual_function_problem(const std::string& bus) {
    std::error_code error;
    if (bus.empty() || !fs::exists(device(bus) / "physfn/net", error)) return "";
    const fs::path nic = device(bus) / "physfn";
    const std::optional<uint32_t> number = number_of(nic, device(bus));
    const fs::directory_iterator names(nic / "net", error);
    if (!number || error || names == fs::directory_iterator()) return "";
    const std::string name = names->path().filename();
    const std::optional<VirtualFunctionRights> rights = ask_rights(name, *number);
    if (!rights || (rights->trusted && !rights->checked)) return "";
    return "it is a virtual function that gets frames for its own MAC alone, and sends with no other; run: ip link set "
           "dev " + name + " vf " + std::to_string(*number) + " trust on spoofchk off";
}

}  // namespace splitplane
