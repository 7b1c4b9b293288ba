// SPDX-License-Identifier: Apache-2.0
#include "tables/free_slots.h"

#include <algorithm>
#include <bit>

namespace splitplane {

FreeSlots::FreeSlots(uint32_t first, uint32_t count)
    : first_(first), count_(count), words_((count + 63) / 64, ~uint64_t{0}) {
    for (uint32_t slot = 0; slot < first; ++slot) {
        take(slot);
    }
    for (uint32_t slot = count; slot < words_.size() * 64; ++slot) {
        take(slot);
    }
}

std::optional<uint32_t> FreeSlots::take() {
    while (lowest_ < words_.size() && words_[lowest_] == 0) {
        ++lowest_;
    }
    if (lowest_ == words_.size()) {
        return std::nullopt;
    }
    const auto slot = static_cast<uint32_t>(lowest_ * 64) + static_cast<uint32_t>(std::countr_zero(words_[lowest_]));
    take(slot);
    return slot;
}

void FreeSlots::free(uint32_t slot) {
    words_[slot / 64] |= bit(slot);
    lowest_ = std::min<size_t>(lowest_, slot / 64);
}

}  // namespace splitplane
