// SPDX-License-Identifier: Apache-2.0
#include "tables/objects.h"

namespace splitplane {

Objects::Objects(sp_arrays& arrays, GracePeriods& grace, Assigned assigned)
    : arrays_(arrays), assigned_(std::move(assigned)) {
    slots_.reserve(kSpaces);
    slots_.emplace_back("vrf_id", SP_VRFS, 1, grace);
    slots_.emplace_back("router_interface_id", SP_INTERFACES, 0, grace);
    slots_.emplace_back("nexthop_id", SP_NEXTHOPS, 0, grace);
    slots_.emplace_back("nexthop_group_id", SP_GROUPS, 0, grace);
    slots_.emplace_back("interface_classifier entry", SP_INTERFACES, 0, grace);
}

std::optional<uint32_t> Objects::acquire(Space space, uint32_t id) {
    if (space == Space::kVrf && id == 0) {
        return 0;
    }
    auto acquired = slots_[static_cast<size_t>(space)].acquire(id);
    if (!acquired) {
        return std::nullopt;
    }
    if (acquired->fresh) {
        clean(space, acquired->slot, id);
        assigned_(space, acquired->slot, id);
    }
    return acquired->slot;
}

void Objects::release(Space space, uint32_t slot) {
    if (space != Space::kVrf || slot != 0) {
        slots_[static_cast<size_t>(space)].release(slot);
    }
}

Result Objects::acquire(std::span<const Reference> references) {
    for (size_t done = 0; done < references.size(); ++done) {
        if (!acquire(references[done].space, references[done].id)) {
            release(references.first(done));
            return exhausted(references[done].space);
        }
    }
    return {};
}

void Objects::release(std::span<const Reference> references) {
    for (const auto& reference : references) {
        release(reference.space, slot(reference.space, reference.id));
    }
}

std::optional<uint32_t> Objects::find(Space space, uint32_t id) const {
    if (space == Space::kVrf && id == 0) {
        return 0;
    }
    return of(space).find(id);
}

bool Objects::restore(Space space, uint32_t slot, uint32_t id) {
    if (!slots_[static_cast<size_t>(space)].restore(slot, id)) {
        return false;
    }
    clean(space, slot, id);
    return true;
}

void Objects::restored() {
    for (auto& slots : slots_) {
        slots.restored();
    }
}

Result Objects::exhausted(Space space) const {
    const Slots& slots = of(space);
    return {Code::kResourceExhausted, std::string(slots.name()) + ": all " + std::to_string(slots.capacity()) +
                                          " are in use"};
}

// The rows that filled the slot took everything out again as they went; what is left is whose it was.
void Objects::clean(Space space, uint32_t slot, uint32_t id) {
    if (space == Space::kVrf) {
        publish(arrays_.vrfs[slot].id, id);
    } else if (space == Space::kInterface) {
        publish(arrays_.interfaces[slot].id, id);
        for (uint32_t place = 0; place < SP_PLACES; ++place) {
            for (uint32_t each = 0; each < SP_CLASS_SLOTS; ++each) {
                publish(arrays_.punt_drops[sp_punt_drop_index(slot, place, each)], sp_u64{0});
            }
        }
    }
}

}  // namespace splitplane
