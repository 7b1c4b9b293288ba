// SPDX-License-Identifier: Apache-2.0
//
// reason and policer: what is counted, and what is dropped as too much.

#include <gtest/gtest.h>

#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

struct Verdicts : ::testing::Test, World {
    // A punt `local` at a time.
    bool passes(uint64_t now_ns, uint32_t port = kLanPort) const {
        const Octets frame = ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = 0x0a010001}.octets());
        return run(frame, port, now_ns).action == SP_ACTION_PUNT;
    }
    uint64_t lost(uint32_t interface) const {
        return tables.punt_drops[sp_punt_drop_index(interface, SP_PLACE_POLICER, SP_CLASS_LOCAL)];
    }
    // 1,000 a second, a burst of 100, for so many interfaces.
    void share(uint32_t interfaces) {
        write.police(kVrf, SP_CLASS_LOCAL, kMillisecond, 99 * kMillisecond);
        tables.policers[sp_policer_index(kVrf, SP_CLASS_LOCAL)].shares = interfaces;
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
    tables.policers[sp_policer_index(kVrf, SP_CLASS_LOCAL)].shares = 0;
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

// A host sends ten times the rate of the whole router by one interface, another one a tenth of its share by the other.
TEST_F(Verdicts, AFloodTakesNothingOfAnotherInterfacesShare) {
    share(4);
    int passed = 0, others = 0;
    for (uint64_t at = 0; at < 10'000; ++at) {
        passed += passes(at * kMillisecond / 10);
        if (at % 100 == 99) others += passes(at * kMillisecond / 10, kUpPort);
    }
    EXPECT_EQ(others, 100) << "100 a second of 250";
    EXPECT_EQ(lost(kUp), 0u);
    EXPECT_NEAR(passed, 1'000 + 100 - 100, 2) << "rate and burst, less what the other one had";
    EXPECT_EQ(lost(kLan), 10'000u - static_cast<uint64_t>(passed));
}

TEST_F(Verdicts, TwoFloodsHaveAtLeastTheirShares) {
    share(4);
    int passed[2] = {};
    for (uint64_t at = 0; at < 10'000; ++at) {
        passed[0] += passes(at * kMillisecond / 10);
        passed[0] += passes(at * kMillisecond / 10);
        passed[1] += passes(at * kMillisecond / 10, kUpPort);
    }
    EXPECT_GE(passed[0], 250);
    EXPECT_GE(passed[1], 250) << "who floods less";
    EXPECT_LE(passed[0] + passed[1], 1'000 + 100 + 25) << "rate and burst, and what a share has beyond it";
}

TEST_F(Verdicts, AnInterfaceAloneHasTheWholeRate) {
    share(4);
    uint64_t now = 1'000'000 * kMillisecond;
    int passed = 0;
    for (int packet = 0; packet < 200; ++packet) passed += passes(now);
    EXPECT_EQ(passed, 100) << "the burst of the router";
    for (uint64_t at = 1; at <= 1'000; ++at) passed += passes(now + at * kMillisecond);
    EXPECT_EQ(passed, 1'100) << "and its rate";
}

// Of many interfaces each share is slow; two packets at once, an ARP and a BFD session's, still belong to it.
TEST_F(Verdicts, AShareHasABurstOfFourAtLeast) {
    share(1'000);
    uint64_t now = 1'000'000 * kMillisecond;
    for (int packet = 0; packet < 200; ++packet) passes(now);
    int others = 0;
    for (int packet = 0; packet < 10; ++packet) others += passes(now, kUpPort);
    EXPECT_EQ(others, 4);
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

// A router that has had its share of the core: only what is for its routing protocols goes on, as far as their policer has
// room, whatever becomes of it.
struct OverShare : ::testing::TestWithParam<uint32_t>, World {
    static constexpr uint32_t kPackets = 100, kBurst = 5;
    sp_core& core = tables.cores[0];
    sp_core_router& router = tables.core_routers[kVrf];

    OverShare() {
        core.clock = router.at = 1'000'000 * kMillisecond;
        core.left = kPackets;
        router.spent = 1;
        write.police(kVrf, SP_CLASS_BGP, kMillisecond, (kBurst - 1) * kMillisecond);
        tables.policers[sp_policer_index(kVrf, SP_CLASS_BGP)].shares = GetParam();
    }
    // How many of a flood of BGP's go as far as they can.
    uint64_t spared(uint32_t destination) const {
        const Octets syn = {4, 0, 0, 179, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0};
        Ipv4 packet{.protocol = 6, .payload = syn};
        packet.dst = destination;
        const Octets frame = ethernet(kOwnMac, kHostMac, 0x0800, packet.octets());
        for (uint32_t each = 0; each < kPackets; ++each) run(frame, kLanPort, core.clock);
        return kPackets - core.dropped;
    }
};

TEST_P(OverShare, PuntsOfRoutingProtocolsAreSparedAsFarAsTheirPolicerPassesThem) {
    EXPECT_EQ(spared(0x0a010001), kBurst);
    EXPECT_EQ(counted(SP_PUNT_LOCAL), kBurst);
    EXPECT_EQ(tables.engine_counters[SP_COUNT_POLICED], 0u);
}

TEST_P(OverShare, NoMoreIsSparedOfWhatOnlyLooksLikeThem) {
    EXPECT_EQ(spared(0x0a020001), kBurst);
    EXPECT_EQ(router.dropped, kPackets) << "those that were spared as well";
    EXPECT_EQ(spared(0x0a010001), kBurst) << "nor does it leave room for others of its kind";
}

TEST_P(OverShare, WithoutAPolicerNothingIsSpared) {
    tables.policers[sp_policer_index(kVrf, SP_CLASS_BGP)].shares = 0;
    EXPECT_EQ(spared(0x0a010001), 0u);
}

INSTANTIATE_TEST_SUITE_P(WaysIn, OverShare, ::testing::Values(1u, 2u));

}  // namespace
}  // namespace splitplane::test
