// SPDX-License-Identifier: Apache-2.0
//
// What Write refuses, and how it says so: P4Runtime 1.4, sections 9 and 12.
#include "server/tests/device.h"

namespace splitplane::testing {
namespace {

using Atomicity = p4v1::WriteRequest;

class Writing : public WithDevice {
  protected:
    grpc::StatusCode code(const p4v1::Update& update) { return primary->write_one(update); }
};

TEST_F(Writing, ChecksComeInTheOrderOfTheSpecification) {
    auto request = primary->write_request({insert(route(9, "10.0.0.0/8", kBlackhole))});
    auto other = request;
    other.set_device_id(8);
    other.clear_election_id();
    EXPECT_EQ(primary->write(other).error_code(), grpc::NOT_FOUND);
    other = request;
    other.set_role("monitor");
    EXPECT_EQ(primary->write(other).error_code(), grpc::NOT_FOUND);
    other = request;
    *other.mutable_election_id() = election(2);
    EXPECT_EQ(primary->write(other).error_code(), grpc::PERMISSION_DENIED);
    other.clear_election_id();
    EXPECT_EQ(primary->write(other).error_code(), grpc::PERMISSION_DENIED);
    EXPECT_TRUE(primary->read_entries(kIpv4Table).empty());
}

TEST_F(Writing, OnlyContinueOnErrorIsOffered) {
    auto request = primary->write_request({insert(route(9, "10.0.0.0/8", kBlackhole))});
    for (auto atomicity : {Atomicity::ROLLBACK_ON_ERROR, Atomicity::DATAPLANE_ATOMIC}) {
        request.set_atomicity(atomicity);
        grpc::Status status = primary->write(request);
        EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED);
        EXPECT_NE(status.error_message().find(Atomicity::Atomicity_Name(atomicity)), std::string::npos);
    }
    EXPECT_TRUE(primary->read_entries(kIpv4Table).empty());
}

TEST_F(Writing, WithoutAPipelineNothingIsWritten) {
    Folder other;
    Device fresh(other.path());
    Controller controller(fresh);
    controller.arbitrate(election(1));
    EXPECT_EQ(controller.write({insert(route(9, "10.0.0.0/8", kBlackhole))}).error_code(), grpc::FAILED_PRECONDITION);
    grpc::Status status;
    controller.read_entries(kIpv4Table, &status);
    EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
}

TEST_F(Writing, EveryUpdateIsAttemptedAndHasItsOwnError) {
    grpc::Status status = primary->write({
        insert(route(9, "10.0.0.0/8", kBlackhole)),
        modify(route(9, "11.0.0.0/8", kBlackhole)),
        insert(route(9, "10.0.0.0/8", kPuntLocal)),
        erase(route_key(9, "12.0.0.0/8")),
        insert(route(9, "13.0.0.0/8", kBlackhole)),
    });
    EXPECT_EQ(status.error_code(), grpc::UNKNOWN);
    std::vector<int> codes;
    for (const auto& error : errors_of(status)) {
        codes.push_back(error.canonical_code());
        EXPECT_EQ(error.message().empty(), error.canonical_code() == grpc::OK);
    }
    EXPECT_EQ(codes, (std::vector<int>{grpc::OK, grpc::NOT_FOUND, grpc::ALREADY_EXISTS, grpc::NOT_FOUND, grpc::OK}));
    EXPECT_EQ(primary->read_entries(kIpv4Table).size(), 2u);
}

TEST_F(Writing, AThousandErrorsFitIntoATrailer) {
    std::vector<p4v1::Update> updates(1000, erase(route_key(9, "10.0.0.0/8")));
    grpc::Status status = primary->write(updates);
    EXPECT_EQ(status.error_code(), grpc::UNKNOWN);
    EXPECT_EQ(errors_of(status).size(), updates.size());
    EXPECT_LT(status.error_details().size(), 64u << 10) << "what finsy takes";
}

TEST_F(Writing, InsertModifyAndDeleteFindWhatIsThere) {
    const p4v1::TableEntry entries[] = {
        entry(kClassifierTable, {3, 100}, kSetRouterInterface, {5, 9}),
        entry(kAdmitTable, {5, 0x020000000001}, kAdmit),
        entry(kInterfaceTable, {5}, kSetPort, {2, 30, 1500}),
        entry(kEgressTable, {5}, kRewrite, {0x020000000001}),
        entry(kFallbackTable, {5}, kSendToFallback, {1, 40}),
        entry(kNexthopTable, {8}, kGleanNeighbor, {5}),
        group(4, {{8, 1}}),
        entry(kReasonTable, {9, 2}, kCountReason),
        entry(kPolicerTable, {9, 1}, kPolice),
        route(9, "10.0.0.0/8", kSetNexthop, {8}),
        route(9, "2001:db8::/32", kSetNexthopGroup, {4}),
    };
    for (const auto& one : entries) {
        SCOPED_TRACE(one.ShortDebugString());
        EXPECT_EQ(code(modify(one)), grpc::NOT_FOUND);
        EXPECT_EQ(code(erase(one)), grpc::NOT_FOUND);
        EXPECT_EQ(code(insert(one)), grpc::OK);
        EXPECT_EQ(code(insert(one)), grpc::ALREADY_EXISTS);
        EXPECT_EQ(code(modify(one)), grpc::OK);
        auto read = primary->read_entries(one.table_id());
        ASSERT_EQ(read.size(), 1u);
        EXPECT_EQ(read[0].SerializeAsString(), one.SerializeAsString());
    }
    for (const auto& one : entries) {
        SCOPED_TRACE(one.ShortDebugString());
        auto key = one;
        key.clear_action();
        key.set_metadata("what a DELETE says beside its key does not matter");
        EXPECT_EQ(code(erase(key)), grpc::OK);
        EXPECT_EQ(code(erase(key)), grpc::NOT_FOUND);
    }
    auto statistics = device->server().statistics();
    EXPECT_EQ(statistics.vrfs + statistics.router_interfaces + statistics.nexthops + statistics.groups, 0u);
}

TEST_F(Writing, ValuesFitTheirFields) {
    auto too_wide = entry(kClassifierTable, {512, 1}, kSetRouterInterface, {5, 9});
    EXPECT_EQ(code(insert(too_wide)), grpc::OUT_OF_RANGE);
    auto empty = entry(kClassifierTable, {3, 1}, kSetRouterInterface, {5, 9});
    empty.mutable_match(0)->mutable_exact()->clear_value();
    EXPECT_EQ(code(insert(empty)), grpc::OUT_OF_RANGE);
    EXPECT_EQ(code(insert(entry(kNexthopTable, {1 << 24}, kGleanNeighbor, {5}))), grpc::OUT_OF_RANGE);
    EXPECT_EQ(code(insert(entry(kInterfaceTable, {5}, kSetPort, {2, 4096, 1500}))), grpc::OUT_OF_RANGE);
    EXPECT_EQ(code(insert(route(9, "10.0.0.0/8", kSetNexthop, {1 << 24}))), grpc::OUT_OF_RANGE);
    EXPECT_EQ(code(insert(route(1ull << 32, "10.0.0.0/8", kBlackhole))), grpc::OUT_OF_RANGE);

    auto padded = entry(kClassifierTable, {3, 1}, kSetRouterInterface, {5, 9});
    padded.mutable_match(0)->mutable_exact()->set_value(std::string("\0\0\0\0\0\0\0\0\0\3", 10));
    EXPECT_EQ(code(insert(padded)), grpc::OK);
    EXPECT_EQ(primary->read_entries(kClassifierTable).at(0).match(0).exact().value(), "\3");
}

TEST_F(Writing, MalformedKeysAreRefused) {
    auto refused = [&](p4v1::TableEntry entry) { return code(insert(entry)); };
    auto whole = route(9, "10.0.0.0/8", kBlackhole);
    auto broken = whole;
    broken.mutable_match(0)->set_field_id(3);
    EXPECT_EQ(refused(broken), grpc::INVALID_ARGUMENT);
    broken = whole;
    broken.mutable_match()->RemoveLast();
    broken.mutable_match()->RemoveLast();
    EXPECT_EQ(refused(broken), grpc::INVALID_ARGUMENT);
    broken = whole;
    *broken.add_match() = broken.match(1);
    EXPECT_EQ(refused(broken), grpc::INVALID_ARGUMENT);
    for (int length : {0, -1, 33}) {
        broken = whole;
        broken.mutable_match(1)->mutable_lpm()->set_prefix_len(length);
        EXPECT_EQ(refused(broken), grpc::INVALID_ARGUMENT) << length;
    }
    broken = whole;
    broken.mutable_match(1)->mutable_lpm()->set_value("\x0a\x01\x02\x03");
    EXPECT_EQ(refused(broken), grpc::INVALID_ARGUMENT);
    broken = whole;
    broken.mutable_match(1)->mutable_lpm()->set_value("\x01\x0a\x01\x02\x03");
    EXPECT_EQ(refused(broken), grpc::OUT_OF_RANGE);
    broken = whole;
    broken.mutable_match(1)->mutable_exact()->set_value("\x0a");
    EXPECT_EQ(refused(broken), grpc::INVALID_ARGUMENT);
    broken = entry(kAdmitTable, {5, 0}, kAdmit);
    EXPECT_EQ(refused(broken), grpc::INVALID_ARGUMENT) << "a MAC of zeros";
    broken = entry(kAdmitTable, {5}, kAdmit);
    EXPECT_EQ(refused(broken), grpc::INVALID_ARGUMENT);
    broken = whole;
    broken.set_table_id(4711);
    EXPECT_EQ(refused(broken), grpc::NOT_FOUND);
    EXPECT_EQ(code(p4v1::Update()), grpc::INVALID_ARGUMENT);
    p4v1::Update empty;
    empty.set_type(p4v1::Update::INSERT);
    EXPECT_EQ(code(empty), grpc::INVALID_ARGUMENT);
}

TEST_F(Writing, MalformedActionsAreRefused) {
    EXPECT_EQ(code(insert(key_of(kNexthopTable, {8}))), grpc::INVALID_ARGUMENT) << "none at all";
    EXPECT_EQ(code(insert(entry(kNexthopTable, {8}, kAdmit))), grpc::INVALID_ARGUMENT) << "another table's";
    EXPECT_EQ(code(insert(entry(kNexthopTable, {8}, kSetNeighbor, {5}))), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(code(insert(entry(kNexthopTable, {8}, kGleanNeighbor, {5, 6}))), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(code(insert(entry(kClassifierTable, {3, 1}, kUnknownInterface))), grpc::PERMISSION_DENIED);
    auto one_shot = group(4, {{8, 1}});
    auto misplaced = route_key(9, "10.0.0.0/8");
    *misplaced.mutable_action() = one_shot.action();
    EXPECT_EQ(code(insert(misplaced)), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(code(insert(entry(kGroupTable, {4}, kSetMember, {8}))), grpc::INVALID_ARGUMENT);
    for (int weight : {0, -1}) {
        EXPECT_EQ(code(insert(group(4, {{8, weight}}))), grpc::INVALID_ARGUMENT);
    }
    EXPECT_EQ(code(insert(group(4, {{8, 200}, {9, 57}}))), grpc::INVALID_ARGUMENT) << "257";
    one_shot.mutable_action()->mutable_action_profile_action_set()->mutable_action_profile_actions(0)->set_watch_port(
        "\1");
    EXPECT_EQ(code(insert(one_shot)), grpc::UNIMPLEMENTED);
}

TEST_F(Writing, WhatATableDoesNotHaveIsRefused) {
    auto whole = entry(kNexthopTable, {8}, kGleanNeighbor, {5});
    auto with = [&](auto change) {
        auto entry = whole;
        change(entry);
        return code(insert(entry));
    };
    EXPECT_EQ(with([](auto& entry) { entry.set_priority(1); }), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(with([](auto& entry) { entry.set_idle_timeout_ns(1); }), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(with([](auto& entry) { entry.mutable_time_since_last_hit(); }), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(with([](auto& entry) { entry.set_is_const(true); }), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(with([](auto& entry) { entry.mutable_counter_data(); }), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(with([](auto& entry) { entry.mutable_meter_config(); }), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(with([](auto& entry) { entry.mutable_meter_counter_data(); }), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(with([](auto& entry) { entry.set_metadata(std::string(4097, 'x')); }), grpc::RESOURCE_EXHAUSTED);
    auto counted = route(9, "10.0.0.0/8", kBlackhole);
    counted.mutable_counter_data();
    EXPECT_EQ(code(insert(counted)), grpc::UNIMPLEMENTED);
    EXPECT_EQ(code(insert(key_of(kPuntTable, {}))), grpc::PERMISSION_DENIED);
    p4v1::Entity meter;
    meter.mutable_meter_entry();
    EXPECT_EQ(code(update(p4v1::Update::MODIFY, meter)), grpc::UNIMPLEMENTED);
}

TEST_F(Writing, DefaultEntriesAreConstant) {
    auto entry_of = [](uint32_t table_id) {
        p4v1::TableEntry entry;
        entry.set_table_id(table_id);
        entry.set_is_default_action(true);
        return entry;
    };
    auto other = entry_of(kIpv4Table);
    *other.mutable_action()->mutable_action() = action(kBlackhole);
    EXPECT_EQ(code(modify(other)), grpc::PERMISSION_DENIED);
    EXPECT_EQ(code(insert(other)), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(code(erase(other)), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(code(modify(entry_of(kGroupTable))), grpc::OK) << "back to what it is";
}

TEST_F(Writing, MetersTakeRatesOfTwo) {
    auto policer = entry(kPolicerTable, {9, 1}, kPolice);
    auto& meter = *policer.mutable_meter_config();
    meter.set_cir(10);
    EXPECT_EQ(code(insert(policer)), grpc::INVALID_ARGUMENT) << "pir below cir";
    meter.set_pir(10);
    meter.set_cburst(-1);
    EXPECT_EQ(code(insert(policer)), grpc::INVALID_ARGUMENT);
    meter.set_cburst(1);
    meter.set_pburst(1);
    EXPECT_EQ(code(insert(policer)), grpc::OK);

    p4v1::Entity resource;
    *resource.mutable_direct_meter_entry()->mutable_table_entry() = key_of(kPolicerTable, {9, 1});
    resource.mutable_direct_meter_entry()->mutable_config()->set_pir(20);
    EXPECT_EQ(code(update(p4v1::Update::INSERT, resource)), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(code(update(p4v1::Update::MODIFY, resource)), grpc::OK);
    auto wanted = key_of(kPolicerTable, {});
    wanted.mutable_meter_config();
    EXPECT_EQ(primary->read_entries(wanted).at(0).meter_config().pir(), 20);
    EXPECT_EQ(code(modify(key_of(kPolicerTable, {9, 1}))), grpc::OK) << "back to the default";
    EXPECT_FALSE(primary->read_entries(wanted).at(0).has_meter_config());
    *resource.mutable_direct_meter_entry()->mutable_table_entry() = key_of(kPolicerTable, {8, 1});
    EXPECT_EQ(code(update(p4v1::Update::MODIFY, resource)), grpc::NOT_FOUND);
}

TEST_F(Writing, CountersAreSetByEntriesOfTheirOwn) {
    EXPECT_EQ(code(insert(entry(kReasonTable, {9, 2}, kCountReason))), grpc::OK);
    p4v1::Entity counter;
    *counter.mutable_direct_counter_entry()->mutable_table_entry() = key_of(kReasonTable, {9, 2});
    counter.mutable_direct_counter_entry()->mutable_data()->set_byte_count(640);
    EXPECT_EQ(code(update(p4v1::Update::MODIFY, counter)), grpc::OK);
    auto read = primary->read({counter});
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].direct_counter_entry().data().byte_count(), 640);
    *counter.mutable_direct_counter_entry()->mutable_table_entry() = route_key(9, "10.0.0.0/8");
    EXPECT_EQ(code(update(p4v1::Update::MODIFY, counter)), grpc::UNIMPLEMENTED);
    *counter.mutable_direct_counter_entry()->mutable_table_entry() = key_of(kNexthopTable, {8});
    EXPECT_EQ(code(update(p4v1::Update::MODIFY, counter)), grpc::INVALID_ARGUMENT);
}

TEST_F(Writing, TablesAreFullAtTheirSize) {
    std::vector<p4v1::Update> updates;
    for (uint64_t id = 1; id <= SP_GROUPS; ++id) {
        updates.push_back(insert(group(id, {})));
    }
    EXPECT_TRUE(primary->write(updates).ok());
    grpc::Status status = primary->write({insert(group(SP_GROUPS + 1, {}))});
    auto errors = errors_of(status);
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].canonical_code(), grpc::RESOURCE_EXHAUSTED);
    EXPECT_NE(errors[0].message().find("nexthop_group is full: 16384"), std::string::npos) << errors[0].message();
}

TEST_F(Writing, RoutersAreFullAtTheirNumberAndTheirSlotsAreUsedAgain) {
    std::vector<p4v1::Update> updates;
    for (uint64_t id = 1; id < SP_VRFS; ++id) {
        updates.push_back(insert(route(id, "10.0.0.0/8", kBlackhole)));
    }
    ASSERT_TRUE(primary->write(updates).ok());
    auto one_more = insert(route(SP_VRFS, "10.0.0.0/8", kBlackhole));
    EXPECT_EQ(code(one_more), grpc::RESOURCE_EXHAUSTED);
    ASSERT_EQ(code(erase(route_key(77, "10.0.0.0/8"))), grpc::OK);
    uint64_t before = device->engine().grace_periods();
    EXPECT_EQ(code(one_more), grpc::OK);
    EXPECT_GT(device->engine().grace_periods(), before) << "packets may still be in the router that went";
    EXPECT_EQ(device->tables().objects().find(Space::kVrf, 77), std::nullopt);
}

// -- samples ---------------------------------------------------------------------------------------------------------
p4v1::Entity samples(int32_t most = 128, int64_t wait_ns = 3) {
    p4v1::Entity entity;
    auto& digest = *entity.mutable_digest_entry();
    digest.set_digest_id(golden().digests(0).preamble().id());
    digest.mutable_config()->set_max_list_size(most);
    digest.mutable_config()->set_max_timeout_ns(wait_ns);
    return entity;
}

class Samples : public Writing {
  protected:
    grpc::StatusCode put(p4v1::Update::Type type, const p4v1::Entity& entity) { return code(update(type, entity)); }
    std::vector<p4v1::Entity> kept() {
        p4v1::Entity wanted;
        wanted.mutable_digest_entry();
        return primary->read({wanted});
    }
    bool sampled(uint32_t interface_id) {
        uint32_t slot = device->tables().objects().slot(Space::kInterface, interface_id);
        return (device->arrays().egresses[slot].port & SP_SAMPLED) != 0;
    }
};

TEST_F(Samples, AreADigestThatComesAndGoes) {
    EXPECT_TRUE(kept().empty());
    EXPECT_EQ(put(p4v1::Update::MODIFY, samples()), grpc::NOT_FOUND);
    EXPECT_EQ(put(p4v1::Update::INSERT, samples()), grpc::OK);
    EXPECT_EQ(put(p4v1::Update::INSERT, samples()), grpc::ALREADY_EXISTS);
    EXPECT_EQ(put(p4v1::Update::MODIFY, samples(64, 7)), grpc::OK);
    ASSERT_EQ(kept().size(), 1u);
    EXPECT_EQ(kept()[0].SerializeAsString(), samples(64, 7).SerializeAsString());
    EXPECT_EQ(put(p4v1::Update::DELETE, samples()), grpc::OK);
    EXPECT_EQ(put(p4v1::Update::DELETE, samples()), grpc::NOT_FOUND);
    EXPECT_TRUE(kept().empty());
}

TEST_F(Samples, EveryWayOutSaysSo) {
    ASSERT_EQ(code(insert(entry(kInterfaceTable, {5}, kSetPort, {1, 0, 1500}))), grpc::OK);
    EXPECT_FALSE(sampled(5));
    ASSERT_EQ(put(p4v1::Update::INSERT, samples()), grpc::OK);
    ASSERT_EQ(code(insert(entry(kInterfaceTable, {6}, kSetPort, {2, 0, 1500}))), grpc::OK);
    EXPECT_TRUE(sampled(5));
    EXPECT_TRUE(sampled(6));
    EXPECT_EQ(device->arrays().sampling->threshold, (uint64_t{1} << 32) / 25 - 1);
    EXPECT_EQ(device->arrays().sampling->policer.interval_ns, 100'000u);
    ASSERT_EQ(put(p4v1::Update::DELETE, samples()), grpc::OK);
    EXPECT_FALSE(sampled(5));
    EXPECT_FALSE(sampled(6));
}

TEST_F(Samples, OutliveTheProcessAndNotTheEntries) {
    ASSERT_EQ(code(insert(entry(kInterfaceTable, {5}, kSetPort, {1, 0, 1500}))), grpc::OK);
    ASSERT_EQ(put(p4v1::Update::INSERT, samples()), grpc::OK);
    restart();
    EXPECT_EQ(kept().size(), 1u);
    EXPECT_TRUE(sampled(5));
    ASSERT_TRUE(primary->set_pipeline(Config::VERIFY_AND_COMMIT).ok());
    EXPECT_TRUE(kept().empty());
    restart();
    EXPECT_TRUE(kept().empty());
}

TEST_F(Samples, AnythingElseIsRefusedByName) {
    auto refused = [&](const p4v1::Entity& entity, const char* why) {
        grpc::Status status = primary->write({update(p4v1::Update::INSERT, entity)});
        auto errors = errors_of(status);
        ASSERT_EQ(errors.size(), 1u);
        EXPECT_NE(errors[0].message().find(why), std::string::npos) << errors[0].message();
    };
    auto other = samples();
    other.mutable_digest_entry()->set_digest_id(7);
    refused(other, "no digest 7");
    grpc::Status status;
    primary->read({other}, &status);
    EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
    refused(samples(-1), "negative");
    refused(samples(1, -1), "negative");
    other = samples();
    other.mutable_digest_entry()->mutable_config()->set_ack_timeout_ns(1);
    refused(other, "ack_timeout_ns is 0");
    other.mutable_packet_replication_engine_entry()->mutable_clone_session_entry()->set_session_id(1);
    refused(other, "there are only tables");
    EXPECT_TRUE(primary->read({other}, &status).empty());
    EXPECT_TRUE(status.ok()) << "there are none, which whoever clears a device may ask";
    EXPECT_TRUE(kept().empty());
}

}  // namespace
}  // namespace splitplane::testing
