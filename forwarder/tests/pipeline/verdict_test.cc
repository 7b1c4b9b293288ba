// SPDX-License-Identifier: Apache-2.0
//
// reason and policer: what is counted, and what is dropped as too much.

#include <gtest/gtest.h>

#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

struct Verdicts : ::testing::Test, World {
    // A punt `local` at a time.
    bool passes(uint64_t now_ns) const {
        const Octets frame = ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = 0x0a010001}.octets());
        return run(frame, kLanPort, now_ns).action == SP_ACTION_PUNT;
    }
};

TEST_F(Verdicts, OnlyReasonsWithAnEntryAreCounted) {
    tables.vrfs[kVrf].counted = 1u << sp_reason_index(SP_PUNT_LOCAL);
    EXPECT_TRUE(passes(0));
    EXPECT_EQ(arrives(Ipv4{.ttl = 1}).reason, SP_PUNT_TTL_EXPIRED);
    EXPECT_EQ(counted(SP_PUNT_LOCAL), 1u);
    EXPECT_EQ(counted(SP_PUNT_TTL_EXPIRED), 0u);
}

TEST_F(Verdicts, NoPolicerPassesNothing) {
    tables.policers[sp_policer_index(kVrf, SP_CLASS_LOCAL)].present = 0;
    EXPECT_FALSE(passes(0));
    EXPECT_EQ(counted(SP_PUNT_LOCAL), 1u) << "counted before it is policed";
    EXPECT_EQ(tables.engine_counters[SP_COUNT_POLICED], 1u);
}

TEST_F(Verdicts, RateAndBurst) {
    write.police(kVrf, SP_CLASS_LOCAL, kMillisecond, 4 * kMillisecond);  // 1,000 a second, a burst of 5
    uint64_t now = 1'000'000 * kMillisecond;
    for (int packet = 0; packet < 5; ++packet) EXPECT_TRUE(passes(now));
    EXPECT_FALSE(passes(now));
    EXPECT_FALSE(passes(now + kMillisecond - 1));
    EXPECT_TRUE(passes(now + kMillisecond));
    EXPECT_FALSE(passes(now + kMillisecond));
    now += 1'000 * kMillisecond;  // quiet: the burst is there again, and no more
    for (int packet = 0; packet < 5; ++packet) EXPECT_TRUE(passes(now));
    EXPECT_FALSE(passes(now));
}

TEST_F(Verdicts, LongRunRateIsTheConfigured) {
    write.police(kVrf, SP_CLASS_LOCAL, 10 * kMillisecond, 0);
    int passed = 0;
    for (uint64_t now = 0; now < 1'000 * kMillisecond; now += kMillisecond) passed += passes(now);
    EXPECT_EQ(passed, 100);
}

TEST_F(Verdicts, EachCpuCountsForItself) {
    MemoryEngine engine(Capacity{.words = 1u << 12, .members = 64}, 2);
    Writer two(engine.arrays());
    two.usual_router();
    const Octets frame = ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = 0x0a010001}.octets());
    test::run(engine.arrays(), kLanPort, frame, 0, 1);
    const sp_counter* second = engine.arrays().reasons + size_t{SP_VRFS} * SP_REASONS;
    EXPECT_EQ(second[kVrf * SP_REASONS + SP_PUNT_LOCAL].packets, 1u);
    EXPECT_EQ(engine.arrays().rx[SP_INTERFACES + kLan].packets, 1u);
    EXPECT_EQ(engine.arrays().rx[kLan].packets, 0u);
}

}  // namespace
}  // namespace splitplane::test
