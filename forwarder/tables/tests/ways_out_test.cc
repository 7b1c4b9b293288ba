// SPDX-License-Identifier: Apache-2.0
#include "tables/ways_out.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

namespace splitplane {
namespace {

constexpr uint32_t kPlaces = 4 * SP_INTERFACES;

TEST(WaysOut, AreWhatWasSetLast) {
    WaysOut ways;
    std::map<uint32_t, WayOut> wanted;
    std::mt19937 draw(1);
    for (int round = 0; round < 200'000; ++round) {
        // Many of the ids begin at the same place, and 0 is one of them.
        const uint32_t id = draw() % 64 * kPlaces + draw() % 8;
        if (draw() % 3 == 0) {
            ways.remove(id);
            wanted.erase(id);
        } else {
            const WayOut way{static_cast<uint32_t>(1 + draw() % (SP_PORTS - 1)),
                             static_cast<uint16_t>(draw() % SP_VLANS)};
            ways.set(id, way);
            wanted[id] = way;
        }
        const uint32_t asked = draw() % 64 * kPlaces + draw() % 8;
        const auto found = wanted.find(asked);
        ASSERT_EQ(ways.find(asked), found == wanted.end() ? std::nullopt : std::optional(found->second));
    }
}

TEST(WaysOut, AllInterfacesFindRoom) {
    WaysOut ways;
    for (int time = 0; time < 8; ++time) {
        const uint32_t first = static_cast<uint32_t>(time) * 1'000'003;
        for (uint32_t id = first; id < first + SP_INTERFACES; ++id) ways.set(id, {1 + id % 500, 0});
        for (uint32_t id = first; id < first + SP_INTERFACES; ++id) ASSERT_EQ(ways.find(id)->port, 1 + id % 500);
        for (uint32_t id = first; id < first + SP_INTERFACES; ++id) ways.remove(id);
        for (uint32_t id = first; id < first + SP_INTERFACES; ++id) ASSERT_FALSE(ways.find(id));
    }
}

// Others come and go on the way to one that changes: it is always found, and never half of it.
TEST(WaysOut, AReaderFindsWhatIsThereWholeWhileOthersAreWritten) {
    WaysOut ways;
    const uint32_t before = 7, kept = before + kPlaces, behind = kept + kPlaces;
    ways.set(before, {1, 1});
    ways.set(kept, {2, 2});
    ways.set(behind, {3, 3});
    std::atomic<bool> done{false};
    std::thread writer([&] {
        for (uint32_t round = 0; round < 100'000; ++round) {
            ways.remove(round % 2 ? before : behind);
            ways.set(kept, {2 + round % 100, static_cast<uint16_t>(2 + round % 100)});
            ways.set(round % 2 ? before : behind, {1, 1});
        }
        done = true;
    });
    uint64_t lost = 0, torn = 0;
    do {
        const auto way = ways.find(kept);
        lost += !way;
        torn += way && way->port != way->vlan;
    } while (!done);
    writer.join();
    EXPECT_EQ(lost, 0u);
    EXPECT_EQ(torn, 0u);
}

}  // namespace
}  // namespace splitplane
