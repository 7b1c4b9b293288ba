// SPDX-License-Identifier: Apache-2.0
#include "tables/slots.h"

namespace splitplane {

Slots::Slots(const char* name, uint32_t count, uint32_t first)
    : name_(name), ids_(count), references_(count), free_(first, count) {}

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
    auto slot = free_.take();
    if (!slot) {
        return std::nullopt;
    }
    ids_[*slot] = id;
    references_[*slot] = kTaken + 1;
    slot_of_.emplace(id, *slot);
    return Acquired{*slot, true};
}

bool Slots::release(uint32_t slot, bool kept) {
    if (--references_[slot] != kTaken || kept) {
        return false;
    }
    references_[slot] = 0;
    slot_of_.erase(ids_[slot]);
    return true;
}

bool Slots::restore(uint32_t slot, uint32_t id) {
    if (slot < free_.first() || slot >= free_.count() || references_[slot] > kTaken) {
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
    free_.take(slot);
    return true;
}

std::vector<uint32_t> Slots::restored() {
    std::vector<uint32_t> given_up;
    std::erase_if(slot_of_, [&](const auto& held) {
        uint32_t& references = references_[held.second];
        if (references != kTaken) return false;
        references = 0;
        given_up.push_back(held.second);
        return true;
    });
    free_ = FreeSlots(free_.first(), free_.count());
    for (const auto& [id, slot] : slot_of_) free_.take(slot);
    return given_up;
}

}  // namespace splitplane
