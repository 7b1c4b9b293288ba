// SPDX-License-Identifier: Apache-2.0
//
// Which slots ids are given, and what is left in those that were another's.
#include <gtest/gtest.h>

#include <thread>

#include "tables/tests/fixture.h"

namespace splitplane {
namespace {

using testing::Grace;

// Objects beside an engine whose grace periods are over at once.
struct Rig {
    MemoryEngine engine{Capacity{.words = 1u << 10, .members = 1u << 10}};
    Grace grace{engine};
    Objects objects{engine.arrays(), grace, [](Space, uint32_t, uint32_t) {}};

    Rig() { objects.restored(); }
    uint32_t acquire(Space space, uint32_t id) { return objects.acquire(space, id).value(); }
    // Ids from this one on, until one has a slot that was given up; returns how many had others.
    uint32_t acquire_until(Space space, uint32_t slot, uint32_t id) {
        uint32_t others = 0;
        while (acquire(space, id + others) != slot) {
            std::this_thread::yield();  // to the thread that waits for the grace period
            ++others;
        }
        return others;
    }
};

TEST(Slots, GiveOutTheLowestFreeOne) {
    Slots slots("number", 200, 3);
    for (uint32_t id = 0; id < 100; ++id) {
        EXPECT_EQ(slots.acquire(id)->slot, 3 + id);
    }
    for (uint32_t slot : {90u, 7u, 70u}) {
        EXPECT_TRUE(slots.release(slot));
        slots.free(slot);
    }
    for (uint32_t slot : {7u, 70u, 90u, 103u}) {
        EXPECT_EQ(slots.acquire(1000 + slot)->slot, slot);
    }
    uint32_t more = 0;
    while (slots.acquire(5000 + more)) {
        ++more;
    }
    EXPECT_EQ(more, slots.capacity() - 101);
    EXPECT_EQ(slots.used(), slots.capacity());
}

// Nexthops that come and go drifted apart until every slot had been another's once.
TEST(Slots, StayNearEachOtherWhateverComesAndGoes) {
    constexpr uint32_t kIds = 200;
    Rig rig;
    for (uint32_t id = 0; id < kIds; ++id) {
        EXPECT_EQ(rig.acquire(Space::kNexthop, id), id);
    }
    const uint64_t before = rig.engine.grace_periods();
    for (uint32_t slot = 0; slot < kIds; ++slot) {
        rig.objects.release(Space::kNexthop, slot);
    }
    while (rig.engine.grace_periods() == before) {  // on a busy machine a thread has a core late
        std::this_thread::yield();
    }
    EXPECT_LT(rig.acquire_until(Space::kNexthop, 0, kIds), SP_NEXTHOPS / 2);
}

TEST(Slots, AreUsedAgainOnlyAfterAGracePeriod) {
    Rig rig;
    const uint64_t before = rig.engine.grace_periods();
    for (uint32_t id = 0; id < SP_GROUPS; ++id) {
        rig.acquire(Space::kGroup, id);
    }
    EXPECT_FALSE(rig.objects.acquire(Space::kGroup, SP_GROUPS));
    EXPECT_EQ(rig.engine.grace_periods(), before);
    rig.objects.release(Space::kGroup, 77);
    EXPECT_EQ(rig.acquire(Space::kGroup, SP_GROUPS), 77u) << "the only one, which is waited for";
    EXPECT_EQ(rig.engine.grace_periods(), before + 1);
}

// Metrics would have told one router's traffic as another's.
TEST(Slots, CountFromZeroForEachOwner) {
    Rig rig;
    sp_arrays& arrays = rig.engine.arrays();
    struct Counted {
        Space space;
        sp_counter* counters;
        uint32_t slots, each;
    };
    for (auto [space, counters, slots, each] : {Counted{Space::kVrf, arrays.reasons, SP_VRFS, SP_REASONS},
                                                Counted{Space::kInterface, arrays.tx, SP_INTERFACES, 1},
                                                Counted{Space::kRxCounter, arrays.rx, SP_INTERFACES, 1}}) {
        const uint32_t slot = rig.acquire(space, 1);
        sp_counter& last = counters[(size_t{arrays.cpus - 1} * slots + slot) * each + each - 1];
        last = {5, 500};
        rig.objects.release(space, slot);
        for (uint32_t id = 2; id < 100; ++id) {  // enough for a grace period
            rig.objects.release(space, rig.acquire(space, id));
        }
        last = {7, 700};  // of packets that were under way
        rig.acquire_until(space, slot, 100);
        EXPECT_EQ(last.packets, 0u);
        EXPECT_EQ(last.bytes, 0u);
    }
}

// A router would have paid for what another one has had.
TEST(Slots, HaveHadNothingOfTheCoresForEachOwner) {
    Rig rig;
    const uint32_t slot = rig.acquire(Space::kVrf, 1);
    sp_core_router& last = rig.engine.arrays().core_routers[size_t{rig.engine.arrays().cpus - 1} * SP_VRFS + slot];
    last.spent = last.due = last.dropped = 7;
    rig.objects.release(Space::kVrf, slot);
    for (uint32_t id = 2; id < 100; ++id) {  // enough for a grace period
        rig.objects.release(Space::kVrf, rig.acquire(Space::kVrf, id));
    }
    rig.acquire_until(Space::kVrf, slot, 100);
    EXPECT_EQ(last.spent, 0u);
    EXPECT_EQ(last.due, 0u);
    EXPECT_EQ(last.dropped, 0u);
}

// Metrics would go on to tell of it, and where it comes back in another slot, of either.
TEST(Slots, AreNobodysInMetricsOnceTheirOwnerIsGone) {
    Rig rig;
    sp_arrays& arrays = rig.engine.arrays();
    const uint32_t router = rig.acquire(Space::kVrf, 7), interface = rig.acquire(Space::kInterface, 9);
    sp_u64& lost = arrays.punt_drops[sp_punt_drop_index(interface, SP_PLACE_OUTBOX, SP_CLASS_OPTIONS)];
    lost = 5;
    ASSERT_EQ(arrays.vrfs[router].id, 7u);
    rig.objects.release(Space::kVrf, router);
    rig.objects.release(Space::kInterface, interface);
    EXPECT_EQ(arrays.vrfs[router].id, 0u);
    EXPECT_EQ(lost, 0u);
}

}  // namespace
}  // namespace splitplane
