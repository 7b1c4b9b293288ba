// SPDX-License-Identifier: Apache-2.0
//
// Puts a tree of routes into the words that readers walk (pipeline/trie.h).
//
//     the store's nodes   depth 0 ─ 6 ─ 12 ─│─ 18 ─ 24        s = 18: what lies above is spread out in the root,
//     the readers' words  root, 2^18 words  │ block ─ block   what lies below has a block for each node
//
// Nothing that a reader can reach is changed in any way but by storing one word. A change is planned bottom up: where
// the vectors stay, words to be stored; where they do not, a new block. When all the room that it needs is had, the
// words are stored, each of which switches the addresses below it from the old routes to the new. Without the room, the
// plan is undone, and nothing was ever to be seen.
#pragma once

#include <vector>

#include "fib/arena.h"
#include "fib/route_store.h"
#include "fib/trie_shape.h"

namespace splitplane {

// The trie of one VRF and family.
struct TrieTable {
    uint32_t node = 0;   // of depth 0; 0: no routes
    uint32_t base = 0;   // the root's first unit
    uint32_t bits = 0;   // s
    uint32_t routes = 0; // the default route too
    uint32_t refused = 0; // routes when a bigger root was not to be had
    // For s = 6, 12, 18: how many of a root's words would have something of their own: links that cross it and routes
    // above.
    std::array<uint32_t, 3> occupied{};

    void count_link(uint32_t above, uint32_t below, int change) {
        for (uint32_t at = 0; at < occupied.size(); ++at) {
            occupied[at] += above < root_bits(at) && below >= root_bits(at) ? static_cast<uint32_t>(change) : 0;
        }
    }
    void count_route(uint32_t depth, int change) {
        for (uint32_t at = 0; at < occupied.size(); ++at) {
            occupied[at] += depth < root_bits(at) ? static_cast<uint32_t>(change) : 0;
        }
    }
    static constexpr uint32_t root_bits(uint32_t at) { return (at + 1) * kStride; }
};

class TrieWriter {
  public:
    TrieWriter(RouteStore& store, sp_arrays& arrays, BlockArena& arena)
        : store_(store), arrays_(arrays), arena_(arena) {}

    // Where a change begins: the lowest node that changed other than by what lies below it, and the way to it.
    struct Place {
        std::array<uint32_t, 23> nodes;
        uint32_t count = 0;
        uint32_t last() const { return nodes[count - 1]; }
    };

    // Let the trie follow the store, in which something changed at the given slots of the place's last node. `root` is
    // the word of sp_vrf, stored where it changes. False: no room but for `reserve` units; the trie is as before, the
    // store is the caller's to undo.
    bool update(TrieTable& table, sp_u64& root, const Place& place, uint64_t slots, uint32_t reserve);

    // Give the root the size that the table asks for, if there is room; never waits.
    void fit_root(TrieTable& table, sp_u64& root, uint32_t reserve);

    // The table's tree is empty: give everything back.
    void clear(TrieTable& table, sp_u64& root);

    // A node leaves the tree, and nothing leads to its blocks any more.
    void forget(RouteNode& node);

  private:
    // What the trie held of a node before this change.
    struct Before {
        uint32_t node;
        uint32_t word;
        uint32_t background;
        uint8_t top, paths, list, runs;
    };
    struct Store {
        uint32_t index, count, value;
    };
    struct Block {
        uint32_t first, units;
    };
    void begin(uint32_t reserve, bool may_wait);
    bool commit();
    uint32_t allocate(uint32_t units);
    void remember(uint32_t index);
    void plan(uint32_t index, uint32_t count, uint32_t value);

    uint32_t emit(uint32_t index, uint32_t top, uint32_t background, uint64_t dirty);
    void expand(const RouteNode& node, Slots& slots) const;
    void swallow(const RouteNode& node);
    void unlink(const RouteNode& node);
    bool store_in_place(const RouteNode& node, const TrieShape& shape, const sp_u32* image, uint32_t size);
    uint32_t write(RouteNode& node, uint32_t top, uint32_t background, const TrieShape& shape,
                   const Slots& slots);
    void lead_up(const TrieTable& table, const Place& place, uint32_t at, uint32_t word, uint32_t old_word);

    void spread(const TrieTable& table, uint32_t index, uint32_t background, uint64_t dirty, bool everything);
    void spread_slot(const TrieTable& table, const RouteNode& node, uint32_t slot, uint32_t leaf, bool everything);
    static uint32_t root_index(const TrieTable& table, Key key);
    bool rebuild_root(TrieTable& table, sp_u64& root, uint32_t bits, uint32_t reserve);

    RouteStore& store_;
    sp_arrays& arrays_;
    BlockArena& arena_;

    // The change that is being planned.
    uint32_t reserve_ = 0;
    bool may_wait_ = false;
    bool full_ = false;
    std::vector<Before> before_;
    std::vector<Store> stores_;
    std::vector<Block> made_;
    std::vector<Block> unlinked_;
};

}  // namespace splitplane
