// SPDX-License-Identifier: Apache-2.0
//
// Samples: which of the packets that are routed a controller sees, and that nothing else becomes of them.

#include <gtest/gtest.h>

#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

constexpr uint32_t kUntagged = 0x0a020009, kTagged = 0x0a030009;  // by kUp, by kUpVlan

struct Samples : ::testing::Test, World {
    Outcome routed(uint32_t to, uint64_t now_ns = 0, uint32_t random = 0) const {
        const Octets frame = ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = to}.octets());
        return test::run(tables, kLanPort, frame, now_ns, 0, kHeadroom, random);
    }
    uint64_t engine_counter(uint32_t which) const { return tables.engine_counters[which]; }
};

TEST_F(Samples, NoneIsTakenWhereNobodyAsked) {
    EXPECT_EQ(routed(kUntagged).action, SP_ACTION_SEND);
    EXPECT_TRUE(routed(kUntagged).sample.empty());
    write.sample(kUpVlan);
    EXPECT_TRUE(routed(kUntagged).sample.empty()) << "another way out";
    EXPECT_EQ(engine_counter(SP_COUNT_SAMPLED), 0u);
}

TEST_F(Samples, OneIsTheHeadOfWhatIsSentWithoutItsTag) {
    const Outcome plain = routed(kTagged);
    write.sample(kUpVlan);
    const Outcome sampled = routed(kTagged);
    EXPECT_EQ(sampled.action, SP_ACTION_SEND);
    EXPECT_EQ(sampled.frame, plain.frame) << "what is sampled is sent as if it were not";
    Octets head = plain.frame;
    head.erase(head.begin() + 12, head.begin() + 16);
    head.resize(std::min<size_t>(head.size(), SP_SAMPLE_OCTETS));
    EXPECT_EQ(sampled.sample, head);
    EXPECT_EQ(sampled.router_interface_id, 100 + kLan) << "where it came in";
}

TEST_F(Samples, ChanceDecides) {
    write.sample(kUp);
    tables.sampling->threshold = 41;
    EXPECT_FALSE(routed(kUntagged, 0, 41).sample.empty());
    EXPECT_TRUE(routed(kUntagged, 0, 42).sample.empty());
    EXPECT_EQ(engine_counter(SP_COUNT_SAMPLED), 1u);
}

TEST_F(Samples, WhatIsOverTheRateIsCountedAndSent) {
    write.sample(kUp);
    tables.sampling->policer = {0, kMillisecond, kMillisecond, 1, 0};  // 1,000 a second, a burst of 2
    const uint64_t now = 1'000'000 * kMillisecond;
    for (int packet = 0; packet < 2; ++packet) EXPECT_FALSE(routed(kUntagged, now).sample.empty());
    const Outcome third = routed(kUntagged, now);
    EXPECT_TRUE(third.sample.empty());
    EXPECT_EQ(third.action, SP_ACTION_SEND);
    EXPECT_EQ(engine_counter(SP_COUNT_SAMPLED), 2u);
    EXPECT_EQ(engine_counter(SP_COUNT_SAMPLE_POLICED), 1u);
    EXPECT_EQ(engine_counter(SP_COUNT_POLICED), 0u) << "that is of punts";
}

TEST_F(Samples, OneIsNoPunt) {
    for (uint32_t slot = kLan; slot <= kUpVlan; ++slot) write.sample(slot);
    EXPECT_TRUE(arrives(Ipv4{.dst = 0x0a010001}).sample.empty()) << "what is punted is no sample";
    EXPECT_FALSE(routed(kUntagged).sample.empty());
    EXPECT_EQ(counted(SP_PUNT_LOCAL), 1u);
    uint64_t all = 0;
    for (uint32_t reason = 1; reason < SP_REASONS; ++reason) all += tables.reasons[kVrf * SP_REASONS + reason].packets;
    EXPECT_EQ(all, 1u) << "a sample has no reason";
}

TEST_F(Samples, WhatAnotherPlaneHasRoutedIsNotSampled) {
    write.sample(kUp);
    write.classify(kLanPort, 300, kUp, kVrf, SP_CLASSIFIER_EGRESS);
    const Octets frame = ethernet(kNeighborMac, kHostMac, 0x0800, Ipv4{.dst = kUntagged}.octets(), 300);
    const Outcome outcome = run(frame, kLanPort);
    EXPECT_EQ(outcome.action, SP_ACTION_SEND);
    EXPECT_TRUE(outcome.sample.empty());
}

}  // namespace
}  // namespace splitplane::test
