// SPDX-License-Identifier: Apache-2.0
#include "tables/entries/nexthop_group.h"

#include <algorithm>
#include <numeric>

namespace splitplane {

namespace {

uint32_t units(uint32_t weight) {
    return (weight + kGroupMembersInUnit - 1) / kGroupMembersInUnit;
}

}  // namespace

std::vector<Reference> NexthopGroup::references(Key key, const Row& row) const {
    std::vector<Reference> all{{Space::kGroup, id_of(key.first)}};
    for (const auto& member : row.more().members) {
        all.push_back({Space::kNexthop, member.nexthop_id});
    }
    return all;
}

Result NexthopGroup::store(Key key, const Row& row) {
    return store_all({slot_of(Space::kGroup, key.first)}, nexthops(row));
}

void NexthopGroup::clear(Key key) {
    publish_group(slot_of(Space::kGroup, key.first), 0, 0);
}

// Count who uses the action profile, and which way it is used.
void NexthopGroup::use(const Row& row, int users) {
    auto id = id_of(row.params[0]);
    if (row.action == Action::kOneShot) {
        one_shots_ += users;
    } else if (row.action == Action::kProfileMember) {
        members_.at(id).users += users;
    } else if (row.action == Action::kProfileGroup) {
        groups_.at(id).users += users;
    }
}

std::vector<WeightedNexthop> NexthopGroup::nexthops(const Row& row) const {
    auto id = id_of(row.params[0]);
    if (row.action == Action::kProfileMember) {
        return {{members_.at(id).nexthop_id, 1}};
    }
    if (row.action == Action::kOneShot) {
        return row.more().members;
    }
    std::vector<WeightedNexthop> all;
    for (const auto& part : groups_.at(id).parts) {
        all.push_back({members_.at(part.member_id).nexthop_id, part.weight});
    }
    return all;
}

namespace {

uint32_t weight_of(const std::vector<WeightedNexthop>& nexthops) {
    return std::accumulate(nexthops.begin(), nexthops.end(), 0u,
                           [](uint32_t sum, const WeightedNexthop& one) { return sum + one.weight; });
}

}  // namespace

std::vector<Part> NexthopGroup::parts(const std::vector<WeightedNexthop>& nexthops) const {
    std::vector<Part> all;
    for (const auto& one : nexthops) {
        if (one.weight != 0) {
            all.push_back({static_cast<uint16_t>(slot_of(Space::kNexthop, one.nexthop_id)), one.weight});
        }
    }
    return all;
}

std::span<sp_u16> NexthopGroup::places(uint64_t group) const {
    return {arrays().members + sp_group_base(group), sp_group_size(group)};
}

// Write a group in the place of another where no reader looks; 0 is one without members, and kResourceExhausted changes
// nothing. Where there is no room for places that flows keep, each unit of weight has one.
Result NexthopGroup::prepare(const std::vector<WeightedNexthop>& nexthops, uint64_t before, uint64_t& group) {
    const uint32_t weight = weight_of(nexthops);
    group = 0;
    if (weight == 0) {
        return {};
    }
    const bool stays = sp_group_size(before) >= weight;
    std::vector<uint16_t> dealt = stays ? deal(parts(nexthops), places(before)) : deal(parts(nexthops));
    uint32_t unit = packed() ? 0 : blocks_.allocate(units(static_cast<uint32_t>(dealt.size())));
    if (unit == 0) {
        dealt = deal(parts(nexthops));
        dealt.resize(weight);  // in turns: the first are all weights once
        unit = blocks_.allocate(units(weight));
    }
    if (unit == 0) {
        return {Code::kResourceExhausted, "nexthop_group: no room for " + std::to_string(weight) +
                                              " members in one piece; raise the capacity of members"};
    }
    group = sp_group(unit * kGroupMembersInUnit, static_cast<uint32_t>(dealt.size()));
    write(group, dealt);
    return {};
}

void NexthopGroup::write(uint64_t group, std::span<const uint16_t> dealt) {
    const std::span<sp_u16> all = places(group);
    for (size_t at = 0; at < all.size(); ++at) {
        publish(all[at], dealt[at]);
    }
}

// One for each slot, or kResourceExhausted and none.
Result NexthopGroup::prepare_all(const std::vector<uint32_t>& slots, const std::vector<WeightedNexthop>& nexthops,
                                 std::vector<uint64_t>& prepared) {
    prepared.assign(slots.size(), 0);
    for (size_t done = 0; done < slots.size(); ++done) {
        Result result = prepare(nexthops, arrays().groups[slots[done]], prepared[done]);
        if (!result.ok()) {
            while (done-- > 0) {
                uint64_t group = prepared[done];
                blocks_.release(sp_group_base(group) / kGroupMembersInUnit, units(sp_group_size(group)));
            }
            return result;
        }
    }
    return {};
}

// In a replay, where nobody reads: give each group one place for each unit of weight, and all of them room anew. They
// come in another order than they were written in, and each takes the most that there is room for.
void NexthopGroup::pack() {
    packed_ = true;
    std::vector<std::pair<uint32_t, std::vector<uint16_t>>> all;  // by slot
    for (const auto& [key, row] : rows()) {
        const uint32_t slot = slot_of(Space::kGroup, key.first);
        const uint64_t group = arrays().groups[slot];
        if (sp_group_size(group) == 0) {
            continue;
        }
        all.emplace_back(slot, deal(parts(nexthops(row)))).second.resize(weights_[slot]);
        blocks_.release(sp_group_base(group) / kGroupMembersInUnit, units(sp_group_size(group)));
    }
    for (const auto& [slot, dealt] : all) {
        const auto size = static_cast<uint32_t>(dealt.size());
        const uint64_t group = sp_group(blocks_.allocate(units(size)) * kGroupMembersInUnit, size);
        write(group, dealt);
        publish(arrays().groups[slot], sp_u64{group});
    }
}

Result NexthopGroup::store_all(const std::vector<uint32_t>& slots, const std::vector<WeightedNexthop>& nexthops) {
    const uint32_t each = weight_of(nexthops);
    uint64_t weight = weight_;
    for (uint32_t slot : slots) {
        weight += each;
        weight -= weights_[slot];
    }
    if (weight > SP_GROUP_MEMBERS) {
        return {Code::kResourceExhausted, "nexthop_group_selector is full: the weights of all groups add up to " +
                                              std::to_string(SP_GROUP_MEMBERS) + " at most"};
    }
    std::vector<uint64_t> prepared;
    Result result = prepare_all(slots, nexthops, prepared);
    if (!result.ok() && objects().restoring()) {
        pack();
        result = prepare_all(slots, nexthops, prepared);
    }
    if (!result.ok()) {
        return result;
    }
    for (size_t position = 0; position < slots.size(); ++position) {
        publish_group(slots[position], prepared[position], each);
    }
    return {};
}

// Put a group, 0 for none, in the place of the one there is.
void NexthopGroup::publish_group(uint32_t slot, uint64_t group, uint32_t weight) {
    const sp_u64 before = arrays().groups[slot];
    publish(arrays().groups[slot], sp_u64{group});
    weight_ += weight;
    weight_ -= weights_[slot];
    weights_[slot] = static_cast<uint16_t>(weight);
    if (const uint32_t size = sp_group_size(before); size > 0) {
        blocks_.retire(sp_group_base(before) / kGroupMembersInUnit, units(size));
    }
}

std::vector<Key> NexthopGroup::users(Action action, uint32_t id) const {
    std::vector<Key> found;
    for (const auto& [key, row] : rows()) {
        if (row.action == action && row.params[0] == id) {
            found.push_back(key);
        }
    }
    return found;
}

// A group has as many places wherever its members lead: they are changed where they are, each a word of its own.
Result NexthopGroup::put_member(uint32_t member_id, uint32_t nexthop_id) {
    if (!objects().acquire(Space::kNexthop, nexthop_id)) {
        return objects().exhausted(Space::kNexthop);
    }
    auto [member, inserted] = members_.try_emplace(member_id);
    uint32_t before = member->second.nexthop_id;
    member->second.nexthop_id = nexthop_id;
    if (inserted) {
        return {};
    }
    auto refill = [&](Action action, uint32_t id) {
        for (const Key& key : users(action, id)) {
            const uint64_t group = arrays().groups[slot_of(Space::kGroup, key.first)];
            write(group, deal(parts(nexthops(*find(key))), places(group)));
        }
    };
    refill(Action::kProfileMember, member_id);
    for (const auto& [group_id, group] : groups_) {
        bool has = std::any_of(group.parts.begin(), group.parts.end(),
                               [&](const auto& part) { return part.member_id == member_id; });
        if (has) {
            refill(Action::kProfileGroup, group_id);
        }
    }
    objects().release(Space::kNexthop, slot_of(Space::kNexthop, before));
    return {};
}

void NexthopGroup::remove_member(uint32_t member_id) {
    auto found = members_.find(member_id);
    if (found != members_.end()) {
        objects().release(Space::kNexthop, slot_of(Space::kNexthop, found->second.nexthop_id));
        members_.erase(found);
    }
}

Result NexthopGroup::put_group(uint32_t group_id, int32_t max_size, std::vector<ProfileGroup::Part> parts) {
    auto group = groups_.try_emplace(group_id).first;
    for (const auto& part : parts) {
        ++members_.at(part.member_id).users;
    }
    std::swap(group->second.parts, parts);
    group->second.max_size = max_size;
    Result result;
    if (auto entries = users(Action::kProfileGroup, group_id); !entries.empty()) {
        std::vector<uint32_t> slots;
        for (const Key& key : entries) {
            slots.push_back(slot_of(Space::kGroup, key.first));
        }
        result = store_all(slots, nexthops(*find(entries.front())));
    }
    if (!result.ok()) {
        std::swap(group->second.parts, parts);
    }
    for (const auto& part : parts) {
        --members_.at(part.member_id).users;
    }
    return result;
}

void NexthopGroup::remove_group(uint32_t group_id) {
    auto found = groups_.find(group_id);
    if (found != groups_.end()) {
        for (const auto& part : found->second.parts) {
            --members_.at(part.member_id).users;
        }
        groups_.erase(found);
    }
}

}  // namespace splitplane
