// SPDX-License-Identifier: Apache-2.0
//
// policer: what a router's punts of a class may come to, divided among its ways in.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "fib/zeroed_array.h"
#include "tables/entry_table.h"

namespace splitplane {

// Packets a second, and at once, into so many shares; without either nothing passes. Returns whether that is another
// rate.
bool set_rate(sp_policer& policer, int64_t rate, int64_t burst, uint32_t shares = 1);

class Policer : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"policer", SP_VRFS * SP_PUNT_CLASSES, false};
    Policer(sp_arrays& arrays, Objects& objects) : EntryTable(kTraits, arrays, objects) {}

    // A router has a way in more, by an interface, or one less; by their slots. Its policers are divided anew.
    void enter(uint32_t vrf, uint32_t interface);
    void leave(uint32_t vrf);

  protected:
    std::vector<Reference> references(Key key, const Row& row) const override;
    Result store(Key key, const Row& row) override;
    void clear(Key key) override;

  private:
    sp_policer& at(Key key) const;
    uint32_t shares(uint32_t vrf) const;
    void divide(uint32_t vrf);
    void forgive(uint32_t vrf, uint32_t punt_class);

    ZeroedArray<uint32_t> ways_in_{SP_VRFS};  // by the slot of the VRF
    // Of an interface, by its slot, the VRF that it was a way into last, for which its shares owe, and both as pairs.
    ZeroedArray<uint32_t> owed_{SP_INTERFACES};
    std::set<std::pair<uint32_t, uint32_t>> owing_;
};

}  // namespace splitplane
