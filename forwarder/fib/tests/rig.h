// SPDX-License-Identifier: Apache-2.0
//
// Arrays, grace periods and a plain reference for the tests of the tries.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

extern "C" {
#include "pipeline/trie.h"
}

#include "fib/fib.h"
#include "fib/key.h"
#include "fib/trie_list.h"
#include "fib/trie_shape.h"

namespace splitplane {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;  // everything takes three times as long
#else
constexpr bool kSanitized = false;
#endif

// Rounds of a long test.
constexpr uint32_t rounds(uint32_t all) { return kSanitized ? all / 3 : all; }

class Arrays {
  public:
    explicit Arrays(uint32_t words)
        : words_(words / 2),
          roots_(std::make_unique<sp_u64[]>(SP_FAMILIES * SP_VRFS)),
          vrfs_(std::make_unique<sp_vrf[]>(SP_VRFS)) {
        arrays.words = reinterpret_cast<sp_u32*>(words_.data());
        arrays.word_count = words;
        arrays.roots[SP_IPV4] = roots_.get();
        arrays.roots[SP_IPV6] = roots_.get() + SP_VRFS;
        arrays.vrfs = vrfs_.get();
    }
    sp_u64 root(uint32_t vrf, Family family) const {
        return sp_load_long(&arrays.roots[static_cast<size_t>(family)][vrf]);
    }
    uint32_t trie_lookup(uint32_t vrf, Family family, Key address) const {
        sp_u64 root = this->root(vrf, family);
        return family == Family::kIpv4 ? sp_trie_lookup4(&arrays, root, static_cast<uint32_t>(high_of(address) >> 32))
                                       : sp_trie_lookup6(&arrays, root, high_of(address), low_of(address));
    }
    // The default route has a word of its own: the two words are of one moment if it has not changed between.
    uint32_t lookup(uint32_t vrf, Family family, Key address) const {
        auto at = static_cast<size_t>(family);
        const sp_vrf& entry = arrays.vrfs[vrf];
        for (;;) {
            uint32_t fallback = sp_load_word(&entry.default_leaf[at]);
            uint32_t leaf = trie_lookup(vrf, family, address);
            if (leaf != 0) {
                return leaf;
            }
            if (sp_load_word(&entry.default_leaf[at]) == fallback) {
                return fallback;
            }
        }
    }

    sp_arrays arrays{};

  private:
    std::vector<uint64_t> words_;
    std::unique_ptr<sp_u64[]> roots_;
    std::unique_ptr<sp_vrf[]> vrfs_;
};

// No readers: every grace period is over at once.
class NoReaders : public GracePeriods {
  public:
    void synchronize() override { ++calls; }
    std::atomic<uint64_t> calls{0};
};

// What the words of a trie are, counted as readers come to them.
struct Shapes {
    uint32_t root_lists = 0;    // right below the root,
    uint32_t node_lists = 0;    // in one slot of a node block,
    uint32_t shared_lists = 0;  // in more than one,
    uint32_t path_lists = 0;    // behind a path
    uint32_t longest = 0;       // routes in a list
    uint32_t wide_lists = 0;    // of all these
    uint32_t nodes = 0, paths = 0;
    uint32_t parts = 0;         // words of the root that lead to the block of a part of a node
    uint32_t buckets = 0;       // with a list,
    uint32_t fullest = 0;       // routes in one

    Shapes() = default;
    Shapes(const Arrays& arrays, uint32_t vrf, Family family) : words_(arrays.arrays.words) {
        sp_u64 root = arrays.root(vrf, family);
        for (uint32_t at = 0; root != 0 && at < 1u << sp_trie_root_bits(root); ++at) {
            uint32_t index = (sp_trie_root_base(root) + at) * (sp_trie_root_has_buckets(root) ? SP_BUCKET_WORDS : 1);
            uint32_t word = words_[index];
            if (is_here(word)) {
                ++buckets;
                fullest = std::max(fullest, ListContent(words_ + index, false).count);
                continue;
            }
            parts += is_node(word) && sp_trie_root_bits(root) != sp_trie_root_taken(root);
            look(word, root_lists);
        }
    }
    Shapes& operator+=(const Shapes& other) {
        root_lists += other.root_lists, node_lists += other.node_lists, shared_lists += other.shared_lists;
        path_lists += other.path_lists, nodes += other.nodes, paths += other.paths, parts += other.parts;
        buckets += other.buckets, fullest = std::max(fullest, other.fullest);
        longest = std::max(longest, other.longest), wide_lists += other.wide_lists;
        return *this;
    }
    uint32_t lists() const { return root_lists + node_lists + shared_lists + path_lists; }

  private:
    void look(uint32_t word, uint32_t& lists) {
        const sp_u32* block = words_ + block_index(word);
        if (is_leaf(word)) {
            return;
        }
        if (is_list(word)) {
            ++lists;
            ListContent content(block, is_wide(word));
            longest = std::max(longest, content.count);
            wide_lists += is_wide(word);
        } else if (is_node(word)) {
            ++nodes;
            uint32_t at = SP_TRIE_NODE_WORDS;
            uint64_t vector = load_bits(block);
            for (uint64_t bits = vector; bits != 0; bits &= ~slot_bit(first_slot(bits)), ++at) {
                uint32_t next = first_slot(bits) + 1;
                look(block[at], next == kSlots || vector & slot_bit(next) ? node_lists : shared_lists);
            }
        } else {
            ++paths;
            look(block[SP_TRIE_PATH_HIT], path_lists);
        }
    }
    const sp_u32* words_ = nullptr;
};

// Routes of one table by (address, length), which is also their order.
class Reference {
  public:
    std::map<std::pair<Key, uint32_t>, uint32_t> routes;

    // Every route that covers an address is its prefix, so the last one that is not behind it is the longest, or says
    // from which length on there is none.
    uint32_t lookup(Key address, uint32_t bits, uint32_t shortest = 0) const {
        for (uint32_t length = bits;;) {
            auto behind = routes.upper_bound({address & mask_of(length), length});
            if (behind == routes.begin()) {
                return 0;
            }
            const auto& [route, leaf] = *std::prev(behind);
            if (route.first == (address & mask_of(route.second))) {
                return route.second >= shortest ? leaf : 0;
            }
            length = shared_bits(route.first, address);
        }
    }
    // The same as anybody would write it.
    uint32_t plain_lookup(Key address, uint32_t bits, uint32_t shortest = 0) const {
        for (uint32_t length = bits + 1; length-- > shortest;) {
            auto found = routes.find({address & mask_of(length), length});
            if (found != routes.end()) {
                return found->second;
            }
        }
        return 0;
    }
};

// Leaves as routes have them: most nexthops near each other; every eighth number one far away, a group, or no slot.
inline uint32_t leaf_of(uint32_t number) {
    switch (number % 8 == 7 ? number / 8 % 3 : 3) {
    case 0:
        return sp_leaf(SP_ROUTE_NEXTHOP, 50000 + number % 10000);
    case 1:
        return sp_leaf(SP_ROUTE_GROUP, number % SP_GROUPS);
    case 2:
        return sp_leaf(SP_ROUTE_BLACKHOLE, 0);
    default:
        return sp_leaf(SP_ROUTE_NEXTHOP, number);
    }
}

inline uint32_t bits_of(Family family) { return family == Family::kIpv4 ? 32 : 128; }

}  // namespace splitplane
