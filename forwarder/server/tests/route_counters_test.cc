// SPDX-License-Identifier: Apache-2.0
//
// Counters of routes over P4Runtime: where they are wanted, by samples; elsewhere refused as ever.

#include <thread>

#include "server/tests/device.h"

namespace splitplane::testing {
namespace {

constexpr uint64_t kVrf = 9;

// As the engine hands it over: untagged, without options.
std::vector<uint8_t> head4(std::array<uint8_t, 4> to, uint16_t ip_octets) {
    std::vector<uint8_t> octets(34);
    octets[12] = 0x08;
    octets[16] = static_cast<uint8_t>(ip_octets >> 8), octets[17] = static_cast<uint8_t>(ip_octets);
    std::copy(to.begin(), to.end(), octets.begin() + 30);
    return octets;
}
std::vector<uint8_t> head6(uint8_t last, uint8_t payload_octets) {
    std::vector<uint8_t> octets(54);
    octets[12] = 0x86, octets[13] = 0xdd;
    octets[19] = payload_octets;
    octets[38] = 0x20, octets[39] = 0x01, octets[40] = 0x0d, octets[41] = 0xb8, octets[53] = last;
    return octets;
}

class RouteCounters : public WithDevice {
  protected:
    void SetUp() override {
        rate = {.one_in = 10, .per_s = 1000, .count_routes = true};
        WithDevice::SetUp();
        ASSERT_TRUE(primary->write({insert(route(kVrf, "10.0.0.0/8", kPuntGlean)),
                                    insert(route(kVrf, "2001:db8::/32", kPuntGlean))}).ok());
        slot = static_cast<uint16_t>(device->tables().objects().slot(Space::kVrf, kVrf));
    }
    void sample(const std::vector<uint8_t>& head) {
        device->engine().punt(1, SP_SAMPLE, head, 0, slot);
    }
    p4v1::CounterData counted(const std::string& prefix) {
        auto wanted = route_key(kVrf, prefix);
        wanted.mutable_counter_data();
        return primary->read_entries(wanted).at(0).counter_data();
    }
    void lose(uint32_t samples) { device->arrays().engine_counters[SP_COUNT_SAMPLE_POLICED] += samples; }

    uint16_t slot = 0;
};

TEST_F(RouteCounters, AreOfTheLongestPrefixAndOfTheFrameWithoutItsTag) {
    ASSERT_EQ(primary->write_one(insert(route(kVrf, "10.1.0.0/16", kPuntGlean))), grpc::OK);
    sample(head4({10, 1, 2, 3}, 100));
    sample(head4({10, 2, 2, 3}, 1500));
    sample(head4({10, 2, 2, 4}, 1500));
    sample(head4({11, 0, 0, 1}, 100));  // of no route any more
    sample(head6(1, 60));
    EXPECT_EQ(counted("10.1.0.0/16").packet_count(), 10);
    EXPECT_EQ(counted("10.1.0.0/16").byte_count(), 10 * 114);
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 20);
    EXPECT_EQ(counted("10.0.0.0/8").byte_count(), 20 * 1514);
    EXPECT_EQ(counted("2001:db8::/32").packet_count(), 10);
    EXPECT_EQ(counted("2001:db8::/32").byte_count(), 10 * (14 + 40 + 60));
}

TEST_F(RouteCounters, SamplesThatWereLostCountForThoseThatCame) {
    lose(6);
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 0) << "of which route nobody knows yet";
    sample(head4({10, 0, 0, 1}, 100));
    sample(head4({10, 0, 0, 1}, 100));
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 80);
    sample(head4({10, 0, 0, 1}, 100));
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 90) << "once";
}

TEST_F(RouteCounters, BeginWithTheRoute) {
    sample(head4({10, 1, 0, 1}, 100));
    ASSERT_EQ(primary->write_one(insert(route(kVrf, "10.1.0.0/16", kPuntGlean))), grpc::OK);
    EXPECT_EQ(counted("10.1.0.0/16").packet_count(), 0) << "the packet was there before it";
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 10);
    ASSERT_EQ(primary->write_one(modify(route(kVrf, "10.0.0.0/8", kBlackhole))), grpc::OK);
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 10) << "a route that changes goes on";
    ASSERT_TRUE(primary->write({erase(route_key(kVrf, "10.0.0.0/8")), insert(route(kVrf, "10.0.0.0/8", kPuntGlean))}).ok());
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 0);
    sample(head4({10, 0, 0, 1}, 100));
    ASSERT_TRUE(primary->set_pipeline(Config::VERIFY_AND_COMMIT).ok());
    ASSERT_EQ(primary->write_one(insert(route(kVrf, "10.0.0.0/8", kPuntGlean))), grpc::OK);
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 0) << "cleared";
}

TEST_F(RouteCounters, AreReadAsDirectCountersToo) {
    sample(head4({10, 0, 0, 1}, 100));
    p4v1::Entity one, all, every;
    *one.mutable_direct_counter_entry()->mutable_table_entry() = route_key(kVrf, "10.0.0.0/8");
    all.mutable_direct_counter_entry()->mutable_table_entry()->set_table_id(kIpv6Table);
    every.mutable_direct_counter_entry()->mutable_table_entry();
    auto read = primary->read({one});
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].direct_counter_entry().data().packet_count(), 10);
    EXPECT_EQ(read[0].direct_counter_entry().table_entry().match_size(), 2);
    EXPECT_FALSE(read[0].direct_counter_entry().table_entry().has_action());
    EXPECT_EQ(primary->read({all}).size(), 1u);
    EXPECT_EQ(primary->read({every}).size(), 2u) << "of both families";
    *one.mutable_direct_counter_entry()->mutable_table_entry() = route_key(kVrf, "10.7.0.0/16");
    grpc::Status status;
    primary->read({one}, &status);
    EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
    EXPECT_EQ(primary->write_one(update(p4v1::Update::MODIFY, read[0])), grpc::UNIMPLEMENTED) << "they cannot be set";
}

TEST_F(RouteCounters, NoControllerHasToWantSamples) {
    sample(head4({10, 0, 0, 1}, 100));
    EXPECT_EQ(device->server().statistics().samples_dropped, 0u) << "nobody wanted to see it";
    ASSERT_EQ(primary->write_one(insert(entry(kInterfaceTable, {5}, kSetPort, {1, 0, 1500}))), grpc::OK);
    const uint32_t interface = device->tables().objects().slot(Space::kInterface, 5);
    EXPECT_TRUE(device->arrays().egresses[interface].port & SP_SAMPLED);
    EXPECT_EQ(device->arrays().sampling->threshold, (uint64_t{1} << 32) / 10 - 1);
}

TEST_F(RouteCounters, AControllerMayWantTheSamplesTooAndTakesNothingAwayWhenItDoesNotAnyMore) {
    ASSERT_EQ(primary->write_one(insert(entry(kInterfaceTable, {5}, kSetPort, {1, 0, 1500}))), grpc::OK);
    p4v1::Entity digest;
    digest.mutable_digest_entry()->set_digest_id(golden().digests(0).preamble().id());
    digest.mutable_digest_entry()->mutable_config()->set_max_list_size(1);
    ASSERT_EQ(primary->write_one(update(p4v1::Update::INSERT, digest)), grpc::OK);
    sample(head4({10, 0, 0, 1}, 100));
    const auto told = primary->receive();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->digest().data_size(), 1);
    ASSERT_EQ(primary->write_one(update(p4v1::Update::DELETE, digest)), grpc::OK);
    const uint32_t interface = device->tables().objects().slot(Space::kInterface, 5);
    EXPECT_TRUE(device->arrays().egresses[interface].port & SP_SAMPLED);
    sample(head4({10, 0, 0, 1}, 100));
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 20);
}

TEST_F(RouteCounters, BeginAnewWithTheProcess) {
    ASSERT_EQ(primary->write_one(insert(entry(kInterfaceTable, {5}, kSetPort, {1, 0, 1500}))), grpc::OK);
    sample(head4({10, 0, 0, 1}, 100));
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 10);
    restart();
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 0);
    const uint32_t interface = device->tables().objects().slot(Space::kInterface, 5);
    EXPECT_TRUE(device->arrays().egresses[interface].port & SP_SAMPLED) << "what the journal has is sampled as well";
    sample(head4({10, 0, 0, 1}, 100));
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 10);
}

// Whoever writes holds the lock for as long as he likes: samples wait, and of too many the rest is dropped by count.
TEST_F(RouteCounters, NoSampleWaitsForWhoHasTheTables) {
    {
        auto lock = device->tables().lock();
        std::thread([this] {  // the engine's
            for (size_t sent = 0; sent < RouteCounts::kMostWaiting + 5; ++sent) {
                sample(head4({10, 0, 0, 1}, 100));
            }
        }).join();
    }
    EXPECT_EQ(device->server().statistics().route_samples_dropped, 5u);
    EXPECT_EQ(counted("10.0.0.0/8").packet_count(), 10 * (static_cast<int64_t>(RouteCounts::kMostWaiting) + 5));
}

TEST_F(WithDevice, RoutesAreNotCountedWhereNobodyAsked) {
    ASSERT_EQ(primary->write_one(insert(route(kVrf, "10.0.0.0/8", kPuntGlean))), grpc::OK);
    auto wanted = route_key(kVrf, "10.0.0.0/8");
    wanted.mutable_counter_data();
    grpc::Status status;
    primary->read_entries(wanted, &status);
    EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED);
    EXPECT_NE(status.error_message().find("--route-counters"), std::string::npos) << status.error_message();
    ASSERT_EQ(primary->write_one(insert(entry(kInterfaceTable, {5}, kSetPort, {1, 0, 1500}))), grpc::OK);
    const uint32_t interface = device->tables().objects().slot(Space::kInterface, 5);
    EXPECT_FALSE(device->arrays().egresses[interface].port & SP_SAMPLED) << "and no packet pays for it";
}

}  // namespace
}  // namespace splitplane::testing
