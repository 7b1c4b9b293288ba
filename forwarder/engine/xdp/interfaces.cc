// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/interfaces.h"

#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace splitplane {
namespace {

constexpr int kReceiveOctets = 4 << 20;

}  // namespace

Interfaces::Interfaces() : socket_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (!socket_ || ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        throw EngineError("cannot watch the network interfaces: " + error_text(errno));
    }
    // As large as may be; a smaller one only means that more is asked for again.
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveOctets, sizeof kReceiveOctets);
    ask();
    if (!dumping_) throw EngineError("cannot list the network interfaces: " + error_text(errno));
    while (dumping_) receive(true);
}

void Interfaces::ask() {
    struct {
        nlmsghdr header;
        ifinfomsg body;
    } request{};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = RTM_GETLINK;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.header.nlmsg_seq = ++dump_;
    dumping_ = ::send(socket_.get(), &request, sizeof request, 0) == sizeof request;
}

void Interfaces::read_changes() {
    while (receive(false)) {
    }
}

// False where there was nothing to receive.
bool Interfaces::receive(bool wait) {
    alignas(nlmsghdr) std::array<char, 1 << 15> octets;
    const ssize_t length = ::recv(socket_.get(), octets.data(), octets.size(), wait ? 0 : MSG_DONTWAIT);
    if (length < 0) {
        if (errno == ENOBUFS) {
            ask();
            return true;
        }
        return errno == EINTR;
    }
    auto left = static_cast<unsigned>(length);
    for (auto* message = reinterpret_cast<nlmsghdr*>(octets.data()); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
        if (message->nlmsg_seq == dump_ && (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR)) {
            dumping_ = false;
            forget_missing();
        } else {
            take(message);
        }
    }
    return true;
}

void Interfaces::take(const nlmsghdr* message) {
    if (message->nlmsg_type != RTM_NEWLINK && message->nlmsg_type != RTM_DELLINK) return;
    const auto* body = static_cast<const ifinfomsg*>(NLMSG_DATA(message));
    if (body->ifi_family != AF_UNSPEC) return;  // a bridge's ports
    const auto ifindex = static_cast<uint32_t>(body->ifi_index);
    if (message->nlmsg_type == RTM_DELLINK) {
        known_.erase(ifindex);
        return;
    }
    auto left = static_cast<unsigned>(IFLA_PAYLOAD(message));
    for (const rtattr* attribute = IFLA_RTA(body); RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
        if (attribute->rta_type == IFLA_IFNAME) {
            constexpr unsigned kBoth = IFF_UP | IFF_LOWER_UP;
            known_[ifindex] = {static_cast<const char*>(RTA_DATA(attribute)), (body->ifi_flags & kBoth) == kBoth,
                               dump_};
        }
    }
}

void Interfaces::forget_missing() {
    std::erase_if(known_, [&](const auto& entry) { return entry.second.dump != dump_; });
}

std::optional<InterfaceState> Interfaces::find(const std::string& name) const {
    for (const auto& [ifindex, known] : known_) {
        if (known.name == name) return InterfaceState{ifindex, known.up};
    }
    return std::nullopt;
}

}  // namespace splitplane
