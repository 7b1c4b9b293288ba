// SPDX-License-Identifier: Apache-2.0
//
// nexthop_group behind nexthop_group: what one router has sent one way, the next one still spreads over all of its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

constexpr uint32_t kBehind = 0xc0000209, kBase = 64, kFirst = 10;  // of members, nexthops
constexpr uint32_t kFlows = 4096;
constexpr uint64_t kSeed = 0x9e3779b97f4a7c15, kOther = 0xd1b54a32d192ed03;

Ipv4 flow(uint32_t number) { return {.dst = kBehind, .src = 0x0a010000 + number}; }

// A router whose only route leads to a group of equal members.
struct Tier {
    Tier(uint64_t seed, uint32_t vrf, uint32_t members) {
        sp_arrays& tables = world.tables;
        *tables.hash_seed = seed;
        world.write.router(vrf);
        world.write.classify(kLanPort, 0, kLan, vrf);
        world.write.route4(0xc0000200, 24, sp_leaf(SP_ROUTE_GROUP, 3), vrf);
        tables.groups[3] = sp_group(kBase, members);
        for (uint32_t member = 0; member < members; ++member) {
            tables.members[kBase + member] = static_cast<uint16_t>(kFirst + member);
            tables.nexthops[kFirst + member] = sp_nexthop(SP_NEXTHOP_FORWARD, kUp, member);
        }
    }
    uint32_t member_of(uint32_t number) const { return world.arrives(flow(number)).frame[5]; }

    World world;
};

// How many flows each member of the second tier has of those that the first gives to its member 0.
std::map<uint32_t, uint32_t> behind(const Tier& first, const Tier& second) {
    std::map<uint32_t, uint32_t> shares;
    for (uint32_t number = 0; number < kFlows; ++number) {
        if (first.member_of(number) == 0) ++shares[second.member_of(number)];
    }
    return shares;
}

void expect_all_used(const std::map<uint32_t, uint32_t>& shares, uint32_t members) {
    ASSERT_EQ(shares.size(), members);
    for (const auto& [member, flows] : shares) {
        EXPECT_GT(flows, kFlows / members / members / 2) << "member " << member;
        EXPECT_LT(flows, kFlows / members / members * 2) << "member " << member;
    }
}

TEST(NexthopGroup, ASecondTierSpreadsWhatTheFirstSendsOneWay) {
    for (const uint32_t members : {2, 3, 4, 8}) {
        expect_all_used(behind(Tier(kSeed, 1, members), Tier(kSeed, 2, members)), members);
        expect_all_used(behind(Tier(kSeed, 1, members), Tier(kOther, 1, members)), members);
    }
    EXPECT_EQ(behind(Tier(0, 1, 4), Tier(0, 2, 4)).size(), 1u) << "as BMv2 chooses, where there is no seed";
}

// Of 128 places all but three lead to a port without a link: nobody looks for long to find those.
TEST(NexthopGroup, NoFlowIsLostWhileAnyMemberHasALink) {
    constexpr uint32_t kPlaces = 128, kLeft = 3;
    for (const uint64_t seed : {uint64_t{0}, kSeed}) {
        Tier tier(seed, 1, kPlaces);
        for (uint32_t place = kLeft; place < kPlaces; ++place) {
            tier.world.tables.nexthops[kFirst + place] = sp_nexthop(SP_NEXTHOP_FORWARD, kLan, place);
        }
        tier.world.tables.ports_down[0] = uint64_t{1} << kLanPort;
        std::map<uint32_t, uint32_t> shares;
        for (uint32_t number = 0; number < kFlows; ++number) ++shares[tier.member_of(number)];
        ASSERT_EQ(shares.size(), kLeft) << seed;
        for (const auto& [member, flows] : shares) EXPECT_NEAR(flows, kFlows / kLeft, kFlows / kLeft / 4) << seed;
    }
}

// Members' places lie in turns: of 136 places for 17 some are looked at twice, and no member is to have those.
TEST(NexthopGroup, WhoseMemberIsDownGoesToAllOthersAlike) {
    constexpr uint32_t kMembers = 17;
    for (const uint32_t places : {129u, 8 * kMembers, 200u}) {
        Tier tier(kSeed, 1, places);
        std::map<uint32_t, uint32_t> ups;
        for (uint32_t place = 0; place < places; ++place) {
            const uint32_t member = place % kMembers;
            const bool is_down = member < kMembers / 2;
            tier.world.tables.nexthops[kFirst + place] = sp_nexthop(SP_NEXTHOP_FORWARD, is_down ? kLan : kUp, member);
            if (!is_down) ++ups[member];
        }
        const auto flows_of_each = [&] {
            std::map<uint32_t, uint32_t> flows;
            for (uint32_t number = 0; number < 8 * kFlows; ++number) ++flows[tier.member_of(number)];
            return flows;
        };
        std::map<uint32_t, uint32_t> before = flows_of_each();
        tier.world.tables.ports_down[0] = uint64_t{1} << kLanPort;
        std::map<uint32_t, uint32_t> moved = flows_of_each();
        double all = 0, up = 0;
        for (auto& [member, flows] : moved) all += flows -= before[member];
        for (const auto& [member, count] : ups) up += count;
        ASSERT_EQ(moved.size(), ups.size()) << places;
        for (const auto& [member, flows] : moved) {
            EXPECT_NEAR(flows, all * ups[member] / up, all * ups[member] / up / 5) << places << " places, " << member;
        }
    }
}

TEST(NexthopGroup, EachMemberHasItsShareWhateverTheSeed) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, kSeed, kOther, ~uint64_t{0}}) {
        const Tier tier(seed, 1, 4);
        std::map<uint32_t, uint32_t> shares;
        for (uint32_t number = 0; number < kFlows; ++number) ++shares[tier.member_of(number)];
        ASSERT_EQ(shares.size(), 4u) << seed;
        for (const auto& [member, flows] : shares) EXPECT_NEAR(flows, kFlows / 4, kFlows / 40) << seed;
    }
}

// Slots follow each other, as the daemon gives them: the numbers of two are none that fit each other.
TEST(NexthopGroup, NoTwoRoutersOfAForwarderChooseAlike) {
    constexpr uint32_t kMembers = 4, kRouters = 64, kHashes = 1024, kSeeds = 16;
    std::mt19937_64 draw(1);
    std::array<uint32_t, kHashes> hashes;
    for (uint32_t& hash : hashes) hash = static_cast<uint32_t>(draw());
    uint32_t alike = 0;
    for (uint32_t seeds = 0; seeds < kSeeds; ++seeds) {
        const uint64_t seed = draw() | 1;
        for (uint32_t first = 1; first <= kRouters; ++first) {
            for (uint32_t second = first + 1; second <= kRouters; ++second) {
                std::array<uint32_t, kMembers> shares{};
                for (const uint32_t hash : hashes) {
                    if (sp_native_chosen(seed, first, hash, kMembers) != 0) continue;
                    ++shares[sp_native_chosen(seed, second, hash, kMembers)];
                }
                alike += *std::max_element(shares.begin(), shares.end()) > kHashes / kMembers / 2;
            }
        }
    }
    EXPECT_EQ(alike, 0u) << "of " << kSeeds * kRouters * (kRouters - 1) / 2 << " pairs";
}

}  // namespace
}  // namespace splitplane::test
