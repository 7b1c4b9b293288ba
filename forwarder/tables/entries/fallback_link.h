// SPDX-License-Identifier: Apache-2.0
//
// fallback_link: where packets of a router interface go that another plane routes.
#pragma once

#include "tables/entry_table.h"

namespace splitplane {

class FallbackLink : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"fallback_link", SP_INTERFACES, false};
    FallbackLink(sp_arrays& arrays, Objects& objects) : EntryTable(kTraits, arrays, objects) {}

  protected:
    std::vector<Reference> references(Key key, const Row&) const override {
        return {{Space::kInterface, id_of(key.first)}};
    }
    Result store(Key key, const Row& row) override {
        publish(link(key), SP_FALLBACK_PRESENT | id_of(row.params[0]) << 12 | id_of(row.params[1]));
        return {};
    }
    void clear(Key key) override { publish(link(key), sp_u32{0}); }

  private:
    sp_u32& link(Key key) const { return arrays().interfaces[slot_of(Space::kInterface, key.first)].fallback; }
};

}  // namespace splitplane
