// SPDX-License-Identifier: Apache-2.0

#include "engine/netdev/interfaces.h"

#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/engine.h"
#include "engine/netdev/netlink.h"

namespace splitplane {
namespace {

constexpr int kReceiveOctets = 4 << 20;

// What an NLMSG_ERROR or NLMSG_DONE says: an errno value, negative; 0 where all is well or nothing is said.
int outcome(const nlmsghdr* message) {
    return message->nlmsg_len < NLMSG_LENGTH(sizeof(int)) ? 0 : *static_cast<const int*>(NLMSG_DATA(message));
}

bool has_link(const ifinfomsg& link) {
    constexpr unsigned kBoth = IFF_UP | IFF_LOWER_UP;
    return (link.ifi_flags & kBoth) == kBoth;
}

}  // namespace

std::optional<bool> is_link_up(uint32_t ifindex) {
    ifinfomsg link{};
    link.ifi_index = static_cast<int>(ifindex);
    NetlinkRequest request(RTM_GETLINK, 0);
    const NetlinkAnswer answer = ask_netlink(NETLINK_ROUTE, request.body(link));
    if (answer.error != 0 || answer.messages.empty() || answer.messages[0].size() < sizeof link) return std::nullopt;
    std::memcpy(&link, answer.messages[0].data(), sizeof link);
    return has_link(link);
}

// -- messages ---------------------------------------------------------------------------------------------------------
std::optional<uint32_t> InterfaceTable::next_dump() {
    if (!wanted_ || dumping_ || waits_) return std::nullopt;
    wanted_ = interrupted_ = false;
    dumping_ = true;
    return ++dump_;
}

void InterfaceTable::take(std::span<const char> messages) {
    auto left = static_cast<unsigned>(messages.size());
    for (auto* message = reinterpret_cast<const nlmsghdr*>(messages.data()); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
        take_one(message);
    }
}

void InterfaceTable::take_one(const nlmsghdr* message) {
    const bool of_dump = dumping_ && message->nlmsg_seq == dump_;
    waits_ = false;
    if (of_dump && (message->nlmsg_flags & NLM_F_DUMP_INTR) != 0) interrupted_ = true;
    switch (message->nlmsg_type) {
        case NLMSG_DONE:
            if (of_dump) end_dump(outcome(message) == 0);
            break;
        case NLMSG_ERROR:
            if (of_dump) refused();
            break;
        case NLMSG_OVERRUN: overrun(); break;
        default: take_link(message);
    }
}

void InterfaceTable::end_dump(bool whole) {
    dumping_ = false;
    if (!whole || interrupted_) wanted_ = true;
    // What was lost while it went on may be what it did not have.
    if (wanted_) return;
    std::erase_if(known_, [&](const auto& entry) { return entry.second.dump != dump_; });
}

void InterfaceTable::take_link(const nlmsghdr* message) {
    if (message->nlmsg_type != RTM_NEWLINK && message->nlmsg_type != RTM_DELLINK) return;
    if (message->nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) return;
    const auto* body = static_cast<const ifinfomsg*>(NLMSG_DATA(message));
    if (body->ifi_family != AF_UNSPEC) return;  // a bridge's ports
    const auto ifindex = static_cast<uint32_t>(body->ifi_index);
    if (message->nlmsg_type == RTM_DELLINK) {
        known_.erase(ifindex);
        return;
    }
    const auto* first = static_cast<const char*>(static_cast<const void*>(message));
    constexpr size_t kBefore = NLMSG_ALIGN(NLMSG_LENGTH(sizeof(ifinfomsg)));
    const NetlinkAttributes facts(std::span(first, message->nlmsg_len).subspan(kBefore));
    if (facts.text(IFLA_IFNAME).empty()) return;
    InterfaceState state;
    state.ifindex = ifindex;
    state.name = facts.text(IFLA_IFNAME);
    state.up = has_link(*body);
    state.promiscuous = (body->ifi_flags & IFF_PROMISC) != 0;
    state.mtu = facts.number(IFLA_MTU).value_or(0);
    state.kind = facts.nested(IFLA_LINKINFO).text(IFLA_INFO_KIND);
    state.bus = facts.text(IFLA_PARENT_DEV_BUS_NAME);
    state.master = facts.number(IFLA_MASTER).value_or(0);
    state.change = ++changes_;
    known_[ifindex] = {std::move(state), dump_};
}

std::optional<InterfaceState> InterfaceTable::find(const std::string& name) const {
    for (const auto& entry : known_) {
        if (entry.second.state.name == name) return entry.second.state;
    }
    return std::nullopt;
}

std::optional<InterfaceState> InterfaceTable::find(uint32_t ifindex) const {
    const auto found = known_.find(ifindex);
    if (found == known_.end()) return std::nullopt;
    return found->second.state;
}

std::vector<InterfaceState> InterfaceTable::members(uint32_t master) const {
    std::vector<InterfaceState> all;
    for (const auto& entry : known_) {
        if (master != 0 && entry.second.state.master == master) all.push_back(entry.second.state);
    }
    return all;
}

// -- the socket -------------------------------------------------------------------------------------------------------
Interfaces::Interfaces() : socket_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (!socket_ || ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        throw EngineError("cannot watch the network interfaces: " + error_text(errno));
    }
    // As large as may be; a smaller one only means that more is asked for again.
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveOctets, sizeof kReceiveOctets);
    if (!ask()) throw EngineError("cannot list the network interfaces: " + error_text(errno));
    while (!table_.complete()) receive(true);
}

// Asks for all where that is wanted now; false where it cannot.
bool Interfaces::ask() {
    const std::optional<uint32_t> number = table_.next_dump();
    if (!number) return true;
    struct {
        nlmsghdr header;
        ifinfomsg body;
    } request{};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = RTM_GETLINK;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.header.nlmsg_seq = *number;
    if (::send(socket_.get(), &request, sizeof request, 0) == sizeof request) return true;
    table_.refused();
    return false;
}

void Interfaces::read_changes() {
    while (receive(false)) {
    }
}

// False where there was nothing to receive.
bool Interfaces::receive(bool wait) {
    alignas(nlmsghdr) std::array<char, 1 << 15> octets;
    const ssize_t length = ::recv(socket_.get(), octets.data(), octets.size(), MSG_TRUNC | (wait ? 0 : MSG_DONTWAIT));
    if (length < 0 && errno != ENOBUFS) return errno == EINTR;
    if (length >= 0) table_.take(std::span(octets).first(std::min(static_cast<size_t>(length), octets.size())));
    if (length < 0 || static_cast<size_t>(length) > octets.size()) table_.overrun();
    ask();
    return true;
}

}  // namespace splitplane
