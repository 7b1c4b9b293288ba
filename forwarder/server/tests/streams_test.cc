// SPDX-License-Identifier: Apache-2.0
//
// Arbitration, pipelines, and packets in and out.
#include <google/protobuf/util/message_differencer.h>

#include <future>

#include "server/tests/device.h"

namespace splitplane::testing {
namespace {

using google::protobuf::util::MessageDifferencer;

class Streams : public ::testing::Test {
  protected:
    Folder folder;
    Device device{folder.path()};
};

TEST_F(Streams, TheHighestElectionIdIsPrimary) {
    Controller low(device), high(device);
    EXPECT_EQ(low.arbitrate(election(5)).status().code(), grpc::OK);
    auto answer = high.arbitrate(election(1, 1));
    EXPECT_EQ(answer.status().code(), grpc::OK);
    EXPECT_EQ(answer.election_id().high(), 1u);
    auto told = low.receive();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->arbitration().status().code(), grpc::ALREADY_EXISTS);
    EXPECT_EQ(told->arbitration().election_id().high(), 1u);

    high.hang_up();
    told = low.receive();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->arbitration().status().code(), grpc::NOT_FOUND);
    EXPECT_EQ(told->arbitration().election_id().high(), 1u) << "the highest that was ever seen";
    EXPECT_EQ(low.arbitrate(election(6)).status().code(), grpc::NOT_FOUND);
    EXPECT_EQ(low.arbitrate(election(1, 1)).status().code(), grpc::OK);
}

TEST_F(Streams, WithoutAnElectionIdNobodyIsPrimary) {
    Controller watcher(device), primary(device);
    auto answer = watcher.arbitrate(std::nullopt);
    EXPECT_EQ(answer.status().code(), grpc::NOT_FOUND);
    EXPECT_FALSE(answer.has_election_id()) << "there was no primary yet";
    EXPECT_EQ(primary.arbitrate(election(0)).status().code(), grpc::OK) << "0 is not unset";
    EXPECT_EQ(watcher.receive()->arbitration().status().code(), grpc::ALREADY_EXISTS);
}

TEST_F(Streams, APrimaryMayStepBack) {
    Controller first(device), second(device);
    EXPECT_EQ(first.arbitrate(election(9)).status().code(), grpc::OK);
    EXPECT_EQ(second.arbitrate(election(8)).status().code(), grpc::ALREADY_EXISTS);
    EXPECT_EQ(first.arbitrate(election(7)).status().code(), grpc::NOT_FOUND);
    EXPECT_EQ(second.receive()->arbitration().status().code(), grpc::NOT_FOUND);
    EXPECT_EQ(second.arbitrate(election(9)).status().code(), grpc::OK);
    EXPECT_EQ(first.receive()->arbitration().status().code(), grpc::ALREADY_EXISTS);
}

TEST_F(Streams, WhatCannotArbitrateIsEnded) {
    Controller primary(device), twin(device), stranger(device), role(device);
    primary.arbitrate(election(5));
    twin.arbitrate(election(5));
    EXPECT_EQ(twin.end().error_code(), grpc::INVALID_ARGUMENT);
    stranger.arbitrate(election(6), kDevice + 1);
    EXPECT_EQ(stranger.end().error_code(), grpc::NOT_FOUND);
    p4v1::MasterArbitrationUpdate message;
    message.set_device_id(kDevice);
    message.mutable_role()->set_name("monitor");
    role.send(message);
    EXPECT_FALSE(role.receive());
    grpc::Status status = role.end();
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_NE(status.error_message().find("monitor"), std::string::npos);
    primary.arbitrate(election(5), kDevice + 1);
    EXPECT_EQ(primary.end().error_code(), grpc::FAILED_PRECONDITION);
}

TEST_F(Streams, ThereIsRoomForSoManyControllers) {
    Folder other;
    Device small(other.path(), {.device_id = kDevice, .max_streams = 2});
    Controller first(small), second(small), third(small);
    first.arbitrate(election(1));
    second.arbitrate(election(2));
    third.arbitrate(election(3));
    EXPECT_EQ(third.end().error_code(), grpc::RESOURCE_EXHAUSTED);
}

TEST_F(Streams, TheHighestElectionIdOutlivesTheProcess) {
    Folder other;
    {
        Device before(other.path());
        Controller primary(before);
        primary.arbitrate(election(5));
    }
    Device after(other.path());
    Controller late(after);
    auto answer = late.arbitrate(election(4));
    EXPECT_EQ(answer.status().code(), grpc::NOT_FOUND);
    EXPECT_EQ(answer.election_id().low(), 5u);
}

// -- the pipeline ----------------------------------------------------------------------------------------------------
class Pipeline : public WithDevice {
  protected:
    p4v1::GetForwardingPipelineConfigResponse get(p4v1::GetForwardingPipelineConfigRequest::ResponseType type) {
        grpc::ClientContext context;
        p4v1::GetForwardingPipelineConfigRequest request;
        request.set_device_id(kDevice);
        request.set_response_type(type);
        p4v1::GetForwardingPipelineConfigResponse response;
        EXPECT_TRUE(primary->stub().GetForwardingPipelineConfig(&context, request, &response).ok());
        return response;
    }
    size_t routes() { return primary->read_entries(kIpv4Table).size(); }
};

TEST_F(Pipeline, IsReturnedAsItWasSet) {
    using Request = p4v1::GetForwardingPipelineConfigRequest;
    auto all = get(Request::ALL).config();
    EXPECT_TRUE(MessageDifferencer::Equals(all.p4info(), golden()));
    EXPECT_EQ(all.p4_device_config(), "device config");
    auto cookie = get(Request::COOKIE_ONLY).config();
    EXPECT_EQ(cookie.cookie().cookie(), 4711u);
    EXPECT_FALSE(cookie.has_p4info());
    EXPECT_TRUE(cookie.p4_device_config().empty());
    EXPECT_TRUE(get(Request::P4INFO_AND_COOKIE).config().p4_device_config().empty());
    EXPECT_FALSE(get(Request::DEVICE_CONFIG_AND_COOKIE).config().has_p4info());
}

TEST_F(Pipeline, CommitClearsAndReconcileKeeps) {
    ASSERT_EQ(primary->write_one(insert(route(9, "10.0.0.0/8", kBlackhole))), grpc::OK);
    EXPECT_TRUE(primary->set_pipeline(Config::VERIFY).ok());
    EXPECT_TRUE(primary->set_pipeline(Config::RECONCILE_AND_COMMIT).ok());
    EXPECT_EQ(primary->set_pipeline(Config::COMMIT).error_code(), grpc::NOT_FOUND) << "nothing was saved";
    EXPECT_TRUE(primary->set_pipeline(Config::VERIFY_AND_SAVE).ok());
    EXPECT_TRUE(primary->set_pipeline(Config::COMMIT).ok());
    EXPECT_EQ(routes(), 1u);
    restart();
    EXPECT_EQ(routes(), 1u);
    EXPECT_TRUE(primary->set_pipeline(Config::VERIFY_AND_COMMIT).ok());
    EXPECT_EQ(routes(), 0u);
    restart();
    EXPECT_EQ(routes(), 0u);
    EXPECT_EQ(primary->write_one(insert(route(9, "10.0.0.0/8", kBlackhole))), grpc::OK);
}

TEST_F(Pipeline, AnotherOneIsRefusedByItsFirstDifference) {
    ASSERT_EQ(primary->write_one(insert(route(9, "10.0.0.0/8", kBlackhole))), grpc::OK);
    auto request = primary->pipeline_request(Config::VERIFY_AND_COMMIT);
    request.mutable_config()->mutable_p4info()->mutable_tables(0)->set_size(4);
    grpc::Status status = primary->set_pipeline(request);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_NE(status.error_message().find("tables[0].size"), std::string::npos) << status.error_message();
    request = primary->pipeline_request(Config::VERIFY_AND_COMMIT);
    request.clear_config();
    EXPECT_EQ(primary->set_pipeline(request).error_code(), grpc::INVALID_ARGUMENT);
    request = primary->pipeline_request(Config::UNSPECIFIED);
    EXPECT_EQ(primary->set_pipeline(request).error_code(), grpc::INVALID_ARGUMENT);
    request = primary->pipeline_request(Config::VERIFY_AND_COMMIT);
    *request.mutable_election_id() = election(99);
    EXPECT_EQ(primary->set_pipeline(request).error_code(), grpc::PERMISSION_DENIED);
    request.set_device_id(99);
    EXPECT_EQ(primary->set_pipeline(request).error_code(), grpc::NOT_FOUND);
    EXPECT_EQ(routes(), 1u) << "what was there is still";

    request = primary->pipeline_request(Config::VERIFY);
    auto& tables = *request.mutable_config()->mutable_p4info()->mutable_tables();
    tables.SwapElements(0, 5);
    EXPECT_TRUE(primary->set_pipeline(request).ok()) << "their order does not matter";
}

TEST_F(Pipeline, CapabilitiesNameTheVersion) {
    grpc::ClientContext context;
    p4v1::CapabilitiesResponse response;
    ASSERT_TRUE(primary->stub().Capabilities(&context, {}, &response).ok());
    EXPECT_EQ(response.p4runtime_api_version(), "1.4.0");
}

// -- packets ---------------------------------------------------------------------------------------------------------
class Packets : public WithDevice {
  protected:
    const std::vector<uint8_t> frame = std::vector<uint8_t>(64, 0xab);

    p4v1::PacketOut packet_out(uint64_t interface_id) {
        p4v1::PacketOut packet;
        packet.set_payload(frame.data(), frame.size());
        packet.add_metadata()->set_metadata_id(1);
        packet.mutable_metadata(0)->set_value(value(interface_id));
        return packet;
    }
    // The error that a packet-out comes to.
    p4v1::StreamError refused(const p4v1::PacketOut& packet) {
        primary->send(packet);
        auto message = primary->receive();
        return message ? message->error() : p4v1::StreamError();
    }
    // More packets come in than the sockets and windows between a device and its primary hold.
    static constexpr uint64_t kFlood = 2000;
    static void flood(Device& flooded, uint8_t reason) {
        const std::vector<uint8_t> large(60'000, 1);
        for (uint64_t number = 0; number < kFlood; ++number) {
            flooded.engine().punt(1, reason, large);
        }
    }
};

TEST_F(Packets, GoOutByTheirRouterInterface) {
    ASSERT_EQ(primary->write_one(insert(entry(kInterfaceTable, {5}, kSetPort, {2, 30, 1500}))), grpc::OK);
    primary->send(packet_out(5));
    // The device takes a stream's messages in order: the answer to this one says that the packet has gone.
    primary->arbitrate(election(1));
    auto sent = device->engine().sent();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].port, 2u);
    EXPECT_EQ(sent[0].vlan, 30u);
    EXPECT_EQ(sent[0].frame, frame);
    EXPECT_EQ(device->server().statistics().packet_outs, 1u);
}

TEST_F(Packets, PayTheirRoutersShareOfTheLink) {
    ASSERT_EQ(primary->write_one(insert(entry(kInterfaceTable, {5}, kSetPort, {2, 30, 1500}))), grpc::OK);
    ASSERT_EQ(primary->write_one(insert(entry(kClassifierTable, {2, 30}, kSetRouterInterface, {5, 9}))), grpc::OK);
    device->tables().links().set_speed(2, 1'000'000);
    const uint64_t uncontended = SP_LINK_BURST / 10 * 9 / (64 + 4 + 24), many = 8 * uncontended;  // frames
    for (uint64_t each = 0; each < many; ++each) primary->send(packet_out(5));
    primary->arbitrate(election(1));
    const auto seen = device->server().statistics();
    EXPECT_EQ(device->engine().sent().size(), seen.packet_outs);
    EXPECT_EQ(seen.packet_outs + seen.packet_outs_over_share, many);
    EXPECT_GE(seen.packet_outs, uncontended);
    EXPECT_GT(seen.packet_outs_over_share, 0u);
    EXPECT_EQ(device->tables().links().status(2, 0).over_share, seen.packet_outs_over_share);
}

TEST_F(Packets, GoOutWhileTheTablesAreWritten) {
    ASSERT_EQ(primary->write_one(insert(entry(kInterfaceTable, {5}, kSetPort, {2, 30, 1500}))), grpc::OK);
    auto writing = device->tables().lock();
    primary->send(packet_out(5));
    // The device takes a stream's messages in order: the answer to this one says that the first has gone.
    auto answer = std::async(std::launch::async, [&] { return refused(packet_out(6)).canonical_code(); });
    EXPECT_EQ(answer.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "it waits for the tables";
    EXPECT_EQ(device->engine().sent().size(), 1u);
    writing.unlock();
    EXPECT_EQ(answer.get(), grpc::NOT_FOUND);
    ASSERT_EQ(primary->write_one(erase(key_of(kInterfaceTable, {5}))), grpc::OK);
    EXPECT_EQ(refused(packet_out(5)).canonical_code(), grpc::NOT_FOUND) << "it is gone";
}

TEST_F(Packets, MalformedOnesAreRefusedByName) {
    auto error = refused(packet_out(5));
    EXPECT_EQ(error.canonical_code(), grpc::NOT_FOUND);
    EXPECT_TRUE(error.has_packet_out());
    auto packet = packet_out(5);
    packet.mutable_metadata(0)->set_metadata_id(7);
    EXPECT_EQ(refused(packet).canonical_code(), grpc::INVALID_ARGUMENT);
    packet = packet_out(1ull << 32);
    EXPECT_EQ(refused(packet).canonical_code(), grpc::INVALID_ARGUMENT);
    packet = packet_out(5);
    packet.set_payload("short");
    EXPECT_EQ(refused(packet).canonical_code(), grpc::INVALID_ARGUMENT);
    p4v1::StreamMessageRequest digest;
    digest.mutable_digest_ack()->set_digest_id(7);
    primary->send(digest);
    error = primary->receive()->error();
    EXPECT_EQ(error.canonical_code(), grpc::NOT_FOUND);
    EXPECT_EQ(error.digest_list_ack().digest_list_ack().digest_id(), 7u);
    Controller backup(*device);
    backup.arbitrate(election(0));
    backup.send(packet_out(5));
    EXPECT_EQ(backup.receive()->error().canonical_code(), grpc::PERMISSION_DENIED);
    EXPECT_EQ(device->server().statistics().packet_outs_refused, 5u);
}

TEST_F(Packets, ComeInToThePrimaryOnly) {
    Controller backup(*device);
    backup.arbitrate(election(0));
    device->engine().punt(70000, SP_PUNT_GLEAN, frame);
    auto message = primary->receive();
    ASSERT_TRUE(message && message->has_packet());
    const auto& packet = message->packet();
    EXPECT_EQ(packet.payload(), std::string(frame.begin(), frame.end()));
    ASSERT_EQ(packet.metadata_size(), 2);
    EXPECT_EQ(packet.metadata(0).metadata_id(), 1u);
    EXPECT_EQ(packet.metadata(0).value(), value(70000));
    EXPECT_EQ(packet.metadata(1).metadata_id(), 2u);
    EXPECT_EQ(packet.metadata(1).value(), value(SP_PUNT_GLEAN));
    EXPECT_EQ(device->server().statistics().packet_ins, 1u);
    primary->hang_up();
    ASSERT_EQ(backup.receive()->arbitration().status().code(), grpc::NOT_FOUND);
    device->engine().punt(70000, SP_PUNT_GLEAN, frame);
    EXPECT_EQ(device->server().statistics().packet_ins_no_primary, 1u);
}

TEST_F(Packets, ASlowPrimaryLosesThemByCount) {
    Folder other;
    Device small(other.path(), {.device_id = kDevice, .queued_packet_ins = 10});
    Controller controller(small);
    controller.arbitrate(election(1));
    flood(small, SP_PUNT_LOCAL);
    auto statistics = small.server().statistics();
    EXPECT_GT(statistics.packet_ins_queue_full, 0u);
    EXPECT_EQ(statistics.packet_ins + statistics.packet_ins_queue_full, kFlood);
    for (uint64_t number = 0; number < statistics.packet_ins; ++number) {
        ASSERT_TRUE(controller.receive()->has_packet());
    }
}

// What the stream has already taken goes first, and no more than that of what still waits.
TEST_F(Packets, BfdPassesAFloodThatFillsTheStreamAndTheQueue) {
    Folder other;
    Device small(other.path(), {.device_id = kDevice, .queued_packet_ins = 100});
    Controller controller(small);
    controller.arbitrate(election(1));
    flood(small, SP_PUNT_LOCAL);
    const uint64_t queued = 100, sent = small.server().statistics().packet_ins;
    ASSERT_GT(small.server().statistics().packet_ins_queue_full, 0u) << "everything is full";
    small.engine().punt(2, SP_PUNT_LOCAL, frame, SP_CLASS_BFD, 2, 2);
    uint64_t before = 0;
    for (auto message = controller.receive(); message; message = controller.receive(), ++before) {
        if (message->packet().metadata(0).value() == value(2)) {
            break;
        }
    }
    EXPECT_LE(before, sent - queued + 10) << "it waits for none of those that were queued";
}

// -- digests ---------------------------------------------------------------------------------------------------------
class Digests : public WithDevice {
  protected:
    using Nanoseconds = int64_t;
    static constexpr Nanoseconds kNever = 3'600'000'000'000, kSoon = 1'000'000;

    // The head of a packet to an address, as the engine hands it over.
    static std::vector<uint8_t> head4(std::array<uint8_t, 4> to) {
        std::vector<uint8_t> octets(34);
        octets[12] = 0x08;
        std::copy(to.begin(), to.end(), octets.begin() + 30);
        return octets;
    }
    static std::vector<uint8_t> head6(std::array<uint8_t, 16> to) {
        std::vector<uint8_t> octets(54);
        octets[12] = 0x86, octets[13] = 0xdd;
        std::copy(to.begin(), to.end(), octets.begin() + 38);
        return octets;
    }
    p4v1::Entity enabled(int32_t most, Nanoseconds wait) const {
        p4v1::Entity entity;
        entity.mutable_digest_entry()->set_digest_id(golden().digests(0).preamble().id());
        entity.mutable_digest_entry()->mutable_config()->set_max_list_size(most);
        entity.mutable_digest_entry()->mutable_config()->set_max_timeout_ns(wait);
        return entity;
    }
    void enable(int32_t most, Nanoseconds wait) {
        ASSERT_EQ(primary->write_one(update(p4v1::Update::INSERT, enabled(most, wait))), grpc::OK);
    }
    void sample(const std::vector<uint8_t>& head, uint32_t interface_id = 5) {
        device->engine().punt(interface_id, SP_SAMPLE, head);
    }
    p4v1::DigestList list() {
        auto message = primary->receive();
        return message ? message->digest() : p4v1::DigestList();
    }
    static const std::string& member(const p4v1::P4Data& data, int which) {
        return data.struct_().members(which).bitstring();
    }
};

TEST_F(Digests, AreWhatTheP4InfoSays) {
    const auto& info = golden();
    ASSERT_EQ(info.digests_size(), 1);
    EXPECT_EQ(info.digests(0).preamble().name(), "sample");
    const auto& type = info.type_info().structs().at(info.digests(0).type_spec().struct_().name());
    std::string members;
    for (const auto& member : type.members()) {
        members += member.name() + ' ' + std::to_string(member.type_spec().bitstring().bit().bitwidth()) + ' ';
    }
    EXPECT_EQ(members, "router_interface_id 32 ip_version 8 dst 128 timestamp 48 ");
}

TEST_F(Digests, AListGoesWhenItIsFull) {
    enable(2, kNever);
    sample(head4({10, 0, 0, 1}), 70000);
    sample(head6({0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}));
    sample(head4({0, 0, 0, 0}));
    auto full = list();
    EXPECT_EQ(full.digest_id(), golden().digests(0).preamble().id());
    EXPECT_EQ(full.list_id(), 1u);
    EXPECT_GT(full.timestamp(), 0);
    ASSERT_EQ(full.data_size(), 2);
    EXPECT_EQ(member(full.data(0), 0), value(70000));
    EXPECT_EQ(member(full.data(0), 1), value(4));
    EXPECT_EQ(member(full.data(0), 2), std::string("\x0a\0\0\x01", 4));
    EXPECT_EQ(member(full.data(1), 0), value(5));
    EXPECT_EQ(member(full.data(1), 1), value(6));
    EXPECT_EQ(member(full.data(1), 2).size(), 16u);
    EXPECT_EQ(member(full.data(1), 2).back(), 9);
    sample(head4({0, 0, 0, 0}));
    auto next = list();
    EXPECT_EQ(next.list_id(), 2u);
    ASSERT_EQ(next.data_size(), 2);
    EXPECT_EQ(member(next.data(0), 2), value(0)) << "the shortest form";
    EXPECT_NE(member(next.data(0), 3), member(next.data(1), 3)) << "no two of a list are alike";
    EXPECT_EQ(device->server().statistics().samples, 4u);
}

TEST_F(Digests, AListGoesWhenItsFirstHasWaitedLongEnough) {
    enable(0, kSoon);
    sample(head4({10, 0, 0, 1}));
    EXPECT_EQ(list().data_size(), 1);
    ASSERT_EQ(primary->write_one(update(p4v1::Update::MODIFY, enabled(100, 0))), grpc::OK);
    sample(head4({10, 0, 0, 1}));
    sample(head4({10, 0, 0, 2}));
    EXPECT_EQ(list().data_size(), 1) << "nothing waits";
    EXPECT_EQ(list().data_size(), 1);
}

TEST_F(Digests, AShorterTimeHoldsForTheListThatIsBeingFilled) {
    enable(0, kNever);
    sample(head4({10, 0, 0, 1}));
    ASSERT_EQ(primary->write_one(update(p4v1::Update::MODIFY, enabled(0, kSoon))), grpc::OK);
    sample(head4({10, 0, 0, 2}));
    EXPECT_EQ(list().data_size(), 2);
}

TEST_F(Digests, AnAcknowledgementIsTakenAndChangesNothing) {
    enable(1, kNever);
    p4v1::StreamMessageRequest ack;
    ack.mutable_digest_ack()->set_digest_id(golden().digests(0).preamble().id());
    ack.mutable_digest_ack()->set_list_id(1);
    primary->send(ack);
    sample(head4({10, 0, 0, 1}));
    EXPECT_EQ(list().data_size(), 1);
}

TEST_F(Digests, NobodyIsToldWhatNobodyWants) {
    sample(head4({10, 0, 0, 1}));
    enable(1, kNever);
    sample(std::vector<uint8_t>(20, 1));
    EXPECT_EQ(device->server().statistics().samples_dropped, 2u) << "not enabled; no destination";
    sample(head4({10, 0, 0, 1}));
    EXPECT_EQ(list().list_id(), 1u);
    Controller backup(*device);
    backup.arbitrate(election(0));
    primary->hang_up();
    const auto told = backup.receive();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->arbitration().status().code(), grpc::NOT_FOUND) << "the server has noticed";
    sample(head4({10, 0, 0, 1}));
    EXPECT_EQ(device->server().statistics().samples_dropped, 3u);
}

TEST_F(Digests, ASlowPrimaryLosesThemByCountAndPuntsFindRoom) {
    enable(0, kNever);
    constexpr uint64_t kMany = 400'000;
    for (uint64_t number = 0; number < kMany; ++number) {
        sample(head4({10, 0, 0, 1}));
    }
    sample(head4({10, 0, 0, 1}));
    device->engine().punt(1, SP_PUNT_LOCAL, std::vector<uint8_t>(64, 1));
    auto statistics = device->server().statistics();
    EXPECT_GT(statistics.samples_dropped, 0u);
    EXPECT_EQ(statistics.samples + statistics.samples_dropped, kMany + 1);
    EXPECT_EQ(statistics.packet_ins, 1u);
    EXPECT_EQ(statistics.packet_ins_queue_full, 0u);
    uint64_t listed = 0;
    for (auto message = primary->receive(); message && !message->has_packet(); message = primary->receive()) {
        EXPECT_LE(message->digest().data_size(), 1000);
        listed += static_cast<uint64_t>(message->digest().data_size());
    }
    EXPECT_GT(listed, 0u);
    EXPECT_LE(listed, statistics.samples);
}

}  // namespace
}  // namespace splitplane::testing
