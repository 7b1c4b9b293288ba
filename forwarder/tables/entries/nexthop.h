// SPDX-License-Identifier: Apache-2.0
//
// nexthop: a neighbor on a router interface, or what its absence means.
#pragma once

#include "tables/entry_table.h"

namespace splitplane {

class Nexthop : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"nexthop", SP_NEXTHOPS, false};
    Nexthop(sp_arrays& arrays, Objects& objects) : EntryTable(kTraits, arrays, objects) {}

  protected:
    std::vector<Reference> references(Key key, const Row& row) const override {
        return {{Space::kNexthop, id_of(key.first)}, {Space::kInterface, id_of(row.params[0])}};
    }
    Result store(Key key, const Row& row) override {
        const enum sp_nexthop_kind kind = kind_of(row.action);
        publish(word(key), sp_nexthop(kind, slot_of(Space::kInterface, row.params[0]),
                                      kind == SP_NEXTHOP_FORWARD ? row.params[1] : 0));
        return {};
    }
    void clear(Key key) override { publish(word(key), sp_u64{0}); }

  private:
    static enum sp_nexthop_kind kind_of(Action action) {
        switch (action) {
            case Action::kSetNeighbor: return SP_NEXTHOP_FORWARD;
            case Action::kGleanNeighbor: return SP_NEXTHOP_GLEAN;
            default: return SP_NEXTHOP_FAILED;
        }
    }
    sp_u64& word(Key key) const { return arrays().nexthops[slot_of(Space::kNexthop, key.first)]; }
};

}  // namespace splitplane
