// SPDX-License-Identifier: Apache-2.0
#include "fib/trie_writer.h"

namespace splitplane {

// -- the change as a whole ----------------------------------------------------------------------------------------

void TrieWriter::begin(uint32_t reserve, bool may_wait) {
    reserve_ = reserve;
    may_wait_ = may_wait;
    full_ = false;
    dirty_.clear();
    before_.clear();
    stores_.clear();
    made_.clear();
    unlinked_.clear();
    moved_.clear();
}

bool TrieWriter::commit() {
    if (full_) {
        for (size_t at = before_.size(); at-- > 0;) {
            const Before& was = before_[at];
            RouteNode& node = store_.at(was.node);
            node.word = was.word;
            node.background = was.background;
            node.top = was.top;
            node.paths = was.paths;
            node.runs = was.runs;
        }
        for (const Block& block : made_) {
            arena_.release(block.first, block.units);
        }
        return false;
    }
    for (const Store& store : stores_) {
        for (uint32_t at = 0; at < store.count; ++at) {
            __atomic_store_n(&arrays_.words[store.index + at], store.value, __ATOMIC_RELEASE);
        }
    }
    return true;
}

void TrieWriter::retire_unlinked() {
    for (const Block& block : unlinked_) {
        arena_.retire(block.first, block.units);
    }
}

uint32_t TrieWriter::allocate(uint32_t units) {
    uint32_t first = full_ ? 0 : arena_.allocate(units, reserve_, may_wait_);
    if (first == 0) {
        full_ = true;
    } else {
        made_.push_back({first, units});
    }
    return first;
}

void TrieWriter::remember(uint32_t index) {
    const RouteNode& node = store_.at(index);
    before_.push_back({index, node.word, node.background, node.top, node.paths, node.runs});
}

void TrieWriter::plan(uint32_t index, uint32_t count, uint32_t value) {
    if (count > 1 || (count == 1 && arrays_.words[index] != value)) {
        stores_.push_back({index, count, value});
    }
}

bool TrieWriter::update(TrieTable& table, sp_u64& root, const Place& place, const Change& change, uint64_t slots,
                        uint32_t reserve) {
    bring_back();
    begin(reserve, true);
    bool first = table.base == 0;
    if (first) {
        table.bits = kStride;
        allocate_root(table, reserve);
        spread(table, place.nodes[0], 0, 0, true);
    } else if (!edit_list(table, place, change)) {
        uint32_t at = place.count - 1;
        // What is in a list, or may come into one, is the matter of the node or root that leads to it.
        for (; in_list_or_few(table, store_.at(place.nodes[at])); --at) {
            dirty_.push_back({place.nodes[at], slots});
            slots = slot_bit(slot_of(store_.at(place.nodes[at]).key, store_.at(place.nodes[at - 1]).depth));
        }
        const RouteNode& node = store_.at(place.nodes[at]);
        if (node.depth < table.bits) {
            spread(table, place.nodes[at], node.background, slots, false);
        } else {
            uint32_t old_word = node.word;
            uint32_t word = emit(place.nodes[at], node.top, node.background, slots);
            lead_up(table, place, at, word, old_word);
        }
    }
    if (!commit()) {
        table.base = first ? 0 : table.base;
        return false;
    }
    if (first) {
        __atomic_store_n(&root, table.word(), __ATOMIC_RELEASE);
    }
    hold_moved(root);
    retire_unlinked();
    return true;
}

// -- nodes with blocks ----------------------------------------------------------------------------------------------

// Make the trie lead to a node's new word, from the parent on.
void TrieWriter::lead_up(const TrieTable& table, const Place& place, uint32_t at, uint32_t word, uint32_t old_word) {
    for (; word != old_word && !full_; --at) {
        const RouteNode& child = store_.at(place.nodes[at]);
        const RouteNode& parent = store_.at(place.nodes[at - 1]);
        uint32_t slot = slot_of(child.key, parent.depth);
        if (table.cuts(parent)) {
            spread(table, place.nodes[at - 1], parent.background, slot_bit(slot), false);
            return;
        }
        if (parent.depth < table.bits) {
            plan(table.index(table.slot(child.key)), 1, word);
            return;
        }
        if (!is_leaf(word) && !is_leaf(old_word)) {  // which is a run of its own
            uint32_t block = node_index(parent);
            if (parent.runs == 0) {
                plan(block - kPathWords + SP_TRIE_PATH_HIT, 1, word);
            } else {
                uint64_t vector = load_bits(arrays_.words + block);
                plan(block + SP_TRIE_NODE_WORDS - 1 + sp_trie_count(vector >> (kSlots - 1 - slot)), 1, word);
            }
            return;
        }
        old_word = parent.word;
        word = emit(place.nodes[at - 1], parent.top, parent.background, slot_bit(slot));
    }
}

// The word that leads to a node with all below it, from where `top` bits are taken and `background` is the leaf of what
// does not match. `dirty`: the slots that changed since it was last asked for.
uint32_t TrieWriter::emit(uint32_t index, uint32_t top, uint32_t background, uint64_t dirty) {
    RouteNode& node = store_.at(index);
    for (Dirty& changed : dirty_) {
        if (changed.node == index) {
            dirty |= changed.slots;
            changed.node = 0;
        }
    }
    if (dirty == 0 && node.top == top && node.background == background) {
        return node.word;
    }
    remember(index);
    Filling filling(node);
    uint64_t covered = store_.paint(node, background, filling.leaves);
    filling.words = filling.leaves;
    uint32_t listed = listed_behind_path(node);
    TrieShape shape;
    RouteList list;
    if (node.depth > top && gather(store_, node, 1, node.depth + SP_TRIE_WIDE_BITS, SP_TRIE_LIST, list) &&
        list.count > 1) {
        shape = {node.key, node.depth - top, 0, 0, put_list({list, node.depth, background}, listed)};
        if (node.runs > 0) {
            unlink_lists(node_index(node), nullptr);
        }
        swallow_below(node, 1);
    } else {
        if (node.runs > 0) {
            expand(node_index(node), dirty | (node.background == background ? 0 : ~covered), filling);
        }
        fill(filling, 2, background);
        fill(filling, 3, background);
        shape = shape_of(node, top, background, filling.words);
        if (node.runs > 0) {
            unlink_lists(node_index(node), &filling.words);
        }
    }
    if (listed != 0 && (shape.runs > 0 || shape.word != listed)) {
        unlink_list(listed);
    }
    return write(node, top, background, shape, filling.words);
}

// Begin with what a node block has. What shares a list with a dirty slot is to be found anew as well.
void TrieWriter::expand(uint32_t block, uint64_t dirty, Filling& filling) const {
    const sp_u32* word = arrays_.words + block + SP_TRIE_NODE_WORDS;
    filling.was = load_bits(arrays_.words + block);
    filling.stale = dirty;
    uint64_t vector = filling.was;
    for (uint32_t slot = 0; vector != 0; ++word) {
        vector &= ~slot_bit(slot);
        uint32_t end = first_slot(vector);  // 64 behind the last run
        std::fill(filling.words.begin() + slot, filling.words.begin() + end, *word);
        uint64_t run = slot_range(slot, end - slot);
        filling.stale |= is_list(*word) && (dirty & run) != 0 ? run : 0;
        slot = end;
    }
}

// Find the stale words below a prefix of a node, which is covered by `leaf`: one list, or each half by itself.
void TrieWriter::fill(Filling& filling, uint32_t heap, uint32_t leaf) {
    const RouteNode& node = filling.node;
    uint64_t range = heap_range(heap);
    uint32_t first = heap_slot(heap), end = first + heap_slots(heap);
    if ((filling.stale & range) == 0) {
        return;
    }
    if ((node.children & range) == 0) {
        for (uint64_t bits = filling.stale & range; bits != 0; bits &= ~slot_bit(first_slot(bits))) {
            filling.words[first_slot(bits)] = filling.leaves[first_slot(bits)];
        }
        return;
    }
    if (store_.has(node, heap)) {
        leaf = store_.leaf(node, heap);
    }
    RouteList list;
    if (gather(store_, node, heap, node.depth + SP_TRIE_WIDE_BITS, SP_TRIE_LIST, list)) {
        uint32_t word = leaf;
        if (list.count > 0) {
            // Stored in place only where it led to the same addresses before: its background is theirs.
            bool same = (filling.was & range) == slot_bit(first) && (end == kSlots || filling.was & slot_bit(end));
            word = put_list({list, node.depth, leaf}, same ? filling.words[first] : 0);
        }
        std::fill(filling.words.begin() + first, filling.words.begin() + end, word);
        swallow_below(node, heap);
        return;
    }
    if (heap >= kSlots) {
        filling.words[first] = emit(store_.child(node, first), node.depth + kStride, leaf, 0);
        return;
    }
    fill(filling, 2 * heap, leaf);
    fill(filling, 2 * heap + 1, leaf);
}

// Whether a node, which is not in the root, is in a list or may come into one.
bool TrieWriter::in_list_or_few(const TrieTable& table, const RouteNode& node) const {
    if (node.depth < table.bits || node.top == kInList) {
        return node.depth >= table.bits;
    }
    RouteList list;
    return gather(store_, node, 1, kKeyBits, table.most(), list);
}

// The word of a list: the old one where only leaves differ, else one in room of its own.
uint32_t TrieWriter::put_list(const ListContent& content, uint32_t old_word) {
    if (is_list(old_word)) {
        uint32_t index = block_index(old_word);
        ListImage image(content, arrays_.words + index, is_wide(old_word));
        if (image.size > 0 && image.has_keys_of(arrays_.words + index)) {
            for (uint32_t at = 0; at < image.size; ++at) {
                plan(index + at, 1, image.words[at]);
            }
            return old_word;
        }
    }
    ListImage image(content);
    uint32_t unit = allocate(image.units());
    if (unit == 0) {
        return 0;
    }
    std::copy_n(image.words.data(), image.size, arrays_.words + unit * 2);
    return list_word(unit, image.wide);
}

// Where nothing but leaves and children's words has changed. `image` begins where the node's blocks do.
bool TrieWriter::store_in_place(const RouteNode& node, const TrieShape& shape, const sp_u32* image, uint32_t size) {
    uint32_t index = block_index(node.word);
    const sp_u32* now = arrays_.words + index;
    uint32_t paths = shape.paths();
    for (uint32_t at = 0; at < paths * kPathWords; at += kPathWords) {
        if (load_bits(now + at) != load_bits(image + at)) {
            return false;
        }
    }
    if (shape.runs > 0 && load_bits(now + paths * kPathWords) != shape.vector) {
        return false;
    }
    for (uint32_t at = 0; at < size; ++at) {
        plan(index + at, 1, image[at]);
    }
    return true;
}

uint32_t TrieWriter::write(RouteNode& node, uint32_t top, uint32_t background, const TrieShape& shape,
                           const Slots& slots) {
    std::array<sp_u32, kMostWords> image;
    uint32_t units = shape.units();
    uint32_t paths = shape.paths();
    bool in_place = units > 0 && block_units(node) > 0 && node.top == top && node.paths == paths &&
                    node.runs == shape.runs;
    if (in_place) {
        uint32_t size = compose(shape, slots, top, background, node.word & SP_TRIE_UNIT, image.data());
        in_place = store_in_place(node, shape, image.data(), size);
    }
    if (!in_place) {
        unlink_block(node);
        uint32_t unit = units == 0 ? 0 : allocate(units);
        if (units == 0) {
            node.word = shape.word;
        } else if (unit != 0) {
            uint32_t size = compose(shape, slots, top, background, unit, image.data());
            std::copy_n(image.data(), size, arrays_.words + unit * 2);
            node.word = paths > 0 ? path_word(unit) : node_word(unit);
        }
    }
    node.background = background;
    node.top = static_cast<uint8_t>(top);
    node.paths = static_cast<uint8_t>(paths);
    node.runs = static_cast<uint8_t>(shape.runs);
    return node.word;
}

// -- what is not led to any more ------------------------------------------------------------------------------------

// A node is in a list, with everything below it.
void TrieWriter::swallow(uint32_t index) {
    RouteNode& node = store_.at(index);
    if (node.top != kInList) {
        remember(index);
        unlink(node);
        node.word = 0;
        node.top = kInList;
        node.paths = node.runs = 0;
    }
    swallow_below(node, 1);
}

void TrieWriter::swallow_below(const RouteNode& node, uint32_t heap) {
    for (uint64_t bits = node.children & heap_range(heap); bits != 0; bits &= ~slot_bit(first_slot(bits))) {
        swallow(store_.child(node, first_slot(bits)));
    }
}

// A node's blocks and the lists that they lead to.
void TrieWriter::unlink(const RouteNode& node) {
    if (node.runs > 0) {
        unlink_lists(node_index(node), nullptr);
    } else if (uint32_t listed = listed_behind_path(node); listed != 0) {
        unlink_list(listed);
    }
    unlink_block(node);
}

void TrieWriter::unlink_block(const RouteNode& node) {
    if (block_units(node) > 0) {
        unlinked_.push_back({node.word & SP_TRIE_UNIT, block_units(node)});
    }
}

void TrieWriter::unlink_list(uint32_t word) {
    unlinked_.push_back({word & SP_TRIE_UNIT, list_units(arrays_.words + block_index(word), is_wide(word))});
}

// The lists that a node block leads to, except those that stay where they are.
void TrieWriter::unlink_lists(uint32_t block, const Slots* kept) {
    const sp_u32* word = arrays_.words + block + SP_TRIE_NODE_WORDS;
    for (uint64_t bits = load_bits(arrays_.words + block); bits != 0; bits &= ~slot_bit(first_slot(bits)), ++word) {
        if (is_list(*word) && (kept == nullptr || (*kept)[first_slot(bits)] != *word)) {
            unlink_list(*word);
        }
    }
}

// 0: none.
uint32_t TrieWriter::listed_behind_path(const RouteNode& node) const {
    if (node.paths == 0 || node.runs > 0) {
        return 0;
    }
    uint32_t word = arrays_.words[node_index(node) - kPathWords + SP_TRIE_PATH_HIT];
    return is_list(word) ? word : 0;
}

void TrieWriter::forget(const RouteNode& node) {
    unlinked_.clear();
    unlink(node);
    retire_unlinked();
}

}  // namespace splitplane
