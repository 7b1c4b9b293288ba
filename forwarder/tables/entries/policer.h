// SPDX-License-Identifier: Apache-2.0
//
// policer: what a router's punts of a class may come to, divided among its ways in.
#pragma once

#include <vector>

#include "fib/zeroed_array.h"
#include "tables/entry_table.h"

namespace splitplane {

// Packets a second, and at once, into so many shares; without either nothing passes.
void set_rate(sp_policer& policer, int64_t rate, int64_t burst, uint32_t shares = 1);

class Policer : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"policer", SP_VRFS * SP_PUNT_CLASSES, false};
    Policer(sp_arrays& arrays, Objects& objects) : EntryTable(kTraits, arrays, objects) {}

    // A router, by its slot, has so many ways in more, or less: its policers are divided anew.
    void divide(uint32_t vrf, int ways_in);

  protected:
    std::vector<Reference> references(Key key, const Row& row) const override;
    Result store(Key key, const Row& row) override;
    void clear(Key key) override;

  private:
    sp_policer& at(Key key) const;
    uint32_t shares(uint32_t vrf) const;

    ZeroedArray<uint32_t> ways_in_{SP_VRFS};  // by the slot of the VRF
};

}  // namespace splitplane
