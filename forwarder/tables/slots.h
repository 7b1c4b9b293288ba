// SPDX-License-Identifier: Apache-2.0
//
// The dense slots of one array and the ids of P4Runtime that they stand for.
//
//     free ─► an id's, while anything refers to it ─► given up, for a grace period ─► free
//
// A slot is made at the first reference to its id, whether the id's own entry exists or not: until then it reads as a
// miss. Readers may hold a slot that nothing refers to any more; so it is another id's only after a grace period, for
// which the owner waits. Slots in use stay near each other, as the short lists of the route tries want them
// (pipeline/trie.h).
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fib/zeroed_array.h"
#include "tables/free_slots.h"

namespace splitplane {

class Slots {
  public:
    struct Acquired {
        uint32_t slot;
        bool fresh;  // it was nobody's: whoever owns the array makes it clean
    };

    // Slots `first` to `count` - 1 are given out.
    Slots(const char* name, uint32_t count, uint32_t first);

    const char* name() const { return name_; }

    // Add a reference to an id's slot; none where no slot is free.
    std::optional<Acquired> acquire(uint32_t id);
    // Take one back. True: nothing refers to the slot any more; it is to be freed after a grace period. Where it is
    // `kept` it stays its id's until `restored`.
    bool release(uint32_t slot, bool kept = false);
    void free(uint32_t slot) { free_.free(slot); }

    std::optional<uint32_t> find(uint32_t id) const;
    uint32_t id_of(uint32_t slot) const { return ids_[slot]; }
    uint32_t capacity() const { return free_.count() - free_.first(); }
    uint32_t used() const { return static_cast<uint32_t>(slot_of_.size()); }

    // Give an id the slot that it had, before there is any reference to it: false where something refers to what
    // another id has there, or there is no such slot. What nothing refers to when all is `restored` is free then.
    bool restore(uint32_t slot, uint32_t id);
    // Returns those slots that are free now.
    std::vector<uint32_t> restored();

    template <typename Visit>
    void each(Visit visit) const {
        for (const auto& [id, slot] : slot_of_) {
            visit(slot, id);
        }
    }

  private:
    static constexpr uint32_t kTaken = 1u << 31;  // with the number of references

    const char* name_;
    ZeroedArray<uint32_t> ids_;
    ZeroedArray<uint32_t> references_;
    std::unordered_map<uint32_t, uint32_t> slot_of_;
    FreeSlots free_;
};

}  // namespace splitplane
