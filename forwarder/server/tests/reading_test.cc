// SPDX-License-Identifier: Apache-2.0
//
// What Read gives: wildcards, exact keys, filters, and only what is asked for.
#include <set>

#include "server/device_features.h"
#include "server/port_losses.h"
#include "server/punt_drops.h"
#include "server/tests/device.h"

namespace splitplane::testing {
namespace {

class Reading : public WithDevice {
  protected:
    void SetUp() override {
        WithDevice::SetUp();
        auto noted = entry(kNexthopTable, {8}, kSetNeighbor, {5, 0x0200000000fe});
        noted.set_metadata("note");
        auto cookie = route(10, "2001:db8::/32", kPuntGlean);
        cookie.set_controller_metadata(42);
        auto policer = entry(kPolicerTable, {9, 1}, kPolice);
        policer.mutable_meter_config()->set_pir(100);
        policer.mutable_meter_config()->set_pburst(10);
        written = {
            entry(kClassifierTable, {3, 100}, kSetRouterInterface, {5, 9}),
            noted,
            entry(kNexthopTable, {9}, kGleanNeighbor, {5}),
            group(4, {{8, 3}, {9, 1}}),
            policer,
            route(9, "0.0.0.0/0", kSetNexthop, {8}),
            route(9, "10.0.0.0/8", kSetNexthopGroup, {4}),
            route(9, "10.0.0.0/16", kBlackhole),
            route(10, "0.0.0.1/32", kPuntLocal),
            cookie,
            route(10, "::/0", kFallback),
        };
        for (const auto& one : written) {
            ASSERT_EQ(primary->write_one(insert(one)), grpc::OK);
        }
    }

    std::multiset<std::string> texts(const std::vector<p4v1::TableEntry>& entries) {
        std::multiset<std::string> all;
        for (const auto& one : entries) {
            all.insert(one.DebugString());
        }
        return all;
    }

    std::vector<p4v1::TableEntry> written;
};

TEST_F(Reading, EverythingIsReadAsItWasWritten) {
    p4v1::TableEntry all;
    auto wanted = written;
    for (auto& one : wanted) {
        one.clear_meter_config();  // not asked for
    }
    auto constant = primary->read_entries(kPuntTable);
    auto classes = primary->read_entries(kPuntClassTable);
    constant.insert(constant.end(), classes.begin(), classes.end());
    wanted.insert(wanted.end(), constant.begin(), constant.end());
    EXPECT_EQ(texts(primary->read_entries(all)), texts(wanted));
    all.mutable_meter_config();
    all.mutable_counter_data();
    auto read = primary->read_entries(all);
    int meters = 0, counters = 0;
    for (const auto& one : read) {
        meters += one.has_meter_config();
        counters += one.has_counter_data();
    }
    EXPECT_EQ(read.size(), written.size() + constant.size());
    EXPECT_EQ(meters, 1);
    EXPECT_EQ(counters, 1) << "the classifier's; routes have none";
}

TEST_F(Reading, AnExactKeyGivesOneEntryOrNone) {
    for (auto one : written) {
        auto key = one;
        key.clear_action();
        one.clear_meter_config();
        key.clear_meter_config();
        key.clear_metadata();
        key.clear_controller_metadata();
        EXPECT_EQ(texts(primary->read_entries(key)), texts({one}));
    }
    EXPECT_TRUE(primary->read_entries(route_key(9, "10.0.0.0/24")).empty());
    EXPECT_TRUE(primary->read_entries(route_key(77, "10.0.0.0/8")).empty());
    EXPECT_TRUE(primary->read_entries(key_of(kNexthopTable, {10})).empty());
}

TEST_F(Reading, FiltersNarrowATable) {
    auto wanted = key_of(kNexthopTable, {});
    wanted.set_metadata("note");
    EXPECT_EQ(primary->read_entries(wanted).size(), 1u);
    wanted = key_of(kIpv6Table, {});
    wanted.set_controller_metadata(42);
    EXPECT_EQ(primary->read_entries(wanted).size(), 1u);
    wanted = key_of(kIpv4Table, {});
    wanted.mutable_action()->mutable_action()->set_action_id(kBlackhole);
    EXPECT_EQ(primary->read_entries(wanted).size(), 1u);
    wanted = key_of(kNexthopTable, {});
    wanted.mutable_action()->mutable_action()->set_action_id(kGleanNeighbor);
    EXPECT_EQ(primary->read_entries(wanted).size(), 1u);
}

TEST_F(Reading, ConstantEntriesAreThoseOfTheProgram) {
    auto read = primary->read_entries(kPuntTable);
    ASSERT_EQ(read.size(), 33u);
    const auto& arp = read.front();
    EXPECT_TRUE(arp.is_const());
    EXPECT_EQ(arp.priority(), 33);
    ASSERT_EQ(arp.match_size(), 1) << "what does not matter is left out";
    EXPECT_EQ(arp.match(0).ternary().value(), "\x08\x06");
    EXPECT_EQ(arp.match(0).ternary().mask(), "\xff\xff");
    EXPECT_EQ(arp.action().action().action_id(), 0x01000006u);
    EXPECT_EQ(read.back().priority(), 1);
    p4v1::TableEntry key = arp;
    key.clear_action();
    EXPECT_EQ(primary->read_entries(key).size(), 1u);
    key.set_priority(29);
    EXPECT_TRUE(primary->read_entries(key).empty());
}

TEST_F(Reading, DefaultEntriesAreSaid) {
    auto wanted = key_of(kIpv4Table, {});
    wanted.set_is_default_action(true);
    auto read = primary->read_entries(wanted);
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].action().action().action_id(), kPuntUnreachable);
    EXPECT_TRUE(read[0].is_default_action());
    EXPECT_TRUE(read[0].is_const());
}

TEST_F(Reading, LostPuntsAreToldByInterfacePlaceAndClass) {
    p4v1::Entity wanted;
    wanted.mutable_extern_entry()->set_extern_type_id(kPuntDropsType);
    wanted.mutable_extern_entry()->set_extern_id(kPuntDropsId);
    grpc::Status status;
    EXPECT_TRUE(primary->read({wanted}, &status).empty());
    EXPECT_TRUE(status.ok()) << "it says that nothing was lost";
    ASSERT_EQ(primary->write_one(insert(entry(kInterfaceTable, {70'000}, kSetPort, {1, 0, 1500}))), grpc::OK);
    const uint32_t slot = *device->tables().objects().find(Space::kInterface, 70'000);
    device->arrays().punt_drops[sp_punt_drop_index(slot, SP_PLACE_RING, SP_CLASS_ARP)] = 300;
    device->tables().count_punt_drop(slot, SP_PLACE_OUTBOX, SP_CLASS_BFD);
    const auto read = primary->read({wanted}, &status);
    ASSERT_EQ(read.size(), 2u);
    const auto members = [](const p4v1::Entity& entity) {
        p4v1::P4Data data;
        EXPECT_TRUE(entity.extern_entry().entry().UnpackTo(&data));
        std::vector<std::string> all;
        for (const auto& member : data.struct_().members()) all.push_back(member.bitstring());
        return all;
    };
    EXPECT_EQ(members(read[0]), (std::vector{value(70'000), value(SP_PLACE_RING), value(SP_CLASS_ARP), value(300)}));
    EXPECT_EQ(members(read[1]), (std::vector{value(70'000), value(SP_PLACE_OUTBOX), value(SP_CLASS_BFD), value(1)}));

    ASSERT_EQ(primary->write_one(erase(key_of(kInterfaceTable, {70'000}))), grpc::OK);
    ASSERT_EQ(primary->write_one(insert(entry(kInterfaceTable, {70'001}, kSetPort, {1, 0, 1500}))), grpc::OK);
    EXPECT_TRUE(primary->read({wanted}, &status).empty()) << "another one's slot";
    wanted.mutable_extern_entry()->set_extern_type_id(kPuntDropsType + 1);
    primary->read({wanted}, &status);
    EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
}

TEST_F(Reading, LostFramesAreToldByPortPlaceAndLoss) {
    p4v1::Entity wanted;
    wanted.mutable_extern_entry()->set_extern_type_id(kPuntDropsType);
    wanted.mutable_extern_entry()->set_extern_id(kPortLossesId);
    EXPECT_TRUE(primary->read({wanted}).empty());
    PortLosses one{300, {}, {{"rx_drops", 0, 5}, {"tx_dropped", std::nullopt, 0}, {"rx_drops", 1, 2}}};
    PortLosses none{1, {}, {}}, other{2, {}, {}};
    one.egress[SP_LOSS_DOWN] = 70'000;
    other.egress[SP_LOSS_RING_FULL] = 1;
    device->engine().set_losses({one, none, other});
    std::vector<std::vector<std::string>> told;
    for (const auto& entity : primary->read({wanted})) {
        p4v1::P4Data data;
        EXPECT_TRUE(entity.extern_entry().entry().UnpackTo(&data));
        auto& members = told.emplace_back();
        for (const auto& member : data.struct_().members()) members.push_back(member.bitstring());
    }
    const std::vector<std::vector<std::string>> all{{value(300), "egress", "down", value(70'000)},
                                                    {value(300), "device", "rx_drops", value(7)},
                                                    {value(2), "egress", "ring_full", value(1)}};
    EXPECT_EQ(told, all) << "queues together, and nothing of what was not lost";
}

TEST_F(Reading, FeaturesAreToldByName) {
    p4v1::Entity wanted;
    wanted.mutable_extern_entry()->set_extern_type_id(kPuntDropsType);
    const auto told = [&] {
        p4v1::P4Data data;
        const auto read = primary->read({wanted});
        EXPECT_EQ(read.size(), 1u);
        EXPECT_TRUE(!read.empty() && read[0].extern_entry().entry().UnpackTo(&data));
        std::vector<std::string> names;
        for (const auto& member : data.struct_().members()) names.push_back(member.bitstring());
        return names;
    };
    EXPECT_EQ(told(), (std::vector<std::string>{"resilient_hash", "local_failover", "shares"}))
        << "of all externs";
    wanted.mutable_extern_entry()->set_extern_id(kFeaturesId);
    *device->arrays().hash_seed = 1;
    EXPECT_EQ(told(), (std::vector<std::string>{"resilient_hash", "local_failover", "hash_by_router",
                                                "shares"}));
}

TEST_F(Reading, WhatIsNotThereIsNamed) {
    grpc::Status status;
    auto wanted = key_of(kIpv4Table, {});
    wanted.mutable_counter_data();
    primary->read_entries(wanted, &status);
    EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED);
    EXPECT_NE(status.error_message().find("ipv4_route"), std::string::npos);
    primary->read_entries(4711, &status);
    EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
    primary->read({p4v1::Entity()}, &status);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    p4v1::Entity other;
    other.mutable_register_entry();
    primary->read({other}, &status);
    EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED);
    p4v1::Entity counter;
    *counter.mutable_direct_counter_entry()->mutable_table_entry() = key_of(kReasonTable, {9, 2});
    primary->read({counter}, &status);
    EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);

    auto read = primary->read({entity(key_of(kNexthopTable, {})), other, entity(key_of(kGroupTable, {}))}, &status);
    EXPECT_EQ(read.size(), 3u) << "what can be read is";
    EXPECT_EQ(status.error_code(), grpc::UNKNOWN);
    auto errors = errors_of(status);
    ASSERT_EQ(errors.size(), 3u);
    EXPECT_EQ(errors[0].canonical_code(), grpc::OK);
    EXPECT_EQ(errors[1].canonical_code(), grpc::UNIMPLEMENTED);
}

TEST_F(Reading, DirectResourcesAreReadByTable) {
    p4v1::Entity counters, meters;
    counters.mutable_direct_counter_entry()->mutable_table_entry();
    meters.mutable_direct_meter_entry()->mutable_table_entry()->set_table_id(kPolicerTable);
    auto read = primary->read({counters});
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].direct_counter_entry().table_entry().table_id(), kClassifierTable);
    read = primary->read({meters});
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].direct_meter_entry().config().pir(), 100);
}

TEST_F(Reading, ManyRoutesComeInParts) {
    std::vector<p4v1::Update> updates;
    for (uint32_t number = 0; number < 10'000; ++number) {
        auto prefix = "77." + std::to_string(number >> 8) + "." + std::to_string(number & 255) + ".0/24";
        updates.push_back(insert(route(9 + number % 3, prefix, kSetNexthop, {number % 5})));
    }
    ASSERT_TRUE(primary->write(updates).ok());
    auto wanted = texts(primary->read_entries(kIpv4Table));
    EXPECT_EQ(wanted.size(), updates.size() + 4);
    for (const auto& one : updates) {
        ASSERT_TRUE(wanted.contains(one.entity().table_entry().DebugString()));
    }
}

}  // namespace
}  // namespace splitplane::testing
