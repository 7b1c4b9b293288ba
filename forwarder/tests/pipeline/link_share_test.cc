// SPDX-License-Identifier: Apache-2.0
//
// The shares of a link: who has how much of it, of what all send.

#include <atomic>
#include <thread>

#include "tests/pipeline/links.h"

namespace splitplane::test {
namespace {

// Weights 2:1 at all loads, whoever sends how much of it: the shares are those of max-min, and nothing is left over.
TEST_F(Links, TwoRoutersByWeight) {
    for (const double bits : {100 * kMega, kGiga}) {
        for (const double load : {1.2, 1.5, 2.0, 3.0, 4.0}) {
            for (const double first : {1 / 3.0, 0.5, 0.75}) {
                port(bits);
                router(1, 2);
                router(2, 1);
                senders = {{1, load * first * bits}, {2, load * (1 - first) * bits}};
                run(0.3);
                const auto had = run(1);
                const double others = std::min(load * (1 - first), 1 / 3.0);
                const double wanted = std::min(std::max(2 / 3.0, 1 - others), load * first);
                EXPECT_NEAR(had[0] / bits, wanted, 0.01) << bits << " at " << load << ", " << first;
                EXPECT_NEAR(sum(had) / bits, 1, 0.005) << bits << " at " << load << ", " << first;
            }
        }
    }
}

// What each does not get of a port that has room for all.
TEST_F(Links, NobodyIsHeldBackWhileSomethingIsLeft) {
    port(kGiga);
    for (uint32_t each = 1; each <= 8; ++each) router(each, each);
    for (const double load : {0.5, 0.9, 0.95}) {
        senders.clear();
        for (uint32_t each = 1; each <= 8; ++each) senders.push_back({each, load * kGiga / 8});
        run(0.1);
        for (const double had : run(1)) EXPECT_NEAR(had, load * kGiga / 8, 0.002 * kGiga);
    }
    for (uint32_t each = 1; each <= 8; ++each) EXPECT_EQ(tables.link_routers[each].dropped, 0u) << each;
    senders = {{3, 0.97 * kGiga}};
    EXPECT_NEAR(run(1)[0], 0.97 * kGiga, 0.002 * kGiga) << "one alone has the whole link";
}

TEST_F(Links, OneGreedyAmongSixtyFour) {
    port(kGiga);
    for (uint32_t each = 1; each <= 64; ++each) router(each);
    senders = {{1, 4 * kGiga}};
    for (uint32_t each = 2; each <= 64; ++each) senders.push_back({each, 0.9 * kGiga / 64});
    const auto had = run(1);
    EXPECT_NEAR(sum(had) / kGiga, 1, 0.005);
    for (uint32_t each = 2; each <= 64; ++each) {
        EXPECT_EQ(tables.link_routers[each].dropped, 0u) << each << " lost something, from the first packet on";
    }
    EXPECT_GT(tables.link_routers[1].dropped, 0u);
}

// Their buckets hold many times what the port may send at once, and fill by less than a packet in a tick.
TEST_F(Links, ManyWhoFloodHaveTheWholeLink) {
    for (const double bits : {100 * kMega, kGiga}) {
        for (const uint32_t routers : {64u, 128u}) {
            port(bits);
            senders.clear();
            for (uint32_t each = 1; each <= routers; ++each) {
                router(each);
                senders.push_back({each, 4 * bits / routers});
            }
            run(1);
            const auto had = run(1);
            EXPECT_GT(sum(had) / bits, 0.97) << routers << " on " << bits;
            for (const double one : had) EXPECT_NEAR(one * routers / bits, 1, 0.3) << routers << " on " << bits;
        }
    }
}

TEST_F(Links, BesideManyWhoFloodOneWithAGuaranteeLosesNothing) {
    port(100 * kMega);
    for (uint32_t each = 1; each <= 64; ++each) {
        router(each);
        senders.push_back({each, 10 * kMega});
    }
    router(65, 1, 0.3);
    run(1);
    senders.push_back({65, 27 * kMega});
    EXPECT_GT(sum(run(1)), 90 * kMega);
    EXPECT_EQ(tables.link_routers[65].dropped, 0u);
}

TEST_F(Links, GuaranteesAndCeilings) {
    port(kGiga);
    router(1, 1, 0.5);
    router(2, 1, 0, 0.1);
    router(3, 4);
    router(4, 2);
    senders = {{1, kGiga}, {2, kGiga}, {3, kGiga}, {4, kGiga}};
    run(0.3);
    auto had = run(1);
    EXPECT_NEAR(had[0] / kGiga, 0.5, 0.01) << "guaranteed";
    // Of the other half each weight has a seventh, 0.0714, which is below the ceiling.
    EXPECT_NEAR(had[1] / kGiga, 0.5 / 7, 0.01);
    EXPECT_NEAR(had[2] / kGiga, 0.5 * 4 / 7, 0.01);
    EXPECT_NEAR(had[3] / kGiga, 0.5 * 2 / 7, 0.01);
    senders = {{2, kGiga}, {3, kGiga}};
    run(0.3);
    had = run(1);
    EXPECT_NEAR(had[0] / kGiga, 0.1, 0.005) << "its ceiling";
    EXPECT_NEAR(had[1] / kGiga, 0.9, 0.01) << "all that the other one may not have";
}

// 64 that flood beside one that takes what they leave: whose rate is fixed has it to the last bit, and others make room.
struct FixedRates : Links {
    void flood(double each_bits) {
        for (uint32_t each = 1; each <= 64; ++each) senders.push_back({each, each_bits});
    }
    void expect_each_has(double part, double left) {
        run(0.5);
        const auto had = run(0.5);
        EXPECT_NEAR(had[0] / kGiga, left, 0.005) << "what the others leave";
        for (uint32_t each = 1; each <= 64; ++each) EXPECT_NEAR(had[each] / kGiga, part, 0.04 * part) << each;
    }
};
TEST_F(FixedRates, OfCeilings) {
    port(kGiga, SP_LINK_ALWAYS | SP_LINK_CONTENDED);
    senders = {{65, kGiga}};
    router(65);
    for (uint32_t each = 1; each <= 64; ++each) router(each, 1, 0, 0.005);
    flood(0.1 * kGiga);
    expect_each_has(0.005, 0.68);
}
TEST_F(FixedRates, OfGuarantees) {
    port(kGiga);
    senders = {{65, 2 * kGiga}};
    router(65, 1000);
    for (uint32_t each = 1; each <= 64; ++each) router(each, 1, 0.01);
    flood(0.04 * kGiga);
    expect_each_has(0.01, 0.36);
}

// One that asks for a little more than it is entitled to, beside many that do not: the level has little to hold on to.
TEST_F(Links, OneThatIsHeldBackAmongModestOnesTakesNothingOfTheirs) {
    port(kGiga);
    slice(1, 6);
    slice(2, 2, 0.1);
    const std::vector<double> wants = {0.05, 0.12, 0.08, 0.11, 0.07, 0.13, 0.09, 0.06};
    senders.clear();
    for (uint32_t each = 0; each < wants.size(); ++each) {
        router(each + 1, 1 + each % 3, 0, 0, 1);
        senders.push_back({each + 1, wants[each] * kGiga});
    }
    router(9, 2, 0.05, 0, 2);
    router(10, 4, 0, 0.04, 2);
    router(11, 5, 0, 0, 2);
    senders.push_back({9, 0.3 * kGiga});
    senders.push_back({10, 0.08 * kGiga, kShort});
    senders.push_back({11, 0.07 * kGiga});
    run(0.3);
    const auto dropped = [&] {
        uint64_t sum = tables.link_routers[11].dropped;
        for (uint32_t each = 1; each <= wants.size(); ++each) sum += tables.link_routers[each].dropped;
        return sum;
    };
    const uint64_t before = dropped();
    const auto had = run(1);
    EXPECT_EQ(dropped(), before);
    EXPECT_NEAR(had[8] / kGiga, 0.18, 0.01) << "what the others leave";
    EXPECT_NEAR(had[9] / kGiga, 0.04, 0.002) << "its ceiling";
    EXPECT_NEAR(sum(had) / kGiga, 1, 0.005);
}

// At first a large weight has all of the link whatever the level is, and does not hold that up.
TEST_F(Links, AWeightThatIsSmallBesideAnotherHasLittleSoon) {
    port(kGiga);
    router(1, 1000);
    router(2);
    senders = {{1, 1.5 * kGiga}, {2, kGiga}};
    run(0.3);
    const auto had = run(0.5);
    EXPECT_LT(had[1] / kGiga, 0.01);
    EXPECT_NEAR(sum(had) / kGiga, 1, 0.005);
}

// What a modest one of a large weight asks for is no bound for those who send seldom.
TEST_F(Links, ManyThatSendSeldomHaveWhatIsLeft) {
    constexpr uint32_t kMany = 4000;
    port(kGiga);
    router(kMany + 1, 100);
    senders = {{kMany + 1, kMega, kShort}};
    for (uint32_t each = 1; each <= kMany; ++each) {
        router(each);
        senders.push_back({each, 0.3 * kMega});
    }
    run(3);
    const auto had = run(3);
    EXPECT_NEAR(sum(had) / kGiga, 1, 0.02);
    EXPECT_NEAR(had[0] / kMega, 1, 0.02);
}

// A packet of it in more ticks than those after which a link counts as idle is all that it gets.
TEST_F(Links, ASliceThatGetsLittleIsDividedByWeight) {
    constexpr double kLittle = 100'000;
    port(kGiga, SP_LINK_ALWAYS | SP_LINK_CONTENDED);
    slice(1, 1, 0, kLittle / kGiga);
    router(1, 3, 0, 0, 1);
    router(2, 1, 0, 0, 1);
    senders = {{1, kLittle}, {2, kLittle}};
    run(200);
    const auto had = run(1000);
    EXPECT_NEAR(had[0] / kLittle, 0.72, 0.05) << "by lone packets, its weight says 0.75";
    EXPECT_NEAR(sum(had) / kLittle, 1, 0.02);
}

// A port with a ceiling on it is never left to itself.
TEST_F(Links, ACeilingHoldsWhereThereIsEnough) {
    port(kGiga, SP_LINK_ALWAYS | SP_LINK_CONTENDED);
    router(1, 1, 0, 0.2);
    senders = {{1, 0.5 * kGiga}};
    run(0.1);
    EXPECT_NEAR(run(1)[0] / kGiga, 0.2, 0.002);
    EXPECT_TRUE(contended());
}

TEST_F(Links, SlicesAndTheirRouters) {
    port(kGiga);
    slice(1, 3);
    slice(2, 1);
    router(1, 1, 0, 0, 1);
    router(2, 2, 0, 0, 1);
    router(3, 1, 0, 0, 2);
    router(4, 1);  // a slice of its own
    senders = {{1, kGiga}, {2, kGiga}, {3, kGiga}, {4, kGiga}};
    run(0.3);
    auto had = run(1);
    EXPECT_NEAR(had[0] / kGiga, 0.6 / 3, 0.01);
    EXPECT_NEAR(had[1] / kGiga, 0.6 * 2 / 3, 0.01);
    EXPECT_NEAR(had[2] / kGiga, 0.2, 0.01);
    EXPECT_NEAR(had[3] / kGiga, 0.2, 0.01);
    EXPECT_NEAR(sum(had) / kGiga, 1, 0.005);
    senders = {{1, kGiga}, {3, kGiga}, {4, 0.1 * kGiga}};
    run(0.3);
    had = run(1);
    EXPECT_NEAR(had[0] / kGiga, 0.675, 0.01) << "what its slice has, for itself";
    EXPECT_NEAR(had[1] / kGiga, 0.225, 0.01);
    EXPECT_NEAR(had[2] / kGiga, 0.1, 0.002) << "below its share";
}

// A tick of these is half a second long.
TEST_F(Links, SlowOnesTakeLonger) {
    port(kMega);
    router(1, 2);
    router(2, 1);
    senders = {{1, 2 * kMega, 500}, {2, 2 * kMega, 500}};
    run(20);
    EXPECT_TRUE(contended());
    const auto had = run(60);
    EXPECT_NEAR(had[0] / kMega, 2 / 3.0, 0.02);
    EXPECT_NEAR(sum(had) / kMega, 1, 0.01);
}

TEST_F(Links, FastOnesOverflowNothing) {
    port(400 * kGiga);
    router(1, SP_SHARE_WEIGHTS);
    router(2, SP_SHARE_WEIGHTS / 2);
    senders = {{1, 500 * kGiga, 9014}, {2, 500 * kGiga, 9014}};
    run(0.02);
    const auto had = run(0.05);
    EXPECT_NEAR(had[0] / kGiga / 400, 2 / 3.0, 0.01);
    EXPECT_NEAR(sum(had) / kGiga / 400, 1, 0.01);
}

// Three routers of a slice send as much as they can, a slice of one sends what it may: one for one.
TEST_F(Links, ASliceOfThreeAgainstASliceOfOne) {
    port(100 * kMega);
    slice(1);
    slice(2);
    for (uint32_t each = 1; each <= 3; ++each) router(each, 1, 0, 0, 1);
    router(4, 1, 0, 0, 2);
    senders = {{1, 100 * kMega}, {2, 100 * kMega}, {3, 100 * kMega}, {4, 100 * kMega}};
    run(0.3);
    const auto had = run(2);
    EXPECT_NEAR(had[3] / (100 * kMega), 0.5, 0.01);
    for (size_t each = 0; each < 3; ++each) EXPECT_NEAR(had[each] / (100 * kMega), 0.5 / 3, 0.01);
}

TEST_F(Links, ShortFramesPayWhatTheWirePays) {
    port(kGiga);
    router(1);
    router(2);
    senders = {{1, 2 * kGiga, kShort}, {2, 2 * kGiga, kLong}};
    run(0.3);
    const auto had = run(1);
    EXPECT_NEAR(had[0] / kGiga, 0.5, 0.01) << "744,000 frames a second, not 1,042,000 of 60 octets";
    EXPECT_NEAR(had[1] / kGiga, 0.5, 0.01);
}

TEST_F(Links, TwoCpusFeedOnePort) {
    port(kGiga);
    router(1, 2);
    router(2, 1);
    senders = {{1, kGiga, kLong, 0}, {1, kGiga, kLong, 1}, {2, 2 * kGiga, kLong, 1}};
    run(0.3);
    const auto had = run(1);
    EXPECT_NEAR((had[0] + had[1]) / kGiga, 2 / 3.0, 0.01);
    EXPECT_NEAR(had[2] / kGiga, 1 / 3.0, 0.01);
}

// Each CPU sends less than the port could; that both are too much, only the port sees.
TEST_F(Links, WhatCpusSendAddsUp) {
    port(kGiga);
    router(1);
    router(2);
    senders = {{1, 0.45 * kGiga, kLong, 0}};
    run(0.2);
    EXPECT_FALSE(contended());
    senders.push_back({2, 0.6 * kGiga, kLong, 1});
    const auto had = run(0.2);
    EXPECT_TRUE(contended());
    EXPECT_NEAR(sum(had) / kGiga, 1, 0.01);
    senders.pop_back();
    run(0.2);
    EXPECT_FALSE(contended()) << "and calm again";
}

// However late a CPU comes to take what was offered in the tick that it ends. Few send anything: what they sent would
// hide that something was taken twice.
TEST(LinkTicks, EachOctetIsOfOneTick) {
    constexpr uint64_t kEach = 400'000, kCpus = 4;
    sp_link_whole whole{};
    std::atomic<uint64_t> clock{1}, told{0}, most{0};
    const auto sends = [&] {
        for (uint64_t each = 0; each < kEach; ++each) {
            const uint64_t offered = sp_native_offers(&whole, each % 8 == 0, clock += 1);
            told += offered;
            if (offered > kEach * kCpus) most = offered;
        }
    };
    std::vector<std::thread> cpus;
    for (uint64_t each = 0; each < kCpus; ++each) cpus.emplace_back(sends);
    for (std::thread& cpu : cpus) cpu.join();
    EXPECT_EQ(told + whole.offered, kEach * kCpus / 8);
    EXPECT_EQ(most, 0u) << "more than was ever sent";
}

TEST_F(Links, WhoStopsLeavesHisShareToTheOthersAtOnce) {
    port(kGiga);
    router(1);
    router(2);
    senders = {{1, 3 * kGiga}, {2, 3 * kGiga}};
    run(0.3);
    senders.erase(senders.begin());
    EXPECT_GT(run(0.02)[0] / kGiga, 0.9) << "in the first 20 ms";
    senders.push_back({1, 3 * kGiga});
    run(0.02);
    EXPECT_NEAR(run(0.1)[1] / kGiga, 0.5, 0.02) << "and has it back as soon";
}

TEST_F(Links, WhoSendsAfterAPauseIsNotHeldBackForWhatWasBefore) {
    port(kGiga);
    for (uint32_t each = 1; each <= 64; ++each) {
        router(each);
        senders.push_back({each, kGiga});
    }
    run(0.1);
    now += kSecond;
    const uint64_t before = tables.link_routers[1].dropped;
    senders = {{1, 0.8 * kGiga}};
    run(0.1);
    EXPECT_EQ(tables.link_routers[1].dropped, before);
}

TEST_F(Links, ARouterFindsItsSliceAsIfNobodyHadSentThere) {
    port(kGiga);
    slice(1);
    slice(2);
    router(1, 1000, 0, 0, 1);
    router(2, 1, 0, 0, 1);
    router(3, 1, 0, 0, 2);
    senders = {{1, 2 * kGiga}, {3, 2 * kGiga}};
    run(0.1);
    senders = {{3, 2 * kGiga}};
    run(0.1);
    senders.push_back({2, 0.4 * kGiga});
    run(0.1);
    EXPECT_EQ(tables.link_routers[2].dropped, 0u);
}

// No more leaves in any short time than the speed and what a NIC has room for.
TEST_F(Links, NeverMuchMoreThanTheSpeed) {
    port(100 * kMega);
    for (uint32_t each = 1; each <= 16; ++each) router(each, each);
    senders.clear();
    for (uint32_t each = 1; each <= 16; ++each) senders.push_back({each, 100 * kMega});
    double most = 0;
    for (int each = 0; each < 100; ++each) {
        const double had = sum(run(0.01)) * 0.01 / 8;
        if (each > 0) most = std::max(most, had - 100 * kMega * 0.01 / 8);
    }
    EXPECT_LE(most, SP_LINK_BURST);
}

// -- in the pipeline --------------------------------------------------------------------------------------------------
struct LinkStage : ::testing::Test, World {
    // The uplink has no room for anybody.
    void full() {
        tables.links[kUpPort].tick_ns = 1u << 20;
        tables.link_modes[kUpPort] = sp_link_mode(SP_LINK_SHARED | SP_LINK_CONTENDED, 0);
    }
};

TEST_F(LinkStage, OverShareIsADropOfTheIngressRouter) {
    full();
    EXPECT_EQ(arrives(Ipv4{}).reason, SP_DROP_OVER_SHARE);
    EXPECT_EQ(arrives(Ipv6{}).action, SP_ACTION_DROP);
    EXPECT_EQ(counted(SP_DROP_OVER_SHARE), 2u);
    EXPECT_EQ(tables.tx[kUp].packets, 0u);
    EXPECT_EQ(tables.link_routers[0].dropped, 2u);
}

TEST_F(LinkStage, WhatIsNotSentIsNotAsked) {
    full();
    EXPECT_EQ(arrives(Ipv4{.ttl = 1}).reason, SP_PUNT_TTL_EXPIRED);
    EXPECT_EQ(arrives(Ipv4{.payload = Octets(1481)}).reason, SP_PUNT_MTU_EXCEEDED);
    EXPECT_EQ(arrives(Ipv4{.dst = 0x0a010001}).reason, SP_PUNT_LOCAL);
    EXPECT_EQ(tables.link_routers[0].dropped, 0u);
}

TEST_F(LinkStage, WhatAnotherPlaneHasRoutedPays) {
    full();
    write.classify(9, 301, kUp, kVrf, SP_CLASSIFIER_EGRESS);
    const Octets frame = ethernet(kNeighborMac, kOwnMac, 0x0800, Ipv4{}.octets(), 301);
    EXPECT_EQ(run(frame, 9).reason, SP_DROP_OVER_SHARE);
    EXPECT_EQ(counted(SP_DROP_OVER_SHARE), 1u);
}

// A tag that is added on the way out is on the wire, too.
TEST_F(LinkStage, OctetsAreThoseOfTheWire) {
    tables.links[kUpPort] = {uint64_t{1} << 36, 1u << 20, 0, 0, {}, {}};
    tables.link_modes[kUpPort] = sp_link_mode(SP_LINK_SHARED, 1u << 30);
    arrives(Ipv4{.payload = Octets(980)}); // which looks at the port, and so pays it at once
    EXPECT_EQ(tables.links[kUpPort].whole.offered, 14 + 20 + 980 + 24u);
    const sp_link_credit& credit = tables.link_credits[kUpPort];
    arrives(Ipv4{.dst = 0x0a030009, .payload = Octets(980)});
    EXPECT_EQ(credit.granted - credit.left, 14 + 4 + 20 + 980 + 24u);
    arrives(Ipv4{.payload = Octets(8)});
    EXPECT_EQ(credit.granted - credit.left, 14 + 4 + 20 + 980 + 24u + 84);
}

// What a CPU sends by a port before it looks at it again is a quantum, and the port is told of all of it.
TEST_F(LinkStage, APortIsToldOfEachOctet) {
    constexpr uint64_t kQuantum = 10'000, kFrame = 14 + 20 + 980 + 24;
    tables.links[kUpPort] = {uint64_t{1} << 36, 1u << 20, 0, 0, {}, {}};
    tables.link_modes[kUpPort] = sp_link_mode(SP_LINK_SHARED, kQuantum);
    const sp_link_credit& credit = tables.link_credits[kUpPort];
    for (uint64_t sent = 1; sent <= 50; ++sent) {
        arrives(Ipv4{.payload = Octets(980)});
        EXPECT_EQ(tables.links[kUpPort].whole.offered + credit.granted - credit.left, sent * kFrame);
        EXPECT_EQ(credit.granted, kQuantum);
    }
    EXPECT_GT(tables.links[kUpPort].whole.offered, 4 * kQuantum);
}

// A speed that a port is given is found by a CPU that sends there, after a while; so is that it is contended.
TEST_F(LinkStage, WhatChangesIsSeenBeforeLong) {
    arrives(Ipv4{.payload = Octets(980)});
    EXPECT_EQ(tables.link_credits[kUpPort].left, SP_LINK_UNSHARED_CREDIT);
    full();
    uint64_t sent = 0;
    while (arrives(Ipv4{.payload = Octets(980)}).reason != SP_DROP_OVER_SHARE) sent += 14 + 20 + 980 + 24;
    EXPECT_NEAR(sent, SP_LINK_UNSHARED_CREDIT, 14 + 20 + 980 + 24);
    EXPECT_EQ(arrives(Ipv4{}).reason, SP_DROP_OVER_SHARE);
}

// An interface that is not enabled has no entry that says whose it is: it is not that of the slot 0.
TEST_F(Links, WhatLeavesByNobodysInterfaceIsOnNobodysAccount) {
    port(kGiga, SP_LINK_CONTENDED);
    router(0);
    tables.links[kPort].whole.level = tables.links[kPort].speed << SP_LINK_LEVEL_SHIFT;
    const Octets frame = ethernet(kNeighborMac, kOwnMac, 0x0800, Ipv4{.payload = Octets(1400)}.octets());
    const Sender nobody{.interface = 7, .bits_per_s = 0, .out = frame}, first{.interface = 0, .bits_per_s = 0, .out = frame};
    EXPECT_TRUE(passes(first, now));
    for (int each = 0; each < 1000; ++each) EXPECT_FALSE(passes(nobody, now));
    EXPECT_EQ(tables.link_routers[0].dropped, 0u);
    EXPECT_TRUE(passes(first, now));
}

}  // namespace
}  // namespace splitplane::test
