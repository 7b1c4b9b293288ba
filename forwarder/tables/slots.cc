// SPDX-License-Identifier: Apache-2.0
#include "tables/slots.h"

#include <algorithm>
#include <bit>

namespace splitplane {

Slots::Slots(const char* name, uint32_t count, uint32_t first)
    : name_(name), first_(first), ids_(count), references_(count), free_((count + 63) / 64) {
    for (uint32_t slot = first; slot < count; ++slot) {
        free(slot);
    }
}

std::optional<uint32_t> Slots::find(uint32_t id) const {
    auto found = slot_of_.find(id);
    return found == slot_of_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Slots::Acquired> Slots::acquire(uint32_t id) {
    auto found = slot_of_.find(id);
    if (found != slot_of_.end()) {
        ++references_[found->second];
        return Acquired{found->second, false};
    }
    auto slot = take();
    if (!slot) {
        return std::nullopt;
    }
    ids_[*slot] = id;
    references_[*slot] = kTaken + 1;
    slot_of_.emplace(id, *slot);
    return Acquired{*slot, true};
}

std::optional<uint32_t> Slots::take() {
    while (lowest_ < free_.size() && free_[lowest_] == 0) {
        ++lowest_;
    }
    if (lowest_ == free_.size()) {
        return std::nullopt;
    }
    auto slot = static_cast<uint32_t>(lowest_ * 64) + static_cast<uint32_t>(std::countr_zero(free_[lowest_]));
    free_[lowest_] &= free_[lowest_] - 1;
    return slot;
}

bool Slots::release(uint32_t slot) {
    if (--references_[slot] != kTaken) {
        return false;
    }
    references_[slot] = 0;
    slot_of_.erase(ids_[slot]);
    return true;
}

void Slots::free(uint32_t slot) {
    free_[slot / 64] |= uint64_t{1} << slot % 64;
    lowest_ = std::min<size_t>(lowest_, slot / 64);
}

bool Slots::restore(uint32_t slot, uint32_t id) {
    if (slot < first_ || slot >= ids_.size() || references_[slot] > kTaken) {
        return false;
    }
    auto found = slot_of_.find(id);
    if (found != slot_of_.end() && found->second != slot) {
        if (references_[found->second] > kTaken) {
            return false;
        }
        references_[found->second] = 0;  // it was given up, and the record of its new slot follows
        slot_of_.erase(found);
    }
    if (references_[slot] == kTaken) {
        slot_of_.erase(ids_[slot]);
    }
    ids_[slot] = id;
    references_[slot] = kTaken;
    slot_of_[id] = slot;
    free_[slot / 64] &= ~(uint64_t{1} << slot % 64);
    return true;
}

void Slots::restored() {
    for (uint32_t slot = first_; slot < ids_.size(); ++slot) {
        if (references_[slot] == kTaken) {
            references_[slot] = 0;
            slot_of_.erase(ids_[slot]);
        }
        if (references_[slot] == 0) {
            free(slot);
        }
    }
}

}  // namespace splitplane
