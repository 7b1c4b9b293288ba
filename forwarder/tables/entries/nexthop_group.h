// SPDX-License-Identifier: Apache-2.0
//
// nexthop_group, and the action profile nexthop_group_selector: which nexthops a group has, each by its weight.
//
// A group's members are a block of nexthop slots, each as often as its weight; the group is the word that names the
// block. Entries name their nexthops themselves (one-shot), or a member or a group of the profile.
#pragma once

#include "fib/arena.h"
#include "tables/entry_table.h"

namespace splitplane {

inline constexpr uint32_t kGroupMembersInUnit = 4;  // of the block arena: 8 octets

class NexthopGroup : public EntryTable {
  public:
    static constexpr TableTraits kTraits{"nexthop_group", SP_GROUPS, false};
    NexthopGroup(sp_arrays& arrays, GracePeriods& grace, Objects& objects)
        : EntryTable(kTraits, arrays, objects),
          blocks_({reinterpret_cast<uint64_t*>(arrays.members), arrays.member_count / kGroupMembersInUnit}, grace) {}

    // -- the profile; the caller has checked that what is named exists, and that what goes is not used -------------
    const std::map<uint32_t, ProfileMember>& members() const { return members_; }
    const std::map<uint32_t, ProfileGroup>& groups() const { return groups_; }
    Result put_member(uint32_t member_id, uint32_t nexthop_id);
    void remove_member(uint32_t member_id);
    Result put_group(uint32_t group_id, int32_t max_size, std::vector<ProfileGroup::Part> parts);
    void remove_group(uint32_t group_id);
    bool has_one_shots() const { return one_shots_ != 0; }

    // Of all groups together: nexthops by weight, and the room for them in units of 8 octets.
    uint32_t weight() const { return weight_; }
    BlockArena::Usage memory() const { return blocks_.usage(); }

  protected:
    std::vector<Reference> references(Key key, const Row& row) const override;
    Result store(Key key, const Row& row) override;
    void clear(Key key) override;
    void entered(const Row& row) override { use(row, 1); }
    void left(const Row& row) override { use(row, -1); }

  private:
    void use(const Row& row, int users);
    std::vector<WeightedNexthop> nexthops(const Row& row) const;
    std::vector<Key> users(Action action, uint32_t id) const;
    Result prepare(const std::vector<WeightedNexthop>& nexthops, uint64_t& group);
    void fill(uint64_t group, const std::vector<WeightedNexthop>& nexthops);
    Result store_all(const std::vector<uint32_t>& slots, const std::vector<WeightedNexthop>& nexthops);
    void retire(uint64_t group);

    BlockArena blocks_;
    std::map<uint32_t, ProfileMember> members_;
    std::map<uint32_t, ProfileGroup> groups_;
    size_t one_shots_ = 0;
    uint32_t weight_ = 0;
};

}  // namespace splitplane
