// SPDX-License-Identifier: Apache-2.0
#include "tables/route_counts.h"

#include <cmath>

namespace splitplane {

RouteCounts::RouteCounts(const sp_arrays& arrays, const SampleRate& rate)
    : arrays_(arrays), rate_(rate), settled_lost_(lost()) {}

// Samples that were chosen and did not come, so far; those of the processes before are among them.
uint64_t RouteCounts::lost() const {
    uint64_t lost = dropped();
    for (uint32_t cpu = 0; cpu < arrays_.cpus; ++cpu) {
        const sp_u64* counters = arrays_.engine_counters + size_t{cpu} * SP_ENGINE_COUNTERS;
        lost += __atomic_load_n(&counters[SP_COUNT_SAMPLE_POLICED], __ATOMIC_RELAXED) +
                __atomic_load_n(&counters[SP_COUNT_SAMPLE_RING_FULL], __ATOMIC_RELAXED);
    }
    return lost;
}

size_t RouteCounts::take(const RoutedPacket& sample) {
    std::lock_guard guard(mutex_);
    if (waiting_.size() < kMostWaiting) {
        waiting_.push_back(sample);
    } else {
        dropped_.fetch_add(1, std::memory_order_relaxed);
    }
    return waiting_.size();
}

// What was lost while none came counts for those that come next.
void RouteCounts::settle(const Routes& routes) {
    if (!kept()) {
        return;
    }
    {
        std::lock_guard guard(mutex_);
        settling_.swap(waiting_);
    }
    if (settling_.empty()) {
        return;
    }
    const uint64_t lost = this->lost();
    const double came = static_cast<double>(settling_.size());
    const double packets = rate_.one_in * (1 + static_cast<double>(lost - settled_lost_) / came);
    settled_lost_ = lost;
    for (const RoutedPacket& one : settling_) {
        if (const auto prefix = routes.longest(one.vrf, one.family, one.destination)) {
            Tally& tally = counts_[{one.vrf, one.family, *prefix}];
            tally.packets += packets;
            tally.octets += packets * one.octets;
        }
    }
    settling_.clear();
}

Count RouteCounts::of(const RouteAt& route) const {
    const auto found = counts_.find(route);
    if (found == counts_.end()) {
        return {};
    }
    return {static_cast<uint64_t>(std::llround(found->second.packets)),
            static_cast<uint64_t>(std::llround(found->second.octets))};
}

}  // namespace splitplane
