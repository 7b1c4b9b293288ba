// SPDX-License-Identifier: Apache-2.0
//
// Requests to the kernel over netlink, and the attributes in what it answers.
#pragma once

#include <linux/netlink.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace splitplane {

// The attributes of a message or of an attribute that nests others: the payload of one of them, empty where it is not
// there.
class NetlinkAttributes {
  public:
    explicit NetlinkAttributes(std::span<const char> octets) : octets_(octets) {}

    std::span<const char> payload(uint16_t type) const;
    NetlinkAttributes nested(uint16_t type) const { return NetlinkAttributes(payload(type)); }
    // Each of a type, for lists.
    std::vector<std::span<const char>> all() const;
    std::optional<uint32_t> number(uint16_t type) const;     // 32 bits
    std::optional<uint64_t> long_number(uint16_t type) const;  // 64 bits
    std::string text(uint16_t type) const;

  private:
    std::span<const char> octets_;
};

// A request as it is put together.
class NetlinkRequest {
  public:
    NetlinkRequest(uint16_t type, uint16_t flags);

    // What stands between header and attributes.
    template <typename Body>
    NetlinkRequest& body(const Body& body) {
        append(&body, sizeof body);
        return *this;
    }
    NetlinkRequest& attribute(uint16_t type, const void* payload, size_t octets);
    NetlinkRequest& attribute(uint16_t type, uint32_t number) { return attribute(type, &number, sizeof number); }
    NetlinkRequest& attribute(uint16_t type, const std::string& text) {
        return attribute(type, text.c_str(), text.size() + 1);
    }
    // What is added until end_nest() is inside of this one.
    NetlinkRequest& begin_nest(uint16_t type);
    NetlinkRequest& end_nest();
    std::span<const char> octets();

  private:
    void append(const void* from, size_t octets);

    std::vector<char> octets_;
    size_t nest_ = 0;
};

struct NetlinkAnswer {
    int error = 0;                       // an errno value; 0: done
    std::string words;                   // what the kernel says of an error (NLMSGERR_ATTR_MSG), empty where nothing
    std::vector<std::vector<char>> messages;  // without their headers
};

// Send a request on a socket of its own and wait for its answer.
NetlinkAnswer ask_netlink(int protocol, NetlinkRequest& request);

// What an NLMSG_ERROR says: an errno value, 0 for an acknowledgement, and the kernel's own words.
NetlinkAnswer answer_of(const nlmsghdr* error);

}  // namespace splitplane
