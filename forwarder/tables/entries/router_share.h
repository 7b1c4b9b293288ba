// SPDX-License-Identifier: Apache-2.0
//
// router_share: what a router gets of its slice's part, and which slice that is.
#pragma once

#include "tables/entries/share.h"

namespace splitplane {

class RouterShare : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"router_share", SP_VRFS - 1, false};
    RouterShare(sp_arrays& arrays, Objects& objects) : EntryTable(kTraits, arrays, objects) {}

  protected:
    std::vector<Reference> references(Key key, const Row& row) const override {
        return {{Space::kVrf, id_of(key.first)}, {Space::kSlice, slice_of(row)}};
    }
    Result store(Key key, const Row& row) override {
        publish_share(share(key), share_of(row), slot_of(Space::kSlice, slice_of(row)));
        return {};
    }
    void clear(Key key) override { clear_share(share(key)); }

  private:
    sp_share& share(Key key) const { return arrays().router_shares[slot_of(Space::kVrf, key.first)]; }
};

}  // namespace splitplane
