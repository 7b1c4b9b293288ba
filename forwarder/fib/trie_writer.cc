// SPDX-License-Identifier: Apache-2.0
#include "fib/trie_writer.h"

namespace splitplane {

namespace {

// RouteNode::top of a node without blocks: the root has its slots, or it is in the list of one above; 255: it was never
// emitted.
constexpr uint8_t kInRoot = 254;
constexpr uint8_t kInList = 253;

uint32_t block_units(const RouteNode& node) {
    return 2u * (node.paths + node.list) + (node.runs > 0 ? 1 + (node.runs + 1u) / 2 : 0);
}

}  // namespace

// -- the change as a whole ----------------------------------------------------------------------------------------

void TrieWriter::begin(uint32_t reserve, bool may_wait) {
    reserve_ = reserve;
    may_wait_ = may_wait;
    full_ = false;
    before_.clear();
    stores_.clear();
    made_.clear();
    unlinked_.clear();
}

bool TrieWriter::commit() {
    if (full_) {
        for (size_t at = before_.size(); at-- > 0;) {
            const Before& was = before_[at];
            RouteNode& node = store_.at(was.node);
            node.word = was.word;
            node.background = was.background;
            node.top = was.top;
            node.paths = was.paths & 15;
            node.list = was.list & 15;
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
    before_.push_back({index, node.word, node.background, node.top, node.paths, node.list, node.runs});
}

void TrieWriter::plan(uint32_t index, uint32_t count, uint32_t value) {
    if (count > 1 || (count == 1 && arrays_.words[index] != value)) {
        stores_.push_back({index, count, value});
    }
}

bool TrieWriter::update(TrieTable& table, sp_u64& root, const Place& place, uint64_t slots, uint32_t reserve) {
    begin(reserve, true);
    bool first = table.base == 0;
    if (first) {
        table.bits = 0;
        table.base = allocate(1);
    }
    uint32_t at = place.count - 1;
    for (; store_.at(place.nodes[at]).top == kInList; --at) {
        slots = ~uint64_t{0};
    }
    const RouteNode& node = store_.at(place.nodes[at]);
    if (node.depth < table.bits) {
        spread(table, place.nodes[at], node.background, slots, false);
    } else if (!full_) {
        uint32_t old_word = node.word;
        uint32_t word = emit(place.nodes[at], first ? 0 : node.top, node.background, slots);
        if (first) {
            arrays_.words[table.base * 2] = word;
        } else {
            lead_up(table, place, at, word, old_word);
        }
    }
    if (!commit()) {
        table.base = first ? 0 : table.base;
        return false;
    }
    if (first) {
        __atomic_store_n(&root, sp_trie_root(table.base * 2, 0), __ATOMIC_RELEASE);
    }
    for (const Block& block : unlinked_) {
        arena_.retire(block.first, block.units);
    }
    return true;
}

// -- nodes with blocks ----------------------------------------------------------------------------------------------

// Make the trie lead to a node's new word, from the parent on.
void TrieWriter::lead_up(const TrieTable& table, const Place& place, uint32_t at, uint32_t word, uint32_t old_word) {
    for (; word != old_word && !full_; --at) {
        if (at == 0) {
            plan(table.base * 2, 1, word);
            return;
        }
        const RouteNode& child = store_.at(place.nodes[at]);
        const RouteNode& parent = store_.at(place.nodes[at - 1]);
        if (parent.depth < table.bits) {
            plan(root_index(table, child.key), 1, word);
            return;
        }
        uint32_t slot = slot_of(child.key, parent.depth);
        uint32_t block = (parent.word & SP_TRIE_UNIT) * 2 + kPathWords * parent.paths;
        TrieShape list;
        bool listed = make_list(store_, parent, parent.top, list);
        if (is_block(word) && is_block(old_word) && !listed) {  // which is a run of its own
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
    if (dirty == 0 && node.top == top && node.background == background) {
        return node.word;
    }
    remember(index);
    Slots painted;
    TrieShape list;
    bool listed = make_list(store_, node, top, list);
    if (listed && node.children != 0) {
        swallow(node);
        return write(node, top, background, list, painted);
    }
    uint64_t covered = store_.paint(node, background, painted);
    bool fresh = node.top != top || node.runs == 0;
    dirty = fresh ? ~uint64_t{0} : dirty | (node.background == background ? 0 : ~covered);
    Slots slots = painted;
    if (dirty != ~uint64_t{0}) {
        expand(node, slots);
        for (uint64_t bits = dirty & ~node.children; bits != 0; bits &= ~slot_bit(first_slot(bits))) {
            slots[first_slot(bits)] = painted[first_slot(bits)];
        }
    }
    for (uint64_t bits = dirty & node.children; bits != 0; bits &= ~slot_bit(first_slot(bits))) {
        uint32_t slot = first_slot(bits);
        slots[slot] = emit(store_.child(node, slot), node.depth + kStride, painted[slot], 0);
    }
    TrieShape block = shape_of(node, top, background, slots);
    return write(node, top, background, listed && list.units() < block.units() ? list : block, slots);
}

void TrieWriter::expand(const RouteNode& node, Slots& slots) const {
    const sp_u32* words = arrays_.words + (node.word & SP_TRIE_UNIT) * 2 + kPathWords * node.paths;
    uint64_t vector = load_bits(words);
    words += SP_TRIE_NODE_WORDS;
    for (uint32_t slot = 0; vector != 0; ++words) {
        vector &= ~slot_bit(slot);
        uint32_t end = first_slot(vector);  // 64 behind the last run
        std::fill(slots.begin() + slot, slots.begin() + end, *words);
        slot = end;
    }
}

// Everything below a node is in its list.
void TrieWriter::swallow(const RouteNode& node) {
    for (uint64_t bits = node.children; bits != 0; bits &= ~slot_bit(first_slot(bits))) {
        uint32_t index = store_.child(node, first_slot(bits));
        RouteNode& child = store_.at(index);
        remember(index);
        unlink(child);
        child.word = 0;
        child.top = kInList;
        child.paths = child.list = child.runs = 0;
        swallow(child);
    }
}

void TrieWriter::unlink(const RouteNode& node) {
    if (is_block(node.word) && block_units(node) > 0) {
        unlinked_.push_back({node.word & SP_TRIE_UNIT, block_units(node)});
    }
}

// Where nothing but leaves and children's words has changed. `image` begins where the node's blocks do.
bool TrieWriter::store_in_place(const RouteNode& node, const TrieShape& shape, const sp_u32* image, uint32_t size) {
    uint32_t index = (node.word & SP_TRIE_UNIT) * 2;
    const sp_u32* now = arrays_.words + index;
    uint32_t paths = shape.paths() + shape.listed;
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
    bool in_place = is_block(node.word) && block_units(node) > 0 && units > 0 && node.top == top &&
                    node.paths == paths && node.list == shape.listed && node.runs == shape.runs;
    if (in_place) {
        uint32_t size = compose(shape, slots, top, background, node.word & SP_TRIE_UNIT, image.data());
        in_place = store_in_place(node, shape, image.data(), size);
    }
    if (!in_place) {
        unlink(node);
        uint32_t unit = units == 0 ? 0 : allocate(units);
        if (units == 0) {
            node.word = shape.word;
        } else if (unit != 0) {
            uint32_t size = compose(shape, slots, top, background, unit, image.data());
            std::copy_n(image.data(), size, arrays_.words + unit * 2);
            node.word = paths + shape.listed > 0 ? path_word(unit) : node_word(unit);
        }
    }
    node.background = background;
    node.top = static_cast<uint8_t>(top);
    node.paths = paths & 15;
    node.list = shape.listed & 15;
    node.runs = static_cast<uint8_t>(shape.runs);
    return node.word;
}

void TrieWriter::forget(RouteNode& node) {
    if (is_block(node.word) && block_units(node) > 0) {
        arena_.retire(node.word & SP_TRIE_UNIT, block_units(node));
    }
}

// -- nodes in the root ------------------------------------------------------------------------------------------------

uint32_t TrieWriter::root_index(const TrieTable& table, Key key) {
    return table.base * 2 + (table.bits == 0 ? 0 : static_cast<uint32_t>(key >> (kKeyBits - table.bits)));
}

// Put a node above s, with all below it, into the root's words. `everything`: the root is new.
void TrieWriter::spread(const TrieTable& table, uint32_t index, uint32_t background, uint64_t dirty, bool everything) {
    RouteNode& node = store_.at(index);
    Slots painted;
    uint64_t covered = store_.paint(node, background, painted);
    if (everything || node.top != kInRoot) {
        dirty = ~uint64_t{0};
    } else if (node.background != background) {
        dirty |= ~covered;
    }
    remember(index);
    unlink(node);
    node.word = 0;
    node.background = background;
    node.top = kInRoot;
    node.paths = node.list = node.runs = 0;
    for (; dirty != 0; dirty &= ~slot_bit(first_slot(dirty))) {
        uint32_t slot = first_slot(dirty);
        spread_slot(table, node, slot, painted[slot], everything);
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
    const RouteNode& child = store_.at(index);
    bool in_root = child.depth < table.bits;
    uint32_t at = root_index(table, child.key);
    uint32_t behind = at + (in_root ? 1u << (table.bits - child.depth) : 1);
    plan(first, at - first, leaf);
    plan(behind, end - behind, leaf);
    if (!in_root) {
        plan(at, 1, emit(index, table.bits, leaf, 0));
    } else if (everything || child.top != kInRoot || child.background != leaf) {
        spread(table, index, leaf, 0, everything);
    }
}

void TrieWriter::fit_root(TrieTable& table, sp_u64& root, uint32_t reserve) {
    constexpr uint32_t kBiggest = TrieTable::root_bits(2);
    uint32_t at = table.bits / kStride;  // of the next bigger one
    uint32_t bigger = table.bits + kStride;
    if (table.bits < kBiggest && table.occupied[at] >= 1u << bigger >> 1 && table.routes >= table.refused) {
        bool done = rebuild_root(table, root, bigger, reserve);
        table.refused = done ? 0 : table.routes + table.routes / 4;
    } else if (table.bits > 0 && table.occupied[at - 1] < 1u << table.bits >> 3) {
        rebuild_root(table, root, table.bits - kStride, 0);
    }
}

bool TrieWriter::rebuild_root(TrieTable& table, sp_u64& root, uint32_t bits, uint32_t reserve) {
    TrieTable before = table;
    begin(reserve, false);
    uint32_t base = allocate(((1u << bits) + 1) / 2);
    if (base == 0) {
        return false;
    }
    table.base = base;
    table.bits = bits;
    if (bits > 0) {
        spread(table, table.node, 0, 0, true);
    } else {
        plan(base * 2, 1, emit(table.node, 0, 0, 0));
    }
    if (!commit()) {
        table = before;
        return false;
    }
    __atomic_store_n(&root, sp_trie_root(base * 2, bits), __ATOMIC_RELEASE);
    unlinked_.push_back({before.base, ((1u << before.bits) + 1) / 2});
    for (const Block& block : unlinked_) {
        arena_.retire(block.first, block.units);
    }
    return true;
}

void TrieWriter::clear(TrieTable& table, sp_u64& root) {
    __atomic_store_n(&root, 0, __ATOMIC_RELEASE);
    arena_.retire(table.base, ((1u << table.bits) + 1) / 2);
    table.base = 0;
    table.bits = 0;
    table.refused = 0;
}

}  // namespace splitplane
