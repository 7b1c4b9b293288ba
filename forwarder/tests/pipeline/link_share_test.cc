// SPDX-License-Identifier: Apache-2.0
//
// The shares of a link, simulated: who sends how much by a port, and what the port lets pass of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <queue>
#include <random>

#include "tests/pipeline/world.h"

extern "C" {
#include "pipeline/packet_out.h"
}

namespace splitplane::test {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint32_t kPort = 5;
constexpr uint32_t kLong = 1514, kShort = 60;  // octets of a frame

uint64_t rate_of(double bits_per_s) { return static_cast<uint64_t>(bits_per_s / 8 * (1u << 30) / kSecond); }
double wire_bits(uint32_t frame) { return 8.0 * std::max(frame + 24, 84u); }

// What somebody sends by the port: so many bits of the wire a second from one time to another, by chance spaced.
struct Sender {
    uint32_t interface;
    double bits_per_s;
    uint32_t frame = kLong;
    uint32_t cpu = 0;
    double from_s = 0, to_s = 1e9;
    Octets out = {};  // it is the controller that sends, this
};

struct Links : ::testing::Test {
    MemoryEngine engine{Capacity{.words = 1u << 12, .members = 64}, 2};
    sp_arrays& tables = engine.arrays();
    double speed = 0;
    uint64_t now = 100 * kSecond;
    std::vector<Sender> senders;
    std::mt19937_64 random{19};

    void port(double bits_per_s, uint64_t bits = 0) {
        speed = bits_per_s;
        sp_link& link = tables.links[kPort];
        link.speed = rate_of(bits_per_s);
        link.tick_ns = std::max<uint64_t>(1u << 20, (uint64_t{SP_LINK_BURST} << 30) / link.speed);
        const uint64_t quantum = sp_link_octets_of(link) / 16;
        tables.link_modes[kPort] = sp_link_mode(SP_LINK_SHARED | bits, quantum);
    }
    static uint64_t sp_link_octets_of(const sp_link& link) { return link.speed * link.tick_ns >> 30; }
    // Guarantees and ceilings are parts of the port's speed; interface, its VLAN and router are one number.
    void router(uint32_t slot, uint32_t weight = 1, double guarantee = 0, double ceiling = 0, uint32_t slice = 0) {
        tables.link_slots[slot] = slot;
        tables.classifier[sp_classifier_index(kPort, slot)] = sp_classifier(SP_CLASSIFIER_INGRESS, slot, slot, slot);
        tables.link_routers[slot] = {rate_of(guarantee * speed), rate_of(ceiling * speed), weight, slice, 0, 0, 0, 0, 0};
    }
    void slice(uint32_t slot, uint32_t weight = 1, double guarantee = 0, double ceiling = 0) {
        tables.link_slices[slot] = {rate_of(guarantee * speed), rate_of(ceiling * speed), weight, {}, {}};
    }
    bool passes(const Sender& sender, uint64_t at) {
        if (sender.out.empty()) {
            return !sp_native_over_link_share(&tables, kPort, sender.interface, sender.frame, sender.cpu, at);
        }
        const auto octets = static_cast<uint32_t>(sender.out.size());
        return sp_lets_out(&tables, kPort, sender.interface, sender.out.data(), octets, at) != 0;
    }
    bool contended() const { return tables.link_modes[kPort] & SP_LINK_CONTENDED; }

    // What each sender has had in the next so many seconds, bits of the wire a second.
    std::vector<double> run(double seconds) {
        struct Next {
            double at;
            size_t sender;
            bool operator>(const Next& other) const { return at > other.at; }
        };
        std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
        std::uniform_real_distribution<double> chance(0.5, 1.5);
        const double end = seconds * kSecond;
        const auto frame_of = [](const Sender& sender) {
            return sender.out.empty() ? sender.frame : static_cast<uint32_t>(sender.out.size()) + 4;
        };
        const auto gap = [&](const Sender& sender) {
            return wire_bits(frame_of(sender)) / sender.bits_per_s * kSecond * chance(random);
        };
        for (size_t each = 0; each < senders.size(); ++each) {
            queue.push({senders[each].from_s * kSecond + gap(senders[each]), each});
        }
        std::vector<double> had(senders.size());
        while (!queue.empty() && queue.top().at < end) {
            const auto [at, each] = queue.top();
            queue.pop();
            const Sender& sender = senders[each];
            if (at > sender.to_s * kSecond) continue;
            if (passes(sender, now + static_cast<uint64_t>(at))) had[each] += wire_bits(frame_of(sender)) / seconds;
            queue.push({at + gap(sender), each});
        }
        now += static_cast<uint64_t>(end);
        return had;
    }
    static double sum(const std::vector<double>& all) {
        double total = 0;
        for (double each : all) total += each;
        return total;
    }
};


constexpr double kMega = 1e6, kGiga = 1e9;

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

// -- what the controller sends ----------------------------------------------------------------------------------------
struct PacketOuts : Links {
    static Octets ping(uint32_t payload = 1400) {
        return ethernet(2, 1, 0x0800, Ipv4{.protocol = 1, .payload = Octets(payload)}.octets());
    }
    static Octets bgp() {
        Octets ports;
        put(ports, 179u << 16 | 40000, 4);
        return ethernet(2, 1, 0x0800, Ipv4{.protocol = 6, .payload = ports + Octets(1000)}.octets());
    }
    // Beside one who keeps to his share a router that sends twice what the link takes has the rest.
    void expect_floods_have_their_share(const Octets& frame) {
        port(100 * kMega);
        router(1);
        router(2);
        senders = {{.interface = 1, .bits_per_s = 200 * kMega, .out = frame}, {2, 49 * kMega}};
        const auto had = parts();
        EXPECT_NEAR(had[0], 0.51, 0.01);
        EXPECT_NEAR(had[1], 0.49, 0.003);
        EXPECT_GT(tables.link_routers[1].dropped, 0u);
    }
    // The parts of the link that they have.
    std::vector<double> parts() {
        run(0.3);
        std::vector<double> had = run(1);
        for (double& each : had) each /= speed;
        return had;
    }
};

TEST_F(PacketOuts, AFloodOfThemHasItsRoutersShare) { expect_floods_have_their_share(ping()); }

TEST_F(PacketOuts, WhatCallsItselfARoutingProtocolHasLittleMore) { expect_floods_have_their_share(bgp()); }

TEST_F(PacketOuts, AloneTheyHaveTheWholeLink) {
    port(100 * kMega);
    router(1);
    senders = {{.interface = 1, .bits_per_s = 80 * kMega, .out = ping()}};
    EXPECT_NEAR(parts()[0], 0.8, 0.01);
    EXPECT_FALSE(contended());
    senders = {{.interface = 1, .bits_per_s = 150 * kMega, .out = ping()}};
    EXPECT_NEAR(parts()[0], 1, 0.01);
    EXPECT_TRUE(contended());
}

TEST_F(PacketOuts, RoutingProtocolsGoOnBesideTheirRoutersTransit) {
    port(100 * kMega);
    router(1);
    router(2);
    senders = {{1, 200 * kMega}, {2, 40 * kMega}, {.interface = 1, .bits_per_s = 0.5 * kMega, .out = bgp()}};
    auto had = parts();
    EXPECT_NEAR(had[2], 0.005, 2e-4);
    EXPECT_NEAR(had[1], 0.4, 0.002);
    EXPECT_NEAR(sum(had), 1, 0.01);
    senders[2].out = ping();
    EXPECT_LT(parts()[2], 0.004) << "what is no routing protocol's waits behind it";
}

// By their router's bucket, which is empty.
TEST_F(PacketOuts, WhatARoutingProtocolSays) {
    port(100 * kMega, SP_LINK_CONTENDED);
    router(1);
    const auto goes = [&](const Octets& frame) {
        tables.link_routers[1].bucket = now >> 10 & 0xffffffff;
        return passes({.interface = 1, .bits_per_s = 0, .out = frame}, now);
    };
    const auto ip = [](uint8_t protocol, uint8_t ttl, uint32_t ports = 0) {
        Octets payload;
        put(payload, ports, 4);
        return ethernet(2, 1, 0x0800, Ipv4{.ttl = ttl, .protocol = protocol, .payload = payload + Octets(20)}.octets());
    };
    const Octets isis = ethernet(0x0180c2000014, 1, 100, Octets(100)), arp = ethernet(2, 1, 0x0806, Octets(46));
    for (const Octets& frame : {bgp(), arp, isis, ip(89, 1), ip(17, 255, 49152u << 16 | 3784), ip(112, 255)}) {
        EXPECT_TRUE(goes(frame)) << "of " << frame.size() << " octets";
    }
    const Octets lldp = ethernet(0x0180c200000e, 1, 0x88cc, Octets(100)), other = ethernet(2, 1, 100, Octets(100));
    const Octets tagged = ethernet(2, 1, 0x0806, Octets(46), 5);
    const Octets wrong = ethernet(2, 1, 0x0800, Ipv4{.protocol = 89, .header_checksum = 1}.octets());
    for (const Octets& frame : {ping(), lldp, other, tagged, wrong, ip(17, 64, 49152u << 16 | 3784), Octets(13)}) {
        EXPECT_FALSE(goes(frame)) << "of " << frame.size() << " octets";
    }
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
