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

}  // namespace

uint64_t vector_of(const Slots& slots) {
    uint64_t vector = slot_bit(0);
    for (uint32_t slot = 1; slot < kSlots; ++slot) {
        vector |= uint64_t{slots[slot] != slots[slot - 1]} << (kSlots - 1 - slot);
    }
    return vector;
}

TrieShape shape_of(const RouteNode& node, uint32_t top, uint32_t background, const Slots& slots) {
    TrieShape made;
    made.vector = vector_of(slots);
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
        // A list asks for the bits from the node's depth on, not for those behind the path.
        if (!alone || !std::has_single_bit(end - begin) || begin % (end - begin) != 0 || is_list(slots[begin])) {
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

uint32_t compose(uint64_t vector, const Slots& slots, sp_u32* words) {
    sp_u32* begin = words;
    store_bits(words, vector);
    words += SP_TRIE_NODE_WORDS;
    for (uint64_t bits = vector; bits != 0; bits &= ~slot_bit(first_slot(bits))) {
        *words++ = slots[first_slot(bits)];
    }
    return static_cast<uint32_t>(words - begin);
}

uint32_t compose(const TrieShape& shape, const Slots& slots, uint32_t top, uint32_t background, uint32_t unit,
                 sp_u32* words) {
    sp_u32* begin = words;
    uint32_t paths = shape.paths();
    for (uint32_t at = 0; at < paths; ++at) {
        uint32_t from = at * SP_TRIE_PATH_BITS;
        uint32_t last = shape.runs > 0 ? node_word(unit + 2) : shape.word;
        store_bits(words, path_bits(shape.key, top + from, std::min(shape.path_bits - from, SP_TRIE_PATH_BITS)));
        words[SP_TRIE_PATH_MISS] = background;
        words[SP_TRIE_PATH_HIT] = at + 1 < paths ? path_word(unit + 2) : last;
        words += kPathWords;
        unit += 2;
    }
    if (shape.runs > 0) {
        words += compose(shape.vector, slots, words);
    }
    return static_cast<uint32_t>(words - begin);
}

}  // namespace splitplane
