// SPDX-License-Identifier: Apache-2.0

#include "daemon/limiting.h"

#include <gtest/gtest.h>

namespace splitplane {
namespace {

constexpr const char* kStat =
    "cpu  10 0 20 300 0 0 40 0 0 0\n"
    "cpu0 4 0 8 100 1 2 30 5 7 7\n"
    "cpu1 6 0 12 200 0 0 10 0 0 0\n"
    "intr 12345 0 0\n";

Load load(uint64_t softirq, uint64_t all, uint64_t received = 0, uint64_t not_sent = 0) {
    PortLosses port{2, {}, {{"rx_dropped", std::nullopt, received}, {"tx_dropped", std::nullopt, 7 * not_sent}}};
    port.egress[SP_LOSS_RING_FULL] = not_sent;
    return {{{0, {0, all}}, {1, {softirq, all}}}, {port}};
}

std::vector<std::string> kinds(const Load& before, const Load& now) {
    std::vector<std::string> all;
    for (const Limit& limit : limits_between(before, now)) all.push_back(limit.kind);
    return all;
}

using Kinds = std::vector<std::string>;

TEST(Limits, TimesAreReadByCpu) {
    const AllCpuTimes times = cpu_times(kStat);
    ASSERT_EQ(times.size(), 2u);
    EXPECT_EQ(times.at(0).softirq, 30u);
    EXPECT_EQ(times.at(0).all, 150u) << "guests' time is in the user's already";
    EXPECT_EQ(times.at(1).softirq, 10u);
    EXPECT_TRUE(cpu_times("").empty());
    EXPECT_EQ(cpu_times("cpu0 1 2\n").at(0).all, 3u);
}

TEST(Limits, ACoreIsNamedByItsNumberWhereOthersAreOffline) {
    const Load before{
        cpu_times("cpu0 100 0 100 9000 0 0 500 0\ncpu1 0 0 0 9000 0 0 600 0\ncpu2 0 0 0 9000 0 0 700 0\n"), {}};
    const Load now{cpu_times("cpu0 100 0 100 9100 0 0 500 0\ncpu2 0 0 0 9001 0 0 799 0\n"), {}};
    const auto limits = limits_between(before, now);
    ASSERT_EQ(limits.size(), 1u);
    EXPECT_EQ(limits.front().detail, "processor 2, 99 % of its time in softirq");
}

TEST(Limits, AreCoreRingOrLinkOrNothing) {
    const Load before = load(100, 1000, 5, 5);
    EXPECT_EQ(kinds(before, load(150, 1100, 5, 5)), Kinds{}) << "half of a core";
    EXPECT_EQ(kinds(before, load(199, 1100, 5, 5)), Kinds{"core"});
    EXPECT_EQ(kinds(before, load(199, 1100, 9, 5)), Kinds{"core"}) << "and so its ring";
    EXPECT_EQ(kinds(before, load(150, 1100, 9, 5)), Kinds{"ring"});
    EXPECT_EQ(kinds(before, load(150, 1100, 5, 9)), Kinds{"link"});
    EXPECT_EQ(kinds(before, load(199, 1100, 9, 9)), (Kinds{"core", "link"}));
    EXPECT_EQ(kinds(before, load(100, 1010)), Kinds{}) << "counters that begin anew";
    EXPECT_EQ(kinds({}, load(150, 1100, 9, 9)), Kinds{}) << "a port that is new";
    EXPECT_EQ(limits_between(before, load(150, 1100, 9, 5)).front().detail,
              "port 2, 4 frames lost by its receive rings");
}

TEST(Limits, AreThoseOfTheLastSeconds) {
    using std::chrono::milliseconds;
    Limits limits;
    const std::chrono::steady_clock::time_point start{};
    EXPECT_EQ(limits.look(load(0, 0), start).seconds, 0u);
    EXPECT_EQ(limits.look(load(0, 50, 1), start + milliseconds(500)).seconds, 0u);
    const auto first = limits.look(load(0, 200, 1), start + milliseconds(2000));
    EXPECT_EQ(first.seconds, 2u);
    ASSERT_EQ(first.limits.size(), 1u);
    const auto at_once = limits.look(load(0, 210, 1), start + milliseconds(2100));
    EXPECT_EQ(at_once.limits.size(), 1u) << "whoever asks next is told the same";
    const auto later = limits.look(load(0, 400, 1), start + milliseconds(4000));
    EXPECT_EQ(later.seconds, 2u);
    EXPECT_TRUE(later.limits.empty()) << "it is over";
}

TEST(Limits, ACoreIsOneWhileItIsShared) {
    const Load before{{{0, {0, 0}}, {1, {0, 0}}}, {}};
    const Load now{{{0, {10, 100}}, {1, {10, 100}}}, {}, {{0, SP_SHARE_WHOLE}, {1, 331000}}};
    const std::vector<Limit> limits = limits_between(before, now);
    ASSERT_EQ(limits.size(), 1u);
    EXPECT_EQ(limits[0].kind, "core");
    EXPECT_EQ(limits[0].detail, "processor 1 is shared, 33 % of it for a weight of 1");
}

TEST(Limits, ALinkThatIsSharedIsOne) {
    Load before = load(0, 100, 0), now = load(0, 200, 0);
    before.over_share = {{2, 10}, {3, 5}};
    now.over_share = {{2, 15}, {3, 5}, {4, 9}};
    const std::vector<Limit> limits = limits_between(before, now);
    ASSERT_EQ(limits.size(), 1u) << "of port 4 nothing is known from before";
    EXPECT_EQ(limits[0].kind, "link");
    EXPECT_EQ(limits[0].detail, "port 2, 5 packets over their routers' shares");
}

}  // namespace
}  // namespace splitplane
