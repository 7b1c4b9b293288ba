// SPDX-License-Identifier: Apache-2.0
//
// Shares of routers and slices: written and read as extern entries, put into the arrays, kept over a crash.
#include "server/shares.h"

#include <initializer_list>

#include "server/tests/device.h"

namespace splitplane::testing {
namespace {

using Numbers = std::vector<uint64_t>;

p4v1::Entity extern_of(uint32_t id, const Numbers& numbers = {}) {
    p4v1::Entity entity;
    entity.mutable_extern_entry()->set_extern_type_id(kSharesType);
    entity.mutable_extern_entry()->set_extern_id(id);
    p4v1::P4Data data;
    for (const uint64_t number : numbers) {
        data.mutable_struct_()->add_members()->set_bitstring(value(number));
    }
    if (!numbers.empty()) {
        entity.mutable_extern_entry()->mutable_entry()->PackFrom(data);
    }
    return entity;
}

class WrittenShares : public WithDevice {
  protected:
    grpc::StatusCode write(p4v1::Update::Type type, uint32_t id, const Numbers& numbers) {
        return primary->write_one(update(type, extern_of(id, numbers)));
    }
    std::string why_refused(uint32_t id, const Numbers& numbers) {
        const auto status = primary->write({update(p4v1::Update::INSERT, extern_of(id, numbers))});
        const auto errors = errors_of(status);
        EXPECT_EQ(errors.size(), 1u);
        return errors.empty() ? "" : errors[0].message();
    }
    std::vector<Numbers> read(uint32_t id) {
        std::vector<Numbers> all;
        for (const auto& entity : primary->read({extern_of(id)})) {
            p4v1::P4Data data;
            EXPECT_TRUE(entity.extern_entry().entry().UnpackTo(&data));
            Numbers& numbers = all.emplace_back();
            for (const auto& member : data.struct_().members()) {
                uint64_t number = 0;
                for (const char octet : member.bitstring()) number = number << 8 | static_cast<uint8_t>(octet);
                numbers.push_back(number);
            }
        }
        return all;
    }
    uint32_t slot(Space space, uint32_t id) { return device->tables().objects().slot(space, id); }
    Numbers router_share(uint32_t vrf_id) { return share(device->arrays().router_shares[slot(Space::kVrf, vrf_id)]); }
    Numbers slice_share(uint32_t slice_id) {
        return share(device->arrays().slice_shares[slot(Space::kSlice, slice_id)]);
    }
    static Numbers share(const sp_share& one) { return {one.slice, one.weight, one.guarantee, one.ceiling}; }
};

TEST_F(WrittenShares, AreReadAsWrittenAndInTheArrays) {
    EXPECT_EQ(write(p4v1::Update::INSERT, kRouterShareId, {70'000, 9'000, 3, 100'000, 400'000}), grpc::OK)
        << "of a router and a slice that have nothing else yet";
    EXPECT_EQ(write(p4v1::Update::INSERT, kRouterShareId, {5, 0, 1, 0, 0}), grpc::OK);
    EXPECT_EQ(write(p4v1::Update::INSERT, kSliceShareId, {9'000, 1'000, 0, 1'000'000}), grpc::OK);
    EXPECT_EQ(read(kRouterShareId), (std::vector<Numbers>{{5, 0, 1, 0, 0}, {70'000, 9'000, 3, 100'000, 400'000}}));
    EXPECT_EQ(read(kSliceShareId), (std::vector<Numbers>{{9'000, 1'000, 0, 1'000'000}}));
    const uint64_t slice = slot(Space::kSlice, 9'000);
    EXPECT_NE(slice, 0u);
    EXPECT_EQ(router_share(70'000), (Numbers{slice, 3, 100'000, 400'000}));
    EXPECT_EQ(router_share(5), (Numbers{0, 1, 0, 0}));
    EXPECT_EQ(slice_share(9'000), (Numbers{0, 1'000, 0, 1'000'000}));
    EXPECT_EQ(read(0).size(), 3u) << "without an id all of the type";
}

TEST_F(WrittenShares, ChangeInPlaceAndGoBackToWhatNobodySaid) {
    ASSERT_EQ(write(p4v1::Update::INSERT, kRouterShareId, {7, 2, 3, 0, 0}), grpc::OK);
    const uint32_t vrf = slot(Space::kVrf, 7);
    EXPECT_EQ(write(p4v1::Update::INSERT, kRouterShareId, {7, 2, 4, 0, 0}), grpc::ALREADY_EXISTS);
    EXPECT_EQ(write(p4v1::Update::MODIFY, kRouterShareId, {7, 3, 5, 1, 2}), grpc::OK);
    EXPECT_EQ(slot(Space::kVrf, 7), vrf);
    EXPECT_EQ(router_share(7), (Numbers{slot(Space::kSlice, 3), 5, 1, 2}));
    EXPECT_FALSE(device->tables().objects().find(Space::kSlice, 2)) << "nothing refers to it";
    EXPECT_EQ(write(p4v1::Update::DELETE, kRouterShareId, {7}), grpc::OK) << "by its key alone";
    EXPECT_EQ(share(device->arrays().router_shares[vrf]), (Numbers{0, 0, 0, 0}));
    EXPECT_TRUE(read(kRouterShareId).empty());
    EXPECT_EQ(write(p4v1::Update::DELETE, kRouterShareId, {7}), grpc::NOT_FOUND);
    EXPECT_EQ(write(p4v1::Update::MODIFY, kSliceShareId, {7, 1, 0, 0}), grpc::NOT_FOUND);
}

TEST_F(WrittenShares, OutliveTheProcessAndGoWithThePipeline) {
    ASSERT_EQ(write(p4v1::Update::INSERT, kRouterShareId, {7, 2, 3, 4, 5}), grpc::OK);
    ASSERT_EQ(write(p4v1::Update::INSERT, kSliceShareId, {2, 6, 7, 8}), grpc::OK);
    const uint64_t slice = slot(Space::kSlice, 2);
    restart();
    EXPECT_EQ(slot(Space::kSlice, 2), slice) << "packets that are under way have it";
    EXPECT_EQ(router_share(7), (Numbers{slice, 3, 4, 5}));
    EXPECT_EQ(slice_share(2), (Numbers{0, 6, 7, 8}));
    ASSERT_TRUE(primary->set_pipeline().ok());
    EXPECT_TRUE(read(0).empty());
    EXPECT_EQ(share(device->arrays().slice_shares[slice]), (Numbers{0, 0, 0, 0}));
}

TEST_F(WrittenShares, ThatCannotBeAreRefusedByName) {
    EXPECT_EQ(why_refused(kRouterShareId, {7, 0, 0, 0, 0}), "router_share 7: weight 0 is not from 1 to 1000");
    EXPECT_EQ(why_refused(kSliceShareId, {7, 1'001, 0, 0}), "slice_share 7: weight 1001 is not from 1 to 1000");
    EXPECT_EQ(why_refused(kSliceShareId, {7, 1, 1'000'001, 0}),
              "slice_share 7: guarantee 1000001 is more than 1000000, the whole");
    EXPECT_EQ(why_refused(kSliceShareId, {7, 1, 0, 1'000'001}),
              "slice_share 7: ceiling 1000001 is more than 1000000, the whole");
    EXPECT_EQ(why_refused(kRouterShareId, {7, 0, 1, 300, 200}),
              "router_share 7: ceiling 200 is less than guarantee 300; 0 is none");
    EXPECT_EQ(why_refused(kRouterShareId, {0, 0, 1, 0, 0}), "router_share: vrf_id 0 is nobody's");
    EXPECT_EQ(why_refused(kSliceShareId, {0, 1, 0, 0}), "slice_share: slice_id 0 is nobody's");
    EXPECT_EQ(why_refused(kRouterShareId, {7, 1, 0, 0}), "router_share: its entry is a struct of 5 numbers");
    EXPECT_EQ(write(p4v1::Update::INSERT, kRouterShareId, {uint64_t{1} << 32, 0, 1, 0, 0}), grpc::OUT_OF_RANGE);
    EXPECT_EQ(write(p4v1::Update::INSERT, kShareUseId, {7, 0, 0, 0}), grpc::NOT_FOUND) << "it can only be read";
    EXPECT_TRUE(read(0).empty()) << "nothing of them is applied";
}

TEST_F(WrittenShares, AreAsManyAsThereIsRoomFor) {
    const auto insert_all = [&](uint32_t first, uint32_t last) {
        std::vector<p4v1::Update> updates;
        for (uint32_t vrf_id = first; vrf_id <= last; ++vrf_id) {
            updates.push_back(update(p4v1::Update::INSERT, extern_of(kRouterShareId, {vrf_id, vrf_id, 1, 0, 0})));
        }
        return primary->write(updates).ok();
    };
    for (uint32_t first = 1; first < SP_VRFS; first += 1'000) {
        ASSERT_TRUE(insert_all(first, std::min(first + 999, SP_VRFS - 1)));
    }
    EXPECT_EQ(write(p4v1::Update::INSERT, kRouterShareId, {SP_VRFS, 1, 1, 0, 0}), grpc::RESOURCE_EXHAUSTED);
    EXPECT_EQ(read(kRouterShareId).size(), SP_VRFS - 1) << "in parts";
}

TEST_F(WrittenShares, WhatRoutersHaveHadIsToldById) {
    ASSERT_EQ(write(p4v1::Update::INSERT, kRouterShareId, {70'000, 0, 1, 0, 0}), grpc::OK);
    EXPECT_TRUE(read(kShareUseId).empty()) << "nothing yet";
    const uint32_t vrf = slot(Space::kVrf, 70'000);
    const uint32_t reason = vrf * SP_REASONS + sp_reason_index(SP_DROP_OVER_SHARE);
    for (const uint32_t cpu : {0u, 1u}) {
        device->arrays().core_routers[cpu * SP_VRFS + vrf].spent = 1'000'000'000;
        device->arrays().core_routers[cpu * SP_VRFS + vrf].dropped = 3 + cpu;
        device->arrays().reasons[cpu * SP_VRFS * SP_REASONS + reason].packets = 10;
    }
    EXPECT_EQ(read(kShareUseId), (std::vector<Numbers>{{70'000, 2'000'000'000, 7, 13}}));
}

}  // namespace
}  // namespace splitplane::testing
