// SPDX-License-Identifier: Apache-2.0
//
// The lists in which the tries keep the routes of sparse subtrees: when there are some, and what becomes of them.
#include <gtest/gtest.h>

#include "fib/tests/rig.h"

namespace splitplane {
namespace {

constexpr uint32_t kVrf = 3;
constexpr uint32_t kSmallestRoot = 256;  // octets

// A table and its reference, changed together. Leaves are nexthops by number, so many slots apart.
class Table {
  public:
    explicit Table(Family family, uint32_t words = 1 << 20, uint32_t apart = 1)
        : arrays(words), fib(arrays.arrays, grace), family_(family), apart_(apart) {}

    void set(Key address, uint32_t length, uint32_t nexthop) {
        set_leaf(address, length, sp_leaf(SP_ROUTE_NEXTHOP, nexthop * apart_));
    }
    void set_leaf(Key address, uint32_t length, uint32_t leaf) {
        Prefix prefix = prefix_of(address & mask_of(length), length);
        ASSERT_EQ(fib.set(kVrf, family_, prefix, leaf), FibResult::kDone);
        reference.routes[{key_of(prefix), length}] = leaf;
    }
    void erase(Key address, uint32_t length) {
        Prefix prefix = prefix_of(address & mask_of(length), length);
        ASSERT_EQ(fib.erase(kVrf, family_, prefix), FibResult::kDone);
        reference.routes.erase({key_of(prefix), length});
    }
    // Both borders of every route and what lies beside them.
    void expect_alike() const {
        uint32_t bits = bits_of(family_);
        Key one = Key{1} << (kKeyBits - bits);
        for (const auto& [route, leaf] : reference.routes) {
            Key last = route.first | (~mask_of(route.second) & mask_of(bits));
            for (Key address : {route.first, route.first - one, last, last + one}) {
                address &= mask_of(bits);
                ASSERT_EQ(arrays.lookup(kVrf, family_, address), reference.lookup(address, bits))
                    << "address " << std::hex << high_of(address) << " " << low_of(address);
            }
        }
    }
    Shapes shapes() const { return {arrays, kVrf, family_}; }
    sp_u64 root() const { return arrays.root(kVrf, family_); }
    uint32_t root_word(Key address) const {
        EXPECT_FALSE(sp_trie_root_has_buckets(root()));
        return arrays.arrays.words[sp_trie_root_base(root()) + (address >> (kKeyBits - sp_trie_root_bits(root())))];
    }
    double octets_per_route() {
        fib.settle();
        return static_cast<double>(fib.memory().trie_used) / static_cast<double>(reference.routes.size());
    }

    Arrays arrays;
    NoReaders grace;
    Fib fib;
    Reference reference;

  private:
    Family family_;
    uint32_t apart_;
};

constexpr uint32_t kFar = 7000;  // more than a list's codes

Key ipv4(uint32_t address) { return Key{address} << 96; }

// Nine routes are too many, and eight are a list again.
void fill_a_list(Table& table, uint32_t longest, uint32_t (*octets)(uint32_t count)) {
    auto host = [](uint32_t number) { return ipv4(0x0a000000 + number * 0x00090100 % 0x1000000); };
    for (uint32_t count = 1; count <= SP_TRIE_LIST; ++count) {
        table.set(host(count), longest - count % 5, count);
        table.expect_alike();
        EXPECT_TRUE(is_list(table.root_word(host(0))));
        table.fib.settle();
        EXPECT_EQ(table.fib.memory().trie_used, kSmallestRoot + octets(count)) << count;
    }
    EXPECT_EQ(table.shapes().longest, SP_TRIE_LIST);
    table.set(host(9), longest, 9);
    table.expect_alike();
    EXPECT_FALSE(is_list(table.root_word(host(0)))) << "nine";
    table.erase(host(4), longest - 4);
    table.expect_alike();
    EXPECT_TRUE(is_list(table.root_word(host(0)))) << "eight again";
    table.fib.settle();
    EXPECT_EQ(table.fib.memory().trie_used, kSmallestRoot + octets(SP_TRIE_LIST));
}

TEST(Lists, HoldUpToEightRoutes) {
    auto octets = [](uint32_t count) { return (count + 2) / 2 * 8; };  // a word each, and the head
    Table table(Family::kIpv4);
    fill_a_list(table, 24, octets);
    EXPECT_EQ(table.shapes().wide_lists, 0u);
}

TEST(Lists, AreWideForLongKeysAndLeavesFarApart) {
    auto octets = [](uint32_t count) { return 8 * (count + 1); };
    Table far_down(Family::kIpv4);
    fill_a_list(far_down, 32, octets);
    EXPECT_EQ(far_down.shapes().wide_lists, 1u);
    auto far_octets = [](uint32_t count) { return count == 1 ? 8u : 8 * (count + 1); };
    Table far_apart(Family::kIpv4, 1 << 20, kFar);
    fill_a_list(far_apart, 24, far_octets);
    EXPECT_EQ(far_apart.shapes().wide_lists, 1u);
}

// Every leaf that can be, beside one that has the lowest slot.
TEST(Lists, SayEveryLeaf) {
    for (uint32_t low : {0u, 1u, 4000u, 9000u, SP_NEXTHOPS - 1}) {
        for (uint32_t kind = SP_ROUTE_NEXTHOP; kind <= SP_ROUTE_FALLBACK; ++kind) {
            Table table(Family::kIpv4);
            table.set_leaf(ipv4(0x0a000000), 8, sp_leaf(SP_ROUTE_NEXTHOP, low));
            uint32_t slots = kind == SP_ROUTE_NEXTHOP ? SP_NEXTHOPS : kind == SP_ROUTE_GROUP ? SP_GROUPS : 1;
            for (uint32_t from : {0u, low, low + 2040, low + 6144, slots}) {
                for (uint32_t slot = from - std::min(from, 2u); slot < std::min(from + 2, slots); ++slot) {
                    table.set_leaf(ipv4(0x0a010000), 16, sp_leaf(kind, slot));
                    table.expect_alike();
                    table.set_leaf(ipv4(0x08000000), 5, sp_leaf(kind, slot));  // the background
                    table.expect_alike();
                }
            }
        }
    }
}

// From one form to the other and back, by one route's leaf.
TEST(Lists, ChangeTheirForm) {
    Table table(Family::kIpv4);
    for (uint32_t at = 0; at < 5; ++at) {
        table.set(ipv4(0x0a000000 + (at << 16)), 16, 20000 + at);
    }
    EXPECT_EQ(table.shapes().wide_lists, 0u) << "near each other, but not near slot 0";
    for (uint32_t turn = 0; turn < 3; ++turn) {
        table.set(ipv4(0x0a020000), 16, 40000);
        table.expect_alike();
        EXPECT_EQ(table.shapes().wide_lists, 1u);
        table.set(ipv4(0x0a020000), 16, 20003 + turn);
        table.expect_alike();
        EXPECT_EQ(table.shapes().wide_lists, 1u) << "in place";
        table.erase(ipv4(0x0a030000), 16);
        table.expect_alike();
        EXPECT_EQ(table.shapes().wide_lists, 0u);
        table.set(ipv4(0x0a030000), 16, 20009);
        table.expect_alike();
    }
}

class ListLeaves : public testing::TestWithParam<uint32_t> {};

TEST_P(ListLeaves, ChangeInPlace) {
    Table table(Family::kIpv4, 1 << 20, GetParam());
    table.set(ipv4(0x0a000000), 8, 1);
    table.set(ipv4(0x0a010000), 16, 2);
    table.set(ipv4(0x0a010100), 24, 3);
    table.set(ipv4(0x08000000), 5, 4);  // covers all of the root's word
    uint32_t word = table.root_word(ipv4(0x0a000000));
    ASSERT_TRUE(is_list(word));
    table.fib.settle();
    EXPECT_EQ(is_wide(word), GetParam() == kFar);
    uint32_t leaf = 4;
    const std::pair<uint32_t, uint32_t> prefixes[] = {
        {0x0a000000, 8}, {0x0a010000, 16}, {0x0a010100, 24}, {0x08000000, 5}};
    for (auto [address, length] : prefixes) {
        table.set(ipv4(address), length, ++leaf);
        table.expect_alike();
        EXPECT_EQ(table.root_word(ipv4(0x0a000000)), word);
    }
    table.erase(ipv4(0x08000000), 5);
    table.expect_alike();
    EXPECT_EQ(table.root_word(ipv4(0x0a000000)), word);
    EXPECT_EQ(table.fib.memory().trie_waiting, 0u);
}

INSTANTIATE_TEST_SUITE_P(Lists, ListLeaves, testing::Values(1, kFar));

// What no address comes to must be right when it comes to light.
TEST(Lists, KeepWhatLongerRoutesHide) {
    Table table(Family::kIpv4);
    table.set(ipv4(0x0a800000), 16, 1);
    table.set(ipv4(0x0a000000), 8, 2);
    table.set(ipv4(0x0a000000), 9, 3);
    table.set(ipv4(0x0a800000), 9, 4);
    table.set(ipv4(0x0a000000), 8, 5);  // hidden by both halves
    table.set(ipv4(0x08000000), 6, 6);  // hidden below by the /8
    for (uint32_t half : {0x0a000000u, 0x0a800000u}) {
        table.erase(ipv4(half), 9);
        table.expect_alike();
    }
    table.erase(ipv4(0x0a000000), 8);
    table.expect_alike();
}

// One of 64 words of the root has 16 to 64 routes: a node block, of whose slots some neighbors have one list together.
TEST(Lists, AreSharedByNeighboringSlots) {
    for (uint32_t count : {16u, 40u, 64u}) {
        Table table(Family::kIpv4);
        std::mt19937 chance(count);
        std::vector<Key> order;
        for (uint32_t at = 0; at < count; ++at) {
            order.push_back(ipv4(0x50000000 | at << 26 >> 6 | chance() % 0x100000));
            table.set(order.back(), 24 + at % 9, at + 1);
            table.expect_alike();
        }
        Shapes shapes = table.shapes();
        EXPECT_GE(shapes.shared_lists, count / 8);
        EXPECT_LE(static_cast<double>(table.fib.memory().trie_used - kSmallestRoot) / count, 12.0);
        while (order.size() > 1) {
            table.erase(order.back(), 24 + (order.size() - 1) % 9);
            order.pop_back();
            table.expect_alike();
        }
        EXPECT_EQ(table.shapes().root_lists, 1u);
        EXPECT_EQ(table.shapes().nodes, 0u);
    }
}

TEST(Lists, LieBehindPathsWhereTheirRoutesAreFarDown) {
    Table table(Family::kIpv6);
    Key host = ~Key{0} / 9 << 7;
    for (uint32_t at = 0; at < 4; ++at) {
        table.set(host + at * 9, 128, 1 + at);
        table.expect_alike();
    }
    EXPECT_EQ(table.shapes().path_lists, 1u);
    EXPECT_EQ(table.shapes().nodes, 0u);
    for (uint32_t at = 0; at < 4; ++at) {
        table.set(host + at * 9, 128, 11 + at);
        table.erase(host + at * 9, 128);
        table.expect_alike();
    }
    EXPECT_EQ(table.root(), 0u);
}

// Whatever the size of a table, a route spread evenly takes about as much, if the root was not doubled just now.
TEST(Lists, MakeARouteCostMuchTheSameInTablesOfAnySize) {
    std::mt19937 chance(6);
    Table table(Family::kIpv4, 1 << 22);
    for (uint32_t size : {256u, 1000u, 4000u, 16000u, 64000u}) {
        while (table.reference.routes.size() < size) {
            uint32_t length = chance() % 5 < 3 ? 24 : 18 + chance() % 6;
            table.set(ipv4(static_cast<uint32_t>(chance())), length, 1 + chance() % 255);
        }
        EXPECT_LE(table.octets_per_route(), 9.0) << size;
    }
}

// Buckets, which are spread evenly, would be empty where all routes are crowded together.
TEST(Lists, MakeARouteCostMuchTheSameWhereRoutesAreCrowded) {
    std::mt19937 chance(6);
    Table table(Family::kIpv4, 1 << 22);
    while (table.reference.routes.size() < 20000) {
        table.set(ipv4(0x0a000000 | static_cast<uint32_t>(chance() % 0x1000000)), 24, 1 + chance() % 255);
    }
    EXPECT_FALSE(sp_trie_root_has_buckets(table.root()));
    EXPECT_LE(table.octets_per_route(), 9.0);
    table.expect_alike();
}

// The root of what is left is made once, not for each route that goes.
TEST(Lists, LeaveBucketsWhereOnlyCrowdedRoutesStay) {
    std::mt19937 chance(6);
    Table table(Family::kIpv4);
    for (uint32_t number = 0; number < 300; ++number) {
        table.set(ipv4(0x0a000000 | number << 8), 24, 1 + number % 255);
    }
    std::vector<Key> even;
    for (uint32_t number = 0; number < 3000; ++number) {
        even.push_back(ipv4(static_cast<uint32_t>(chance())));
        table.set(even.back(), 24, 1);
    }
    EXPECT_TRUE(sp_trie_root_has_buckets(table.root()));
    uint32_t roots = 0;
    for (Key address : even) {
        sp_u64 before = table.root();
        if (table.reference.routes.contains({address & mask_of(24), 24})) {
            table.erase(address, 24);
        }
        roots += table.root() != before;
    }
    EXPECT_FALSE(sp_trie_root_has_buckets(table.root()));
    EXPECT_LE(roots, 12u);
    table.expect_alike();
}

// Tables of all sizes and densities, in which every form occurs.
class ListTables : public testing::TestWithParam<Family> {};

TEST_P(ListTables, AnswerAsTheReferenceDoes) {
    Family family = GetParam();
    Shapes seen;
    for (uint32_t seed = 0; seed < rounds(24); ++seed) {
        std::mt19937 chance(seed);
        Table table(family);
        uint32_t most = 20u << seed % 6;
        uint32_t bits = bits_of(family);
        bool even = seed % 6 == 5;  // the biggest, whose routes fit into buckets
        uint32_t spread = even ? 12 : 3 + seed % 4 * 3;  // leading bits that vary
        Key base = ~Key{0} / 5 & mask_of(bits);
        auto address = [&] {
            Key high = Key{chance()} << 96, low = Key{chance()} << (kKeyBits - bits);
            return base ^ ((high & mask_of(spread)) | (high & ~mask_of(20) & mask_of(26)) |
                           (low & ~mask_of(bits - 3) & mask_of(bits)));
        };
        auto among = [&](uint32_t first, uint32_t count) { return first + static_cast<uint32_t>(chance() % count); };
        const uint32_t lengths[] = {among(1, 12), among(13, 6), 20, 22, 24, even ? 23u : 26u, even ? 21 : bits - 2,
                                    even ? 19 : bits};
        uint32_t leaves = 8 * (seed % 3);
        for (uint32_t step = 0; step < 6 * most; ++step) {
            uint32_t length = lengths[chance() % std::size(lengths)];
            Key key = address() & mask_of(length);
            auto found = table.reference.routes.lower_bound({key, length});
            if (chance() % most >= table.reference.routes.size() / 2 || found == table.reference.routes.end()) {
                table.set_leaf(key, length, leaf_of(leaves + chance() % 8));
            } else {
                auto [route, leaf] = *found;
                table.erase(route.first, route.second);
            }
            if (step % (most / 4) == 0) {
                table.expect_alike();
                seen += table.shapes();
            }
            if (HasFatalFailure()) {
                FAIL() << "seed " << seed << " step " << step;
            }
        }
        while (!table.reference.routes.empty()) {
            auto found = table.reference.routes.begin();
            std::advance(found, chance() % std::min<size_t>(table.reference.routes.size(), 9));
            auto [route, leaf] = *found;
            table.erase(route.first, route.second);
            if (table.reference.routes.size() % 64 < 2) {
                table.expect_alike();
            }
        }
        table.fib.settle();
        EXPECT_EQ(table.fib.memory().trie_used, 0u);
        EXPECT_EQ(table.fib.memory().nodes, 0u);
    }
    EXPECT_GT(seen.root_lists, 0u);
    EXPECT_GT(seen.node_lists, 0u);
    EXPECT_GT(seen.shared_lists, 0u);
    EXPECT_GT(seen.nodes, 0u);
    EXPECT_GT(seen.parts, 0u);
    EXPECT_GT(seen.paths, 0u);
    EXPECT_EQ(seen.buckets > 0, family == Family::kIpv4);
    EXPECT_TRUE(seen.path_lists > 0 || family == Family::kIpv4);
    EXPECT_GT(seen.wide_lists, seen.lists() / 16);
    EXPECT_LT(seen.wide_lists, seen.lists() * 15 / 16);
    EXPECT_GE(seen.longest, SP_TRIE_LIST);
}

INSTANTIATE_TEST_SUITE_P(Families, ListTables, testing::Values(Family::kIpv4, Family::kIpv6));

TEST(ListContent, KeepsHalfOfItsRoutes) {
    ListContent content;
    auto key = [](uint32_t bits, uint32_t length) { return bits << (32 - length) | (SP_TRIE_WIDE_END - length); };
    for (auto [bits, length] :
         {std::pair{0b1011001u, 7u}, {0b1001111u, 7u}, {0b10110u, 5u}, {0b101u, 3u}, {0b10u, 2u}}) {
        ASSERT_TRUE(content.insert(key(bits, length), length, SP_TRIE_LIST));
    }
    content.keep(0b101, 3, 2);
    ASSERT_EQ(content.count, 2u);  // neither the other half's, nor what covers all of this one
    EXPECT_EQ(content.routes[0].key, key(0b11001, 5));
    EXPECT_EQ(content.routes[0].leaf, 7u);
    EXPECT_EQ(content.routes[1].key, key(0b110, 3));
}

}  // namespace
}  // namespace splitplane
