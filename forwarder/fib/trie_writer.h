// SPDX-License-Identifier: Apache-2.0
//
// Puts a tree of routes into the words that readers walk (pipeline/trie.h).
//
//     the store's nodes   depth 0 ─ 6 ─ 12 ──── 18 ─ 24       s = 14: what lies above is spread out in the root, as are
//     the readers' words  root, 2^14 words │ block ─ block    nodes of depth 12, in four parts each; what lies below
//                         or buckets                          has a block for each node, or is in a list or bucket
//
// A list holds all routes below one word of the root, below some neighboring slots of a node block, or behind a path.
// It asks for the bits from that node's depth on; below the root, for those that the root does not take. The list of a
// bucket lies in the root itself. It changes there once between two grace periods (trie_buckets.cc).
//
// Nothing that a reader can reach is changed in any way but by storing one word. A change is planned bottom up: where
// the vectors and keys stay, words to be stored; where they do not, a new block. When there is all the room it needs,
// the words are stored, each of which switches the addresses below it from the old routes to the new. Without the room,
// the plan is undone, and nothing was ever to be seen.
#pragma once

#include <unordered_map>
#include <vector>

#include "fib/arena.h"
#include "fib/route_store.h"
#include "fib/trie_list.h"
#include "fib/trie_shape.h"

namespace splitplane {

// The trie of one VRF and family.
struct TrieTable {
    bool short_keys = false;  // IPv4's, so that buckets are worth while
    bool buckets = false;     // in the root
    uint32_t node = 0;   // of depth 0; 0: no routes
    uint32_t base = 0;   // the root's first unit, or its first bucket; 0: there is none
    uint32_t bits = 0;   // s
    uint32_t routes = 0; // the default route too
    uint32_t refused = 0; // routes when a bigger root was not to be had

    uint32_t taken() const { return bits - bits % kStride; }
    // What has the routes below one word of the root in one piece takes so many.
    uint32_t most() const { return buckets ? SP_TRIE_BUCKET : SP_TRIE_LIST; }
    // Where the root's word is for the first s bits of an address, and the first s bits of one.
    uint32_t index(uint32_t slot) const { return buckets ? (base + slot) * SP_BUCKET_WORDS : base * 2 + slot; }
    uint32_t slot(Key key) const { return static_cast<uint32_t>(key >> (kKeyBits - bits)); }
    sp_u64 word() const { return sp_trie_root(buckets ? base : base * 2, bits, buckets); }
    // Whether the root's words have the parts of a node, not whole ones.
    bool cuts(const RouteNode& node) const { return node.depth < bits && node.depth + kStride > bits; }
};

class TrieWriter {
  public:
    // `buckets` has the end of the same array; its unit 0 lies right before a bucket.
    TrieWriter(RouteStore& store, sp_arrays& arrays, BlockArena& arena, BlockArena& buckets, GracePeriods& grace);

    // Where a change begins: the lowest node that changed other than by what lies below it, and the way to it.
    struct Place {
        std::array<uint32_t, 23> nodes;
        uint32_t count = 0;
        uint32_t last() const { return nodes[count - 1]; }
    };

    // The route that changed. `length` 0: none, only the tree did.
    struct Change {
        Key key = 0;
        uint32_t length = 0;
        uint32_t leaf = 0;  // 0: it is gone
    };

    // Let the trie follow the store, in which something changed at the given slots of the place's last node. `root` is
    // the word of sp_arrays.roots, stored where it changes. False: no room except `reserve` units; the trie is as
    // before, the store is the caller's to undo.
    bool update(TrieTable& table, sp_u64& root, const Place& place, const Change& change, uint64_t slots,
                uint32_t reserve);

    // Whether a node is in a list, which does not show how the tree holds its routes.
    static bool listed(const RouteNode& node);

    // Give the root the size that the table asks for, if there is room; never waits.
    void fit_root(TrieTable& table, sp_u64& root, uint32_t reserve);

    // The table's tree is empty: give everything back.
    void clear(TrieTable& table, sp_u64& root);

    // A node leaves the tree, and nothing leads to its blocks any more.
    void forget(const RouteNode& node);

    // Wait until buckets that changed may change again.
    void settle();

  private:
    // What the trie held of a node before this change.
    struct Before {
        uint32_t node;
        uint32_t word;
        uint32_t background;
        uint8_t top, paths, runs;
    };
    // A node that changed, or has one below it that did; taken out when it is emitted.
    struct Dirty {
        uint32_t node;
        uint64_t slots;
    };
    struct Store {
        uint32_t index, count, value;
    };
    struct Block {
        uint32_t first, units;
    };
    // What is to stand in the slots of a node, or of a part of one.
    struct Filling {
        explicit Filling(const RouteNode& of) : node(of) {}
        const RouteNode& node;
        Slots leaves;                   // by the node's own routes, and the background
        Slots words;                    // what there was, and is to be
        uint64_t stale = ~uint64_t{0};  // slots whose words are to be found anew
        uint64_t was = 0;               // the vector that there was; 0: none
    };
    // A list, by the word that leads to it: it asks from `from` on, for what has so many bits there in common.
    struct Listed {
        uint32_t at, from, bits;
        uint32_t leaf;  // for what matches none of its routes
        bool in_node;   // or behind its path, not in the root
    };
    // A bucket, by the index of its first word, and the key that came or went there; kEveryKey: the list has left it.
    struct Moved {
        uint32_t index, key;
    };
    // The same later, and the root that it belongs to as long as that is published.
    struct Waiting {
        uint32_t index;
        const sp_u64* root;
        sp_u64 value;
    };
    // How often a bucket changed in what may be one grace period, and at which keys.
    struct Held {
        uint32_t count = 0, known = 0;
        std::array<uint32_t, 4> keys;

        bool allows(const BucketEdit& edit) const;
        void add(uint32_t key);
    };
    void begin(uint32_t reserve, bool may_wait);
    bool commit();
    void retire_unlinked();
    uint32_t allocate(uint32_t units);
    void remember(uint32_t index);
    void plan(uint32_t index, uint32_t count, uint32_t value);

    // trie_writer.cc: nodes with blocks
    uint32_t emit(uint32_t index, uint32_t top, uint32_t background, uint64_t dirty);
    void expand(uint32_t block, uint64_t dirty, Filling& filling) const;
    void fill(Filling& filling, uint32_t heap, uint32_t leaf);
    bool in_list_or_few(const TrieTable& table, const RouteNode& node) const;
    uint32_t put_list(const ListContent& content, uint32_t old_word);
    bool store_in_place(const RouteNode& node, const TrieShape& shape, const sp_u32* image, uint32_t size);
    uint32_t write(RouteNode& node, uint32_t top, uint32_t background, const TrieShape& shape, const Slots& slots);
    void lead_up(const TrieTable& table, const Place& place, uint32_t at, uint32_t word, uint32_t old_word);

    void swallow(uint32_t index);
    void swallow_below(const RouteNode& node, uint32_t heap);
    void unlink(const RouteNode& node);
    void unlink_block(const RouteNode& node);
    void unlink_list(uint32_t word);
    void unlink_lists(uint32_t block, const Slots* kept);
    uint32_t listed_behind_path(const RouteNode& node) const;

    // trie_edit.cc: lists in which one route changes
    bool edit_list(const TrieTable& table, const Place& place, const Change& change);
    bool find_list(const TrieTable& table, const Place& place, const Change& change, Listed& listed) const;
    bool to_spread(const TrieTable& table, const RouteNode& above, uint32_t slot) const;

    // trie_root.cc: what the root has
    void spread(const TrieTable& table, uint32_t index, uint32_t background, uint64_t dirty, bool everything);
    void plan_leaves(const TrieTable& table, uint32_t first, uint32_t end, uint32_t leaf, bool everything);
    void spread_slot(const TrieTable& table, const RouteNode& node, uint32_t slot, uint32_t leaf, bool everything);
    void emit_part(const TrieTable& table, const RouteNode& node, uint32_t heap, uint32_t background, uint64_t dirty,
                   bool everything);
    void emit_below(const TrieTable& table, uint32_t index, uint32_t leaf, bool everything);
    bool halve_list(const TrieTable& table, uint32_t slot, uint32_t leaf);
    uint32_t put_part(const Slots& words, uint32_t old_word);
    void unlink_part(const TrieTable& table, uint32_t word);
    bool allocate_root(TrieTable& table, uint32_t reserve);
    void retire_root(const TrieTable& table);
    bool rebuild_root(TrieTable& table, sp_u64& root, uint32_t bits, bool buckets, uint32_t reserve);

    // trie_buckets.cc: lists in the root itself
    ListContent root_list(const TrieTable& table, uint32_t slot) const;
    uint32_t put_root_list(const TrieTable& table, uint32_t slot, const ListContent& content, uint32_t old_word,
                           bool everything);
    uint32_t put_bucket(uint32_t index, const ListContent& content, bool everything);
    void hold_moved(const sp_u64& root);
    void bring_back();
    void bring_back(const Waiting& waiting);

    RouteStore& store_;
    sp_arrays& arrays_;
    BlockArena& arena_;
    BlockArena& buckets_;

    // The change that is being planned.
    uint32_t reserve_ = 0;
    bool may_wait_ = false;
    bool full_ = false;
    const TrieTable* halved_ = nullptr;  // whose root one of twice the size is made from
    uint32_t in_buckets_ = 0;            // routes, of a root that is being made
    std::vector<Dirty> dirty_;
    std::vector<Before> before_;
    std::vector<Store> stores_;
    std::vector<Block> made_;
    std::vector<Block> unlinked_;
    std::vector<Moved> moved_;

    // Buckets that changed, until the grace period after each change is over.
    std::unordered_map<uint32_t, Held> held_;
    std::vector<Waiting> passed_;
    Retired<Waiting> waiting_;
};

// RouteNode::top of a node without blocks: the root has its slots, or it is in a list, or was never emitted.
inline constexpr uint8_t kInRoot = 254;
inline constexpr uint8_t kInList = 255;
inline bool TrieWriter::listed(const RouteNode& node) { return node.top == kInList; }

inline uint32_t block_units(const RouteNode& node) {
    return 2u * node.paths + (node.runs > 0 ? node_units(node.runs) : 0);
}
// Where its node block begins in the array, behind its paths.
inline uint32_t node_index(const RouteNode& node) { return block_index(node.word) + kPathWords * node.paths; }

}  // namespace splitplane
