// SPDX-License-Identifier: Apache-2.0
#include "fib/trie_list.h"

namespace splitplane {

namespace {

// The node's own routes inside a prefix of it, as in RouteNode::routes.
std::array<uint64_t, 2> routes_inside(const RouteNode& node, uint32_t heap) {
    uint32_t bits = heap_bits(heap);
    uint64_t shorter = 0;
    for (uint32_t more = 1; bits + more < kStride; ++more) {
        shorter |= ((uint64_t{1} << (1u << more)) - 1) << (heap << more);
    }
    uint64_t longest = 0;
    if (bits < kStride) {
        longest = ~uint64_t{0} >> (kSlots - heap_slots(heap)) << heap_slot(heap);
    }
    return {node.routes[0] & shorter, node.routes[1] & longest};
}

bool gather_below(const RouteStore& store, const RouteNode& node, uint32_t heap, uint32_t longest, RouteList& list) {
    auto own = routes_inside(node, heap);
    uint64_t children = node.children & heap_range(heap);
    auto routes = static_cast<uint32_t>(std::popcount(own[0]) + std::popcount(own[1]));
    // One child may just have lost its last route.
    if (list.count + routes > SP_TRIE_LIST ||
        list.count + routes + static_cast<uint32_t>(std::popcount(children)) > SP_TRIE_LIST + 1) {
        return false;
    }
    for (uint32_t word = 0; word < 2; ++word) {
        for (uint64_t bits = own[word]; bits != 0; bits &= bits - 1) {
            uint32_t each = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
            Key key = node.key | slot_key(heap_slot(each), node.depth);
            uint32_t length = node.depth + heap_bits(each);
            if (length > longest) {
                return false;
            }
            list.routes[list.count++] = {key, length, store.leaf(node, each)};
        }
    }
    for (uint64_t bits = children; bits != 0; bits &= ~slot_bit(first_slot(bits))) {
        if (!gather_below(store, store.at(store.child(node, first_slot(bits))), 1, longest, list)) {
            return false;
        }
    }
    return true;
}

}  // namespace

bool gather(const RouteStore& store, const RouteNode& node, uint32_t heap, uint32_t longest, RouteList& list) {
    list.count = 0;
    return gather_below(store, node, heap, longest, list);
}

uint32_t list_key(Key key, uint32_t length, uint32_t from) {
    uint32_t bits = length - from;
    return static_cast<uint32_t>(high_of((key << from) & mask_of(bits)) >> 32) | (SP_TRIE_LIST_END - bits);
}

uint32_t compose(const RouteList& list, uint32_t from, uint32_t background, sp_u32* words) {
    std::array<const ListedRoute*, SP_TRIE_LIST> order;
    for (uint32_t at = 0; at < list.count; ++at) {  // insertion: there are few
        uint32_t to = at;
        for (; to > 0 && order[to - 1]->length < list.routes[at].length; --to) {
            order[to] = order[to - 1];
        }
        order[to] = &list.routes[at];
    }
    for (uint32_t at = 0; at < list.count; ++at) {
        words[2 * at] = order[at]->leaf;
        words[2 * at + 1] = list_key(order[at]->key, order[at]->length, from);
    }
    words[2 * list.count] = background;
    words[2 * list.count + 1] = SP_TRIE_LIST_END;
    return 2 * list.units();
}

uint32_t list_units(const sp_u32* words) {
    uint32_t units = 1;
    while (list_key_bits(words[2 * units - 1]) > 0) {
        ++units;
    }
    return units;
}

}  // namespace splitplane
