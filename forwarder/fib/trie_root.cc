// SPDX-License-Identifier: Apache-2.0
//
// What the root has: nodes above s, spread over its words, parts of those that s cuts, and what leads to those below.
#include "fib/trie_writer.h"

namespace splitplane {

namespace {

constexpr uint32_t kBucketUnits = SP_BUCKET_WORDS / 2;
constexpr uint32_t kSmallest = kStride, kBiggest = 3 * kStride;
// Of a root with buckets, whose keys then have room for an IPv4 prefix of 24 bits.
constexpr uint32_t kFewestBuckets = kStride - 1, kMostBuckets = kBiggest - 1;

// A word for every 2.5 to 5 routes: that many fit in a list, and one cache line, if they are spread evenly. A bucket for
// every 5 to 10.
bool too_small(const TrieTable& table) {
    return table.buckets ? table.bits < kMostBuckets && table.routes >= 10u << table.bits
                         : table.bits < kBiggest && table.routes >= 5u << table.bits;
}
bool too_big(const TrieTable& table) {
    return table.buckets ? table.routes < 2u << table.bits
                         : table.bits > kSmallest && table.routes < 1u << table.bits;
}
// A bucket changes where it lies, which readers follow where the processor reorders neither loads nor stores.
#if defined(__x86_64__)
constexpr bool kKeepsOrder = true;
#else
constexpr bool kKeepsOrder = false;
#endif

bool wants_buckets(const TrieTable& table) {
    return kKeepsOrder && table.short_keys && !table.buckets && table.routes >= 5u << kFewestBuckets;
}
uint32_t bits_of_buckets(uint32_t routes) {
    return std::min(static_cast<uint32_t>(std::bit_width(routes / 5)) - 1, kMostBuckets);
}

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
            uint32_t slot = table.slot(node.key) + heap - parts;
            if (!halve_list(table, slot, store_.leaf_over(node, heap, background))) {
                emit_part(table, node, heap, background, dirty, everything);
            }
        }
    }
}

// Slots of the root below which there are no routes.
void TrieWriter::plan_leaves(const TrieTable& table, uint32_t first, uint32_t end, uint32_t leaf, bool everything) {
    if (!table.buckets) {
        plan(table.index(first), end - first, leaf);
        return;
    }
    ListContent none;
    none.background = leaf;
    for (uint32_t slot = first; slot < end; ++slot) {
        uint32_t word = everything ? 0 : arrays_.words[table.index(slot)];
        plan(table.index(slot), 1, is_here(word) ? put_root_list(table, slot, none, word, false) : leaf);
    }
}

void TrieWriter::spread_slot(const TrieTable& table, const RouteNode& node, uint32_t slot, uint32_t leaf,
                             bool everything) {
    uint32_t first = table.slot(node.key | slot_key(slot, node.depth));
    uint32_t end = first + (1u << (table.bits - node.depth - kStride));
    uint32_t index = store_.child(node, slot);
    if (index == 0) {
        plan_leaves(table, first, end, leaf, everything);
        return;
    }
    if (end - first == 1 && halve_list(table, first, leaf)) {
        return;
    }
    const RouteNode& child = store_.at(index);
    bool in_root = child.depth < table.bits;
    uint32_t at = table.slot(child.key);
    uint32_t behind = at + (in_root ? 1u << (table.bits - child.depth) : 1);
    plan_leaves(table, first, at, leaf, everything);
    plan_leaves(table, behind, end, leaf, everything);
    if (!in_root) {
        emit_below(table, index, leaf, everything);
    } else if (everything || child.top != kInRoot || child.background != leaf) {
        spread(table, index, leaf, 0, everything);
    }
}

// The part of a node that a word of the root has: a prefix of it.
void TrieWriter::emit_part(const TrieTable& table, const RouteNode& node, uint32_t heap, uint32_t background,
                           uint64_t dirty, bool everything) {
    RouteList list;
    uint32_t slot = table.slot(node.key | slot_key(heap_slot(heap), node.depth));
    uint32_t old_word = everything ? 0 : arrays_.words[table.index(slot)];
    uint32_t leaf = store_.leaf_over(node, heap, background);
    uint32_t word = leaf;
    bool was_node = is_node(old_word);
    Filling filling(node);
    bool listed = gather(store_, node, heap, node.depth + SP_TRIE_WIDE_BITS, table.most(), list);
    if (listed) {
        word = put_root_list(table, slot, {list, node.depth, leaf}, old_word, everything);
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
    if (!listed && is_here(old_word)) {
        moved_.push_back({table.index(slot), kEveryKey});
    }
    plan(table.index(slot), 1, word);
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

// A node below s, which is all that its word of the root has.
void TrieWriter::emit_below(const TrieTable& table, uint32_t index, uint32_t leaf, bool everything) {
    uint32_t taken = table.taken();
    const RouteNode& child = store_.at(index);
    uint32_t slot = table.slot(child.key);
    uint32_t old_word = everything ? 0 : arrays_.words[table.index(slot)];
    RouteList list;
    uint32_t word = leaf;
    if (!gather(store_, child, 1, taken + SP_TRIE_WIDE_BITS, table.most(), list)) {
        word = emit(index, taken, leaf, 0);
        if (is_here(old_word)) {
            moved_.push_back({table.index(slot), kEveryKey});
        }
    } else {
        word = put_root_list(table, slot, {list, taken, leaf}, old_word, everything);
        swallow(index);
    }
    if (word != old_word) {
        unlink_part(table, old_word);
    }
    plan(table.index(slot), 1, word);
}

// A word of a root that is being doubled, where that had a list before: its routes that are in this half, and the leaf
// that covers it. All are there, so the store, whose nodes are seldom in a cache, is not asked. False: it had none.
bool TrieWriter::halve_list(const TrieTable& table, uint32_t slot, uint32_t leaf) {
    uint32_t old_word = halved_ != nullptr ? arrays_.words[halved_->index(slot / 2)] : 0;
    if (!is_list(old_word) && !is_here(old_word)) {
        return false;
    }
    uint32_t from = halved_->taken(), bits = table.bits - from;
    ListContent content = root_list(*halved_, slot / 2);
    content.keep(slot & ((1u << bits) - 1), bits, table.taken() - from);
    content.background = leaf;
    plan(table.index(slot), 1, put_root_list(table, slot, content, 0, true));
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
    if (table.routes >= table.refused && (wants_buckets(table) || too_small(table))) {
        bool done = wants_buckets(table) && rebuild_root(table, root, bits_of_buckets(table.routes), true, reserve);
        if (!done && too_small(table)) {
            done = rebuild_root(table, root, table.bits + 1, table.buckets, reserve);
        }
        table.refused = done ? 0 : table.routes + table.routes / 4;
    } else if (too_big(table)) {
        bool done = table.buckets && table.bits > kFewestBuckets &&
                    rebuild_root(table, root, table.bits - 1, true, 0);
        if (!done) {
            rebuild_root(table, root, std::max(table.bits - 1, kSmallest), false, 0);
        }
    }
}

// Room for a root of this size; what else there is of the table is not looked at.
bool TrieWriter::allocate_root(TrieTable& table, uint32_t reserve) {
    if (!table.buckets) {
        table.base = allocate(1u << table.bits >> 1);
        return table.base != 0;
    }
    uint32_t first = buckets_.allocate(kBucketUnits << table.bits, reserve, false);
    uint32_t unit = arrays_.word_count / 2 - buckets_.usage().units + first;
    table.base = first == 0 ? 0 : unit / kBucketUnits;
    return first != 0;
}

void TrieWriter::retire_root(const TrieTable& table) {
    if (!table.buckets) {
        arena_.retire(table.base, 1u << table.bits >> 1);
        return;
    }
    uint32_t unit = table.base * kBucketUnits;
    buckets_.retire(unit - (arrays_.word_count / 2 - buckets_.usage().units), kBucketUnits << table.bits);
}

bool TrieWriter::rebuild_root(TrieTable& table, sp_u64& root, uint32_t bits, bool buckets, uint32_t reserve) {
    TrieTable before = table;
    bring_back();
    begin(reserve, false);
    table.bits = bits;
    table.buckets = buckets;
    if (!allocate_root(table, reserve)) {
        table = before;
        return false;
    }
    halved_ = bits == before.bits + 1 ? &before : nullptr;
    in_buckets_ = 0;
    spread(table, table.node, 0, 0, true);
    halved_ = nullptr;
    full_ = full_ || (buckets && in_buckets_ < table.routes / 2);  // crowded elsewhere, they would be waste
    for (uint32_t slot = 0; slot < 1u << before.bits; ++slot) {
        unlink_part(before, arrays_.words[before.index(slot)]);
    }
    if (!commit()) {
        if (buckets) {
            retire_root(table);
        }
        table = before;
        return false;
    }
    __atomic_store_n(&root, table.word(), __ATOMIC_RELEASE);
    retire_root(before);
    retire_unlinked();
    return true;
}

void TrieWriter::clear(TrieTable& table, sp_u64& root) {
    __atomic_store_n(&root, 0, __ATOMIC_RELEASE);
    retire_root(table);
    table.buckets = false;
    table.base = 0;
    table.bits = 0;
    table.refused = 0;
}

}  // namespace splitplane
