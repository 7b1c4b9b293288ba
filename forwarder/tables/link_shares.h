// SPDX-License-Identifier: Apache-2.0
//
// What each link is divided into (pipeline/link_share.h): the ports' speeds, and who sends by them with what share.
//
//     interface_classifier ─► whose an interface is ─┐
//     router_interface ─► its port ──────────────────┼─► routers on a port ─► slices on a port ─► the port
//     router_shares, slice_shares ───────────────────┘
//
// A router that has several interfaces on a port has one share of it all the same. A slice is guaranteed at least what
// its routers on the port are, together.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

extern "C" {
#include "pipeline/layout.h"
}

#include "fib/zeroed_array.h"
#include "tables/free_slots.h"

namespace splitplane {

// How a link is, in bits of the wire a second.
struct LinkStatus {
    uint64_t speed = 0;  // 0: it is not shared, and nothing else is known
    uint64_t use = 0;    // of the last milliseconds; what routers' own buckets had no room for is not in it
    uint64_t level = 0;  // what a weight of 1 may take
    bool contended = false;
    uint64_t over_share = 0;  // packets dropped, since this process began
};

// Any thread.
class LinkShares {
  public:
    explicit LinkShares(sp_arrays& arrays);

    // An entry says that an interface is a router's, or one that did so no longer does; by their slots. What sends is
    // divided by the next divide().
    void entered(uint32_t interface, uint32_t vrf);
    void left(uint32_t interface);
    // Entries that say who sends by which port, or with what share, are others than before.
    void divide();
    // The speed of a port, bits a second, kLeast to kMost; 0: it is not shared.
    void set_speed(uint32_t port, uint64_t bits_per_s);
    static constexpr uint64_t kLeast = 1'000'000, kMost = 400'000'000'000;

    // `now_ns`: of the engine's clock, CLOCK_MONOTONIC.
    LinkStatus status(uint32_t port, uint64_t now_ns) const;

  private:
    using OnPort = std::pair<uint32_t, uint32_t>;  // the port, and the slot of a router or a slice
    // Slots of an array, each for who has it on a port. Slot 0 is nobody's.
    class Pool {
      public:
        explicit Pool(uint32_t size) : free_(1, size) {}
        uint32_t acquire(OnPort whom);  // the one it has, or the lowest free one; 0 where none is left
        std::vector<std::pair<OnPort, uint32_t>> release_others(const std::set<OnPort>& those);
        const std::map<OnPort, uint32_t>& taken() const { return taken_; }

      private:
        std::map<OnPort, uint32_t> taken_;
        FreeSlots free_;
    };
    struct Owner {
        uint32_t vrf = 0;
        uint32_t entries = 0;  // that say so
    };
    // What is on a port while that is divided.
    struct Division {
        std::set<OnPort> routers, slices;
        std::map<OnPort, uint64_t> guaranteed;  // to the routers of a slice, millionths
        std::vector<bool> has_ceiling = std::vector<bool>(SP_PORTS);
    };

    void divide_now();
    void write_router(OnPort whom, Division& division);
    void write_slice(OnPort whom, Division& division);
    void write_port(uint32_t port, bool has_ceiling);
    uint64_t part(uint32_t port, uint64_t millionths) const;
    uint64_t dropped(uint32_t slot) const;

    sp_arrays& arrays_;
    mutable std::mutex mutex_;  // of what follows
    ZeroedArray<Owner> owners_{SP_INTERFACES};
    std::vector<uint64_t> speeds_ = std::vector<uint64_t>(SP_PORTS);  // bits a second
    Pool routers_{SP_LINK_ROUTERS}, slices_{SP_LINK_SLICES};
    std::vector<uint64_t> dropped_ = std::vector<uint64_t>(SP_PORTS);  // in slots that routers have given up
};

}  // namespace splitplane
