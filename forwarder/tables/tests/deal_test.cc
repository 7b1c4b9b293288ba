// SPDX-License-Identifier: Apache-2.0
//
// Places of a group: who has how many, and whose flows move.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tables/entries/deal.h"

namespace splitplane {
namespace {

using Places = std::vector<uint16_t>;

size_t count(const Places& places, uint16_t nexthop) {
    return static_cast<size_t>(std::ranges::count(places, nexthop));
}

size_t moved(const Places& before, const Places& after) {
    size_t all = 0;
    for (size_t at = 0; at < before.size(); ++at) all += before[at] != after[at];
    return all;
}

TEST(Deal, SharesComeOutEvenAtFirst) {
    for (uint32_t weight = 1; weight <= 256; ++weight) {
        const Places places = deal(std::vector<Part>{{7, weight}, {3, 1}});
        EXPECT_GE(places.size(), kLeastPlaces);
        EXPECT_EQ(count(places, 7), weight * count(places, 3)) << weight;
    }
}

TEST(Deal, TheFirstPlacesAreAllWeightsOnce) {
    Places places = deal(std::vector<Part>{{1, 2}, {2, 1}, {1, 1}});
    places.resize(4);
    EXPECT_EQ(places, (Places{1, 1, 2, 1}));
}

TEST(Deal, WhoLeavesTakesHisOwnFlowsOnly) {
    const Places before = deal(std::vector<Part>{{1, 1}, {2, 1}, {3, 1}, {4, 1}});
    const Places after = deal(std::vector<Part>{{1, 1}, {2, 1}, {4, 1}}, before);
    EXPECT_EQ(moved(before, after), count(before, 3));
    EXPECT_EQ(count(after, 3), 0u);
    for (const uint16_t nexthop : {1, 2, 4}) EXPECT_NEAR(double(count(after, nexthop)), 128 / 3.0, 1) << nexthop;
}

TEST(Deal, WhoComesTakesNoMoreThanHisShare) {
    const Places before = deal(std::vector<Part>{{1, 1}, {2, 1}, {3, 1}, {4, 1}});
    const Places after = deal(std::vector<Part>{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}}, before);
    EXPECT_EQ(moved(before, after), count(after, 5));
    EXPECT_EQ(count(after, 5), 25u) << "who has places keeps the odd ones";
}

TEST(Deal, ANexthopInPlaceOfAnotherTakesItsFlows) {
    const Places before = deal(std::vector<Part>{{1, 1}, {2, 3}});
    Places wanted = before;
    std::ranges::replace(wanted, 2, 9);
    EXPECT_EQ(deal(std::vector<Part>{{1, 1}, {9, 3}}, before), wanted);
}

// Whatever came before: all places are dealt, each share is right to one place, and no more places change than must.
TEST(Deal, HoldsForRandomChanges) {
    std::mt19937 random(18);
    for (int round = 0; round < 2000; ++round) {
        std::vector<Part> parts;
        for (uint16_t nexthop = 1; nexthop <= 8; ++nexthop) {
            if (random() % 3 != 0) parts.push_back({nexthop, 1 + uint32_t(random() % 5)});
        }
        if (parts.empty()) continue;
        const Places before = deal(parts);
        std::vector<Part> wanted;
        uint32_t weight = 0;
        for (uint16_t nexthop = 1; nexthop <= 8; ++nexthop) {
            if (random() % 3 != 0) wanted.push_back({nexthop, 1 + uint32_t(random() % 5)});
            if (!wanted.empty() && wanted.back().nexthop == nexthop) weight += wanted.back().weight;
        }
        if (wanted.empty()) continue;
        const Places after = deal(wanted, before);
        ASSERT_EQ(after.size(), before.size());
        size_t dealt = 0, least = 0;
        for (const Part& part : wanted) {
            const size_t now = count(after, part.nexthop), held = count(before, part.nexthop);
            ASSERT_NEAR(double(now), double(before.size()) * part.weight / weight, 1);
            dealt += now;
            least += now > held ? now - held : 0;
        }
        ASSERT_EQ(dealt, after.size());
        ASSERT_EQ(moved(before, after), least);
    }
}

}  // namespace
}  // namespace splitplane
