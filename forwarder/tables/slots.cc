// SPDX-License-Identifier: Apache-2.0
#include "tables/slots.h"

#include <algorithm>

namespace splitplane {

Slots::Slots(const char* name, uint32_t count, uint32_t first, GracePeriods& grace)
    : name_(name), first_(first), next_(first), grace_(grace), ids_(count), references_(count) {}

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
    if (next_ < ids_.size()) {
        return next_++;
    }
    if (free_.empty() && !waiting_.empty()) {
        grace_.synchronize();
        free_.swap(waiting_);
    }
    if (free_.empty()) {
        return std::nullopt;
    }
    uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
}

void Slots::release(uint32_t slot) {
    if (--references_[slot] == kTaken) {
        references_[slot] = 0;
        slot_of_.erase(ids_[slot]);
        waiting_.push_back(slot);
    }
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
    next_ = std::max(next_, slot + 1);
    return true;
}

void Slots::restored() {
    waiting_.clear();
    free_.clear();
    for (auto slot = static_cast<uint32_t>(ids_.size()); slot-- > first_;) {
        if (references_[slot] == kTaken) {
            references_[slot] = 0;
            slot_of_.erase(ids_[slot]);
        }
        if (references_[slot] == 0) {
            free_.push_back(slot);
        }
    }
    next_ = static_cast<uint32_t>(ids_.size());  // free_ holds the others, the lowest last
}

}  // namespace splitplane
