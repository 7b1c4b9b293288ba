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
    void way_in(Op op, uint32_t interface_id, uint32_t vrf_id, uint32_t tag = kTag) {
        RowWrite row;
        row.action = Action::kSetRouterInterface;
        row.params = {interface_id, vrf_id, 0};
        EXPECT_TRUE(tables.write_row(op, Table::kInterfaceClassifier, {kWayIn, tag}, row).ok());
        tables.commit();
    }
    // So that an interface stays one without a way in.
    void keep(uint32_t interface_id) {
        RowWrite row;
        row.action = Action::kSetPort;
        row.params = {kWayIn, kTag, 1500};
        EXPECT_TRUE(tables.write_row(Op::kInsert, Table::kRouterInterface, {interface_id, 0}, row).ok());
    }
    uint32_t slot_of(Space space, uint32_t id) { return tables.objects().slot(space, id); }
    sp_policer& policer(uint32_t vrf_id) {
        return arrays.policers[sp_policer_index(slot_of(Space::kVrf, vrf_id), kBgp)];
    }
    sp_u64& share_due(uint32_t interface_id) {
        return arrays.share_dues[sp_share_index(slot_of(Space::kInterface, interface_id), kBgp)];
    }
};

TEST_F(Policers, AnotherRateHoldsAtOnce) {
    police(Op::kInsert, 9, 1);
    policer(9).due = kFarAhead;
    police(Op::kModify, 9, 4000);
    EXPECT_EQ(policer(9).due, 0u);
}

TEST_F(Policers, AnotherRateHoldsAtOnceForTheSharesOfItsInterfaces) {
    way_in(Op::kInsert, 1, 8);
    way_in(Op::kInsert, 2, 9, kTag + 1);
    police(Op::kInsert, 9, 1);
    share_due(1) = share_due(2) = kFarAhead;
    police(Op::kModify, 9, 4000);
    EXPECT_EQ(share_due(2), 0u);
    EXPECT_EQ(share_due(1), kFarAhead) << "it is none of the router's";
}

TEST_F(Policers, AnotherRateHoldsAtOnceForAnInterfaceThatComesBack) {
    keep(1);
    way_in(Op::kInsert, 1, 9);
    police(Op::kInsert, 9, 1);
    share_due(1) = kFarAhead;
    way_in(Op::kErase, 1, 9);
    police(Op::kModify, 9, 4000);
    way_in(Op::kInsert, 1, 9);
    EXPECT_EQ(share_due(1), 0u);
}

TEST_F(Policers, WhatAnInterfaceOwesIsItsRouters) {
    way_in(Op::kInsert, 1, 8);
    share_due(1) = kFarAhead;
    way_in(Op::kModify, 1, 9);
    EXPECT_EQ(share_due(1), 0u);
}

TEST_F(Policers, ComingBackForgivesNothing) {
    keep(1);
    police(Op::kInsert, 9, 100);
    way_in(Op::kInsert, 1, 9);
    share_due(1) = kFarAhead;
    way_in(Op::kErase, 1, 9);
    way_in(Op::kInsert, 1, 9);
    EXPECT_EQ(share_due(1), kFarAhead);
}

TEST_F(Policers, TheSameRateForgivesNothing) {
    police(Op::kInsert, 9, 100);
    way_in(Op::kInsert, 1, 9);
    policer(9).due = share_due(1) = kFarAhead;
    police(Op::kModify, 9, 100);
    way_in(Op::kModify, 1, 9);
    EXPECT_EQ(policer(9).due, kFarAhead);
    EXPECT_EQ(share_due(1), kFarAhead);
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
