// SPDX-License-Identifier: Apache-2.0
#include "tables/entries/policer.h"

#include <algorithm>

namespace splitplane {

namespace {

constexpr uint64_t kNsPerS = 1'000'000'000;
constexpr uint64_t kLongestNs = uint64_t{1} << 62;

// What is due by another rate says nothing of this one: of a packet a second it may be far ahead. Returns whether it
// is another.
bool set_policer(sp_policer& policer, uint64_t interval_ns, uint64_t tolerance_ns, uint32_t shares) {
    const bool another =
        policer.shares == 0 || policer.interval_ns != interval_ns || policer.tolerance_ns != tolerance_ns;
    if (another) {
        publish(policer.due, sp_u64{0});
    }
    publish(policer.tolerance_ns, sp_u64{tolerance_ns});
    publish(policer.interval_ns, static_cast<sp_u32>(interval_ns));
    publish(policer.shares, sp_u32{shares});
    return another;
}

}  // namespace

bool set_rate(sp_policer& policer, int64_t rate, int64_t burst, uint32_t shares) {
    bool present = rate > 0 && burst > 0;
    uint64_t interval_ns = present ? kNsPerS / rate : 0;
    auto packets = static_cast<uint64_t>(std::max<int64_t>(burst, 1) - 1);
    bool endless = interval_ns != 0 && packets > kLongestNs / interval_ns;
    return set_policer(policer, interval_ns, endless ? kLongestNs : packets * interval_ns, present ? shares : 0);
}

sp_policer& Policer::at(Key key) const {
    return arrays().policers[sp_policer_index(slot_of(Space::kVrf, key.first), id_of(key.second))];
}

uint32_t Policer::shares(uint32_t vrf) const {
    return std::max(ways_in_[vrf], 1u);
}

std::vector<Reference> Policer::references(Key key, const Row&) const {
    return {{Space::kVrf, id_of(key.first)}};
}

// Only red packets are dropped, and red is what exceeds the peak rate (RFC 2698): the committed one does not matter.
Result Policer::store(Key key, const Row& row) {
    const uint32_t vrf = slot_of(Space::kVrf, key.first), into = shares(vrf);
    const std::optional<Meter>& meter = row.more().meter;
    if (meter ? set_rate(at(key), meter->pir, meter->pburst, into) : set_policer(at(key), 0, 0, into)) {
        forgive(vrf, id_of(key.second));
    }
    return {};
}

void Policer::clear(Key key) {
    publish(at(key).shares, sp_u32{0});
}

void Policer::enter(uint32_t vrf, uint32_t interface) {
    ++ways_in_[vrf];
    if (uint32_t& owed = owed_[interface]; owed != vrf) {
        owing_.erase({owed, interface});
        owing_.emplace(vrf, interface);
        owed = vrf;
        for (uint32_t each = 0; each < SP_PUNT_CLASSES; ++each) {
            publish(arrays().share_dues[sp_share_index(interface, each)], sp_u64{0});
        }
    }
    divide(vrf);
}

void Policer::leave(uint32_t vrf) {
    --ways_in_[vrf];
    divide(vrf);
}

// What the shares owe by the rate before, also those of interfaces that may come back.
void Policer::forgive(uint32_t vrf, uint32_t punt_class) {
    for (auto way = owing_.lower_bound({vrf, 0}); way != owing_.end() && way->first == vrf; ++way) {
        publish(arrays().share_dues[sp_share_index(way->second, punt_class)], sp_u64{0});
    }
}

void Policer::divide(uint32_t vrf) {
    for (uint32_t each = 0; each < SP_PUNT_CLASSES; ++each) {
        sp_policer& policer = arrays().policers[sp_policer_index(vrf, each)];
        if (policer.shares != 0) {
            publish(policer.shares, shares(vrf));
        }
    }
}

}  // namespace splitplane
