// SPDX-License-Identifier: Apache-2.0
//
// The tries against a plain reference.
#include "fib/fib.h"

#include <gtest/gtest.h>

#include "fib/tests/rig.h"

extern "C" {
#include "pipeline/trie_bulk.h"
}

namespace splitplane {
namespace {

// Prefixes that overlap much: few bits vary, at places that a seed chooses.
class Prefixes {
  public:
    Prefixes(uint32_t seed, Family family) : chance_(seed), bits_(bits_of(family)) {
        base_ = random_key();
        uint32_t varying = 1 + chance_() % 14;
        for (uint32_t at = 0; at < varying; ++at) {
            varying_ |= Key{1} << (kKeyBits - 1 - chance_() % bits_);
        }
        for (uint32_t at = 0; at < 8; ++at) {
            lengths_.push_back(chance_() % (bits_ + 1));
        }
        lengths_.push_back(bits_);
    }
    Prefix prefix() {
        uint32_t length = chance_() % 4 == 0 ? chance_() % (bits_ + 1) : lengths_[chance_() % lengths_.size()];
        return prefix_of(address() & mask_of(length), length);
    }
    Key address() {
        Key key = (base_ & ~varying_) | (random_key() & varying_);
        return chance_() % 8 == 0 ? key ^ (Key{1} << (kKeyBits - 1 - chance_() % bits_)) : key;
    }
    // Few kinds of leaves, so that neighbors often have the same.
    uint32_t leaf() { return sp_leaf(SP_ROUTE_NEXTHOP, 1 + chance_() % 3); }
    uint32_t number() { return chance_(); }

  private:
    Key random_key() {
        Key key = 0;
        for (int at = 0; at < 4; ++at) {
            key = key << 32 | chance_();
        }
        return key & mask_of(bits_);
    }

    std::mt19937 chance_;
    uint32_t bits_;
    Key base_ = 0, varying_ = 0;
    std::vector<uint32_t> lengths_;
};

// Bursts of any length, in which tables without a root occur too.
void expect_bursts(const Arrays& arrays, uint32_t vrf, Family family, const std::vector<Key>& addresses) {
    std::vector<sp_u64> roots;
    std::vector<sp_u32> ipv4, leaves(addresses.size());
    std::vector<std::array<sp_u64, 2>> ipv6;
    auto at_family = static_cast<size_t>(family);
    for (size_t at = 0; at < addresses.size(); ++at) {
        roots.push_back(arrays.root(at % 5 == 0 ? 0 : vrf, family));
        ipv4.push_back(static_cast<uint32_t>(high_of(addresses[at]) >> 32));
        ipv6.push_back({high_of(addresses[at]), low_of(addresses[at])});
    }
    auto count = static_cast<sp_u32>(addresses.size());
    if (family == Family::kIpv4) {
        sp_trie_lookup4_bulk(&arrays.arrays, roots.data(), ipv4.data(), leaves.data(), count);
    } else {
        auto* numbers = reinterpret_cast<const sp_u64(*)[2]>(ipv6.data());
        sp_trie_lookup6_bulk(&arrays.arrays, roots.data(), numbers, leaves.data(), count);
    }
    for (size_t at = 0; at < addresses.size(); ++at) {
        uint32_t fallback = arrays.arrays.vrfs[vrf].default_leaf[at_family];
        uint32_t expected = at % 5 == 0 ? 0 : arrays.lookup(vrf, family, addresses[at]);
        ASSERT_EQ(leaves[at] != 0 || at % 5 == 0 ? leaves[at] : fallback, expected);
    }
}

// Both borders of every route and what lies beside them.
void expect_alike(const Arrays& arrays, uint32_t vrf, Family family, const Reference& reference, Prefixes& prefixes) {
    uint32_t bits = bits_of(family);
    std::vector<Key> addresses;
    auto check = [&](Key address) {
        address &= mask_of(bits);
        addresses.push_back(address);
        ASSERT_EQ(arrays.lookup(vrf, family, address), reference.lookup(address, bits))
            << "address " << std::hex << high_of(address) << " " << low_of(address);
    };
    Key one = Key{1} << (kKeyBits - bits);
    for (const auto& [route, leaf] : reference.routes) {
        Key last = route.first | (~mask_of(route.second) & mask_of(bits));
        for (Key address : {route.first, route.first - one, last, last + one}) {
            check(address);
        }
    }
    for (int at = 0; at < 50; ++at) {
        check(prefixes.address());
    }
    expect_bursts(arrays, vrf, family, addresses);
}

void expect_same_routes(const Fib& fib, uint32_t vrf, Family family, const Reference& reference) {
    std::optional<Prefix> cursor;
    uint32_t leaf = 0;
    for (const auto& [route, expected] : reference.routes) {
        ASSERT_TRUE(fib.next(vrf, family, cursor, leaf));
        ASSERT_EQ(*cursor, prefix_of(route.first, route.second));
        ASSERT_EQ(leaf, expected);
        ASSERT_EQ(fib.find(vrf, family, *cursor), expected);
    }
    ASSERT_FALSE(fib.next(vrf, family, cursor, leaf));
    ASSERT_EQ(fib.size(vrf, family), reference.routes.size());
}

void expect_same_longest(const Fib& fib, uint32_t vrf, Family family, const Reference& reference, Prefixes& prefixes) {
    for (int at = 0; at < 50; ++at) {
        const Key address = prefixes.address();
        const auto found = fib.longest(vrf, family, prefix_of(address, bits_of(family)));
        const uint32_t leaf = found ? fib.find(vrf, family, *found) : 0;
        ASSERT_EQ(leaf, reference.lookup(address, bits_of(family)));
        if (found) {
            ASSERT_EQ(reference.lookup(address, bits_of(family), found->length), leaf) << "there is no longer one";
            ASSERT_EQ(prefix_of(address & mask_of(found->length), found->length), *found);
        }
    }
}

// What the tries are compared with finds a route by its order among others.
TEST(Reference, AnswersAsThePlainOneDoes) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        const Family family = seed % 2 == 0 ? Family::kIpv4 : Family::kIpv6;
        const uint32_t bits = bits_of(family);
        Prefixes prefixes(2000 + seed, family);
        Reference reference;
        for (uint32_t step = 0; step < 200; ++step) {
            const Prefix prefix = prefixes.prefix();
            reference.routes[{key_of(prefix), prefix.length}] = 1 + step;
            const Key address = prefixes.address();
            const uint32_t shortest = step % (bits + 1);
            ASSERT_EQ(reference.lookup(address, bits), reference.plain_lookup(address, bits));
            ASSERT_EQ(reference.lookup(address, bits, shortest), reference.plain_lookup(address, bits, shortest));
        }
    }
}

class RandomTables : public testing::TestWithParam<std::tuple<Family, uint32_t>> {};

TEST_P(RandomTables, AnswerAsTheReferenceDoes) {
    auto [family, seed] = GetParam();
    Prefixes prefixes(seed, family);
    Arrays arrays(1 << 18);
    NoReaders grace;
    Fib fib(arrays.arrays, grace);
    Reference reference;
    uint32_t vrf = 1 + seed % (SP_VRFS - 1);
    uint32_t most = seed % 3 == 0 ? 12 : seed % 3 == 1 ? 100 : 400;  // small tables shrink to nothing often
    for (uint32_t step = 0; step < 600; ++step) {
        Prefix prefix = prefixes.prefix();
        auto key = std::pair{key_of(prefix), uint32_t{prefix.length}};
        bool insert = prefixes.number() % most > reference.routes.size() / 2;
        if (insert) {
            uint32_t leaf = prefixes.leaf();
            ASSERT_EQ(fib.set(vrf, family, prefix, leaf), FibResult::kDone);
            reference.routes[key] = leaf;
        } else {
            if (!reference.routes.empty() && prefixes.number() % 2 == 0) {  // one that is there
                auto found = reference.routes.lower_bound(key);
                key = (found == reference.routes.end() ? reference.routes.begin() : found)->first;
                prefix = prefix_of(key.first, key.second);
            }
            bool was = reference.routes.erase(key) > 0;
            ASSERT_EQ(fib.erase(vrf, family, prefix), was ? FibResult::kDone : FibResult::kMissing);
        }
        if (step % 24 == 0 || reference.routes.size() < 6) {
            expect_alike(arrays, vrf, family, reference, prefixes);
            expect_same_longest(fib, vrf, family, reference, prefixes);
        }
        if (HasFatalFailure()) {
            FAIL() << "step " << step;
        }
    }
    expect_same_routes(fib, vrf, family, reference);
    while (!reference.routes.empty()) {
        auto found = reference.routes.begin();
        std::advance(found, prefixes.number() % reference.routes.size());
        ASSERT_EQ(fib.erase(vrf, family, prefix_of(found->first.first, found->first.second)), FibResult::kDone);
        reference.routes.erase(found);
    }
    fib.settle();
    EXPECT_EQ(arrays.root(vrf, family), 0u);
    EXPECT_EQ(fib.memory().trie_used, 0u);
    EXPECT_EQ(fib.memory().trie_waiting, 0u);
    EXPECT_EQ(fib.memory().nodes, 0u);
    EXPECT_EQ(fib.size(family), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ipv4, RandomTables, testing::Combine(testing::Values(Family::kIpv4), testing::Range(0u, 60u)));
INSTANTIATE_TEST_SUITE_P(Ipv6, RandomTables, testing::Combine(testing::Values(Family::kIpv6), testing::Range(0u, 60u)));

Prefix ipv4(uint32_t address, uint32_t length) { return prefix_of(Key{address} << 96 & mask_of(length), length); }

TEST(Fib, HasRoutesOfEveryLength) {
    for (Family family : {Family::kIpv4, Family::kIpv6}) {
        Arrays arrays(1 << 16);
        NoReaders grace;
        Fib fib(arrays.arrays, grace);
        Key address = ~Key{0} / 7;
        for (uint32_t length = 0; length <= bits_of(family); ++length) {
            ASSERT_EQ(fib.set(3, family, prefix_of(address & mask_of(length), length), 1 + length), FibResult::kDone);
            ASSERT_EQ(arrays.lookup(3, family, address), 1 + length);
        }
        for (uint32_t length = bits_of(family); length > 0; --length) {
            ASSERT_EQ(arrays.lookup(3, family, address ^ Key{1} << (kKeyBits - length)), length);
        }
    }
}

TEST(Fib, KeepsTheDefaultRouteOutOfTheTrie) {
    Arrays arrays(1 << 10);
    NoReaders grace;
    Fib fib(arrays.arrays, grace);
    EXPECT_EQ(fib.erase(5, Family::kIpv4, Prefix{}), FibResult::kMissing);
    EXPECT_EQ(fib.set(5, Family::kIpv4, Prefix{}, 77), FibResult::kDone);
    EXPECT_EQ(fib.set(5, Family::kIpv4, Prefix{}, 78), FibResult::kDone);
    EXPECT_EQ(arrays.root(5, Family::kIpv4), 0u);
    EXPECT_EQ(arrays.arrays.vrfs[5].default_leaf[0], 78u);
    EXPECT_EQ(arrays.arrays.vrfs[5].default_leaf[1], 0u);
    EXPECT_EQ(fib.find(5, Family::kIpv4, Prefix{}), 78u);
    EXPECT_EQ(fib.size(5, Family::kIpv4), 1u);
    EXPECT_EQ(fib.erase(5, Family::kIpv4, Prefix{}), FibResult::kDone);
    EXPECT_EQ(fib.size(Family::kIpv4), 0u);
}

class Roots : public testing::TestWithParam<Family> {};

// Roots of 2^7 to 2^16 words, or of 2^6 words and 2^5 to 2^15 buckets, and back. Sanitizers see a quarter of that.
TEST_P(Roots, HaveTheSizeOfTheirTable) {
    Family family = GetParam();
    uint32_t smallest = family == Family::kIpv4 ? 6 : 7;
    uint32_t biggest = smallest + (kSanitized ? 7 : 9);  // each is as much work as all before it
    Arrays arrays(1 << 24);
    NoReaders grace;
    Fib fib(arrays.arrays, grace);
    std::mt19937 chance(4);
    Reference reference;
    std::vector<uint32_t> seen(17);
    auto root_bits = [&] { return sp_trie_root_bits(arrays.root(9, family)); };
    std::vector<Prefix> order;
    while (root_bits() < biggest) {
        Prefix prefix = ipv4(static_cast<uint32_t>(chance()), 8 + chance() % 25);
        uint32_t chosen = sp_leaf(SP_ROUTE_NEXTHOP, chance() % 200);
        if (reference.routes.emplace(std::pair{key_of(prefix), prefix.length}, chosen).second) {
            uint32_t leaf = reference.routes[{key_of(prefix), prefix.length}];
            ASSERT_EQ(fib.set(9, family, prefix, leaf), FibResult::kDone);
            order.push_back(prefix);
            ++seen[root_bits()];
        }
    }
    auto expect_alike = [&] {
        for (int at = 0; at < 600; ++at) {  // the reference looks for each length in turn
            Key address = Key{static_cast<uint32_t>(chance())} << 96;
            ASSERT_EQ(arrays.lookup(9, family, address), reference.lookup(address, 32));
        }
    };
    expect_alike();
    for (uint32_t bits = smallest; bits < biggest; ++bits) {
        EXPECT_GT(seen[bits], 0u) << bits;
    }
    EXPECT_EQ(sp_trie_root_has_buckets(arrays.root(9, family)), family == Family::kIpv4);
    EXPECT_EQ(Shapes(arrays, 9, family).buckets > 3u << (biggest - 2), family == Family::kIpv4);
    while (root_bits() > 0) {
        Prefix prefix = order.back();
        order.pop_back();
        ASSERT_EQ(fib.erase(9, family, prefix), FibResult::kDone);
        reference.routes.erase({key_of(prefix), prefix.length});
        if (seen[root_bits()] > 0) {
            seen[root_bits()] = 0;
            expect_alike();
        }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 0u), 17);
}

INSTANTIATE_TEST_SUITE_P(Families, Roots, testing::Values(Family::kIpv4, Family::kIpv6));

// A root of words does where there is no room for one of buckets.
TEST(Fib, DoesWithoutBucketsWhereTheyAreFull) {
    Arrays arrays(1 << 15);  // 64 KiB of buckets, 8 for each table
    NoReaders grace;
    Fib fib(arrays.arrays, grace);
    uint32_t with = 0, without = 0;
    for (uint32_t vrf = 1; vrf < 13; ++vrf) {
        std::mt19937 chance(7);
        Reference reference;
        while (reference.routes.size() < 700) {
            Prefix prefix = ipv4(static_cast<uint32_t>(chance()), 24);
            uint32_t leaf = reference.routes[{key_of(prefix), 24}] = sp_leaf(SP_ROUTE_NEXTHOP, chance() % 200);
            ASSERT_EQ(fib.set(vrf, Family::kIpv4, prefix, leaf), FibResult::kDone);
        }
        for (const auto& [route, leaf] : reference.routes) {
            ASSERT_EQ(arrays.lookup(vrf, Family::kIpv4, route.first), leaf);
        }
        ++(sp_trie_root_has_buckets(arrays.root(vrf, Family::kIpv4)) != 0 ? with : without);
    }
    EXPECT_GT(with, 0u);
    EXPECT_GT(without, 0u);
}

TEST(Fib, HoldsThousandsOfTables) {
    constexpr uint32_t kVrfs = 4096, kRoutes = 40;
    Arrays arrays(1 << 22);
    NoReaders grace;
    Fib fib(arrays.arrays, grace);
    std::mt19937 chance(5);
    std::vector<Reference> references(kVrfs);
    for (uint32_t step = 0; step < kVrfs * kRoutes; ++step) {
        uint32_t vrf = chance() % kVrfs;
        Prefix prefix = ipv4(static_cast<uint32_t>(chance()), 8 + chance() % 25);
        ASSERT_EQ(fib.set(1 + vrf, Family::kIpv4, prefix, 1 + step), FibResult::kDone);
        references[vrf].routes[{key_of(prefix), prefix.length}] = 1 + step;
    }
    for (uint32_t vrf = 0; vrf < kVrfs; ++vrf) {
        for (const auto& [route, leaf] : references[vrf].routes) {
            Key address = route.first | (Key{static_cast<uint32_t>(chance())} << 96 & ~mask_of(route.second));
            ASSERT_EQ(arrays.lookup(1 + vrf, Family::kIpv4, address), references[vrf].lookup(address, 32));
        }
    }
    EXPECT_GE(fib.memory().trie_peak, fib.memory().trie_used);
}

// A full array refuses, with every answer as before, and takes routes again when others are gone.
TEST(Fib, ChangesNothingWhenFull) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        Family family = seed % 2 == 0 ? Family::kIpv4 : Family::kIpv6;
        Prefixes prefixes(1000 + seed, family);
        Arrays arrays(seed < 10 ? 1024 : 4096);
        NoReaders grace;
        Fib fib(arrays.arrays, grace);
        Reference reference;
        std::mt19937 chance(seed);
        uint32_t refused = 0, refused_erase = 0;
        for (uint32_t step = 0; step < 3000; ++step) {
            Prefix prefix = prefix_of(Key{chance()} << 96 | Key{chance()} << 30, 1 + chance() % 32);
            prefix = prefix_of(key_of(prefix), prefix.length);
            if (step % 5 == 0) {
                prefix = prefixes.prefix();
            }
            auto key = std::pair{key_of(prefix), uint32_t{prefix.length}};
            if (chance() % 8 != 0 || reference.routes.empty()) {
                uint32_t leaf = 1 + chance() % 5;
                FibResult result = fib.set(2, family, prefix, leaf);
                refused += result == FibResult::kFull;
                if (result == FibResult::kDone) {
                    reference.routes[key] = leaf;
                }
            } else {
                auto found = reference.routes.lower_bound(key);
                key = (found == reference.routes.end() ? reference.routes.begin() : found)->first;
                FibResult result = fib.erase(2, family, prefix_of(key.first, key.second));
                refused_erase += result == FibResult::kFull;
                if (result == FibResult::kDone) {
                    reference.routes.erase(key);
                }
            }
            if (step % 200 == 0) {
                expect_alike(arrays, 2, family, reference, prefixes);
            }
            if (HasFatalFailure()) {
                FAIL() << "seed " << seed << " step " << step;
            }
        }
        EXPECT_GT(refused, 0u);
        EXPECT_LT(refused_erase, refused / 4);
        expect_same_routes(fib, 2, family, reference);
        while (!reference.routes.empty()) {  // one or another can always go
            size_t before = reference.routes.size();
            for (auto at = reference.routes.begin(); at != reference.routes.end();) {
                bool gone = fib.erase(2, family, prefix_of(at->first.first, at->first.second)) == FibResult::kDone;
                at = gone ? reference.routes.erase(at) : std::next(at);
            }
            ASSERT_LT(reference.routes.size(), before);
        }
        fib.settle();
        EXPECT_EQ(fib.memory().trie_used, 0u);
        EXPECT_EQ(fib.memory().nodes, 0u);
    }
}

TEST(Fib, CostsAnEmptyTableNextToNothing) {
    Arrays arrays(1 << 12);
    NoReaders grace;
    Fib fib(arrays.arrays, grace);
    EXPECT_EQ(fib.memory().trie_used, 0u);
    EXPECT_LE(fib.memory().store / SP_VRFS, 128u);
}

// A host far from all others is paths behind the smallest root, and no chain of nodes.
TEST(Fib, KeepsALoneHostInAFewBlocks) {
    Arrays arrays(1 << 12);
    NoReaders grace;
    Fib fib(arrays.arrays, grace);
    ASSERT_EQ(fib.set(1, Family::kIpv6, prefix_of(~Key{0} / 3, 128), 9), FibResult::kDone);
    EXPECT_LE(fib.memory().trie_used, 256u + 48);
    EXPECT_EQ(fib.memory().nodes, 2u);
}

}  // namespace
}  // namespace splitplane
