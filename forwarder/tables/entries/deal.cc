// SPDX-License-Identifier: Apache-2.0
#include "tables/entries/deal.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace splitplane {

namespace {

uint32_t weight_of(std::span<const Part> parts) {
    return std::accumulate(parts.begin(), parts.end(), 0u, [](uint32_t sum, const Part& part) {
        return sum + part.weight;
    });
}

// A nexthop that is dealt places.
struct Holder {
    uint16_t nexthop;
    uint64_t weight = 0;
    uint32_t held = 0;   // of the places before
    uint32_t quota = 0;  // places that it is to have
    uint32_t kept = 0;   // that it has now
};

// Parts of one nexthop together, in their order, and what each of them held.
std::vector<Holder> holders_of(std::span<const Part> parts, std::span<const uint16_t> before) {
    std::vector<Holder> all;
    std::map<uint16_t, size_t> at;
    for (const Part& part : parts) {
        const auto [found, is_new] = at.try_emplace(part.nexthop, all.size());
        if (is_new) {
            all.push_back({part.nexthop});
        }
        all[found->second].weight += part.weight;
    }
    for (const uint16_t nexthop : before) {
        if (const auto found = at.find(nexthop); found != at.end()) {
            ++all[found->second].held;
        }
    }
    return all;
}

// Largest remainder.
void set_quotas(std::vector<Holder>& holders, uint64_t places) {
    const uint64_t whole = std::accumulate(holders.begin(), holders.end(), uint64_t{0},
                                           [](uint64_t sum, const Holder& one) { return sum + one.weight; });
    std::vector<Holder*> by_remainder;
    uint64_t left = places;
    for (Holder& one : holders) {
        one.quota = static_cast<uint32_t>(places * one.weight / whole);
        left -= one.quota;
        by_remainder.push_back(&one);
    }
    std::ranges::stable_sort(by_remainder, [&](const Holder* first, const Holder* second) {
        const uint64_t remainder = places * first->weight % whole, other = places * second->weight % whole;
        return remainder != other ? remainder > other : first->held > second->held;
    });
    for (uint64_t at = 0; at < left; ++at) {
        ++by_remainder[at]->quota;
    }
}

}  // namespace

std::vector<uint16_t> deal(std::span<const Part> parts, std::span<const uint16_t> before) {
    std::vector<Holder> holders = holders_of(parts, before);
    set_quotas(holders, before.size());
    std::map<uint16_t, Holder*> holder_of;
    for (Holder& one : holders) {
        holder_of[one.nexthop] = &one;
    }
    std::vector<uint16_t> places(before.begin(), before.end());
    std::vector<size_t> free;
    for (size_t at = 0; at < places.size(); ++at) {
        const auto found = holder_of.find(places[at]);
        if (found != holder_of.end() && found->second->kept < found->second->quota) {
            ++found->second->kept;
        } else {
            free.push_back(at);
        }
    }
    auto taker = holders.begin();
    for (const size_t at : free) {
        while (taker->kept == taker->quota) {
            ++taker;
        }
        places[at] = taker->nexthop;
        ++taker->kept;
    }
    return places;
}

std::vector<uint16_t> deal(std::span<const Part> parts) {
    std::vector<uint16_t> turn;
    for (const Part& part : parts) {
        turn.insert(turn.end(), part.weight, part.nexthop);
    }
    std::vector<uint16_t> places;
    while (places.size() < places_for(weight_of(parts))) {
        places.insert(places.end(), turn.begin(), turn.end());
    }
    return places;
}

}  // namespace splitplane
