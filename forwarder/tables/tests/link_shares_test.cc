// SPDX-License-Identifier: Apache-2.0
//
// What links are divided into, by entries, shares and speeds.
#include <gtest/gtest.h>

#include "tables/tests/fixture.h"

namespace splitplane {
namespace {

using testing::Process;

constexpr uint64_t kGiga = 1'000'000'000;
constexpr uint64_t kRate = 1u << 27;  // octets in 2^30 ns that are 1 Gbit/s
constexpr uint32_t kPort = 3, kOther = 4;

struct LinkShare : ::testing::Test {
    Process process;
    Tables& tables = process.tables;
    sp_arrays& arrays = process.engine.arrays();

    // A router has an interface on a port, whose VLAN and id are one number.
    void interface(uint32_t id, uint32_t vrf_id, uint32_t port, Op op = Op::kInsert) {
        RowWrite way_in, way_out;
        way_in.action = Action::kSetRouterInterface;
        way_in.params = {id, vrf_id, 0};
        way_out.action = Action::kSetPort;
        way_out.params = {port, id, 1500};
        EXPECT_TRUE(tables.write_row(op, Table::kInterfaceClassifier, {port, id}, way_in).ok());
        EXPECT_TRUE(tables.write_row(op, Table::kRouterInterface, {id, 0}, way_out).ok());
        tables.commit();
    }
    void share(uint32_t vrf_id, sp_share share) {
        arrays.router_shares[tables.objects().slot(Space::kVrf, vrf_id)] = share;
        tables.links().divide();
    }
    uint32_t slot_of(uint32_t id) { return arrays.link_slots[tables.objects().slot(Space::kInterface, id)]; }
    const sp_link_router& sender(uint32_t id) { return arrays.link_routers[slot_of(id)]; }
    uint64_t mode(uint32_t port = kPort) { return arrays.link_modes[port]; }
};

TEST_F(LinkShare, WithoutASpeedNothingIsShared) {
    interface(1, 10, kPort);
    EXPECT_EQ(mode(), 0u);
    tables.links().set_speed(kPort, kGiga);
    EXPECT_NE(mode(), 0u);
    EXPECT_EQ(arrays.links[kPort].speed, kRate);
    EXPECT_EQ(mode(kOther), 0u);
    tables.links().set_speed(kPort, 0);
    EXPECT_EQ(mode(), 0u);
    EXPECT_EQ(tables.links().status(kPort, 0).speed, 0u);
}

TEST_F(LinkShare, ARouterHasOneShareOfAPortHoweverManyInterfaces) {
    tables.links().set_speed(kPort, kGiga);
    tables.links().set_speed(kOther, kGiga / 10);
    for (uint32_t id = 1; id <= 3; ++id) interface(id, 10, kPort);
    interface(4, 11, kPort);
    interface(5, 10, kOther);
    share(10, {5, 250'000, 0, 0});
    EXPECT_EQ(slot_of(1), slot_of(3));
    EXPECT_NE(slot_of(1), slot_of(4));
    EXPECT_NE(slot_of(1), slot_of(5)) << "on each port one of its own";
    EXPECT_EQ(sender(1).weight, 5u);
    EXPECT_EQ(sender(1).guarantee, kRate / 4);
    EXPECT_NEAR(static_cast<double>(sender(5).guarantee), kRate / 40, 1);
    EXPECT_EQ(sender(4).weight, 0u) << "nobody said any";
}

TEST_F(LinkShare, SpeedsThatChangeAreFollowed) {
    tables.links().set_speed(kPort, kGiga);
    interface(1, 10, kPort);
    share(10, {1, 500'000, 0, 0});
    tables.links().set_speed(kPort, 10 * kGiga);
    EXPECT_EQ(arrays.links[kPort].speed, 10ull * kRate);
    EXPECT_EQ(sender(1).guarantee, 5ull * kRate);
    EXPECT_EQ(tables.links().status(kPort, 0).speed, 10 * kGiga);
}

TEST_F(LinkShare, SlicesAreGuaranteedWhatTheirRoutersAre) {
    tables.links().set_speed(kPort, kGiga);
    interface(1, 10, kPort);
    interface(2, 11, kPort);
    interface(3, 12, kPort);
    arrays.slice_shares[7] = {3, 125'000, 0, 0};
    share(10, {1, 250'000, 0, 7});
    share(11, {1, 250'000, 0, 7});
    EXPECT_NE(sender(1).slice, 0u);
    EXPECT_EQ(sender(1).slice, sender(2).slice);
    EXPECT_EQ(sender(3).slice, 0u);
    const sp_link_slice& slice = arrays.link_slices[sender(1).slice];
    EXPECT_EQ(slice.weight, 3u);
    EXPECT_EQ(slice.guarantee, kRate / 2);
}

// As a controller writes them.
TEST_F(LinkShare, EntriesOfSharesCountWithTheirCommit) {
    tables.links().set_speed(kPort, kGiga);
    interface(1, 10, kPort);
    RowWrite slice, router;
    slice.action = router.action = Action::kShare;
    slice.params = share_params({3, 400'000, 0}, 0);
    router.params = share_params({2, 0, 500'000}, 77);
    EXPECT_TRUE(tables.write_row(Op::kInsert, Table::kSliceShare, {77}, slice).ok());
    EXPECT_TRUE(tables.write_row(Op::kInsert, Table::kRouterShare, {10}, router).ok());
    tables.commit();
    EXPECT_EQ(sender(1).weight, 2u);
    EXPECT_EQ(sender(1).ceiling, kRate / 2);
    ASSERT_NE(sender(1).slice, 0u);
    EXPECT_EQ(arrays.link_slices[sender(1).slice].weight, 3u);
    EXPECT_TRUE(tables.write_row(Op::kErase, Table::kRouterShare, {10}, {}).ok());
    tables.commit();
    EXPECT_EQ(sender(1).slice, 0u);
    EXPECT_EQ(sender(1).ceiling, 0u);
}

TEST_F(LinkShare, ACeilingKeepsItsPortLookedAt) {
    tables.links().set_speed(kPort, kGiga);
    tables.links().set_speed(kOther, kGiga);
    interface(1, 10, kPort);
    interface(2, 11, kOther);
    share(10, {1, 0, 500'000, 0});
    EXPECT_TRUE(mode() & SP_LINK_ALWAYS);
    EXPECT_TRUE(mode() & SP_LINK_CONTENDED);
    EXPECT_FALSE(mode(kOther) & SP_LINK_ALWAYS);
    EXPECT_EQ(sender(1).ceiling, kRate / 2);
    share(10, {});
    EXPECT_FALSE(mode() & SP_LINK_ALWAYS);
}

TEST_F(LinkShare, ACeilingOfASlowPortThatIsLessThanARateIsOne) {
    tables.links().set_speed(kPort, 1'000'000);
    interface(1, 10, kPort);
    share(10, {1, 0, 7, 0});
    EXPECT_EQ(sender(1).ceiling, 1u);
    share(10, {});
    EXPECT_EQ(sender(1).ceiling, 0u);
}

TEST_F(LinkShare, AnInterfaceThatGoesLeavesItsShareToOthers) {
    tables.links().set_speed(kPort, kGiga);
    interface(1, 10, kPort);
    const sp_u32& slot = arrays.link_slots[tables.objects().slot(Space::kInterface, 1)];
    EXPECT_NE(slot, 0u);
    EXPECT_TRUE(tables.write_row(Op::kErase, Table::kInterfaceClassifier, {kPort, 1}, {}).ok());
    EXPECT_TRUE(tables.write_row(Op::kErase, Table::kRouterInterface, {1, 0}, {}).ok());
    tables.commit();
    EXPECT_EQ(slot, 0u);
}

TEST_F(LinkShare, WhatALinkHasDroppedStaysCountedWhenARouterLeavesIt) {
    tables.links().set_speed(kPort, kGiga);
    tables.links().set_speed(kOther, kGiga);
    interface(1, 10, kPort);
    interface(2, 11, kPort);
    arrays.link_routers[slot_of(1)].dropped = 5;
    EXPECT_EQ(tables.links().status(kPort, 0).over_share, 5u);
    EXPECT_TRUE(tables.write_row(Op::kErase, Table::kInterfaceClassifier, {kPort, 1}, {}).ok());
    EXPECT_TRUE(tables.write_row(Op::kErase, Table::kRouterInterface, {1, 0}, {}).ok());
    interface(1, 10, kOther);
    EXPECT_EQ(tables.links().status(kPort, 0).over_share, 5u);
    EXPECT_EQ(tables.links().status(kOther, 0).over_share, 0u);
    EXPECT_EQ(sender(1).dropped, 0u);
}

// Two entries say whose it is, for a moment: from one VLAN to another without a gap.
TEST_F(LinkShare, AnInterfaceIsARoutersForAsLongAsAnEntrySaysSo) {
    tables.links().set_speed(kPort, kGiga);
    interface(1, 10, kPort);
    share(10, {5, 0, 0, 0});
    RowWrite way_in;
    way_in.action = Action::kSetRouterInterface;
    way_in.params = {1, 10, 0};
    EXPECT_TRUE(tables.write_row(Op::kInsert, Table::kInterfaceClassifier, {kPort, 99}, way_in).ok());
    EXPECT_TRUE(tables.write_row(Op::kErase, Table::kInterfaceClassifier, {kPort, 1}, {}).ok());
    tables.commit();
    EXPECT_EQ(sender(1).weight, 5u);
}

TEST_F(LinkShare, ANewProcessDividesAsTheOneBefore) {
    const testing::Folder folder;
    for (const bool again : {false, true}) {
        Process one(folder / "journal");
        if (!again) {
            RowWrite way_in, way_out;
            way_in.action = Action::kSetRouterInterface;
            way_in.params = {1, 10, 0};
            way_out.action = Action::kSetPort;
            way_out.params = {kPort, 1, 1500};
            EXPECT_TRUE(one.tables.write_row(Op::kInsert, Table::kInterfaceClassifier, {kPort, 1}, way_in).ok());
            EXPECT_TRUE(one.tables.write_row(Op::kInsert, Table::kRouterInterface, {1, 0}, way_out).ok());
            one.tables.commit();
        }
        one.tables.links().set_speed(kPort, kGiga);
        const uint32_t interface = one.tables.objects().slot(Space::kInterface, 1);
        EXPECT_NE(one.engine.arrays().link_slots[interface], 0u) << again;
    }
}

}  // namespace
}  // namespace splitplane
