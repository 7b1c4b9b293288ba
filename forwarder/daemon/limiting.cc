// SPDX-License-Identifier: Apache-2.0

#include "daemon/limiting.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>

namespace splitplane {

namespace {

constexpr uint64_t kSaturated = 95;  // percent
constexpr uint64_t kLeastTicks = 50;  // half a second: of less no share is certain
constexpr std::chrono::seconds kBetweenSamples{1};
constexpr size_t kSoftirq = 6;  // of the numbers behind a CPU's name, man 5 proc; the last two are in others
constexpr size_t kTimes = 8;

// What the kernel and drivers call lost on the way in.
uint64_t received(const PortLosses& port) {
    uint64_t frames = 0;
    for (const DeviceLoss& loss : port.device) {
        if (!loss.counter.starts_with("tx")) frames += loss.frames;
    }
    return frames;
}

uint64_t sent(const PortLosses& port) { return std::accumulate(port.egress.begin(), port.egress.end(), uint64_t{0}); }

// How much more of the same port there is now; a counter that begins anew counts nothing.
template <typename Frames>
uint64_t risen(const Load& before, const PortLosses& now, Frames frames) {
    const auto earlier = std::ranges::find(before.losses, now.port, &PortLosses::port);
    if (earlier == before.losses.end()) return 0;
    return frames(now) > frames(*earlier) ? frames(now) - frames(*earlier) : 0;
}

}  // namespace

AllCpuTimes cpu_times(std::string_view text) {
    AllCpuTimes all;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string name;
        words >> name;
        uint32_t cpu = 0;
        const char* end = name.data() + name.size();
        if (!name.starts_with("cpu") || name == "cpu") continue;
        if (std::from_chars(name.data() + 3, end, cpu).ptr != end) continue;
        CpuTimes& times = all[cpu];
        uint64_t ticks = 0;
        for (size_t at = 0; at < kTimes && words >> ticks; ++at) {
            times.all += ticks;
            if (at == kSoftirq) times.softirq = ticks;
        }
    }
    return all;
}

std::vector<Limit> limits_between(const Load& before, const Load& now) {
    std::vector<Limit> limits;
    for (const auto& [cpu, times] : now.cpus) {
        const auto earlier = before.cpus.find(cpu);
        if (earlier == before.cpus.end() || times.all <= earlier->second.all) continue;
        const uint64_t all = times.all - earlier->second.all;
        const uint64_t share = (times.softirq - earlier->second.softirq) * 100 / all;
        if (all < kLeastTicks || share < kSaturated) continue;
        limits.push_back({"core", "processor " + std::to_string(cpu) + ", " + std::to_string(share) +
                                      " % of its time in softirq"});
    }
    for (const CoreLevel& core : now.levels) {
        if (core.level == SP_SHARE_WHOLE) continue;
        limits.push_back({"core", "processor " + std::to_string(core.cpu) + " is shared, " +
                                      std::to_string(core.level / 10000) + " % of it for a weight of 1"});
    }
    const bool core = !limits.empty();
    for (const PortLosses& port : now.losses) {
        const std::string name = "port " + std::to_string(port.port) + ", ";
        if (const uint64_t frames = risen(before, port, received); frames != 0 && !core) {
            limits.push_back({"ring", name + std::to_string(frames) + " frames lost by its receive rings"});
        }
        if (const uint64_t frames = risen(before, port, sent); frames != 0) {
            limits.push_back({"link", name + std::to_string(frames) + " frames that it could not send"});
        }
    }
    for (const auto& [port, packets] : now.over_share) {
        const auto earlier = before.over_share.find(port);
        if (earlier == before.over_share.end() || packets <= earlier->second) continue;
        limits.push_back({"link", "port " + std::to_string(port) + ", " + std::to_string(packets - earlier->second) +
                                      " packets over their routers' shares"});
    }
    return limits;
}

// Of two samples the older is compared with while the younger is not a second old: whoever asks twice at once is told
// the same.
Limits::Seen Limits::look(Load now, std::chrono::steady_clock::time_point at) {
    const std::lock_guard guard(mutex_);
    Seen seen{{}, 0};
    while (samples_.size() > 1 && at - samples_.back().at >= kBetweenSamples) samples_.erase(samples_.begin());
    if (!samples_.empty() && at - samples_.front().at >= kBetweenSamples) {
        seen.limits = limits_between(samples_.front().load, now);
        seen.seconds = static_cast<uint64_t>(
            std::chrono::duration_cast<std::chrono::seconds>(at - samples_.front().at).count());
    }
    if (samples_.size() < 2 && (samples_.empty() || at - samples_.back().at >= kBetweenSamples)) {
        samples_.push_back({std::move(now), at});
    }
    return seen;
}

std::string processor_statistics() {
    std::ifstream file("/proc/stat");
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace splitplane
