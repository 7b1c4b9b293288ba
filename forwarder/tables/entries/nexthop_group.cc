// SPDX-License-Identifier: Apache-2.0
#include "tables/entries/nexthop_group.h"

#include <algorithm>

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
    sp_u64& group = arrays().groups[slot_of(Space::kGroup, key.first)];
    const sp_u64 before = group;
    publish(group, sp_u64{0});
    retire(before);
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

// Write a group where no reader looks; 0 is one without members, and kResourceExhausted changes nothing.
Result NexthopGroup::prepare(const std::vector<WeightedNexthop>& nexthops, uint64_t& group) {
    uint32_t weight = 0;
    for (const auto& one : nexthops) {
        weight += one.weight;
    }
    group = 0;
    if (weight == 0) {
        return {};
    }
    uint32_t unit = blocks_.allocate(units(weight));
    if (unit == 0) {
        return {Code::kResourceExhausted, "nexthop_group: no room for " + std::to_string(weight) +
                                              " members in one piece; raise the capacity of members"};
    }
    group = sp_group(unit * kGroupMembersInUnit, weight);
    fill(group, nexthops);
    return {};
}

void NexthopGroup::fill(uint64_t group, const std::vector<WeightedNexthop>& nexthops) {
    sp_u16* member = arrays().members + sp_group_base(group);
    for (const auto& one : nexthops) {
        auto slot = static_cast<sp_u16>(slot_of(Space::kNexthop, one.nexthop_id));
        for (uint32_t times = 0; times < one.weight; ++times) {
            publish(*member++, slot);
        }
    }
}

Result NexthopGroup::store_all(const std::vector<uint32_t>& slots, const std::vector<WeightedNexthop>& nexthops) {
    uint64_t weight = weight_;
    for (uint32_t slot : slots) {
        weight -= sp_group_size(arrays().groups[slot]);
        for (const auto& one : nexthops) {
            weight += one.weight;
        }
    }
    if (weight > SP_GROUP_MEMBERS) {
        return {Code::kResourceExhausted, "nexthop_group_selector is full: the weights of all groups add up to " +
                                              std::to_string(SP_GROUP_MEMBERS) + " at most"};
    }
    std::vector<uint64_t> prepared(slots.size());
    for (size_t done = 0; done < slots.size(); ++done) {
        Result result = prepare(nexthops, prepared[done]);
        if (!result.ok()) {
            while (done-- > 0) {
                uint64_t group = prepared[done];
                blocks_.release(sp_group_base(group) / kGroupMembersInUnit, units(sp_group_size(group)));
            }
            return result;
        }
    }
    for (size_t position = 0; position < slots.size(); ++position) {
        sp_u64 before = arrays().groups[slots[position]];
        publish(arrays().groups[slots[position]], sp_u64{prepared[position]});
        weight_ += sp_group_size(prepared[position]);
        retire(before);
    }
    return {};
}

void NexthopGroup::retire(uint64_t group) {
    uint32_t size = sp_group_size(group);
    if (size > 0) {
        blocks_.retire(sp_group_base(group) / kGroupMembersInUnit, units(size));
        weight_ -= size;
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

// A group's size does not depend on where its members lead: they are changed where they are, each a word of its own.
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
            uint32_t slot = slot_of(Space::kGroup, key.first);
            fill(arrays().groups[slot], nexthops(*find(key)));
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
