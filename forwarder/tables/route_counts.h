// SPDX-License-Identifier: Apache-2.0
//
// Packets and octets by route, where they are wanted: estimated by samples, so that no packet pays for a counter of its
// route.
//
//     ring ─► take(): waits ─► settle(), with the tables' lock: the longest prefix has so many more ─► of()
//
// A sample stands for `one_in` packets, and for its part of those samples that were chosen and did not come: policed, or
// without room. So all routes together have what was routed, as far as chance goes; of a route with n samples one
// standard deviation is 1/√n of its count, or less.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tables/routes.h"

namespace splitplane {

// A packet that was routed, of a router by its slot; octets of the frame without a tag.
struct RoutedPacket {
    uint32_t vrf;
    Family family;
    Prefix destination;
    uint32_t octets;
};

class RouteCounts {
  public:
    static constexpr size_t kMostWaiting = 1u << 16;  // 2 MiB; 6 s of the samples that there are by default

    RouteCounts(const sp_arrays& arrays, const SampleRate& rate);

    bool kept() const { return rate_.count_routes; }
    // Samples for which there was no room. Any thread.
    uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

    // Keep a sample until the next settle(). Any thread, and it waits for nobody who has the tables. Returns how many
    // wait.
    size_t take(const RoutedPacket& sample);

    // All else with the tables' lock.
    void settle(const Routes& routes);
    Count of(const RouteAt& route) const;
    void forget(const RouteAt& route) {
        if (kept()) {
            counts_.erase(route);
        }
    }
    void clear() { counts_.clear(); }

  private:
    struct Tally {
        double packets = 0;
        double octets = 0;
    };

    uint64_t lost() const;

    const sp_arrays& arrays_;
    const SampleRate rate_;
    std::unordered_map<RouteAt, Tally, RouteAtHash> counts_;  // of routes that have any
    std::atomic<uint64_t> dropped_{0};
    uint64_t settled_lost_;               // of lost()
    std::vector<RoutedPacket> settling_;  // empty, but keeps its room

    std::mutex mutex_;  // of what follows
    std::vector<RoutedPacket> waiting_;
};

}  // namespace splitplane
