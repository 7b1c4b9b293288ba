// SPDX-License-Identifier: Apache-2.0
//
// What keeps the forwarder from forwarding more: found by what was lost, and what processors did, since a while ago.
//
//     core   a processor does nothing but receive (softirq), or is shared by routers that ask for more than it has
//     ring   a device had received frames, and its receive ring had no room
//     link   what was forwarded did not leave by its port, or routers had more for it than their shares
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core_shares.h"
#include "engine/engine.h"
#include "engine/losses.h"

namespace splitplane {

// What a processor has done, in ticks of the kernel's.
struct CpuTimes {
    uint64_t softirq = 0;
    uint64_t all = 0;
};

// By the CPU's number; none of one that is offline.
using AllCpuTimes = std::map<uint32_t, CpuTimes>;

// From the text of /proc/stat.
AllCpuTimes cpu_times(std::string_view text);

struct Load {
    AllCpuTimes cpus;
    std::vector<PortLosses> losses;
    std::vector<CoreLevel> levels{};
    std::map<uint32_t, uint64_t> over_share = {};  // packets over their routers' shares of a link, by port
};

struct Limit {
    std::string kind;    // "core", "ring", "link"
    std::string detail;  // one line: which, and how much of what
};

// What limited between two loads. Where a core was at its limit its rings overflow, so that they are not named.
std::vector<Limit> limits_between(const Load& before, const Load& now);

// Remembers a load of some seconds ago. Any thread.
class Limits {
  public:
    struct Seen {
        std::vector<Limit> limits;
        uint64_t seconds;  // that they are of; 0: there is nothing to compare with yet
    };
    // Compare with what was remembered, and remember `now` where that is old enough to be forgotten.
    Seen look(Load now, std::chrono::steady_clock::time_point at);

  private:
    struct Sample {
        Load load;
        std::chrono::steady_clock::time_point at;
    };
    std::mutex mutex_;
    std::vector<Sample> samples_;  // two at most, the older first
};

// /proc/stat of now; nothing where it cannot be read.
std::string processor_statistics();

}  // namespace splitplane
