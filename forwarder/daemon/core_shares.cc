// SPDX-License-Identifier: Apache-2.0

#include "daemon/core_shares.h"

#include <algorithm>

namespace splitplane {

namespace {

uint64_t word_of(const sp_u64& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }

}  // namespace

CoreShares read_core_shares(const sp_arrays& arrays) {
    CoreShares shares;
    for (uint32_t cpu = 0; cpu < arrays.cpus; ++cpu) {
        const std::span routers(arrays.core_routers + size_t{cpu} * SP_VRFS, SP_VRFS);
        bool any = false;
        for (uint32_t slot = 0; slot < SP_VRFS; ++slot) {
            const uint64_t spent = word_of(routers[slot].spent);
            if (spent == 0) continue;
            any = true;
            const uint32_t id = __atomic_load_n(&arrays.vrfs[slot].id, __ATOMIC_RELAXED);  // it may go at any time
            if (slot == 0 || id == 0) continue;  // nobody's, or of a router that is gone
            CoreTime& time = shares.routers[id];
            time.ns += spent;
            time.over_share += word_of(routers[slot].dropped);
        }
        const uint64_t level = word_of(arrays.cores[cpu].level);
        if (!any || level == 0) continue;
        shares.levels.push_back({cpu, static_cast<uint32_t>(level * SP_SHARE_WHOLE / SP_CORE_WHOLE)});
    }
    return shares;
}

}  // namespace splitplane
