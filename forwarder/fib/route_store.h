// SPDX-License-Identifier: Apache-2.0
//
// The routes as the control plane keeps them: a tree with one node for each block of the readers' trie.
//
//     node at depth d (a multiple of 6): the routes of length d+1 to d+6 below its key, and up to 64 children, by the
//     next 6 bits; a child may be more than 6 bits further down, and says so by its own depth and key
//
// A node is one cache line. Up to three cells (children by slot, then leaves by heap number) are in the node; more are
// a block elsewhere. Nobody but the writer reads any of this.
#pragma once

#include <array>
#include <cstdint>

#include "fib/free_blocks.h"
#include "fib/key.h"
#include "fib/reserved_array.h"

namespace splitplane {

struct alignas(64) RouteNode {
    Key key;
    std::array<uint64_t, 2> routes;  // bit h % 64 of word h / 64: the prefix of heap number h
    uint64_t children;               // slot_bit()
    std::array<uint32_t, 3> cells;   // or the unit where they are
    // What the trie holds of this node, the trie writer's:
    uint32_t word;        // by which its parent leads to it
    uint32_t background;  // the leaf where nothing in the node matches
    uint8_t depth;
    uint8_t top;    // bits of the address that are taken where `word` is found
    uint8_t paths;  // path blocks that lead to
    uint8_t runs;   // the words of a node block; 0: to one word
};
static_assert(sizeof(RouteNode) == 64);

class RouteStore {
  public:
    RouteStore(uint32_t nodes, uint32_t cell_units);

    RouteNode& at(uint32_t node) { return nodes_[node]; }
    const RouteNode& at(uint32_t node) const { return nodes_[node]; }

    // A node without routes and children; 0: no room.
    uint32_t make(Key key, uint32_t depth);
    void drop(uint32_t node);

    // 0: there is none.
    uint32_t child(const RouteNode& node, uint32_t slot) const {
        return node.children & slot_bit(slot) ? cells(node)[child_cell(node, slot)] : 0;
    }
    // False: no room; nothing has changed.
    bool add_child(RouteNode& node, uint32_t slot, uint32_t child);
    void replace_child(RouteNode& node, uint32_t slot, uint32_t child) { cells(node)[child_cell(node, slot)] = child; }
    void remove_child(RouteNode& node, uint32_t slot);

    bool has(const RouteNode& node, uint32_t heap) const { return node.routes[heap / 64] >> heap % 64 & 1; }
    uint32_t leaf(const RouteNode& node, uint32_t heap) const {
        return has(node, heap) ? cells(node)[leaf_cell(node, heap)] : 0;
    }
    bool add_route(RouteNode& node, uint32_t heap, uint32_t leaf);
    void replace_route(RouteNode& node, uint32_t heap, uint32_t leaf) { cells(node)[leaf_cell(node, heap)] = leaf; }
    void remove_route(RouteNode& node, uint32_t heap);

    // The leaf of every slot by the node's own routes, `background` elsewhere. Returns the slots that a route covers.
    uint64_t paint(const RouteNode& node, uint32_t background, std::array<uint32_t, kSlots>& slots) const;
    uint64_t covered(const RouteNode& node) const;
    // The longest route of the node that covers a prefix (both by heap number); 0: none does.
    uint32_t heap_over(const RouteNode& node, uint32_t heap) const;
    // Its leaf, or `background`.
    uint32_t leaf_over(const RouteNode& node, uint32_t heap, uint32_t background) const;
    // The slots of a prefix in which no longer route of the node covers it.
    uint64_t visible(const RouteNode& node, uint32_t heap) const;

    // The first route of a tree behind a prefix in order of address, then length; false: none. `root` 0: an empty tree.
    bool next(uint32_t root, Key after, uint32_t length, Key& key, uint32_t& found_length, uint32_t& leaf) const;
    // The very first.
    bool first(uint32_t root, Key& key, uint32_t& length, uint32_t& leaf) const;

    size_t nodes() const { return used_; }
    size_t octets() const;
    size_t peak_octets() const;

    static uint32_t child_count(const RouteNode& node) { return static_cast<uint32_t>(std::popcount(node.children)); }
    static uint32_t route_count(const RouteNode& node) {
        return static_cast<uint32_t>(std::popcount(node.routes[0]) + std::popcount(node.routes[1]));
    }

  private:
    static constexpr uint32_t kInline = 3;

    static uint32_t cell_count(const RouteNode& node) { return child_count(node) + route_count(node); }
    static uint32_t child_cell(const RouteNode& node, uint32_t slot) {
        return static_cast<uint32_t>(std::popcount(node.children >> (kSlots - 1 - slot))) - 1;
    }
    static uint32_t leaf_cell(const RouteNode& node, uint32_t heap);

    uint32_t* cells(RouteNode& node) { return cell_count(node) <= kInline ? node.cells.data() : block(node.cells[0]); }
    const uint32_t* cells(const RouteNode& node) const {
        return const_cast<RouteStore*>(this)->cells(const_cast<RouteNode&>(node));
    }
    uint32_t* block(uint32_t unit) { return reinterpret_cast<uint32_t*>(&cell_memory_[unit]); }
    bool open_cell(RouteNode& node, uint32_t at, uint32_t value);
    void close_cell(RouteNode& node, uint32_t at);

    bool first_from(const RouteNode& node, uint32_t slot, Key& key, uint32_t& length, uint32_t& leaf) const;
    bool route_at(const RouteNode& node, uint32_t slot, uint32_t longer_than, Key& key, uint32_t& length,
                  uint32_t& leaf) const;

    ReservedArray<RouteNode> nodes_;
    ReservedArray<uint64_t> cell_memory_;
    FreeBlocks free_cells_;
    uint32_t free_node_ = 0;  // chained by cells[0]
    uint32_t made_ = 1;       // nodes from here on were never used
    size_t used_ = 0;
};

}  // namespace splitplane
