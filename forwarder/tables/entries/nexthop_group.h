// SPDX-License-Identifier: Apache-2.0
//
// nexthop_group, and the action profile nexthop_group_selector: which nexthops a group has, each by its weight.
//
// A group is a word that names a block of places, each a nexthop slot; a flow's hash chooses one of them. There are more
// places than the weights add up to, and a group that changes keeps as many: so only flows move that have to (deal.h;
// Linux calls it a resilient group). Entries name their nexthops themselves (one-shot), or a member or a group of the profile.
#pragma once

#include <span>

#include "fib/arena.h"
#include "fib/zeroed_array.h"
#include "tables/entries/deal.h"
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

    // Of all groups together: the room for their places in units of 8 octets.
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
    std::vector<Part> parts(const std::vector<WeightedNexthop>& nexthops) const;
    std::span<sp_u16> places(uint64_t group) const;
    Result prepare(const std::vector<WeightedNexthop>& nexthops, uint64_t before, uint64_t& group);
    void write(uint64_t group, std::span<const uint16_t> dealt);
    Result prepare_all(const std::vector<uint32_t>& slots, const std::vector<WeightedNexthop>& nexthops,
                       std::vector<uint64_t>& prepared);
    Result store_all(const std::vector<uint32_t>& slots, const std::vector<WeightedNexthop>& nexthops);
    bool packed() const { return packed_ && objects().restoring(); }
    void pack();
    void publish_group(uint32_t slot, uint64_t group, uint32_t weight);

    BlockArena blocks_;
    std::map<uint32_t, ProfileMember> members_;
    std::map<uint32_t, ProfileGroup> groups_;
    size_t one_shots_ = 0;
    ZeroedArray<uint16_t> weights_{SP_GROUPS};  // by slot
    uint32_t weight_ = 0;                                               // of all
    bool packed_ = false;  // a replay found no room for places that flows keep
};

}  // namespace splitplane
