// SPDX-License-Identifier: Apache-2.0
#include "fib/route_store.h"

#include <cstring>

namespace splitplane {

namespace {

constexpr uint32_t units_for(uint32_t cells) { return (cells + 1) / 2; }

// Bits of the shortest prefix that begins at a slot.
uint32_t shortest_at(uint32_t slot) {
    return slot == 0 ? 1 : kStride - static_cast<uint32_t>(std::countr_zero(slot));
}

}  // namespace

RouteStore::RouteStore(uint32_t nodes, uint32_t cell_units)
    : nodes_(nodes), cell_memory_(cell_units), free_cells_(cell_memory_.all()) {}

uint32_t RouteStore::make(Key key, uint32_t depth) {
    uint32_t made = free_node_;
    if (made != 0) {
        free_node_ = nodes_[made].cells[0];
    } else if (made_ < nodes_.size()) {
        made = made_++;
    } else {
        return 0;
    }
    ++used_;
    nodes_[made] = RouteNode{};
    nodes_[made].key = key & mask_of(depth);
    nodes_[made].depth = static_cast<uint8_t>(depth);
    nodes_[made].top = UINT8_MAX;
    return made;
}

void RouteStore::drop(uint32_t node) {
    RouteNode& gone = nodes_[node];
    uint32_t count = cell_count(gone);
    if (count > kInline) {
        free_cells_.free(gone.cells[0], units_for(count));
    }
    gone.cells[0] = free_node_;
    free_node_ = node;
    --used_;
}

uint32_t RouteStore::leaf_cell(const RouteNode& node, uint32_t heap) {
    uint64_t below = (uint64_t{1} << heap % 64) - 1;
    auto before = heap < 64 ? std::popcount(node.routes[0] & below)
                            : std::popcount(node.routes[0]) + std::popcount(node.routes[1] & below);
    return child_count(node) + static_cast<uint32_t>(before);
}

// Make a cell; the caller then sets the bit that counts it. A block takes the unit behind it where that is free, as the
// one is that it has just given back: so what was closed last can always be opened again.
bool RouteStore::open_cell(RouteNode& node, uint32_t at, uint32_t value) {
    uint32_t count = cell_count(node);
    uint32_t* from = cells(node);
    uint32_t* to = from;
    uint32_t unit = 0;
    bool more = count >= kInline && (count == kInline || count % 2 == 0);
    if (more && !(count > kInline && free_cells_.extend(node.cells[0], units_for(count)))) {
        unit = free_cells_.allocate(units_for(count + 1));
        if (unit == 0) {
            return false;
        }
        to = block(unit);
        std::memcpy(to, from, at * sizeof(uint32_t));
    }
    std::memmove(to + at + 1, from + at, (count - at) * sizeof(uint32_t));
    to[at] = value;
    if (unit != 0) {
        if (count > kInline) {
            free_cells_.free(node.cells[0], units_for(count));
        }
        node.cells[0] = unit;
    }
    return true;
}

// Take a cell away; the caller then clears the bit that counts it. A block that gets shorter gives its last unit back.
void RouteStore::close_cell(RouteNode& node, uint32_t at) {
    uint32_t count = cell_count(node);
    uint32_t* from = cells(node);
    std::memmove(from + at, from + at + 1, (count - 1 - at) * sizeof(uint32_t));
    if (count == kInline + 1) {
        uint32_t unit = node.cells[0];
        std::memcpy(node.cells.data(), from, kInline * sizeof(uint32_t));
        free_cells_.free(unit, units_for(count));
    } else if (count > kInline && count % 2 == 1) {
        free_cells_.free(node.cells[0] + units_for(count) - 1, 1);
    }
}

bool RouteStore::add_child(RouteNode& node, uint32_t slot, uint32_t child) {
    auto before = std::popcount(node.children & ~(~uint64_t{0} >> slot));
    if (!open_cell(node, static_cast<uint32_t>(before), child)) {
        return false;
    }
    node.children |= slot_bit(slot);
    return true;
}

void RouteStore::remove_child(RouteNode& node, uint32_t slot) {
    close_cell(node, child_cell(node, slot));
    node.children &= ~slot_bit(slot);
}

bool RouteStore::add_route(RouteNode& node, uint32_t heap, uint32_t leaf) {
    if (!open_cell(node, leaf_cell(node, heap), leaf)) {
        return false;
    }
    node.routes[heap / 64] |= uint64_t{1} << heap % 64;
    return true;
}

void RouteStore::remove_route(RouteNode& node, uint32_t heap) {
    close_cell(node, leaf_cell(node, heap));
    node.routes[heap / 64] &= ~(uint64_t{1} << heap % 64);
}

uint64_t RouteStore::paint(const RouteNode& node, uint32_t background, std::array<uint32_t, kSlots>& slots) const {
    slots.fill(background);
    const uint32_t* leaf = cells(node) + child_count(node);
    uint64_t covered = 0;
    for (uint64_t bits = node.routes[0]; bits != 0; bits &= bits - 1) {
        auto heap = static_cast<uint32_t>(std::countr_zero(bits));
        std::fill_n(slots.begin() + heap_slot(heap), heap_slots(heap), *leaf++);
        covered |= heap_range(heap);
    }
    for (uint64_t bits = node.routes[1]; bits != 0; bits &= bits - 1) {
        auto slot = static_cast<uint32_t>(std::countr_zero(bits));
        slots[slot] = *leaf++;
        covered |= slot_bit(slot);
    }
    return covered;
}

uint64_t RouteStore::covered(const RouteNode& node) const {
    uint64_t covered = 0;
    for (uint32_t word = 0; word < 2; ++word) {
        for (uint64_t bits = node.routes[word]; bits != 0; bits &= bits - 1) {
            covered |= heap_range(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
        }
    }
    return covered;
}

uint32_t RouteStore::heap_over(const RouteNode& node, uint32_t heap) const {
    while (heap > 1 && !has(node, heap)) {
        heap /= 2;
    }
    return heap > 1 ? heap : 0;
}

uint32_t RouteStore::leaf_over(const RouteNode& node, uint32_t heap, uint32_t background) const {
    uint32_t over = heap_over(node, heap);
    return over != 0 ? leaf(node, over) : background;
}

uint64_t RouteStore::visible(const RouteNode& node, uint32_t heap) const {
    uint64_t seen = heap_range(heap);
    uint64_t longer = heap < 64 ? node.routes[0] & ~(~uint64_t{0} >> (63 - heap)) : 0;
    for (; longer != 0; longer &= longer - 1) {
        auto other = static_cast<uint32_t>(std::countr_zero(longer));
        if (heap_bits(other) > heap_bits(heap)) {
            seen &= ~heap_range(other);
        }
    }
    if (heap < 64) {
        for (uint64_t bits = node.routes[1]; bits != 0; bits &= bits - 1) {
            seen &= ~slot_bit(static_cast<uint32_t>(std::countr_zero(bits)));
        }
    }
    return seen;
}

// The shortest route that begins at a slot, of more than so many bits.
bool RouteStore::route_at(const RouteNode& node, uint32_t slot, uint32_t longer_than, Key& key, uint32_t& length,
                          uint32_t& leaf) const {
    for (uint32_t bits = std::max(shortest_at(slot), longer_than + 1); bits <= kStride; ++bits) {
        uint32_t heap = 1u << bits | slot >> (kStride - bits);
        if (has(node, heap)) {
            key = node.key | slot_key(slot, node.depth);
            length = node.depth + bits;
            leaf = cells(node)[leaf_cell(node, heap)];
            return true;
        }
    }
    return false;
}

// The first route below a node that begins at a slot or behind it.
bool RouteStore::first_from(const RouteNode& node, uint32_t slot, Key& key, uint32_t& length, uint32_t& leaf) const {
    for (; slot < kSlots; ++slot) {
        if (route_at(node, slot, 0, key, length, leaf)) {
            return true;
        }
        if (uint32_t below = child(node, slot); below != 0 && first_from(at(below), 0, key, length, leaf)) {
            return true;
        }
    }
    return false;
}

bool RouteStore::first(uint32_t root, Key& key, uint32_t& length, uint32_t& leaf) const {
    return root != 0 && first_from(at(root), 0, key, length, leaf);
}

bool RouteStore::next(uint32_t root, Key after, uint32_t after_length, Key& key, uint32_t& length,
                      uint32_t& leaf) const {
    if (root == 0) {
        return false;
    }
    const RouteNode& node = at(root);
    Key begin = after & mask_of(node.depth);
    if (begin != node.key) {
        return begin < node.key && first_from(node, 0, key, length, leaf);
    }
    uint32_t slot = slot_of(after, node.depth);
    // Routes that begin where `after` does, but are longer.
    if (after == (node.key | slot_key(slot, node.depth)) &&
        route_at(node, slot, after_length > node.depth ? after_length - node.depth : 0, key, length, leaf)) {
        return true;
    }
    if (uint32_t below = child(node, slot); below != 0 && next(below, after, after_length, key, length, leaf)) {
        return true;
    }
    return slot + 1 < kSlots && first_from(node, slot + 1, key, length, leaf);
}

size_t RouteStore::octets() const {
    return used_ * sizeof(RouteNode) + size_t{free_cells_.capacity() - free_cells_.free_units()} * sizeof(uint64_t);
}

size_t RouteStore::peak_octets() const {
    return made_ * sizeof(RouteNode) + size_t{free_cells_.peak()} * sizeof(uint64_t);
}

}  // namespace splitplane
