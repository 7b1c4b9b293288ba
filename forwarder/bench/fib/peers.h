// SPDX-License-Identifier: Apache-2.0
//
// The libraries that bench/fib compares with, behind one face.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace splitplane::bench {

struct Route {
    uint64_t high, low;  // the address, IPv4 in the first 32 bits
    uint32_t length;
    uint32_t table;
    uint32_t nexthop;  // 1 to 255
};

struct Destinations {
    bool ipv6 = false;
    std::vector<uint32_t> tables;
    std::vector<uint32_t> ipv4;      // host order
    std::vector<uint64_t> ipv6_numbers;  // two for each
    std::vector<uint8_t> ipv6_octets;    // sixteen for each
    size_t size() const { return tables.size(); }
};

class Peer {
  public:
    virtual ~Peer() = default;
    // Look all of them up in bursts, one table a burst if there is only one, else packet by packet; nexthops are
    // written round and round into `found`, of a burst's size, or all of them where it is as long as that.
    virtual void look_up(const Destinations& destinations, std::vector<uint64_t>& found) = 0;
};

inline constexpr uint32_t kBurst = 64;

// Null where the library, or the memory that it takes, is not to be had; `why` says it.
std::unique_ptr<Peer> make_rte_fib(const std::vector<Route>& routes, uint32_t tables, bool ipv6, std::string& why);
std::unique_ptr<Peer> make_rte_lpm(const std::vector<Route>& routes, uint32_t tables, bool ipv6, std::string& why);

}  // namespace splitplane::bench
