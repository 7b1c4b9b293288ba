// SPDX-License-Identifier: Apache-2.0
//
// A route that comes, goes or changes in a list. All that is needed stands there, so the other routes' nodes, which are
// seldom in a cache, are not asked.
#include "fib/trie_writer.h"

namespace splitplane {

namespace {

// A shorter one in a node block may have become one with its neighbor.
constexpr uint32_t kShort = 2;

}  // namespace

// The list that may hold a route, and what covers all of it. False: there is none, or more than a list has to change.
bool TrieWriter::find_list(const TrieTable& table, const Place& place, const Change& change, Listed& listed) const {
    uint32_t level = place.count - 1;
    while (store_.at(place.nodes[level]).top == kInList) {
        --level;
    }
    const RouteNode& above = store_.at(place.nodes[level]);
    uint32_t slot = slot_of(change.key, above.depth);
    uint32_t block = 0, heap = 1;
    listed.in_node = false;
    if (above.depth < table.bits) {
        uint32_t bits = std::min(table.bits - above.depth, kStride);
        heap = 1u << bits | slot >> (kStride - bits);
        listed.at = table.index(table.slot(change.key));
        listed.from = table.taken();
        listed.bits = table.bits - table.taken();
        if (table.cuts(above) && is_node(arrays_.words[listed.at])) {
            block = block_index(arrays_.words[listed.at]);
        } else if (to_spread(table, above, slot)) {
            return false;
        }
    } else if (above.runs > 0) {
        block = node_index(above);
    } else if (above.paths > 0) {
        listed = {node_index(above) - kPathWords + SP_TRIE_PATH_HIT, above.depth, 0, 0, true};
    } else {
        return false;
    }
    if (block != 0) {
        uint64_t vector = load_bits(arrays_.words + block);
        uint64_t upto = vector >> (kSlots - 1 - slot);
        uint64_t behind = slot + 1 < kSlots ? vector & (~uint64_t{0} >> (slot + 1)) : 0;
        // Of a part's block, less what no address comes to.
        uint32_t first = std::max(slot - static_cast<uint32_t>(std::countr_zero(upto)), heap_slot(heap));
        uint32_t end = std::min(behind != 0 ? first_slot(behind) : kSlots, heap_slot(heap) + heap_slots(heap));
        uint32_t size = end - first;
        auto children = static_cast<uint32_t>(std::popcount(above.children & heap_range(heap)));
        if (change.leaf == 0 && children <= table.most()) {
            return false;  // all of it may be a list now
        }
        uint32_t bits = kStride - static_cast<uint32_t>(std::countr_zero(size));
        heap = 1u << bits | first >> (kStride - bits);
        listed = {block + SP_TRIE_NODE_WORDS - 1 + sp_trie_count(upto), above.depth, bits, 0, true};
    }
    uint32_t behind = listed.from + listed.bits;
    uint32_t word = arrays_.words[listed.at];
    if (!(is_list(word) || is_here(word)) || change.length <= behind ||
        change.length > listed.from + SP_TRIE_WIDE_BITS) {
        return false;
    }
    listed.leaf = store_.leaf_over(above, heap, above.background);
    return true;
}

// Whether a slot of a node above s has a child that is new, and above s as well: it is to be spread.
bool TrieWriter::to_spread(const TrieTable& table, const RouteNode& above, uint32_t slot) const {
    uint32_t index = table.cuts(above) ? 0 : store_.child(above, slot);
    return index != 0 && store_.at(index).depth < table.bits;
}

bool TrieWriter::edit_list(const TrieTable& table, const Place& place, const Change& change) {
    Listed listed;
    if (change.length == 0 || !find_list(table, place, change, listed)) {
        return false;
    }
    uint32_t old_word = arrays_.words[listed.at], slot = listed.in_node ? 0 : table.slot(change.key);
    ListContent content = listed.in_node ? ListContent(arrays_.words + block_index(old_word), is_wide(old_word))
                                         : root_list(table, slot);
    uint32_t key = list_key(change.key, change.length, listed.from);
    if (change.leaf == 0 || !content.replace(key, change.leaf)) {
        bool is_short = content.count <= kShort + 1;
        bool done = change.leaf != 0 ? content.insert(key, change.leaf, listed.in_node ? SP_TRIE_LIST : table.most())
                                     : !(listed.in_node && is_short) && content.erase(key);
        if (!done) {
            return false;
        }
        content.background = listed.leaf;  // may have changed while longer routes hid it
    }
    uint32_t word = 0;
    if (!listed.in_node) {
        word = put_root_list(table, slot, content, old_word, false);
    } else {
        word = content.count > 0 ? put_list(content, old_word) : listed.leaf;
    }
    if (word != old_word) {
        if (is_list(old_word)) {
            unlink_list(old_word);
        }
        plan(listed.at, 1, word);
    }
    return true;
}

}  // namespace splitplane
