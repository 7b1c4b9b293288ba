// SPDX-License-Identifier: Apache-2.0
//
// What entries put into the arrays that the pipeline reads.
#include <algorithm>
#include <map>
#include <numeric>

#include "pipeline/trie.h"
#include "server/tests/device.h"

namespace splitplane::testing {
namespace {

using Shares = std::map<uint32_t, uint32_t>;  // by nexthop_id

constexpr uint64_t kMac = 0x020000000001, kPeer = 0x0200000000fe;

class Arrays : public WithDevice {
  protected:
    void put(const p4v1::TableEntry& entry) { ASSERT_EQ(primary->write_one(insert(entry)), grpc::OK); }
    void change(const p4v1::TableEntry& entry) { ASSERT_EQ(primary->write_one(modify(entry)), grpc::OK); }
    void remove(const p4v1::TableEntry& entry) { ASSERT_EQ(primary->write_one(erase(entry)), grpc::OK); }

    uint32_t slot(Space space, uint32_t id) { return device->tables().objects().slot(space, id); }
    sp_interface& interface(uint32_t id) { return device->arrays().interfaces[slot(Space::kInterface, id)]; }
    sp_egress& egress(uint32_t id) { return device->arrays().egresses[slot(Space::kInterface, id)]; }
    uint64_t classifier(uint32_t port, uint32_t vlan) {
        return device->arrays().classifier[sp_classifier_index(port, vlan)];
    }
    std::vector<uint32_t> places(uint32_t group_id) {
        uint64_t group = device->arrays().groups[slot(Space::kGroup, group_id)];
        const uint16_t* first = device->arrays().members + sp_group_base(group);
        std::vector<uint32_t> ids;
        for (uint32_t position = 0; position < sp_group_size(group); ++position) {
            ids.push_back(device->tables().objects().id_of(Space::kNexthop, first[position]));
        }
        return ids;
    }
    // How a group's places are divided among nexthops, in lowest terms.
    std::map<uint32_t, uint32_t> shares(uint32_t group_id) {
        std::map<uint32_t, uint32_t> all;
        for (const uint32_t id : places(group_id)) ++all[id];
        uint32_t divisor = 0;
        for (const auto& [id, places] : all) divisor = std::gcd(divisor, places);
        for (auto& [id, places] : all) places /= divisor;
        return all;
    }
    uint32_t leaf(uint32_t vrf_id, uint32_t address) {
        uint32_t vrf = slot(Space::kVrf, vrf_id);
        uint32_t found = sp_trie_lookup4(&device->arrays(), device->arrays().roots[SP_IPV4][vrf], address);
        return found != 0 ? found : device->arrays().vrfs[vrf].default_leaf[0];
    }
};

TEST_F(Arrays, AClassifierEntryIsOneWord) {
    put(entry(kClassifierTable, {3, 100}, kSetRouterInterface, {70000, 9}));
    uint64_t word = classifier(3, 100);
    EXPECT_EQ(sp_classifier_kind(word), SP_CLASSIFIER_INGRESS);
    EXPECT_EQ(device->arrays().interfaces[sp_classifier_interface(word)].id, 70000u);
    EXPECT_EQ(device->arrays().vrfs[sp_classifier_vrf(word)].id, 9u);

    change(entry(kClassifierTable, {3, 100}, kSetEgressRouterInterface, {70001, 9}));
    EXPECT_EQ(sp_classifier_kind(classifier(3, 100)), SP_CLASSIFIER_EGRESS);
    EXPECT_EQ(sp_classifier_counter(classifier(3, 100)), sp_classifier_counter(word));
    EXPECT_EQ(device->arrays().interfaces[sp_classifier_interface(classifier(3, 100))].id, 70001u);

    remove(key_of(kClassifierTable, {3, 100}));
    EXPECT_EQ(classifier(3, 100), 0u);
}

TEST_F(Arrays, AnInterfaceAdmitsFiveMacs) {
    for (uint64_t mac = 1; mac <= 5; ++mac) {
        put(entry(kAdmitTable, {5, kMac + mac}, kAdmit));
    }
    EXPECT_EQ(primary->write_one(insert(entry(kAdmitTable, {5, kMac + 6}, kAdmit))), grpc::INVALID_ARGUMENT);
    remove(key_of(kAdmitTable, {5, kMac + 3}));
    put(entry(kAdmitTable, {5, kMac + 6}, kAdmit));
    std::vector<uint64_t> macs(std::begin(interface(5).more_macs), std::end(interface(5).more_macs));
    macs.push_back(device->arrays().macs[slot(Space::kInterface, 5)]);
    std::sort(macs.begin(), macs.end());
    EXPECT_EQ(macs, (std::vector<uint64_t>{kMac + 1, kMac + 2, kMac + 4, kMac + 5, kMac + 6}));
}

TEST_F(Arrays, ARouterInterfaceHasItsWayOut) {
    put(entry(kInterfaceTable, {5}, kSetPort, {2, 30, 9000}));
    put(entry(kEgressTable, {5}, kRewrite, {kMac}));
    put(entry(kFallbackTable, {5}, kSendToFallback, {1, 40}));
    EXPECT_EQ(egress(5).port, sp_port(2, 30, 9000));
    EXPECT_EQ(egress(5).rewrite, SP_PRESENT | kMac);
    EXPECT_EQ(interface(5).fallback, SP_FALLBACK_PRESENT | 1u << 12 | 40);
    auto& before = interface(5);
    auto& way_out = egress(5);
    remove(key_of(kInterfaceTable, {5}));
    remove(key_of(kEgressTable, {5}));
    EXPECT_EQ(way_out.port, 0u);
    EXPECT_EQ(way_out.rewrite, 0u);
    EXPECT_NE(before.fallback, 0u);
}

TEST_F(Arrays, ANexthopIsOneWord) {
    put(entry(kNexthopTable, {8}, kSetNeighbor, {5, kPeer}));
    auto& word = device->arrays().nexthops[slot(Space::kNexthop, 8)];
    EXPECT_EQ(word, sp_nexthop(SP_NEXTHOP_FORWARD, slot(Space::kInterface, 5), kPeer));
    change(entry(kNexthopTable, {8}, kGleanNeighbor, {5}));
    EXPECT_EQ(word, sp_nexthop(SP_NEXTHOP_GLEAN, slot(Space::kInterface, 5), 0));
    change(entry(kNexthopTable, {8}, kNeighborFailed, {5}));
    EXPECT_EQ(word, sp_nexthop(SP_NEXTHOP_FAILED, slot(Space::kInterface, 5), 0));
    remove(key_of(kNexthopTable, {8}));
    EXPECT_EQ(word, 0u);
}

TEST_F(Arrays, AGroupHoldsEachMemberByItsWeight) {
    put(group(4, {{8, 2}, {9, 1}, {8, 1}}));
    EXPECT_EQ(shares(4), (Shares{{8, 3}, {9, 1}}));
    change(group(4, {{9, 1}}));
    EXPECT_EQ(shares(4), (Shares{{9, 1}}));
    change(group(4, {}));
    EXPECT_EQ(device->arrays().groups[slot(Space::kGroup, 4)], 0u);
    change(group(4, {{7, 256}}));
    EXPECT_EQ(shares(4), (Shares{{7, 1}}));
}

TEST_F(Arrays, AMemberThatLeavesAGroupTakesNoPlacesOfOthers) {
    put(group(4, {{7, 1}, {8, 1}, {9, 1}}));
    const std::vector<uint32_t> before = places(4);
    change(group(4, {{7, 1}, {9, 1}}));
    const std::vector<uint32_t> after = places(4);
    ASSERT_EQ(after.size(), before.size());
    for (size_t at = 0; at < before.size(); ++at) {
        if (before[at] != 8) {
            EXPECT_EQ(after[at], before[at]) << at;
        }
    }
}

TEST_F(Arrays, WithoutRoomForMorePlacesAGroupHasOneForEachUnitOfWeight) {
    uint32_t id = 1;
    while (put(group(id, {{7, 2}, {8, 1}})), places(id).size() > 3) {
        ASSERT_LT(++id, SP_GROUPS);
    }
    EXPECT_EQ(shares(id), (Shares{{7, 2}, {8, 1}}));
    EXPECT_GT(id, 1000u);
}

TEST_F(Arrays, ProfileMembersAndGroupsReachEveryEntry) {
    auto member = [](uint32_t id, uint64_t nexthop_id) {
        p4v1::Entity entity;
        entity.mutable_action_profile_member()->set_action_profile_id(kProfile);
        entity.mutable_action_profile_member()->set_member_id(id);
        *entity.mutable_action_profile_member()->mutable_action() = action(kSetMember, {nexthop_id});
        return entity;
    };
    auto profile_group = [](std::vector<std::pair<uint32_t, int>> parts) {
        p4v1::Entity entity;
        entity.mutable_action_profile_group()->set_action_profile_id(kProfile);
        entity.mutable_action_profile_group()->set_group_id(50);
        for (const auto& [id, weight] : parts) {
            auto* part = entity.mutable_action_profile_group()->add_members();
            part->set_member_id(id);
            part->set_weight(weight);
        }
        return entity;
    };
    const auto kInsert = p4v1::Update::INSERT, kModify = p4v1::Update::MODIFY, kDelete = p4v1::Update::DELETE;
    ASSERT_EQ(primary->write_one(update(kInsert, member(1, 8))), grpc::OK);
    ASSERT_EQ(primary->write_one(update(kInsert, member(2, 9))), grpc::OK);
    EXPECT_EQ(primary->write_one(update(kInsert, member(2, 9))), grpc::ALREADY_EXISTS);
    EXPECT_EQ(primary->write_one(update(kInsert, profile_group({{3, 1}}))), grpc::NOT_FOUND);
    ASSERT_EQ(primary->write_one(update(kInsert, profile_group({{1, 1}, {2, 2}}))), grpc::OK);

    p4v1::TableEntry by_group = key_of(kGroupTable, {4}), by_member = key_of(kGroupTable, {5});
    by_group.mutable_action()->set_action_profile_group_id(50);
    by_member.mutable_action()->set_action_profile_member_id(1);
    put(by_group);
    put(by_member);
    EXPECT_EQ(shares(4), (Shares{{8, 1}, {9, 2}}));
    EXPECT_EQ(shares(5), (Shares{{8, 1}}));

    ASSERT_EQ(primary->write_one(update(kModify, member(1, 77))), grpc::OK);
    EXPECT_EQ(shares(4), (Shares{{77, 1}, {9, 2}}));
    EXPECT_EQ(shares(5), (Shares{{77, 1}}));
    ASSERT_EQ(primary->write_one(update(kModify, profile_group({{2, 1}}))), grpc::OK);
    EXPECT_EQ(shares(4), (Shares{{9, 1}}));

    EXPECT_EQ(primary->write_one(insert(group(6, {{8, 1}}))), grpc::INVALID_ARGUMENT) << "not by both";
    EXPECT_EQ(primary->write_one(update(kDelete, member(1, 0))), grpc::FAILED_PRECONDITION);
    EXPECT_EQ(primary->write_one(update(kDelete, profile_group({}))), grpc::FAILED_PRECONDITION);
    restart();
    EXPECT_EQ(shares(4), (Shares{{9, 1}}));
    EXPECT_EQ(shares(5), (Shares{{77, 1}}));
    remove(key_of(kGroupTable, {4}));
    remove(key_of(kGroupTable, {5}));
    EXPECT_EQ(primary->write_one(update(kDelete, profile_group({}))), grpc::OK);
    EXPECT_EQ(primary->write_one(update(kDelete, member(1, 0))), grpc::OK);
    EXPECT_EQ(primary->write_one(update(kDelete, member(2, 0))), grpc::OK);
    EXPECT_EQ(primary->write_one(insert(group(6, {{8, 1}}))), grpc::OK);
}

TEST_F(Arrays, ReasonsAreBits) {
    put(entry(kReasonTable, {9, SP_PUNT_LOCAL}, kCountReason));
    put(entry(kReasonTable, {9, SP_DROP_MALFORMED}, kCountReason));
    put(entry(kReasonTable, {9, 99}, kCountReason));  // that no packet has
    auto& vrf = device->arrays().vrfs[slot(Space::kVrf, 9)];
    EXPECT_EQ(vrf.counted, 1u << sp_reason_index(SP_PUNT_LOCAL) | 1u << sp_reason_index(SP_DROP_MALFORMED));
    remove(key_of(kReasonTable, {9, SP_PUNT_LOCAL}));
    EXPECT_EQ(vrf.counted, 1u << sp_reason_index(SP_DROP_MALFORMED));
    put(entry(kReasonTable, {0, SP_DROP_UNKNOWN_INTERFACE}, kCountReason));
    EXPECT_EQ(device->arrays().vrfs[0].counted, 1u << sp_reason_index(SP_DROP_UNKNOWN_INTERFACE));
}

TEST_F(Arrays, APolicerIsItsPeakRate) {
    auto entry_of = [](int64_t pir, int64_t pburst) {
        auto policer = entry(kPolicerTable, {9, SP_CLASS_GLEAN}, kPolice);
        auto* meter = policer.mutable_meter_config();
        meter->set_pir(pir);
        meter->set_pburst(pburst);
        return policer;
    };
    put(entry_of(1000, 50));
    const sp_policer& policer = device->arrays().policers[slot(Space::kVrf, 9) * SP_CLASS_SLOTS + SP_CLASS_GLEAN];
    EXPECT_EQ(policer.shares, 1u);
    EXPECT_EQ(policer.interval_ns, 1'000'000u);
    EXPECT_EQ(policer.tolerance_ns, 49'000'000u);
    change(entry_of(0, 50));
    EXPECT_EQ(policer.shares, 0u) << "nothing is green";
    change(entry(kPolicerTable, {9, SP_CLASS_GLEAN}, kPolice));
    EXPECT_EQ(policer.shares, 1u);
    EXPECT_EQ(policer.interval_ns, 0u) << "everything is green";
    remove(key_of(kPolicerTable, {9, SP_CLASS_GLEAN}));
    EXPECT_EQ(policer.shares, 0u);
}

TEST_F(Arrays, APolicerHasAShareForEachWayIn) {
    auto policer = entry(kPolicerTable, {9, SP_CLASS_ARP}, kPolice);
    policer.mutable_meter_config()->set_pir(1000);
    policer.mutable_meter_config()->set_pburst(100);
    put(entry(kClassifierTable, {1, 0}, kSetRouterInterface, {1, 9}));
    put(policer);
    const sp_policer& of_9 = device->arrays().policers[sp_policer_index(slot(Space::kVrf, 9), SP_CLASS_ARP)];
    EXPECT_EQ(of_9.shares, 1u);
    put(entry(kClassifierTable, {1, 7}, kSetRouterInterface, {2, 9}));
    put(entry(kClassifierTable, {2, 7}, kSetEgressRouterInterface, {2, 9}));
    EXPECT_EQ(of_9.shares, 2u) << "what comes back from the fallback plane is no way in";
    put(entry(kClassifierTable, {2, 0}, kSetRouterInterface, {3, 8}));
    EXPECT_EQ(of_9.shares, 2u) << "another router's";
    change(entry(kClassifierTable, {2, 0}, kSetRouterInterface, {3, 9}));
    EXPECT_EQ(of_9.shares, 3u);
    remove(key_of(kClassifierTable, {1, 0}));
    EXPECT_EQ(of_9.shares, 2u);
    change(policer);
    EXPECT_EQ(of_9.shares, 2u);
    remove(key_of(kPolicerTable, {9, SP_CLASS_ARP}));
    remove(key_of(kClassifierTable, {1, 7}));
    EXPECT_EQ(of_9.shares, 0u) << "without a policer it stays without";
}

TEST_F(Arrays, RoutesNameSlotsWhateverExists) {
    put(route(9, "10.0.0.0/8", kSetNexthop, {8}));
    put(route(9, "0.0.0.0/0", kBlackhole));
    EXPECT_EQ(leaf(9, 0x0a010203), sp_leaf(SP_ROUTE_NEXTHOP, slot(Space::kNexthop, 8)));
    EXPECT_EQ(leaf(9, 0x0b000000), sp_leaf(SP_ROUTE_BLACKHOLE, 0));
    EXPECT_EQ(device->arrays().nexthops[slot(Space::kNexthop, 8)], 0u);
    put(entry(kNexthopTable, {8}, kGleanNeighbor, {5}));
    EXPECT_NE(device->arrays().nexthops[sp_leaf_slot(leaf(9, 0x0a010203))], 0u);
    change(route(9, "10.0.0.0/8", kSetNexthopGroup, {4}));
    EXPECT_EQ(leaf(9, 0x0a010203), sp_leaf(SP_ROUTE_GROUP, slot(Space::kGroup, 4)));
    remove(route_key(9, "10.0.0.0/8"));
    EXPECT_EQ(leaf(9, 0x0a010203), sp_leaf(SP_ROUTE_BLACKHOLE, 0));
    EXPECT_FALSE(device->tables().objects().find(Space::kGroup, 4)) << "nothing refers to it";
}

TEST_F(Arrays, CountersStartAtZeroAndOutliveAChange) {
    put(entry(kClassifierTable, {3, 0}, kSetRouterInterface, {5, 9}));
    auto count = [&](uint64_t packets) {
        sp_arrays& arrays = device->arrays();
        arrays.rx[SP_INTERFACES + sp_classifier_counter(classifier(3, 0))].packets += packets;
    };
    auto counted = [&] {
        auto wanted = key_of(kClassifierTable, {3, 0});
        wanted.mutable_counter_data();
        return primary->read_entries(wanted).at(0).counter_data().packet_count();
    };
    count(5);
    EXPECT_EQ(counted(), 5);
    change(entry(kClassifierTable, {3, 0}, kSetRouterInterface, {6, 9}));
    count(1);
    EXPECT_EQ(counted(), 6);
    auto reset = entry(kClassifierTable, {3, 0}, kSetRouterInterface, {6, 9});
    reset.mutable_counter_data()->set_packet_count(100);
    change(reset);
    count(1);
    EXPECT_EQ(counted(), 101);
    remove(key_of(kClassifierTable, {3, 0}));
    put(entry(kClassifierTable, {3, 0}, kSetRouterInterface, {6, 9}));
    EXPECT_EQ(counted(), 0);
}

}  // namespace
}  // namespace splitplane::testing
