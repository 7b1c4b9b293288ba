// SPDX-License-Identifier: Apache-2.0
//
// reason: why packets of a router are punted or dropped, where that is to be counted.
#pragma once

#include "tables/entry_table.h"

namespace splitplane {

class Reason : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"reason", SP_VRFS * (SP_REASONS - 1), true};
    Reason(sp_arrays& arrays, Objects& objects) : EntryTable(kTraits, arrays, objects) {}

  protected:
    std::vector<Reference> references(Key key, const Row&) const override { return {{Space::kVrf, id_of(key.first)}}; }
    Result store(Key key, const Row&) override {
        if (const auto at = index(key)) {
            publish(counted(key), counted(key) | 1u << *at);
        }
        return {};
    }
    void clear(Key key) override {
        if (const auto at = index(key)) {
            publish(counted(key), counted(key) & ~(1u << *at));
        }
    }
    std::optional<Counter> counter(Key key) const override {
        const auto at = index(key);
        if (!at) {
            return std::nullopt;
        }
        return Counter{arrays().reasons + slot_of(Space::kVrf, key.first) * SP_REASONS + *at, SP_VRFS * SP_REASONS};
    }

  private:
    // The place of a reason among the counters; none for a code that no packet has.
    static std::optional<uint32_t> index(Key key) {
        const uint64_t code = key.second;
        const bool punt = code >= SP_PUNT_CONTROL && code <= SP_PUNT_HOP_BY_HOP;
        const bool drop = code >= SP_FIRST_DROP && code <= SP_DROP_OVER_SHARE;
        return punt || drop ? std::optional(sp_reason_index(id_of(code))) : std::nullopt;
    }
    sp_u32& counted(Key key) const { return arrays().vrfs[slot_of(Space::kVrf, key.first)].counted; }
};

}  // namespace splitplane
