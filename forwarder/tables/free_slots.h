// SPDX-License-Identifier: Apache-2.0
//
// Which slots of an array are free. The lowest is given out first, so those in use stay near each other, whatever comes
// and goes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace splitplane {

class FreeSlots {
  public:
    // Slots `first` to `count` - 1 are free, the others never.
    FreeSlots(uint32_t first, uint32_t count);

    std::optional<uint32_t> take();
    // Take this one, free or not.
    void take(uint32_t slot) { words_[slot / 64] &= ~bit(slot); }
    void free(uint32_t slot);

    // Behind the last one that there is.
    uint32_t count() const { return count_; }
    uint32_t first() const { return first_; }

  private:
    static uint64_t bit(uint32_t slot) { return uint64_t{1} << slot % 64; }

    uint32_t first_, count_;
    std::vector<uint64_t> words_;  // a bit each
    size_t lowest_ = 0;            // no bit is set in the words before
};

}  // namespace splitplane
