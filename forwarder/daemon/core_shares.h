// SPDX-License-Identifier: Apache-2.0
//
// How cores are shared: what each has for a weight of 1 at present, and what routers have had of them so far.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/engine.h"

namespace splitplane {

struct CoreLevel {
    uint32_t cpu;
    uint32_t level;  // millionths of the core for a weight of 1; SP_SHARE_WHOLE: nobody is held back
};

struct CoreTime {
    uint64_t ns = 0;          // of all cores
    uint64_t over_share = 0;  // packets that were dropped because of it
};

struct CoreShares {
    std::vector<CoreLevel> levels;         // of cores that have had packets
    std::map<uint32_t, CoreTime> routers;  // by vrf_id, of those that have had packets
};

// Read while packets go on, as counters are.
CoreShares read_core_shares(const sp_arrays& arrays);

}  // namespace splitplane
