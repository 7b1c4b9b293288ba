// SPDX-License-Identifier: Apache-2.0
//
// Where router interfaces send, by id, for packet-outs: found without the tables' lock, so that none waits behind route
// work.
//
//     word = id << 32 | kPresent | VLAN << 16 | port        0: free; kGone: was one, and others behind it may be
//
// Open addressing. One writer at a time, who holds the tables' lock; readers at any time. What is found is one word and
// so never half of a change, and no word moves: who looks for what stays finds it, whatever is written meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

extern "C" {
#include "pipeline/layout.h"
}

#include "fib/zeroed_array.h"

namespace splitplane {

struct WayOut {
    uint32_t port;
    uint16_t vlan;  // 0: untagged
    bool operator==(const WayOut&) const = default;
};

class WaysOut {
  public:
    // At most SP_INTERFACES at a time.
    void set(uint32_t router_interface_id, WayOut way);
    void remove(uint32_t router_interface_id);
    // Any thread.
    std::optional<WayOut> find(uint32_t router_interface_id) const;

  private:
    static constexpr uint32_t kPlaces = 4 * SP_INTERFACES;  // three of four stay free, so that ways are short
    static constexpr uint64_t kPresent = 1u << 31, kGone = 1;
    using Word = std::atomic_ref<uint64_t>;

    Word word(uint32_t place) const { return Word(words_[place % kPlaces]); }
    static uint32_t first_place(uint32_t id) { return static_cast<uint32_t>(id * 0x9e3779b1ull) % kPlaces; }
    static bool is(uint64_t word, uint32_t id) { return (word & kPresent) != 0 && word >> 32 == id; }

    mutable ZeroedArray<uint64_t> words_{kPlaces};  // atomic_ref is not for constants, not even to load
};

}  // namespace splitplane
