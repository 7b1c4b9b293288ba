// SPDX-License-Identifier: Apache-2.0
//
// slice_share: what the routers of a slice get together.
#pragma once

#include "tables/entries/share.h"

namespace splitplane {

class SliceShare : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"slice_share", SP_SLICES - 1, false};
    SliceShare(sp_arrays& arrays, Objects& objects) : EntryTable(kTraits, arrays, objects) {}

  protected:
    std::vector<Reference> references(Key key, const Row&) const override {
        return {{Space::kSlice, id_of(key.first)}};
    }
    Result store(Key key, const Row& row) override {
        publish_share(share(key), share_of(row), 0);
        return {};
    }
    void clear(Key key) override { clear_share(share(key)); }

  private:
    sp_share& share(Key key) const { return arrays().slice_shares[slot_of(Space::kSlice, key.first)]; }
};

}  // namespace splitplane
