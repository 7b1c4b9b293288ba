// SPDX-License-Identifier: Apache-2.0
//
// All tables but the routes': the entries as written, and what they put into the arrays.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "fib/arena.h"
#include "tables/objects.h"
#include "tables/row.h"

namespace splitplane {

inline constexpr uint32_t kGroupMembersInUnit = 4;  // of the block arena: 8 octets

class Rows {
  public:
    Rows(sp_arrays& arrays, GracePeriods& grace, Objects& objects, SampleRate rate);

    const Row* find(Table table, Key key) const;
    const std::map<Key, Row>& rows(Table table) const { return rows_[static_cast<size_t>(table)]; }
    // How many entries a table takes.
    uint32_t limit(Table table) const { return limits_.of(table); }
    void limit(const TableLimits& limits) { limits_ = limits; }

    // Insert or replace, in the arrays too; where it is refused nothing has changed. The caller has checked that
    // values fit their fields.
    Result put(Table table, Key key, Row row);
    void remove(Table table, Key key);

    // What the arrays have counted for an entry since its counter was 0.
    Count count(Table table, Key key, const Row& row) const;
    // The base that makes a counter read `count` now.
    Count base_for(Table table, Key key, Count count) const;
    void set_base(Table table, Key key, Count base);
    // The base of a row that an earlier process wrote: if the arrays count from 0 again, so does the row.
    void adopt_base(Table table, Key key);

    // -- the action profile; the caller has checked that what is named exists, and that what goes is not used ----
    const std::map<uint32_t, ProfileMember>& members() const { return members_; }
    const std::map<uint32_t, ProfileGroup>& groups() const { return groups_; }
    Result put_member(uint32_t member_id, uint32_t nexthop_id);
    void remove_member(uint32_t member_id);
    Result put_group(uint32_t group_id, int32_t max_size, std::vector<ProfileGroup::Part> parts);
    void remove_group(uint32_t group_id);
    bool has_one_shots() const { return one_shots_ != 0; }

    // Whether what router interfaces send is sampled, and how samples are sent. Anybody may ask at any time: who has a
    // sample to send does not wait for who writes.
    std::optional<SampleDigest> samples() const {
        std::lock_guard guard(samples_mutex_);
        return samples_;
    }
    void sample(std::optional<SampleDigest> digest);

    // Of all groups together: nexthops by weight, and the room for them in units of 8 octets.
    uint32_t group_weight() const { return weight_; }
    BlockArena::Usage group_memory() const { return blocks_.usage(); }

  private:
    std::vector<Reference> references(Table table, Key key, const Row& row) const;
    Result store(Table table, Key key, const Row& row);
    void clear(Table table, Key key);
    std::array<sp_u64*, SP_INTERFACE_MACS> macs(uint32_t interface) const;
    Result admit(uint32_t interface, uint64_t mac);
    void police(Key key, const std::optional<Meter>& meter);
    void use(const Row& row, int users);
    void share(Table table, const Row& row, int ways_in);
    // Into how many a policer of a router is divided.
    uint32_t shares(uint32_t vrf) const { return std::max(ways_in_[vrf], 1u); }

    std::vector<WeightedNexthop> nexthops(const Row& row) const;
    std::vector<Key> users(Action action, uint32_t id) const;
    Result prepare_group(const std::vector<WeightedNexthop>& nexthops, uint64_t& group);
    void fill_group(uint64_t group, const std::vector<WeightedNexthop>& nexthops);
    Result store_groups(const std::vector<uint32_t>& slots, const std::vector<WeightedNexthop>& nexthops);
    void retire_group(uint64_t group);

    const sp_counter* counters(Table table, Key key, uint32_t& stride, uint32_t& index) const;
    Count sum(Table table, Key key) const;

    sp_arrays& arrays_;
    Objects& objects_;
    const SampleRate rate_;
    TableLimits limits_;
    mutable std::mutex samples_mutex_;
    std::optional<SampleDigest> samples_;
    BlockArena blocks_;
    std::array<std::map<Key, Row>, kTables> rows_;
    std::map<uint32_t, ProfileMember> members_;
    std::map<uint32_t, ProfileGroup> groups_;
    size_t one_shots_ = 0;
    std::vector<uint32_t> ways_in_ = std::vector<uint32_t>(SP_VRFS);  // interface_classifier entries, by VRF
    uint32_t weight_ = 0;
};

}  // namespace splitplane
