// SPDX-License-Identifier: Apache-2.0
//
// Which nexthop has which place of a group: a flow's hash chooses a place, so a flow moves when its place does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace splitplane {

// A nexthop's slot and how much of the group it is to have.
struct Part {
    uint16_t nexthop;
    uint32_t weight;
};

inline constexpr uint32_t kLeastPlaces = 128;  // a share that does not come out even is off by less than 1 %

// How many places a group of such a weight, which is not 0, begins with: each unit of it has as many.
constexpr uint32_t places_for(uint32_t weight) { return (kLeastPlaces + weight - 1) / weight * weight; }

// Deal as many places as `before` has, where that is as many as all weights together or more. A nexthop keeps the places
// that it had, as long as it is to have so many; those that become free go to whoever has too few. How many each has is
// its share by largest remainder; where remainders are equal, whoever has more keeps it.
std::vector<uint16_t> deal(std::span<const Part> parts, std::span<const uint16_t> before);

// Deal places_for() all weights: in turns, so that the first of the places are dealt as a group of no more than the
// weights would be.
std::vector<uint16_t> deal(std::span<const Part> parts);

}  // namespace splitplane
