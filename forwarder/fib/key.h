// SPDX-License-Identifier: Apache-2.0
//
// Addresses of both families as 128 bits from the top, and the strides of 6 bits in which the tries take them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "fib/fib.h"

namespace splitplane {

__extension__ using Key = unsigned __int128;

inline constexpr uint32_t kKeyBits = 128;
inline constexpr uint32_t kStride = 6;
inline constexpr uint32_t kSlots = 1u << kStride;

inline uint64_t high_of(Key key) { return static_cast<uint64_t>(key >> 64); }
inline uint64_t low_of(Key key) { return static_cast<uint64_t>(key); }

// The first `length` bits set.
inline Key mask_of(uint32_t length) { return length == 0 ? 0 : ~Key{0} << (kKeyBits - length); }

// The stride that begins at `depth`, a multiple of 6; bits behind the last are zero.
inline uint32_t slot_of(Key key, uint32_t depth) {
    return static_cast<uint32_t>((key << depth) >> (kKeyBits - kStride));
}

// A key of zeros, except this slot.
inline Key slot_key(uint32_t slot, uint32_t depth) { return (Key{slot} << (kKeyBits - kStride)) >> depth; }

// How many bits from the top two keys share.
inline uint32_t shared_bits(Key a, Key b) {
    Key differing = a ^ b;
    uint64_t high = high_of(differing);
    return static_cast<uint32_t>(high != 0 ? std::countl_zero(high) : 64 + std::countl_zero(low_of(differing)));
}

// The depth of the node that a prefix longer than 0 belongs to: it ends in the stride behind.
inline uint32_t depth_of(uint32_t length) { return (length - 1) / kStride * kStride; }

// The prefixes inside a stride, numbered as in a heap: 2 and 3 for one bit, 4 to 7 for two, up to 127.
inline uint32_t heap_of(Key key, uint32_t length) {
    uint32_t depth = depth_of(length), bits = length - depth;
    return 1u << bits | slot_of(key, depth) >> (kStride - bits);
}
inline uint32_t heap_bits(uint32_t heap) { return static_cast<uint32_t>(std::bit_width(heap)) - 1; }
inline uint32_t heap_slot(uint32_t heap) { return (heap << (kStride - heap_bits(heap))) & (kSlots - 1); }
inline uint32_t heap_slots(uint32_t heap) { return kSlots >> heap_bits(heap); }

// Sets of slots: slot 0 is the highest bit, as in the readers' vectors.
inline uint64_t slot_bit(uint32_t slot) { return uint64_t{1} << (kSlots - 1 - slot); }
inline uint32_t first_slot(uint64_t slots) { return static_cast<uint32_t>(std::countl_zero(slots)); }
inline uint64_t slot_range(uint32_t first, uint32_t count) {
    uint64_t bits = count == kSlots ? ~uint64_t{0} : ~(~uint64_t{0} >> count);
    return bits >> first;
}
inline uint64_t heap_range(uint32_t heap) { return slot_range(heap_slot(heap), heap_slots(heap)); }

inline Key key_of(const Prefix& prefix) {
    Key key = 0;
    for (uint8_t octet : prefix.address) {
        key = key << 8 | octet;
    }
    return key & mask_of(prefix.length);
}

inline Prefix prefix_of(Key key, uint32_t length) {
    Prefix prefix;
    for (size_t at = prefix.address.size(); at-- > 0; key >>= 8) {
        prefix.address[at] = static_cast<uint8_t>(key);
    }
    prefix.length = static_cast<uint8_t>(length);
    return prefix;
}

}  // namespace splitplane
