// SPDX-License-Identifier: Apache-2.0
//
// Frames that come together, against the same frames one by one: the same random tables, and what becomes of each must
// be the same, octet by octet and counter by counter.

#include <gtest/gtest.h>

#include "tests/pipeline/random_world.h"

namespace splitplane::test {
namespace {

constexpr Capacity kCapacity{.words = 1u << 18, .members = 1u << 10};

class Burst : public ::testing::TestWithParam<uint64_t> {};

TEST_P(Burst, SameAsOneByOne) {
    MemoryEngine single(kCapacity, 1), together(kCapacity, 1);
    Writer to_single(single.arrays()), to_together(together.arrays());
    write_random_tables(to_single, GetParam());
    write_random_tables(to_together, GetParam());
    Draw draw(GetParam() ^ 0xb0457);
    uint32_t seen[3] = {};
    for (int number = 0; number < 200; ++number) {
        std::vector<Arrival> arrivals(draw.one_of<uint64_t>({1, 2, SP_NATIVE_BURST - 1, SP_NATIVE_BURST, draw.below(SP_NATIVE_BURST + 1)}));
        for (Arrival& arrival : arrivals) arrival = random_arrival(draw);
        const std::vector<Outcome> got = run_burst(together.arrays(), arrivals);
        for (size_t at = 0; at < arrivals.size(); ++at) {
            const Outcome wanted = run(single.arrays(), arrivals[at].port, arrivals[at].frame);
            ++seen[wanted.action];
            ASSERT_EQ(got[at], wanted) << "frame " << at << " of burst " << number << ", reason " << wanted.reason;
        }
    }
    EXPECT_EQ(totals(together.arrays()), totals(single.arrays()));
    for (const uint32_t count : seen) EXPECT_GT(count, 10u) << "the frames are one-sided";
}

TEST_P(Burst, SameAsOneByOneWhereACoreIsShared) {
    MemoryEngine single(kCapacity, 1), together(kCapacity, 1);
    Writer to_single(single.arrays()), to_together(together.arrays());
    write_random_tables(to_single, GetParam());
    write_random_tables(to_together, GetParam());
    hold_back_some(single.arrays(), GetParam());
    hold_back_some(together.arrays(), GetParam());
    Draw draw(GetParam() ^ 0xc04e);
    uint32_t over_share = 0;
    for (int number = 0; number < 60; ++number) {
        std::vector<Arrival> arrivals(draw.below(SP_NATIVE_BURST + 1));
        for (Arrival& arrival : arrivals) arrival = random_arrival(draw);
        const std::vector<Outcome> got = run_burst(together.arrays(), arrivals);
        for (size_t at = 0; at < arrivals.size(); ++at) {
            const Outcome wanted = run(single.arrays(), arrivals[at].port, arrivals[at].frame);
            over_share += wanted.reason == SP_DROP_OVER_SHARE;
            ASSERT_EQ(got[at], wanted) << "frame " << at << " of burst " << number << ", reason " << wanted.reason;
        }
    }
    EXPECT_EQ(totals(together.arrays()), totals(single.arrays()));
    EXPECT_GT(over_share, 100u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Burst, ::testing::Range<uint64_t>(1, 9));

}  // namespace
}  // namespace splitplane::test
