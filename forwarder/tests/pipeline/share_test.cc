// SPDX-License-Identifier: Apache-2.0
//
// The law of a core's shares, on a core that is simulated: packets wait in a ring of 256, a poll takes up to 64 of them,
// and each takes its time in its program, in the driver and, if it is sent, at the other end. What each router had of the
// core is compared with what weights, guarantees and ceilings entitle it to.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

#include "tests/pipeline/world.h"

extern "C" {
#include "pipeline/core_clock.h"
}

namespace splitplane::test {
namespace {

constexpr double kMs = 1e6;  // ns
constexpr uint32_t kRing = 256, kPercent = SP_SHARE_WHOLE / 100;
constexpr double kWake = 2000, kPoll = 150;                                 // ns
constexpr uint32_t kNearEnd = 1, kFarEnd = 2, kElsewhere = 3;               // queues
constexpr double kToConverge = 100 * kMs, kMeasured = 100 * kMs;
constexpr double kError = 0.02;                           // of the core
constexpr double kTarget = SP_CORE_IDLE / 1024.0 + 0.01;  // that is idle, and what polls themselves take

// What a packet takes beside its program, and one that is dropped early; ns.
struct Costs {
    double driver = 90, driver_drop = 30, beside = 40, drop = 25;
};

// As a veth's, with a way out that is slower: a drop takes a quarter of what a packet takes that is forwarded, or half.
constexpr Costs kQuarter{.driver = 420, .driver_drop = 90, .beside = 40, .drop = 50};
constexpr Costs kHalf{.driver = 420, .driver_drop = 180, .beside = 40, .drop = 100};

struct SimulatedRouter {
    double load;          // of a core, were all of its packets forwarded
    double program = 100;  // ns that its packets take there
    uint32_t together = 1;  // packets that come at once
    uint64_t offered = 0, forwarded = 0, over_share = 0, ring = 0;
    double used = 0;       // ns of the core
};

struct Asked {
    uint32_t weight = 1, guarantee = 0, ceiling = 0, slice = 0;  // percent
    sp_share entry() const { return {weight, guarantee * kPercent, ceiling * kPercent, slice}; }
};

class SimulatedCore {
  public:
    explicit SimulatedCore(const Costs& costs = {}, uint64_t seed = 1) : costs_(costs), random_(seed) {}

    uint32_t add(SimulatedRouter router, const Asked& share = {}) {
        routers.push_back(router);
        const auto vrf = static_cast<uint32_t>(routers.size());
        tables.router_shares[vrf] = share.entry();
        next_.push_back(now_);
        return vrf;
    }
    // Let so much time pass, and count from 0.
    void run(double ns) {
        for (SimulatedRouter& router : routers) {
            router.offered = router.forwarded = router.over_share = router.ring = 0;
            router.used = 0;
        }
        began_ = now_;
        for (size_t at = 0; at < routers.size(); ++at) next_[at] = std::max(next_[at], now_);
        choose_first();
        while (now_ < began_ + ns) poll();
        lasted_ = now_ - began_;
    }
    // Nothing comes for so long, and the core is full of other devices' packets.
    void pause(double ns) {
        for (const double until = now_ + ns; now_ < until;) {
            now_ += SP_NATIVE_BUDGET * SP_CORE_BESIDE_NS;
            sp_native_polled(&tables, kElsewhere, SP_NATIVE_BUDGET, static_cast<uint64_t>(now_));
        }
    }
    double share(uint32_t vrf) const { return routers[vrf - 1].used / lasted_; }
    // Of the core, without what drops take.
    double forwarding(uint32_t vrf) const {
        return static_cast<double>(routers[vrf - 1].forwarded) * cost(routers[vrf - 1]) / lasted_;
    }
    double forwarding() const {
        double sum = 0;
        for (uint32_t vrf = 1; vrf <= routers.size(); ++vrf) sum += forwarding(vrf);
        return sum;
    }
    double loss(uint32_t vrf) const {
        const SimulatedRouter& router = routers[vrf - 1];
        return router.offered == 0 ? 0 : 1 - static_cast<double>(router.forwarded) / static_cast<double>(router.offered);
    }
    // What its packets that the ring had room for would take, were all of them forwarded.
    double taken(uint32_t vrf) const {
        const SimulatedRouter& router = routers[vrf - 1];
        return static_cast<double>(router.forwarded + router.over_share) * cost(router) / lasted_;
    }
    uint64_t ring_losses() const {
        uint64_t sum = 0;
        for (const SimulatedRouter& router : routers) sum += router.ring;
        return sum;
    }
    uint64_t offered() const {
        uint64_t sum = 0;
        for (const SimulatedRouter& router : routers) sum += router.offered;
        return sum;
    }

    MemoryEngine engine{Capacity{.words = 1u << 16, .members = 1u << 10}, 1};
    sp_arrays& tables = engine.arrays();
    std::vector<SimulatedRouter> routers;
    bool measures = true;  // whether the program is at the kernel's tracepoint

  private:
    double cost(const SimulatedRouter& router) const { return router.program + costs_.driver + costs_.beside; }
    void choose_first() {
        const double* const next = next_.data();
        first_ = 0;
        for (uint32_t each = 1; each < routers.size(); ++each) first_ = next[each] < next[first_] ? each : first_;
    }
    void arrive() {
        while (next_[first_] <= now_) {
            SimulatedRouter& router = routers[first_];
            for (uint32_t each = 0; each < router.together; ++each) {
                ++router.offered;
                if (ring_.size() < kRing) {
                    ring_.push_back(first_ + 1);
                } else {
                    ++router.ring;
                }
            }
            const double between = cost(router) / router.load * router.together;
            next_[first_] += std::exponential_distribution<double>(1 / between)(random_);
            choose_first();
        }
    }
    void poll() {
        arrive();
        if (ring_.empty()) {
            now_ = next_[first_] + kWake;
            arrive();
        }
        now_ += kPoll;
        uint32_t work = 0, sent = 0;
        while (work < SP_NATIVE_BUDGET && !ring_.empty()) {
            const uint32_t vrf = ring_.front();
            SimulatedRouter& router = routers[vrf - 1];
            ring_.pop_front();
            auto now = static_cast<uint64_t>(now_);
            const uint64_t began = now;
            const bool dropped = sp_native_shared(&tables, vrf, &now, static_cast<uint64_t>(router.program),
                                                  static_cast<uint64_t>(costs_.drop)) == SP_DROP_OVER_SHARE;
            const double took = static_cast<double>(now - began) + (dropped ? costs_.driver_drop : costs_.driver);
            now_ += took;
            router.used += took + (dropped ? 0 : costs_.beside);
            ++(dropped ? router.over_share : router.forwarded);
            sent += !dropped;
            ++work;
            arrive();
        }
        if (measures) sp_native_polled(&tables, kNearEnd, work, static_cast<uint64_t>(now_));
        if (sent == 0) return;
        now_ += sent * costs_.beside;
        if (measures) sp_native_polled(&tables, kFarEnd, sent, static_cast<uint64_t>(now_));
    }

    Costs costs_;
    std::mt19937_64 random_;
    std::deque<uint32_t> ring_;
    std::vector<double> next_;
    uint32_t first_ = 0;  // whose packets come next
    double now_ = 1e9, began_ = 0, lasted_ = 0;
};

class Loads : public ::testing::TestWithParam<double> {};

TEST_P(Loads, TwoToOneWithArrivalsOneToTwo) {
    const double load = GetParam(), heavy_wants = load / 3, light_wants = load * 2 / 3;
    SimulatedCore core;
    const uint32_t heavy = core.add({.load = heavy_wants}, {.weight = 2}), light = core.add({.load = light_wants});
    core.run(kToConverge);
    core.run(kMeasured);
    // Poisson arrivals, polls and wake-ups of their own take some of the core.
    EXPECT_NEAR(core.share(heavy), heavy_wants, kError);
    EXPECT_NEAR(core.share(light), std::min(light_wants, 1 - heavy_wants), load < 1 ? kError : kError + kTarget);
    EXPECT_LT(core.loss(heavy), 0.003);
    EXPECT_LT(core.ring_losses(), core.offered() / 300);
    EXPECT_GE(core.tables.core_routers[light].dropped, core.routers[light - 1].over_share);
}

INSTANTIATE_TEST_SUITE_P(All, Loads, ::testing::Values(0.5, 0.9, 1.0, 1.2, 1.5, 1.8));

// Drops of all that comes would leave little or nothing of the core. They get no more than their bound, the ring loses
// the rest, and the core goes on forwarding for all.
struct Flood {
    Costs costs;
    double load;
};
class Floods : public ::testing::TestWithParam<Flood> {
  protected:
    static void expect_forwarding(const SimulatedCore& core) {
        EXPECT_GT(core.forwarding(), 1 - SP_CORE_DROPS / 1024.0 - kTarget);
        EXPECT_GT(core.forwarding(), 0.6);
    }
};

TEST_P(Floods, OfTwoToOneAreDividedByWhatTheRingLeaves) {
    const auto [costs, load] = GetParam();
    SimulatedCore core(costs);
    const uint32_t heavy = core.add({.load = load * 0.4}, {.weight = 2}), light = core.add({.load = load * 0.6});
    core.run(kToConverge);
    core.run(kMeasured);
    expect_forwarding(core);
    EXPECT_NEAR(core.share(heavy), std::min(2.0 / 3, core.taken(heavy)), kError + kTarget);
    EXPECT_GT(core.forwarding(light), (1 - core.share(heavy)) / SP_CORE_KEPT - kError);
}

TEST_P(Floods, ByOneAmongManyDoNotStopForwarding) {
    const auto [costs, load] = GetParam();
    SimulatedCore core(costs);
    for (uint32_t each = 0; each < 63; ++each) core.add({.load = 0.5 / 64});
    core.add({.load = load - 63 * 0.5 / 64});
    core.run(kToConverge);
    core.run(kMeasured);
    expect_forwarding(core);
    for (uint32_t each = 1; each < 64; ++each) EXPECT_EQ(core.routers[each - 1].over_share, 0u) << each;
}

TEST_P(Floods, InASliceLeaveItsRoutersTheirParts) {
    const auto [costs, load] = GetParam();
    SimulatedCore core(costs);
    std::vector<uint32_t> three;
    for (uint32_t each = 0; each < 3; ++each) three.push_back(core.add({.load = load / 4}, {.slice = 1}));
    core.add({.load = load / 4}, {.slice = 2});
    core.run(kToConverge);
    core.run(kMeasured);
    expect_forwarding(core);
    for (const uint32_t each : three) EXPECT_NEAR(core.share(each), 1.0 / 6, kError + kTarget);
}

INSTANTIATE_TEST_SUITE_P(All, Floods, ::testing::Values(Flood{kQuarter, 2}, Flood{kQuarter, 4}, Flood{kHalf, 2},
                                                        Flood{kHalf, 4}));

// Its drops are no reason to let others have more.
TEST(CoreShare, ACeilingWhoseDropsAreManyDoesNotKeepOthersFromTheirShares) {
    SimulatedCore core(kQuarter);
    core.add({.load = 2}, {.ceiling = 1});
    const uint32_t heavy = core.add({.load = 0.5}, {.weight = 2}), light = core.add({.load = 0.5});
    core.run(kToConverge);
    core.run(kMeasured);
    EXPECT_GT(core.share(heavy), 1.5 * core.share(light));
    EXPECT_GT(core.share(heavy), 0.3);
}

TEST(CoreShare, ASliceLosesNothingOfWhatThereIsFor) {
    SimulatedCore core(kQuarter);
    for (uint32_t each = 0; each < 3; ++each) core.add({.load = 0.3}, {.slice = 1});
    const uint32_t modest = core.add({.load = 0.3}, {.slice = 2});
    core.run(kToConverge);
    core.run(kMeasured);
    EXPECT_LT(core.loss(modest), 0.01);
    EXPECT_GT(core.forwarding(), 0.87);
}

// Nobody pays for what others had of the core while nothing came.
TEST(CoreShare, PollsOfOtherDevicesInAPauseCostNobody) {
    SimulatedCore core(kQuarter);
    const uint32_t heavy = core.add({.load = 0.8}, {.weight = 2}), light = core.add({.load = 1.2});
    core.run(kToConverge);
    for (int pauses = 0; pauses < 4; ++pauses) {
        core.pause(2000 * kMs);
        core.run(5 * kMs);
        EXPECT_LE(core.tables.cores[0].beside_cost, SP_CORE_BESIDE_NS * SP_CORE_FRACTION) << pauses;
    }
    core.run(kToConverge);
    core.run(kMeasured);
    EXPECT_NEAR(core.share(heavy), 2.0 / 3, kError + kTarget);
    EXPECT_NEAR(core.share(light), 1.0 / 3, kError + kTarget);
    EXPECT_GT(core.forwarding(), 0.6);
}

TEST(CoreShare, OneAloneForwardsWhatTheCoreCan) {
    for (const double load : {1.5, 3.0, 8.0}) {
        SimulatedCore core;
        const uint32_t alone = core.add({.load = load}, {.weight = 2});
        core.run(kToConverge);
        EXPECT_GT(core.forwarding(alone), 0.95) << load;
        EXPECT_EQ(core.routers[alone - 1].over_share, 0u) << load;
    }
}

TEST(CoreShare, TimeIsSharedNotPackets) {
    SimulatedCore core;
    const uint32_t cheap = core.add({.load = 1, .program = 100}), dear = core.add({.load = 1, .program = 192});
    core.run(kToConverge);
    core.run(kMeasured);
    EXPECT_NEAR(core.share(cheap), core.share(dear), kError);
    EXPECT_NEAR(core.share(cheap), 0.5, kError);
    EXPECT_GT(core.routers[cheap - 1].forwarded, core.routers[dear - 1].forwarded * 11 / 10);
}

TEST(CoreShare, ModestOnesLoseNothingToAGreedyOne) {
    SimulatedCore core;
    std::vector<uint32_t> modest;
    for (uint32_t each = 0; each < 63; ++each) modest.push_back(core.add({.load = 0.5 / 64}));
    const uint32_t greedy = core.add({.load = 1.4});
    core.run(kToConverge);
    core.run(kMeasured);
    for (const uint32_t each : modest) EXPECT_LT(core.loss(each), 0.01);
    EXPECT_NEAR(core.share(greedy), 1 - 63 * 0.5 / 64, kError + kTarget);
}

TEST(CoreShare, AGuaranteeHolds) {
    SimulatedCore core;
    const uint32_t safe = core.add({.load = 0.7}, {.guarantee = 50});
    const uint32_t one = core.add({.load = 0.7}), other = core.add({.load = 0.7});
    core.run(kToConverge);
    core.run(kMeasured);
    EXPECT_NEAR(core.share(safe), 0.5, kError);
    EXPECT_NEAR(core.share(one), 0.25, kError);
    EXPECT_NEAR(core.share(other), 0.25, kError);
}

TEST(CoreShare, ACeilingHoldsOnAnIdleCore) {
    SimulatedCore core;
    const uint32_t low = core.add({.load = 0.6}, {.ceiling = 20}), free = core.add({.load = 0.3});
    core.run(kToConverge);
    core.run(kMeasured);
    EXPECT_NEAR(core.share(low), 0.2, kError);
    EXPECT_LT(core.loss(free), 0.001);
}

// A slice that has the core to itself is divided like any other.
TEST(CoreShare, ASliceAloneIsDividedBetweenItsRouters) {
    SimulatedCore core;
    const uint32_t heavy = core.add({.load = 1}, {.weight = 2, .slice = 1}), light = core.add({.load = 1}, {.slice = 1});
    core.run(kToConverge);
    core.run(kMeasured);
    EXPECT_NEAR(core.share(heavy), 2.0 / 3, kError + kTarget);
    EXPECT_NEAR(core.share(light), 1.0 / 3, kError + kTarget);
    SimulatedCore other;
    const uint32_t alone = other.add({.load = 2}, {.slice = 1});
    other.run(kToConverge);
    EXPECT_EQ(other.routers[alone - 1].over_share, 0u) << "as one without a slice";
}

// Its routers' guarantees may make the whole, and then so does its own.
TEST(CoreShare, ASliceThatIsGuaranteedTheWholeIsDivided) {
    SimulatedCore core;
    core.tables.slice_shares[1] = Asked{.guarantee = 100}.entry();
    const uint32_t modest = core.add({.load = 0.5}, {.guarantee = 60, .slice = 1});
    core.add({.load = 1.5}, {.guarantee = 40, .slice = 1});
    core.run(kToConverge);
    core.run(kMeasured);
    EXPECT_LT(core.loss(modest), 0.01);
}

TEST(CoreShare, SlicesFirstThenTheirRouters) {
    SimulatedCore core;
    core.tables.slice_shares[2] = Asked{.weight = 2}.entry();
    std::vector<uint32_t> three;
    for (uint32_t each = 0; each < 3; ++each) three.push_back(core.add({.load = 0.3}, {.slice = 1}));
    const uint32_t alone = core.add({.load = 1.5}, {.slice = 2});
    core.run(kToConverge);
    core.run(kMeasured);
    for (const uint32_t each : three) EXPECT_NEAR(core.share(each), 1.0 / 9, kError);
    EXPECT_NEAR(core.share(alone), 2.0 / 3, kError + kTarget);
}

TEST(CoreShare, WhatASliceDoesNotUseIsItsOthers) {
    SimulatedCore core;
    const uint32_t little = core.add({.load = 0.1}, {.slice = 1}), much = core.add({.load = 1}, {.slice = 1});
    const uint32_t other = core.add({.load = 1});
    core.run(kToConverge);
    core.run(kMeasured);
    EXPECT_LT(core.loss(little), 0.01);
    EXPECT_NEAR(core.share(much), 0.4, kError);
    EXPECT_NEAR(core.share(other), 0.5, kError);
}

TEST(CoreShare, TheCeilingOfASliceHoldsOnAnIdleCore) {
    SimulatedCore core;
    core.tables.slice_shares[1] = Asked{.ceiling = 30}.entry();
    const uint32_t one = core.add({.load = 0.3}, {.weight = 2, .slice = 1}), other = core.add({.load = 0.3}, {.slice = 1});
    core.run(kToConverge);
    core.run(kMeasured);
    EXPECT_NEAR(core.share(one), 0.2, kError);
    EXPECT_NEAR(core.share(other), 0.1, kError);
}

TEST(CoreShare, WhoStopsLeavesTheCoreToOthersAndHasItAgainAtOnce) {
    SimulatedCore core;
    const uint32_t flooder = core.add({.load = 1.4}), other = core.add({.load = 0.9});
    core.run(kToConverge);
    core.routers[flooder - 1].load = 0.05;
    core.run(100 * kMs);
    core.run(100 * kMs);
    EXPECT_LT(core.loss(other), 0.01);
    EXPECT_LT(core.loss(flooder), 0.001);
    core.routers[flooder - 1].load = 1.4;
    core.run(250 * kMs);
    core.run(100 * kMs);
    EXPECT_NEAR(core.share(flooder), 0.5, kError);
    EXPECT_NEAR(core.share(other), 0.5, kError);
}

TEST(CoreShare, NobodyIsHeldBackWhereNobodyMeasures) {
    SimulatedCore core;
    core.measures = false;
    const uint32_t one = core.add({.load = 1.5});
    core.add({.load = 0.5});
    core.run(20 * kMs);
    EXPECT_EQ(core.routers[one - 1].over_share, 0u);
    core.measures = true;
    core.run(kToConverge);
    EXPECT_GT(core.routers[one - 1].over_share, 0u);
    core.measures = false; // the tracepoint's program is taken away under load
    core.run(20 * kMs);
    EXPECT_LE(core.routers[one - 1].over_share, SP_CORE_TRUST);
    const uint64_t before = core.tables.core_routers[one].dropped;
    core.run(20 * kMs);
    EXPECT_EQ(core.tables.core_routers[one].dropped, before);
}

}  // namespace
}  // namespace splitplane::test
