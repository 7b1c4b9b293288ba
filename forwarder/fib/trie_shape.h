// SPDX-License-Identifier: Apache-2.0
//
// What the blocks of one node look like to readers (pipeline/trie.h): which form takes the least room, and its words.
#pragma once

extern "C" {
#include "pipeline/trie.h"
}

#include "fib/route_store.h"

namespace splitplane {

using Slots = std::array<uint32_t, kSlots>;

inline constexpr uint32_t kPathWords = 4;
// Path blocks one behind the other, as many as 128 bits take.
inline constexpr uint32_t kMostPaths = 3;
inline constexpr uint32_t kMostWords = (kMostPaths + SP_TRIE_LIST) * kPathWords + SP_TRIE_NODE_WORDS + kSlots;

inline bool is_block(uint32_t word) { return (word & SP_TRIE_BLOCK) != 0; }
inline uint32_t node_word(uint32_t unit) { return SP_TRIE_BLOCK | unit; }
inline uint32_t path_word(uint32_t unit) { return SP_TRIE_BLOCK | SP_TRIE_PATH | unit; }

// The first 64 bits of a block, which readers load as one.
inline uint64_t load_bits(const sp_u32* words) { return words[0] | static_cast<uint64_t>(words[1]) << 32; }
static_assert(std::endian::native == std::endian::little);

struct ListedRoute {
    Key key;
    uint32_t length;
    uint32_t leaf;
};
// Path blocks, then a node block, a list or one word.
struct TrieShape {
    Key key;             // whose bits the path blocks ask for,
    uint32_t path_bits;  // from the node's `top` on
    uint64_t vector;     // of the node block
    uint32_t runs;
    std::array<ListedRoute, SP_TRIE_LIST> list;  // the longest first
    uint32_t listed;
    uint32_t word;  // a leaf or a child's word, where there is neither node block nor list
    uint32_t paths() const { return (path_bits + SP_TRIE_PATH_BITS - 1) / SP_TRIE_PATH_BITS; }
    uint32_t units() const { return 2 * (paths() + listed) + (runs > 0 ? 1 + (runs + 1) / 2 : 0); }
};

// The form without a list: a node block with the given words, or one path where only one prefix differs from the
// background.
TrieShape shape_of(const RouteNode& node, uint32_t top, uint32_t background, const Slots& slots);

// A list of the routes of a node and all below it. False: they are too many, or too long.
bool make_list(const RouteStore& store, const RouteNode& node, uint32_t top, TrieShape& shape);

// Write the words, kMostWords at most, of blocks that are to begin at `unit`; returns how many.
uint32_t compose(const TrieShape& shape, const Slots& slots, uint32_t top, uint32_t background, uint32_t unit,
                 sp_u32* words);

}  // namespace splitplane
