// SPDX-License-Identifier: Apache-2.0

#include "engine/netdev/netlink.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/descriptor.h"

namespace splitplane {
namespace {

constexpr uint16_t kTypeMask = 0x3fff;  // NLA_TYPE_MASK

template <typename Number>
std::optional<Number> number_in(std::span<const char> payload) {
    Number number;
    if (payload.size() < sizeof number) return std::nullopt;
    std::memcpy(&number, payload.data(), sizeof number);
    return number;
}

// Calls `each` with type and payload until it says true.
template <typename Each>
void walk(std::span<const char> octets, const Each& each) {
    while (octets.size() >= NLA_HDRLEN) {
        nlattr head;
        std::memcpy(&head, octets.data(), sizeof head);
        if (head.nla_len < NLA_HDRLEN || head.nla_len > octets.size()) return;
        if (each(head.nla_type & kTypeMask, octets.subspan(NLA_HDRLEN, head.nla_len - NLA_HDRLEN))) return;
        octets = octets.subspan(std::min<size_t>(NLA_ALIGN(head.nla_len), octets.size()));
    }
}

}  // namespace

std::span<const char> NetlinkAttributes::payload(uint16_t type) const {
    std::span<const char> found;
    walk(octets_, [&](uint16_t each, std::span<const char> payload) {
        if (each == type) found = payload;
        return each == type;
    });
    return found;
}

std::vector<std::span<const char>> NetlinkAttributes::all() const {
    std::vector<std::span<const char>> all;
    walk(octets_, [&](uint16_t, std::span<const char> payload) {
        all.push_back(payload);
        return false;
    });
    return all;
}

std::optional<uint32_t> NetlinkAttributes::number(uint16_t type) const { return number_in<uint32_t>(payload(type)); }

std::optional<uint64_t> NetlinkAttributes::long_number(uint16_t type) const {
    return number_in<uint64_t>(payload(type));
}

std::string NetlinkAttributes::text(uint16_t type) const {
    const std::span<const char> octets = payload(type);
    return {octets.begin(), std::ranges::find(octets, '\0')};
}

NetlinkRequest::NetlinkRequest(uint16_t type, uint16_t flags) {
    const nlmsghdr header{0, type, static_cast<uint16_t>(flags | NLM_F_REQUEST | NLM_F_ACK), 1, 0};
    append(&header, sizeof header);
}

void NetlinkRequest::append(const void* from, size_t octets) {
    const auto* first = static_cast<const char*>(from);
    octets_.insert(octets_.end(), first, first + octets);
    octets_.resize(NLMSG_ALIGN(octets_.size()));
}

NetlinkRequest& NetlinkRequest::attribute(uint16_t type, const void* payload, size_t octets) {
    const nlattr head{static_cast<uint16_t>(NLA_HDRLEN + octets), type};
    append(&head, sizeof head);
    append(payload, octets);
    return *this;
}

NetlinkRequest& NetlinkRequest::begin_nest(uint16_t type) {
    nest_ = octets_.size();
    return attribute(type | NLA_F_NESTED, nullptr, 0);
}

NetlinkRequest& NetlinkRequest::end_nest() {
    const auto octets = static_cast<uint16_t>(octets_.size() - nest_);
    std::memcpy(octets_.data() + nest_, &octets, sizeof octets);
    return *this;
}

std::span<const char> NetlinkRequest::octets() {
    const auto octets = static_cast<uint32_t>(octets_.size());
    std::memcpy(octets_.data(), &octets, sizeof octets);
    return octets_;
}

NetlinkAnswer answer_of(const nlmsghdr* message) {
    NetlinkAnswer answer;
    if (message->nlmsg_len < NLMSG_LENGTH(sizeof(nlmsgerr))) return {EPROTO, "", {}};
    const auto* error = static_cast<const nlmsgerr*>(NLMSG_DATA(message));
    answer.error = -error->error;
    // The request stands before the words unless the socket asked for an acknowledgement without it.
    size_t before = NLMSG_LENGTH(sizeof(nlmsgerr));
    if ((message->nlmsg_flags & NLM_F_CAPPED) == 0) before += NLMSG_ALIGN(error->msg.nlmsg_len) - sizeof(nlmsghdr);
    if ((message->nlmsg_flags & NLM_F_ACK_TLVS) != 0 && before < message->nlmsg_len) {
        const auto* first = reinterpret_cast<const char*>(message);
        answer.words = NetlinkAttributes({first + before, message->nlmsg_len - before}).text(NLMSGERR_ATTR_MSG);
    }
    return answer;
}

NetlinkAnswer ask_netlink(int protocol, NetlinkRequest& request) {
    NetlinkAnswer answer;
    const Descriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
    const int on = 1;
    ::setsockopt(socket.get(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on);
    ::setsockopt(socket.get(), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on);
    const std::span<const char> octets = request.octets();
    if (!socket || ::send(socket.get(), octets.data(), octets.size(), 0) < 0) return {errno, "", {}};
    while (true) {
        alignas(nlmsghdr) std::array<char, 1 << 15> received;
        const ssize_t length = ::recv(socket.get(), received.data(), received.size(), 0);
        if (length < 0 && errno == EINTR) continue;
        if (length < 0) return {errno, "", {}};
        auto left = static_cast<unsigned>(length);
        for (auto* message = reinterpret_cast<nlmsghdr*>(received.data()); NLMSG_OK(message, left);
             message = NLMSG_NEXT(message, left)) {
            if (message->nlmsg_type == NLMSG_ERROR) {
                NetlinkAnswer last = answer_of(message);
                answer.error = last.error;
                answer.words = std::move(last.words);
                return answer;
            }
            const auto* first = static_cast<const char*>(NLMSG_DATA(message));
            answer.messages.emplace_back(first, first + (message->nlmsg_len - NLMSG_HDRLEN));
        }
    }
}

}  // namespace splitplane
