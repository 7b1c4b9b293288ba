// SPDX-License-Identifier: Apache-2.0
#include "tables/objects.h"

#include <algorithm>

namespace splitplane {

Objects::Objects(sp_arrays& arrays, GracePeriods& grace, Assigned assigned)
    : arrays_(arrays),
      given_up_(grace, [this](const GivenUp& each) {
          if (each.space == Space::kInterface) forget_punt_drops(each.slot);  // of punts that were under way
          slots_[static_cast<size_t>(each.space)].free(each.slot);
      }),
      assigned_(std::move(assigned)) {
    slots_.reserve(kSpaces);
    slots_.emplace_back("vrf_id", SP_VRFS, 1);
    slots_.emplace_back("router_interface_id", SP_INTERFACES, 0);
    slots_.emplace_back("nexthop_id", SP_NEXTHOPS, 0);
    slots_.emplace_back("nexthop_group_id", SP_GROUPS, 0);
    slots_.emplace_back("interface_classifier entry", SP_INTERFACES, 0);
    slots_.emplace_back("slice_id", SP_SLICES, 1);
}

std::optional<uint32_t> Objects::acquire(Space space, uint32_t id) {
    if (nobody(space, id)) {
        return 0;
    }
    given_up_.pump();
    Slots& slots = slots_[static_cast<size_t>(space)];
    auto acquired = slots.acquire(id);
    if (!acquired && !given_up_.empty()) {
        given_up_.settle();
        acquired = slots.acquire(id);
    }
    if (!acquired) {
        return std::nullopt;
    }
    if (acquired->fresh) {
        clean(space, acquired->slot, id);
        restart_counters(space, acquired->slot);
        assigned_(space, acquired->slot, id);
    }
    return acquired->slot;
}

// In a replay a slot stays its id's: routes are recorded by slot, and those of an id may come, or go, after whatever else
// referred to it has gone.
void Objects::release(Space space, uint32_t slot) {
    if (nobody(space, slot)) {
        return;
    }
    if (slots_[static_cast<size_t>(space)].release(slot, restoring_)) {
        forget(space, slot);
        given_up_.retire({space, slot});
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
    if (nobody(space, id)) {
        return 0;
    }
    return of(space).find(id);
}

bool Objects::restore(Space space, uint32_t slot, uint32_t id) {
    const auto before = of(space).find(id);
    if (!slots_[static_cast<size_t>(space)].restore(slot, id)) {
        return false;
    }
    if (before) {
        forget(space, *before);
    }
    clean(space, slot, id);
    return true;
}

void Objects::restored() {
    restoring_ = false;
    for (size_t space = 0; space < kSpaces; ++space) {
        for (const uint32_t slot : slots_[space].restored()) {
            forget(static_cast<Space>(space), slot);
        }
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
        for (uint32_t each = 0; each < SP_CLASS_SLOTS; ++each) {
            publish(arrays_.share_dues[sp_share_index(slot, each)], sp_u64{0});
        }
        forget_punt_drops(slot);
    }
}

// What is told by slot, as by metrics, leaves out who is gone: he may have come back in another one. An interface keeps
// its id for punts that are under way.
void Objects::forget(Space space, uint32_t slot) {
    if (space == Space::kVrf) {
        publish(arrays_.vrfs[slot].id, sp_u32{0});
    } else if (space == Space::kInterface) {
        forget_punt_drops(slot);
    }
}

void Objects::forget_punt_drops(uint32_t slot) {
    for (uint32_t place = 0; place < SP_PLACES; ++place) {
        for (uint32_t each = 0; each < SP_CLASS_SLOTS; ++each) {
            publish(arrays_.punt_drops[sp_punt_drop_index(slot, place, each)], sp_u64{0});
        }
    }
}

// What the slot's owner before has counted is not this one's. No CPU counts there now: it was given up long enough.
void Objects::restart_counters(Space space, uint32_t slot) {
    auto restart = [this](sp_counter* counters, uint32_t slots, uint32_t first, uint32_t count) {
        for (uint32_t cpu = 0; counters != nullptr && cpu < arrays_.cpus; ++cpu) {
            std::fill_n(counters + size_t{cpu} * slots + first, count, sp_counter{});
        }
    };
    if (space == Space::kVrf) {
        for (uint32_t cpu = 0; arrays_.core_routers != nullptr && cpu < arrays_.cpus; ++cpu) {
            arrays_.core_routers[size_t{cpu} * SP_VRFS + slot] = {};
        }
        restart(arrays_.reasons, SP_VRFS * SP_REASONS, slot * SP_REASONS, SP_REASONS);
    } else if (space == Space::kInterface) {
        restart(arrays_.tx, SP_INTERFACES, slot, 1);
    } else if (space == Space::kRxCounter) {
        restart(arrays_.rx, SP_INTERFACES, slot, 1);
    }
}

}  // namespace splitplane
