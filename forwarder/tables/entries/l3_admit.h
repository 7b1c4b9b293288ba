// SPDX-License-Identifier: Apache-2.0
//
// l3_admit: the MACs that a router interface takes frames for.
#pragma once

#include <algorithm>
#include <array>

#include "tables/entry_table.h"

namespace splitplane {

class L3Admit : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"l3_admit", SP_INTERFACES * SP_INTERFACE_MACS, false};
    L3Admit(sp_arrays& arrays, Objects& objects) : EntryTable(kTraits, arrays, objects) {}

  protected:
    std::vector<Reference> references(Key key, const Row&) const override {
        return {{Space::kInterface, id_of(key.first)}};
    }
    Result store(Key key, const Row&) override {
        const Places all = places(key);
        if (find(all, key.second) != all.end()) {
            return {};
        }
        const auto room = find(all, 0);
        if (room == all.end()) {
            return {Code::kInvalidArgument, "l3_admit: a router interface admits at most " +
                                                std::to_string(SP_INTERFACE_MACS) + " MACs"};
        }
        publish(**room, sp_u64{key.second});
        return {};
    }
    void clear(Key key) override {
        const Places all = places(key);
        if (const auto place = find(all, key.second); place != all.end()) {
            publish(**place, sp_u64{0});
        }
    }

  private:
    // Where the MACs of a router interface are; 0 where none is.
    using Places = std::array<sp_u64*, SP_INTERFACE_MACS>;

    Places places(Key key) const {
        const uint32_t interface = slot_of(Space::kInterface, key.first);
        Places all = {&arrays().macs[interface]};
        for (size_t at = 1; at < all.size(); ++at) {
            all[at] = &arrays().interfaces[interface].more_macs[at - 1];
        }
        return all;
    }
    static Places::const_iterator find(const Places& all, uint64_t mac) {
        return std::find_if(all.begin(), all.end(), [mac](const sp_u64* place) { return *place == mac; });
    }
};

}  // namespace splitplane
