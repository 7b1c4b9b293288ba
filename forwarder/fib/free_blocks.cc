// SPDX-License-Identifier: Apache-2.0
#include "fib/free_blocks.h"

#include <algorithm>
#include <bit>

namespace splitplane {

namespace {

bool test(const std::vector<uint64_t>& bits, uint32_t at) { return bits[at / 64] >> at % 64 & 1; }
void set(std::vector<uint64_t>& bits, uint32_t at) { bits[at / 64] |= uint64_t{1} << at % 64; }
void clear(std::vector<uint64_t>& bits, uint32_t at) { bits[at / 64] &= ~(uint64_t{1} << at % 64); }

uint64_t links(uint32_t previous, uint32_t next) { return uint64_t{previous} << 32 | next; }
uint32_t previous_of(uint64_t links) { return static_cast<uint32_t>(links >> 32); }
uint32_t next_of(uint64_t links) { return static_cast<uint32_t>(links); }

}  // namespace

// One unit more than there is: the one behind the last is never free.
FreeBlocks::FreeBlocks(std::span<uint64_t> memory, uint32_t chunk, uint32_t kept)
    : memory_(memory), begins_(memory.size() / 64 + 1), ends_(memory.size() / 64 + 1) {
    // From the last to the first, which is then the one to begin with: memory is touched in order.
    for (uint32_t end = units(), begin = 0; end > 0; end = begin) {
        begin = (end - 1) / chunk * chunk;
        uint32_t first = std::max(begin, 1u);
        if (first + kept < end) {
            insert(first, end - kept - first);
        }
    }
    capacity_ = free_units_;
}

uint32_t FreeBlocks::bin_of(uint32_t units) {
    return units < kExact ? units : kExact - 7 + static_cast<uint32_t>(std::bit_width(units));
}

// The first bin from this one on that is not empty, or kBins.
uint32_t FreeBlocks::next_bin(uint32_t bin) const {
    for (uint32_t word = bin / 64; word < filled_.size(); ++word) {
        uint64_t bits = filled_[word];
        if (word == bin / 64) {
            bits &= ~uint64_t{0} << bin % 64;
        }
        if (bits != 0) {
            return word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
        }
    }
    return kBins;
}

uint32_t FreeBlocks::size_at(uint32_t first) const {
    return test(ends_, first) ? 1 : static_cast<uint32_t>(memory_[first + 1]);
}

uint32_t FreeBlocks::allocate(uint32_t units) {
    uint32_t found = 0;
    uint32_t bin = next_bin(bin_of(units));
    for (; bin < kBins && found == 0; bin = next_bin(bin + 1)) {
        // Of a power of two's bin, only the bin of the size asked for can hold blocks that are too small.
        for (found = heads_[bin]; found != 0 && size_at(found) < units;) {
            found = next_of(memory_[found]);
        }
    }
    if (found == 0) {
        return 0;
    }
    uint32_t size = size_at(found);
    remove(found, size);
    if (size > units) {
        insert(found + units, size - units);
    }
    peak_ = std::max(peak_, found + units);
    return found;
}

bool FreeBlocks::extend(uint32_t first, uint32_t units) {
    uint32_t behind = first + units;
    if (!test(begins_, behind)) {
        return false;
    }
    uint32_t size = size_at(behind);
    remove(behind, size);
    if (size > 1) {
        insert(behind + 1, size - 1);
    }
    peak_ = std::max(peak_, behind + 1);
    return true;
}

void FreeBlocks::free(uint32_t first, uint32_t units) {
    if (test(ends_, first - 1)) {
        uint32_t before = test(begins_, first - 1) ? 1 : static_cast<uint32_t>(memory_[first - 1]);
        remove(first - before, before);
        first -= before;
        units += before;
    }
    if (test(begins_, first + units)) {
        uint32_t behind = size_at(first + units);
        remove(first + units, behind);
        units += behind;
    }
    insert(first, units);
}

void FreeBlocks::insert(uint32_t first, uint32_t units) {
    uint32_t bin = bin_of(units);
    uint32_t next = heads_[bin];
    memory_[first] = links(0, next);
    if (next != 0) {
        memory_[next] = links(first, next_of(memory_[next]));
    }
    heads_[bin] = first;
    filled_[bin / 64] |= uint64_t{1} << bin % 64;
    if (units > 1) {
        memory_[first + 1] = units;
        memory_[first + units - 1] = units;
    }
    set(begins_, first);
    set(ends_, first + units - 1);
    free_units_ += units;
}

void FreeBlocks::remove(uint32_t first, uint32_t units) {
    uint32_t bin = bin_of(units);
    uint32_t previous = previous_of(memory_[first]);
    uint32_t next = next_of(memory_[first]);
    if (previous != 0) {
        memory_[previous] = links(previous_of(memory_[previous]), next);
    } else {
        heads_[bin] = next;
        if (next == 0) {
            filled_[bin / 64] &= ~(uint64_t{1} << bin % 64);
        }
    }
    if (next != 0) {
        memory_[next] = links(previous, next_of(memory_[next]));
    }
    clear(begins_, first);
    clear(ends_, first + units - 1);
    free_units_ -= units;
}

}  // namespace splitplane
