// SPDX-License-Identifier: Apache-2.0
//
// The writer of the route tries: longest prefix match for every VRF in one array of words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

extern "C" {
#include "pipeline/layout.h"
}

#include "fib/arena.h"

namespace splitplane {

enum class Family : uint8_t { kIpv4 = 0, kIpv6 = 1 };

// A prefix of either family: the address in network order from the first octet on, IPv4 in the first four; bits behind
// `length` are zero.
struct Prefix {
    std::array<uint8_t, 16> address{};
    uint8_t length = 0;
    bool operator==(const Prefix&) const = default;
};

enum class FibResult : uint8_t {
    kDone,
    kFull,     // no room for leaves, a root or the route itself; nothing was changed
    kMissing,  // there is no such route
};

// Octets, unless it says otherwise.
struct FibMemory {
    size_t trie_total;    // of the array `words`
    size_t trie_used;     // by blocks and roots
    size_t trie_waiting;  // unpublished, for a grace period
    size_t trie_peak;     // up to the last block that was ever given out: what was touched
    size_t store;         // of the routes as the control plane keeps them, with their nodes
    size_t store_peak;
    size_t nodes;         // number of the store's nodes
};

// All calls from one thread at a time; readers of the arrays at any time (pipeline/trie.h). Each address is looked up
// by the old table or by the new one, never by anything between. `vrf` is a slot below SP_VRFS.
class Fib {
  public:
    Fib(sp_arrays& arrays, GracePeriods& grace);
    ~Fib();
    Fib(const Fib&) = delete;
    Fib& operator=(const Fib&) = delete;

    // Insert or replace; `leaf` is an sp_leaf() and not 0. kDone or kFull.
    FibResult set(uint32_t vrf, Family family, const Prefix& prefix, uint32_t leaf);
    // kDone or kMissing; kFull only where a table with other routes in the place of this one would need more room than
    // is kept back for deletions (a sixteenth of the array).
    FibResult erase(uint32_t vrf, Family family, const Prefix& prefix);

    // The leaf of exactly this prefix; 0: none.
    uint32_t find(uint32_t vrf, Family family, const Prefix& prefix) const;
    // The longest prefix with a route that covers an address, a prefix of full length; none: no route does.
    std::optional<Prefix> longest(uint32_t vrf, Family family, const Prefix& address) const;
    // The first route behind `cursor` (the first of all where it has none) in order of address, then length, which
    // becomes the cursor. False: there is none.
    bool next(uint32_t vrf, Family family, std::optional<Prefix>& cursor, uint32_t& leaf) const;

    // The first table from this one on that has routes; SP_VRFS where none has.
    uint32_t next_used(uint32_t vrf, Family family) const;

    size_t size(uint32_t vrf, Family family) const;
    size_t size(Family family) const;
    FibMemory memory() const;
    // Wait until what was unpublished is free again.
    void settle();

  private:
    class Tables;
    std::unique_ptr<Tables> tables_;
};

}  // namespace splitplane
