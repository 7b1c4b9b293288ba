// SPDX-License-Identifier: Apache-2.0
//
// What the root has: nodes above s, spread over its words, parts of those that s cuts, and what leads to those below.
#include "fib/trie_writer.h"

namespace splitplane {

namespace {

constexpr uint32_t kSmallest = kStride, kBiggest = 3 * kStride;

// A word for every 2.5 to 5 routes: that many fit in a list, and one cache line, if they are spread evenly.
bool too_small(const TrieTable& table) { return table.bits < kBiggest && table.routes >= 5u << table.bits; }
bool too_big(const TrieTable& table) { return table.bits > kSmallest && table.routes < 1u << table.bits; }

}  // namespace

// Put a node above s, with all below it, into the root's words. `everything`: the root is new.
void TrieWriter::spread(const TrieTable& table, uint32_t index, uint32_t background, uint64_t dirty, bool everything) {
    RouteNode& node = store_.at(index);
    if (everything || node.top != kInRoot) {
        dirty = ~uint64_t{0};
    } else if (node.background != background) {
        dirty |= ~store_.covered(node);
    }
    remember(index);
    unlink(node);
    node.word = 0;
    node.background = background;
    node.top = kInRoot;
    node.paths = node.runs = 0;
    if (!table.cuts(node)) {
        for (; dirty != 0; dirty &= ~slot_bit(first_slot(dirty))) {
            uint32_t slot = first_slot(dirty);
            spread_slot(table, node, slot, store_.leaf_over(node, kSlots | slot, background), everything);
        }
        return;
    }
    uint32_t parts = 1u << (table.bits - node.depth);
    for (uint32_t heap = parts; heap < 2 * parts; ++heap) {
        if ((dirty & heap_range(heap)) != 0) {
            uint32_t at = root_index(table, node.key) + heap - parts;
            uint32_t word = 0;
            if (!halve_list(table, at, store_.leaf_over(node, heap, background), word)) {
                word = emit_part(node, heap, background, everything ? 0 : arrays_.words[at], dirty);
            }
            plan(at, 1, word);
        }
    }
}

void TrieWriter::spread_slot(const TrieTable& table, const RouteNode& node, uint32_t slot, uint32_t leaf,
                             bool everything) {
    uint32_t first = root_index(table, node.key | slot_key(slot, node.depth));
    uint32_t end = first + (1u << (table.bits - node.depth - kStride));
    uint32_t index = store_.child(node, slot);
    if (index == 0) {
        plan(first, end - first, leaf);
        return;
    }
    if (uint32_t word = 0; end - first == 1 && halve_list(table, first, leaf, word)) {
        plan(first, 1, word);
        return;
    }
    const RouteNode& child = store_.at(index);
    bool in_root = child.depth < table.bits;
    uint32_t at = root_index(table, child.key);
    uint32_t behind = at + (in_root ? 1u << (table.bits - child.depth) : 1);
    plan(first, at - first, leaf);
    plan(behind, end - behind, leaf);
    if (!in_root) {
        plan(at, 1, emit_below(table, index, leaf, everything ? 0 : arrays_.words[at]));
    } else if (everything || child.top != kInRoot || child.background != leaf) {
        spread(table, index, leaf, 0, everything);
    }
}

// The word for the part of a node that a word of the root has: a prefix of it.
uint32_t TrieWriter::emit_part(const RouteNode& node, uint32_t heap, uint32_t background, uint32_t old_word,
                               uint64_t dirty) {
    RouteList list;
    uint32_t leaf = store_.leaf_over(node, heap, background);
    uint32_t word = leaf;
    bool was_node = is_node(old_word);
    Filling filling(node);
    bool listed = gather(store_, node, heap, node.depth + SP_TRIE_WIDE_BITS, list);
    if (listed) {
        word = list.count == 0 ? leaf : put_list({list, node.depth, leaf}, old_word);
        swallow_below(node, heap);
    } else {
        store_.paint(node, background, filling.leaves);
        filling.words = filling.leaves;
        if (was_node) {
            expand(block_index(old_word), dirty, filling);
        }
        fill(filling, 2 * heap, leaf);
        fill(filling, 2 * heap + 1, leaf);
        // What no address comes to, makes no runs.
        uint32_t first = heap_slot(heap), last = first + heap_slots(heap) - 1;
        std::fill(filling.words.begin(), filling.words.begin() + first, filling.words[first]);
        std::fill(filling.words.begin() + last + 1, filling.words.end(), filling.words[last]);
        word = put_part(filling.words, old_word);
    }
    if (was_node) {
        unlink_lists(block_index(old_word), listed ? nullptr : &filling.words);
        if (word != old_word) {
            uint32_t runs = sp_trie_count(load_bits(arrays_.words + block_index(old_word)));
            unlinked_.push_back({old_word & SP_TRIE_UNIT, node_units(runs)});
        }
    } else if (is_list(old_word) && word != old_word) {
        unlink_list(old_word);
    }
    return word;
}

uint32_t TrieWriter::put_part(const Slots& words, uint32_t old_word) {
    uint64_t vector = vector_of(words);
    uint32_t runs = sp_trie_count(vector);
    if (runs == 1) {
        return words[0];
    }
    std::array<sp_u32, kMostWords> image;
    uint32_t size = compose(vector, words, image.data());
    if (is_node(old_word) && load_bits(arrays_.words + block_index(old_word)) == vector) {
        for (uint32_t at = SP_TRIE_NODE_WORDS; at < size; ++at) {
            plan(block_index(old_word) + at, 1, image[at]);
        }
        return old_word;
    }
    uint32_t unit = allocate(node_units(runs));
    if (unit == 0) {
        return 0;
    }
    std::copy_n(image.data(), size, arrays_.words + unit * 2);
    return node_word(unit);
}

// The word for a node below s, which is all that its word of the root has.
uint32_t TrieWriter::emit_below(const TrieTable& table, uint32_t index, uint32_t leaf, uint32_t old_word) {
    uint32_t taken = table.taken();
    const RouteNode& child = store_.at(index);
    RouteList list;
    uint32_t word = leaf;
    if (!gather(store_, child, 1, taken + SP_TRIE_WIDE_BITS, list)) {
        word = emit(index, taken, leaf, 0);
    } else {
        word = list.count == 0 ? leaf : put_list({list, taken, leaf}, old_word);
        swallow(index);
    }
    if (word != old_word) {
        unlink_part(table, old_word);
    }
    return word;
}

// A word of a root that is being doubled, where that had a list before: its routes that are in this half, and the leaf
// that covers it. All are there, so the store, whose nodes are seldom in a cache, is not asked. False: it had none.
bool TrieWriter::halve_list(const TrieTable& table, uint32_t at, uint32_t leaf, uint32_t& word) {
    uint32_t slot = at - table.base * 2;
    uint32_t old_word = halved_ != nullptr ? arrays_.words[halved_->base * 2 + slot / 2] : 0;
    if (!is_list(old_word)) {
        return false;
    }
    uint32_t from = halved_->taken(), bits = table.bits - from;
    ListContent content(arrays_.words + block_index(old_word), is_wide(old_word));
    content.keep(slot & ((1u << bits) - 1), bits, table.taken() - from);
    content.background = leaf;
    word = content.count > 0 ? put_list(content, 0) : leaf;
    return true;
}

// What a word of the root leads to that no node knows of: a list, or the block of a part.
void TrieWriter::unlink_part(const TrieTable& table, uint32_t word) {
    if (is_list(word)) {
        unlink_list(word);
    } else if (is_node(word) && table.bits != table.taken()) {
        unlink_lists(block_index(word), nullptr);
        unlinked_.push_back(
            {word & SP_TRIE_UNIT, node_units(sp_trie_count(load_bits(arrays_.words + block_index(word))))});
    }
}

// Give the root the size that the table asks for, if there is room.
void TrieWriter::fit_root(TrieTable& table, sp_u64& root, uint32_t reserve) {
    if (too_small(table) && table.routes >= table.refused) {
        bool done = rebuild_root(table, root, table.bits + 1, reserve);
        table.refused = done ? 0 : table.routes + table.routes / 4;
    } else if (too_big(table)) {
        rebuild_root(table, root, table.bits - 1, 0);
    }
}

bool TrieWriter::rebuild_root(TrieTable& table, sp_u64& root, uint32_t bits, uint32_t reserve) {
    TrieTable before = table;
    begin(reserve, false);
    uint32_t base = allocate(root_units(bits));
    if (base == 0) {
        return false;
    }
    table.base = base;
    table.bits = bits;
    halved_ = bits > before.bits ? &before : nullptr;
    spread(table, table.node, 0, 0, true);
    halved_ = nullptr;
    for (uint32_t at = 0; at < 1u << before.bits; ++at) {
        unlink_part(before, arrays_.words[before.base * 2 + at]);
    }
    if (!commit()) {
        table = before;
        return false;
    }
    __atomic_store_n(&root, sp_trie_root(base * 2, bits), __ATOMIC_RELEASE);
    unlinked_.push_back({before.base, root_units(before.bits)});
    retire_unlinked();
    return true;
}

void TrieWriter::clear(TrieTable& table, sp_u64& root) {
    __atomic_store_n(&root, 0, __ATOMIC_RELEASE);
    arena_.retire(table.base, root_units(table.bits));
    table.base = 0;
    table.bits = 0;
    table.refused = 0;
}

}  // namespace splitplane
