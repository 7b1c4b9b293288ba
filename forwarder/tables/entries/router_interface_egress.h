// SPDX-License-Identifier: Apache-2.0
//
// router_interface_egress: the source MAC of what a router interface sends, which is counted.
#pragma once

#include "tables/entry_table.h"

namespace splitplane {

class RouterInterfaceEgress : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"router_interface_egress", SP_INTERFACES, true};
    RouterInterfaceEgress(sp_arrays& arrays, Objects& objects) : EntryTable(kTraits, arrays, objects) {}

  protected:
    std::vector<Reference> references(Key key, const Row&) const override {
        return {{Space::kInterface, id_of(key.first)}};
    }
    Result store(Key key, const Row& row) override {
        publish(rewrite(key), SP_PRESENT | row.params[0]);
        return {};
    }
    void clear(Key key) override { publish(rewrite(key), sp_u64{0}); }
    std::optional<Counter> counter(Key key) const override {
        return Counter{arrays().tx + slot_of(Space::kInterface, key.first), SP_INTERFACES};
    }

  private:
    sp_u64& rewrite(Key key) const { return arrays().egresses[slot_of(Space::kInterface, key.first)].rewrite; }
};

}  // namespace splitplane
