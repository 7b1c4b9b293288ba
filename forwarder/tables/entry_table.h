// SPDX-License-Identifier: Apache-2.0
//
// What all tables of entries have in common: the entries as written, the references that they hold, their counters. What
// is particular to one (what its entries name, put into the arrays and count) is in entries/, a file for each table.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tables/objects.h"
#include "tables/row.h"

namespace splitplane {

class EntryTable {
  public:
    EntryTable(const TableTraits& traits, sp_arrays& arrays, Objects& objects)
        : traits_(traits), arrays_(arrays), objects_(objects), limit_(traits.size) {}
    virtual ~EntryTable() = default;
    EntryTable(const EntryTable&) = delete;
    EntryTable& operator=(const EntryTable&) = delete;

    const Row* find(Key key) const;
    const std::map<Key, Row>& rows() const { return rows_; }
    // How many entries it takes.
    uint32_t limit() const { return limit_; }
    void limit(uint32_t entries) { limit_ = entries; }

    // Insert or replace, in the arrays too; where it is refused nothing has changed. The caller has checked that
    // values fit their fields.
    Result put(Key key, Row row);
    void remove(Key key);

    // What the arrays have counted for an entry since its counter was 0.
    Count count(Key key, const Row& row) const;
    // The base that makes a counter read `count` now.
    Count base_for(Key key, Count count) const;
    void set_base(Key key, Count base);
    // The base of an entry that an earlier process wrote: if the arrays count from 0 again, so does the entry.
    void adopt_base(Key key);

  protected:
    // One CPU's counter of an entry, and how many further the next CPU's is.
    struct Counter {
        const sp_counter* first;
        size_t stride;
    };

    // The ids that an entry names, its own among them where that has a slot.
    virtual std::vector<Reference> references(Key key, const Row& row) const = 0;
    // Put an entry into the arrays, in place of one of the same key; all that it names has a slot. Where it is refused
    // nothing has changed.
    virtual Result store(Key key, const Row& row) = 0;
    // Take it out: readers find a miss.
    virtual void clear(Key key) = 0;
    // An entry is in force, or no longer.
    virtual void entered(const Row&) {}
    virtual void left(const Row&) {}
    // None where nothing is counted for an entry.
    virtual std::optional<Counter> counter(Key) const { return std::nullopt; }

    uint32_t slot_of(Space space, uint64_t id) const { return objects_.slot(space, id_of(id)); }
    sp_arrays& arrays() const { return arrays_; }
    Objects& objects() const { return objects_; }

  private:
    Count sum(Key key) const;

    const TableTraits& traits_;
    sp_arrays& arrays_;
    Objects& objects_;
    uint32_t limit_;
    std::map<Key, Row> rows_;
};

}  // namespace splitplane
