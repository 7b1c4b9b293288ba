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
inline constexpr uint32_t kMostWords = kMostPaths * kPathWords + SP_TRIE_NODE_WORDS + kSlots;

inline constexpr uint32_t kTag = SP_TRIE_BLOCK | SP_TRIE_OTHER;
inline bool is_leaf(uint32_t word) { return (word & SP_TRIE_FORM) == 0; }
inline bool is_node(uint32_t word) { return (word & kTag) == SP_TRIE_BLOCK; }
inline bool is_list(uint32_t word) { return (word & kTag) == SP_TRIE_OTHER; }
inline uint32_t node_word(uint32_t unit) { return SP_TRIE_BLOCK | unit; }
inline uint32_t path_word(uint32_t unit) { return SP_TRIE_BLOCK | SP_TRIE_OTHER | unit; }
inline uint32_t list_word(uint32_t unit, bool wide) { return SP_TRIE_OTHER | (wide ? SP_TRIE_WIDE : 0) | unit; }
// Of a bucket: the list's head, which leads nowhere.
inline bool is_here(uint32_t word) { return (word & SP_TRIE_FORM) == SP_TRIE_HERE; }
inline bool is_wide(uint32_t list) { return (list & SP_TRIE_WIDE) != 0; }
// Where the block that a word leads to begins in the array.
inline uint32_t block_index(uint32_t word) { return (word & SP_TRIE_UNIT) * 2; }

// The first 64 bits of a node or path, which readers load as one.
inline uint64_t load_bits(const sp_u32* words) { return words[0] | static_cast<uint64_t>(words[1]) << 32; }
static_assert(std::endian::native == std::endian::little);

// How many path blocks ask for so many bits.
inline uint32_t paths_for(uint32_t bits) { return (bits + SP_TRIE_PATH_BITS - 1) / SP_TRIE_PATH_BITS; }
inline uint32_t node_units(uint32_t runs) { return 1 + (runs + 1) / 2; }

// Path blocks, then a node block or one word.
struct TrieShape {
    Key key;             // whose bits the path blocks ask for,
    uint32_t path_bits;  // from the node's `top` on
    uint64_t vector;     // of the node block
    uint32_t runs;       // 0: there is no node block,
    uint32_t word;       // but a leaf, or what leads to a child or a list
    uint32_t paths() const { return paths_for(path_bits); }
    uint32_t units() const { return 2 * paths() + (runs > 0 ? node_units(runs) : 0); }
};

// A bit where each run of equal slots begins.
uint64_t vector_of(const Slots& slots);

// A node block with the given words, or paths only where but one prefix differs from the background.
TrieShape shape_of(const RouteNode& node, uint32_t top, uint32_t background, const Slots& slots);

// Write the words of a node block; returns how many.
uint32_t compose(uint64_t vector, const Slots& slots, sp_u32* words);

// Write the words, kMostWords at most, of blocks that are to begin at `unit`; returns how many.
uint32_t compose(const TrieShape& shape, const Slots& slots, uint32_t top, uint32_t background, uint32_t unit,
                 sp_u32* words);

}  // namespace splitplane
