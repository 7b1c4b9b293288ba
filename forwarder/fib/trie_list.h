// SPDX-License-Identifier: Apache-2.0
//
// Lists, the form that the few routes of a sparse subtree take, and buckets, which are lists in the root itself
// (pipeline/trie.h).
#pragma once

extern "C" {
#include "pipeline/trie.h"
}

#include "fib/route_store.h"

namespace splitplane {

struct ListedRoute {
    Key key;
    uint32_t length;
    uint32_t leaf;
};

// In any order.
struct RouteList {
    std::array<ListedRoute, SP_TRIE_BUCKET> routes;
    uint32_t count = 0;
};

// All routes of the store that lie below one prefix of a node (by heap number; 1: the whole node), except that prefix
// itself. False: they are more than `most`, or one is longer than `longest`.
bool gather(const RouteStore& store, const RouteNode& node, uint32_t heap, uint32_t longest, uint32_t most,
            RouteList& list);

// A route's key in a list that asks for the bits from `from` on, as a wide one has it; and how many bits it has.
uint32_t list_key(Key key, uint32_t length, uint32_t from);
inline uint32_t list_key_bits(uint32_t key) { return SP_TRIE_WIDE_END - (key & SP_TRIE_WIDE_END); }

// What a list says, whatever its form.
struct ListContent {
    struct Route {
        uint32_t leaf;
        uint32_t key;
    };
    std::array<Route, SP_TRIE_BUCKET> routes;  // the longest first
    uint32_t count = 0;
    uint32_t background = 0;  // the leaf of what matches none of them

    ListContent() = default;
    // Of a list that asks for the bits from `from` on.
    ListContent(const RouteList& list, uint32_t from, uint32_t background);
    // Of the list at `words` that a word of this form leads to; of a bucket that is one, `wide` is false.
    ListContent(const sp_u32* words, bool wide);

    // False: there is no route of this key,
    bool replace(uint32_t key, uint32_t leaf);
    bool erase(uint32_t key);
    // or `most` routes already.
    bool insert(uint32_t key, uint32_t leaf, uint32_t most);
    // The same of a list that asks from so many bits before, which are these.
    void put_before(uint32_t prefix, uint32_t bits);
    // Keep the routes whose keys begin with these `bits` of `prefix` and go on, less the first `drop` of them.
    void keep(uint32_t prefix, uint32_t bits, uint32_t drop);

  private:
    Route* find(uint32_t key);
};

// The words of a list.
struct ListImage {
    std::array<sp_u32, 2 * (SP_TRIE_BUCKET + 1)> words;
    uint32_t size = 0;
    bool wide = false;

    // In the form that takes least.
    explicit ListImage(const ListContent& content);
    // In the form, and with the base, of the list at `now`, if that can be; else `size` is 0.
    ListImage(const ListContent& content, const sp_u32* now, bool wide);

    uint32_t units() const { return (size + 1) / 2; }
    // Whether the list at `now`, of the same form, differs from it in leaves only.
    bool has_keys_of(const sp_u32* now) const;

  private:
    bool put(const ListContent& content, uint32_t base);
    void put_wide(const ListContent& content);
};

// The words of a bucket.
using BucketImage = std::array<sp_u32, SP_BUCKET_WORDS>;

// Of a new one. False: a leaf or a key does not fit.
bool compose(const ListContent& content, BucketImage& image);

// The stores that turn a list into another while readers go through it, each of which leaves every address with the
// leaf of before or of after.
struct BucketEdit {
    struct Store {
        uint32_t at, value;
    };
    std::array<Store, SP_BUCKET_WORDS> stores;
    uint32_t count = 0;
    uint32_t key = 0;    // of the route that changes, as its word has it; 0: none does
    bool moves = false;  // it comes or goes

    // The head first: what it says of addresses without a route, others may hide until then. A route that goes
    // becomes 0. One that comes takes a free place behind what it covers and before what covers it; where there is
    // none, those behind move up to the next free place, the last first. So who reads from the beginning to the end
    // may come to a route twice, but misses none.
    // False: more than one route changes, or does not fit.
    bool plan(const sp_u32* now, const ListContent& content);
    bool changes_head() const { return count > 0 && stores[0].at == 0; }

  private:
    bool open(const BucketImage& now, uint32_t route);
    void store(uint32_t at, uint32_t value) { stores[count++] = {at, value}; }
};

// Whether two keys are different and one begins with the other. That of no bits begins all.
bool nested(uint32_t key, uint32_t other);
inline constexpr uint32_t kEveryKey = 1u << SP_TRIE_LIST_BITS;

// Of a list that lies at `words`.
uint32_t list_units(const sp_u32* words, bool wide);

}  // namespace splitplane
