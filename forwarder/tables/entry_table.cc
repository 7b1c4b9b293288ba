// SPDX-License-Identifier: Apache-2.0
#include "tables/entry_table.h"

namespace splitplane {

const Row* EntryTable::find(Key key) const {
    auto found = rows_.find(key);
    return found == rows_.end() ? nullptr : &found->second;
}

Result EntryTable::put(Key key, Row row) {
    auto found = rows_.find(key);
    if (found == rows_.end() && rows_.size() >= limit_) {
        return {Code::kResourceExhausted,
                std::string(traits_.name) + " is full: " + std::to_string(limit_) + " entries"};
    }
    auto wanted = references(key, row);
    Result result = objects_.acquire(wanted);
    if (!result.ok()) {
        return result;
    }
    result = store(key, row);
    if (!result.ok()) {
        objects_.release(wanted);
        return result;
    }
    entered(row);
    if (found == rows_.end()) {
        rows_.emplace(key, std::move(row));
    } else {
        left(found->second);
        objects_.release(references(key, found->second));
        found->second = std::move(row);
    }
    return {};
}

void EntryTable::remove(Key key) {
    auto found = rows_.find(key);
    if (found == rows_.end()) {
        return;
    }
    clear(key);
    left(found->second);
    objects_.release(references(key, found->second));
    rows_.erase(found);
}

// -- counters --------------------------------------------------------------------------------------------------------
Count EntryTable::sum(Key key) const {
    const std::optional<Counter> own = counter(key);
    Count total;
    for (uint32_t cpu = 0; own && cpu < arrays_.cpus; ++cpu) {
        const sp_counter& one = own->first[cpu * own->stride];
        total.packets += __atomic_load_n(&one.packets, __ATOMIC_RELAXED);
        total.bytes += __atomic_load_n(&one.bytes, __ATOMIC_RELAXED);
    }
    return total;
}

Count EntryTable::count(Key key, const Row& row) const {
    Count total = sum(key);
    return {total.packets - row.base.packets, total.bytes - row.base.bytes};
}

Count EntryTable::base_for(Key key, Count count) const {
    Count total = sum(key);
    return {total.packets - count.packets, total.bytes - count.bytes};
}

void EntryTable::set_base(Key key, Count base) {
    rows_.at(key).base = base;
}

void EntryTable::adopt_base(Key key) {
    Count now = sum(key);
    Count& base = rows_.at(key).base;
    if (static_cast<int64_t>(now.packets - base.packets) < 0 || static_cast<int64_t>(now.bytes - base.bytes) < 0) {
        base = now;
    }
}

}  // namespace splitplane
