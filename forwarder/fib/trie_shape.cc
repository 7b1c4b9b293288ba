// SPDX-License-Identifier: Apache-2.0
#include "fib/trie_shape.h"

namespace splitplane {

namespace {

// Bits of a key from `from` on, as a path block has them.
uint64_t path_bits(Key key, uint32_t from, uint32_t count) {
    return high_of((key << from) & mask_of(count)) | count;
}

void store_bits(sp_u32* words, uint64_t bits) {
    words[0] = static_cast<uint32_t>(bits);
    words[1] = static_cast<uint32_t>(bits >> 32);
}

// The routes of a node and all below it, while they are few.
bool gather(const RouteStore& store, const RouteNode& node, TrieShape& shape) {
    uint32_t routes = RouteStore::route_count(node);
    // One child may just have lost its last route.
    if (shape.listed + routes > SP_TRIE_LIST || RouteStore::child_count(node) > SP_TRIE_LIST + 1) {
        return false;
    }
    for (uint32_t word = 0; word < 2 && routes > 0; ++word) {
        for (uint64_t bits = node.routes[word]; bits != 0; bits &= bits - 1) {
            uint32_t heap = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
            Key key = node.key | slot_key(heap_slot(heap), node.depth);
            shape.list[shape.listed++] = {key, node.depth + heap_bits(heap), store.leaf(node, heap)};
        }
    }
    for (uint64_t bits = node.children; bits != 0; bits &= ~slot_bit(first_slot(bits))) {
        if (!gather(store, store.at(store.child(node, first_slot(bits))), shape)) {
            return false;
        }
    }
    return true;
}

}  // namespace

TrieShape shape_of(const RouteNode& node, uint32_t top, uint32_t background, const Slots& slots) {
    TrieShape made;
    made.listed = 0;
    made.vector = slot_bit(0);
    for (uint32_t slot = 1; slot < kSlots; ++slot) {
        made.vector |= uint64_t{slots[slot] != slots[slot - 1]} << (kSlots - 1 - slot);
    }
    made.runs = sp_trie_count(made.vector);
    made.key = node.key;
    made.path_bits = node.depth - top;
    if (made.runs > 3) {
        return made;
    }
    uint32_t begin = 0, end = kSlots;
    if (made.runs > 1) {
        begin = slots[0] == background ? first_slot(made.vector & ~slot_bit(0)) : 0;
        uint64_t behind = made.vector & ~(slot_bit(begin) | slot_bit(0));
        end = behind != 0 ? first_slot(behind) : kSlots;
        bool alone = (begin == 0 || slots[0] == background) && (end == kSlots || slots[kSlots - 1] == background) &&
                     made.runs == 1u + (begin > 0) + (end < kSlots);
        if (!alone || !std::has_single_bit(end - begin) || begin % (end - begin) != 0) {
            return made;
        }
        made.key |= slot_key(begin, node.depth);
        made.path_bits += kStride - static_cast<uint32_t>(std::countr_zero(end - begin));
    }
    made.runs = 0;
    made.word = slots[begin];
    if (made.word == background) {
        made.path_bits = 0;
    }
    return made;
}

bool make_list(const RouteStore& store, const RouteNode& node, uint32_t top, TrieShape& shape) {
    shape.listed = 0;
    if (!gather(store, node, shape) || shape.listed == 0) {
        return false;
    }
    std::sort(shape.list.begin(), shape.list.begin() + shape.listed,
              [](const ListedRoute& one, const ListedRoute& other) { return one.length > other.length; });
    shape.key = node.key;
    shape.path_bits = shape.list[0].length - top <= SP_TRIE_PATH_BITS ? 0 : node.depth - top;
    shape.runs = 0;
    return shape.list[0].length - (top + shape.path_bits) <= SP_TRIE_PATH_BITS;
}

uint32_t compose(const TrieShape& shape, const Slots& slots, uint32_t top, uint32_t background, uint32_t unit,
                 sp_u32* words) {
    sp_u32* begin = words;
    uint32_t paths = shape.paths();
    auto path = [&](uint64_t bits, uint32_t miss, uint32_t hit) {
        store_bits(words, bits);
        words[SP_TRIE_PATH_MISS] = miss;
        words[SP_TRIE_PATH_HIT] = hit;
        words += kPathWords;
        unit += 2;
    };
    for (uint32_t at = 0; at < paths; ++at) {
        uint32_t from = at * SP_TRIE_PATH_BITS;
        uint32_t last = shape.runs > 0 ? node_word(unit + 2) : shape.listed > 0 ? path_word(unit + 2) : shape.word;
        path(path_bits(shape.key, top + from, std::min(shape.path_bits - from, SP_TRIE_PATH_BITS)), background,
             at + 1 < paths ? path_word(unit + 2) : last);
    }
    for (uint32_t at = 0, from = top + shape.path_bits; at < shape.listed; ++at) {
        const ListedRoute& route = shape.list[at];
        path(path_bits(route.key, from, route.length - from), at + 1 < shape.listed ? path_word(unit + 2) : background,
             route.leaf);
    }
    if (shape.runs > 0) {
        store_bits(words, shape.vector);
        words += SP_TRIE_NODE_WORDS;
        for (uint64_t bits = shape.vector; bits != 0; bits &= ~slot_bit(first_slot(bits))) {
            *words++ = slots[first_slot(bits)];
        }
    }
    return static_cast<uint32_t>(words - begin);
}

}  // namespace splitplane
