// SPDX-License-Identifier: Apache-2.0
//
// Frames built from nothing, octet by octet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace splitplane::test {

using Octets = std::vector<uint8_t>;

inline void put(Octets& to, uint64_t number, int octets) {
    for (int at = octets - 1; at >= 0; --at) to.push_back(static_cast<uint8_t>(number >> 8 * at));
}

inline Octets operator+(Octets left, const Octets& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

// Internet checksum (RFC 1071) the slow way, of an even number of octets.
inline uint16_t checksum(const Octets& octets) {
    uint32_t total = 0;
    for (size_t at = 0; at + 1 < octets.size(); at += 2) {
        total += static_cast<uint32_t>(octets[at] << 8 | octets[at + 1]);
        total = (total & 0xffff) + (total >> 16);
    }
    return static_cast<uint16_t>(~total);
}

inline Octets ethernet(uint64_t dst, uint64_t src, uint16_t ether_type, const Octets& payload, int vlan = -1,
                       int priority = 0) {
    Octets frame;
    put(frame, dst, 6);
    put(frame, src, 6);
    if (vlan >= 0) {
        put(frame, 0x8100, 2);
        put(frame, static_cast<uint64_t>(priority << 13 | vlan), 2);
    }
    put(frame, ether_type, 2);
    return frame + payload;
}

// What is not the right value is taken as it is.
struct Ipv4 {
    uint32_t dst = 0x0a020009;
    uint32_t src = 0x0a010063;
    uint8_t ttl = 64;
    uint8_t protocol = 17;
    uint16_t fragment = 0;
    Octets payload = {0x04, 0x00, 0x00, 0x35, 0x00, 0x10, 0x00, 0x00, 'p', 'a', 'y', 'l', 'o', 'a', 'd', '!'};
    Octets options = {};
    int version = 4;
    int words = -1;
    int length = -1;
    int header_checksum = -1;

    Octets octets() const {
        Octets header;
        const int real = 5 + static_cast<int>(options.size()) / 4;
        put(header, static_cast<uint64_t>(version << 4 | (words < 0 ? real : words)), 1);
        put(header, 0, 1);
        put(header, static_cast<uint64_t>(length < 0 ? real * 4 + static_cast<int>(payload.size()) : length), 2);
        put(header, 7, 2);
        put(header, fragment, 2);
        put(header, ttl, 1);
        put(header, protocol, 1);
        put(header, 0, 2);
        put(header, src, 4);
        put(header, dst, 4);
        header = header + options;
        const int sum = header_checksum < 0 ? checksum(header) : header_checksum;
        header[10] = static_cast<uint8_t>(sum >> 8);
        header[11] = static_cast<uint8_t>(sum);
        return header + payload;
    }
};

struct Ipv6 {
    uint64_t dst_high = 0x20010db800020000;
    uint64_t dst_low = 9;
    uint64_t src_high = 0x20010db800010000;
    uint64_t src_low = 0x63;
    uint8_t ttl = 64;
    uint8_t next_header = 17;
    Octets payload = Ipv4{}.payload;
    int version = 6;
    int length = -1;

    Octets octets() const {
        Octets header;
        put(header, static_cast<uint64_t>(version) << 28, 4);
        put(header, static_cast<uint64_t>(length < 0 ? static_cast<int>(payload.size()) : length), 2);
        put(header, next_header, 1);
        put(header, ttl, 1);
        put(header, src_high, 8);
        put(header, src_low, 8);
        put(header, dst_high, 8);
        put(header, dst_low, 8);
        return header + payload;
    }
};

}  // namespace splitplane::test
