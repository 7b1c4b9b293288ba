// SPDX-License-Identifier: Apache-2.0
//
// Lists, the form that the few routes of a sparse subtree take (pipeline/trie.h).
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

// In any order; compose() puts the longest first.
struct RouteList {
    std::array<ListedRoute, SP_TRIE_LIST> routes;
    uint32_t count = 0;
    uint32_t units() const { return count + 1; }
};
inline constexpr uint32_t kMostListWords = 2 * (SP_TRIE_LIST + 1);

// All routes of the store that lie below one prefix of a node (by heap number; 1: the whole node), but for that prefix
// itself. False: they are too many for a list, or one is longer than `longest`.
bool gather(const RouteStore& store, const RouteNode& node, uint32_t heap, uint32_t longest, RouteList& list);

// The second word of a route's entry in a list that asks for the bits from `from` on; and how many bits it has.
uint32_t list_key(Key key, uint32_t length, uint32_t from);
inline uint32_t list_key_bits(uint32_t key) { return SP_TRIE_LIST_END - (key & SP_TRIE_LIST_END); }

// Write the words of a list that asks for the bits from `from` on, and has `background` for what matches none of its
// routes; returns how many.
uint32_t compose(const RouteList& list, uint32_t from, uint32_t background, sp_u32* words);

// Of a list that lies at `words`.
uint32_t list_units(const sp_u32* words);

}  // namespace splitplane
