// SPDX-License-Identifier: Apache-2.0
//
// The dense slots of one array and the ids of P4Runtime that they stand for.
//
//     free ─► an id's, while anything refers to it ─► waiting, for a grace period ─► free
//
// A slot is made at the first reference to its id, whether the id's own entry exists or not: until then it reads as a
// miss. Readers may hold a slot that nothing refers to any more; so it is another id's only after a grace period.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fib/arena.h"

namespace splitplane {

class Slots {
  public:
    struct Acquired {
        uint32_t slot;
        bool fresh;  // it was nobody's: whoever owns the array makes it clean
    };

    // Slots `first` to `count` - 1 are given out.
    Slots(const char* name, uint32_t count, uint32_t first, GracePeriods& grace);

    const char* name() const { return name_; }

    // Add a reference to an id's slot; none where every slot is taken. May wait for a grace period when slots that
    // were given up are all that is left.
    std::optional<Acquired> acquire(uint32_t id);
    // Take one back.
    void release(uint32_t slot);

    std::optional<uint32_t> find(uint32_t id) const;
    uint32_t id_of(uint32_t slot) const { return ids_[slot]; }
    uint32_t capacity() const { return static_cast<uint32_t>(ids_.size()) - first_; }
    uint32_t used() const { return static_cast<uint32_t>(slot_of_.size()); }

    // Give an id the slot that it had, before there is any reference to it: false where another id has the slot or
    // there is none. Until `restored` slots that lose their last reference wait; then they are free.
    bool restore(uint32_t slot, uint32_t id);
    void restored();

    template <typename Visit>
    void each(Visit visit) const {
        for (const auto& [id, slot] : slot_of_) {
            visit(slot, id);
        }
    }

  private:
    static constexpr uint32_t kTaken = 1u << 31;  // with the number of references

    std::optional<uint32_t> take();

    const char* name_;
    uint32_t first_;
    uint32_t next_;  // slots from here on were never given out
    GracePeriods& grace_;
    std::vector<uint32_t> ids_;
    std::vector<uint32_t> references_;
    std::unordered_map<uint32_t, uint32_t> slot_of_;
    std::vector<uint32_t> free_;
    std::vector<uint32_t> waiting_;
};

}  // namespace splitplane
