// SPDX-License-Identifier: Apache-2.0
//
// Which blocks of an array are free: best fit, neighbors joined at once (boundary tags, Knuth, TAOCP 2.5).
//
//     a free block    previous, next | size | ... | size        in units of 8 octets; of one unit: the first only
//     two bits a unit: a free block begins here; a free block ends here
//
// Blocks in use hold nothing but what their owner puts there; so their owner tells their size.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace splitplane {

class FreeBlocks {
  public:
    // Everything but unit 0 is free, and the last `kept` units of each chunk of `chunk` units. `memory` outlives this.
    explicit FreeBlocks(std::span<uint64_t> memory, uint32_t chunk = UINT32_MAX, uint32_t kept = 0);

    // The first unit of a block, or 0.
    uint32_t allocate(uint32_t units);
    // One unit more for a block in use, if the one behind it is free.
    bool extend(uint32_t first, uint32_t units);
    void free(uint32_t first, uint32_t units);

    uint32_t units() const { return static_cast<uint32_t>(memory_.size()); }
    uint32_t free_units() const { return free_units_; }
    // Units that can be given out at all.
    uint32_t capacity() const { return capacity_; }
    // Behind the last unit that was ever given out.
    uint32_t peak() const { return peak_; }

  private:
    // Bins 1 to 63 hold blocks of that size, the others one power of two each.
    static constexpr uint32_t kExact = 64;
    static constexpr uint32_t kBins = 96;

    static uint32_t bin_of(uint32_t units);
    uint32_t next_bin(uint32_t bin) const;
    uint32_t size_at(uint32_t first) const;
    void insert(uint32_t first, uint32_t units);
    void remove(uint32_t first, uint32_t units);

    std::span<uint64_t> memory_;
    std::vector<uint64_t> begins_;
    std::vector<uint64_t> ends_;
    std::array<uint32_t, kBins> heads_{};
    std::array<uint64_t, 2> filled_{};  // bins that are not empty
    uint32_t free_units_ = 0;
    uint32_t capacity_ = 0;
    uint32_t peak_ = 0;
};

}  // namespace splitplane
