// SPDX-License-Identifier: Apache-2.0
//
// What entries name by id: routers, slices, router interfaces, nexthops, nexthop groups, and the counters of classifier
// entries, each with a slot of its array.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

extern "C" {
#include "pipeline/layout.h"
}

#include "fib/grace.h"
#include "tables/result.h"
#include "tables/slots.h"

namespace splitplane {

enum class Space : uint8_t { kVrf, kInterface, kNexthop, kGroup, kRxCounter, kSlice };
inline constexpr size_t kSpaces = 6;

struct Reference {
    Space space;
    uint32_t id;
};

// Store a word that readers load whole.
template <typename T>
void publish(T& where, T value) {
    static_assert(sizeof(T) <= 8);
    __atomic_store_n(&where, value, __ATOMIC_RELEASE);
}

class Objects {
  public:
    // Told of each slot that an id has been given.
    using Assigned = std::function<void(Space, uint32_t slot, uint32_t id)>;

    Objects(sp_arrays& arrays, GracePeriods& grace, Assigned assigned);

    // The slot, with a reference more; none where all are taken. vrf_id 0 and slice_id 0 have slot 0 for ever. Waits for a grace period
    // only where slots that were given up are all that is left.
    std::optional<uint32_t> acquire(Space space, uint32_t id);
    void release(Space space, uint32_t slot);
    // All of them, or kResourceExhausted and none.
    Result acquire(std::span<const Reference> references);
    void release(std::span<const Reference> references);

    std::optional<uint32_t> find(Space space, uint32_t id) const;
    uint32_t slot(Space space, uint32_t id) const { return *find(space, id); }
    uint32_t id_of(Space space, uint32_t slot) const { return of(space).id_of(slot); }
    const Slots& of(Space space) const { return slots_[static_cast<size_t>(space)]; }

    // Until all is `restored` an id keeps the slot that it had, whatever refers to it (Slots::restore).
    bool restore(Space space, uint32_t slot, uint32_t id);
    void restored();
    bool restoring() const { return restoring_; }

    Result exhausted(Space space) const;

  private:
    struct GivenUp {
        Space space;
        uint32_t slot;
    };

    // Whether an id, or a slot, is nobody's: that of all routers together, or of those without a slice.
    static bool nobody(Space space, uint32_t id) { return id == 0 && (space == Space::kVrf || space == Space::kSlice); }
    void clean(Space space, uint32_t slot, uint32_t id);
    void forget(Space space, uint32_t slot);
    void forget_punt_drops(uint32_t slot);
    void restart_counters(Space space, uint32_t slot);

    sp_arrays& arrays_;
    std::vector<Slots> slots_;
    Retired<GivenUp> given_up_;
    bool restoring_ = true;
    Assigned assigned_;
};

}  // namespace splitplane
