// SPDX-License-Identifier: Apache-2.0
//
// What policers owe, when rates and owners change.
#include <gtest/gtest.h>

#include "tables/tests/fixture.h"

namespace splitplane {
namespace {

using testing::Process;

constexpr uint32_t kBgp = SP_CLASS_BGP, kWayIn = 3, kTag = 20;
constexpr sp_u64 kFarAhead = sp_u64{1} << 60;

struct Policers : ::testing::Test {
    Process process;
    Tables& tables = process.tables;
    sp_arrays& arrays = process.engine.arrays();

    void police(Op op, uint32_t vrf_id, int64_t rate) {
        RowWrite row;
        row.action = Action::kPolice;
        row.extras.meter = Meter{rate, 10, rate, 10};
        EXPECT_TRUE(tables.write_row(op, Table::kPolicer, {vrf_id, kBgp}, row).ok());
        tables.commit();
    }
    void way_in(Op op, uint32_t interface_id, uint32_t vrf_id) {
        RowWrite row;
        row.action = Action::kSetRouterInterface;
        row.params = {interface_id, vrf_id, 0};
        EXPECT_TRUE(tables.write_row(op, Table::kInterfaceClassifier, {kWayIn, kTag}, row).ok());
        tables.commit();
    }
    uint32_t slot_of(Space space, uint32_t id) { return tables.objects().slot(space, id); }
    sp_policer& policer(uint32_t vrf_id) {
        return arrays.policers[sp_policer_index(slot_of(Space::kVrf, vrf_id), kBgp)];
    }
};

TEST_F(Policers, AnotherRateHoldsAtOnce) {
    police(Op::kInsert, 9, 1);
    policer(9).due = kFarAhead;
    police(Op::kModify, 9, 4000);
    EXPECT_EQ(policer(9).due, 0u);
}

TEST_F(Policers, TheSameRateForgivesNothing) {
    police(Op::kInsert, 9, 100);
    policer(9).due = kFarAhead;
    police(Op::kModify, 9, 100);
    way_in(Op::kInsert, 1, 9);
    EXPECT_EQ(policer(9).due, kFarAhead);
}

TEST_F(Policers, ASlotOwesNothingOfItsOwnerBefore) {
    police(Op::kInsert, 9, 100);
    const uint32_t slot = slot_of(Space::kVrf, 9);
    policer(9).due = kFarAhead;
    police(Op::kErase, 9, 100);
    uint32_t id = 10;
    for (; id < 10 + SP_VRFS; ++id) {
        police(Op::kInsert, id, 100);
        if (slot_of(Space::kVrf, id) == slot) break;
        police(Op::kErase, id, 100);
    }
    ASSERT_EQ(slot_of(Space::kVrf, id), slot);
    EXPECT_EQ(policer(id).due, 0u);
}

TEST_F(Policers, NorDoesTheShareOfAnInterface) {
    way_in(Op::kInsert, 1, 9);
    const uint32_t slot = slot_of(Space::kInterface, 1);
    arrays.share_dues[sp_share_index(slot, kBgp)] = kFarAhead;
    way_in(Op::kErase, 1, 9);
    uint32_t id = 2;
    for (; id < 2 + SP_INTERFACES; ++id) {
        way_in(Op::kInsert, id, 9);
        if (slot_of(Space::kInterface, id) == slot) break;
        way_in(Op::kErase, id, 9);
    }
    ASSERT_EQ(slot_of(Space::kInterface, id), slot);
    EXPECT_EQ(arrays.share_dues[sp_share_index(slot, kBgp)], 0u);
}

}  // namespace
}  // namespace splitplane
