// SPDX-License-Identifier: Apache-2.0
#include "tables/routes.h"

#include <cstring>
#include <functional>
#include <string_view>

namespace splitplane {

namespace {

constexpr size_t kNoteOverhead = 128;  // octets of a note's place in the map

size_t note_size(const Notes& notes) {
    return notes.empty() ? 0 : kNoteOverhead + notes.metadata.size();
}

Space target_space(uint32_t kind) {
    return kind == SP_ROUTE_NEXTHOP ? Space::kNexthop : Space::kGroup;
}

bool has_target(uint32_t kind) {
    return kind == SP_ROUTE_NEXTHOP || kind == SP_ROUTE_GROUP;
}

}  // namespace

const char* route_table_name(Family family) {
    return family == Family::kIpv4 ? "ipv4_route" : "ipv6_route";
}

size_t RouteAtHash::operator()(const RouteAt& route) const {
    std::string_view octets(reinterpret_cast<const char*>(route.prefix.address.data()), route.prefix.address.size());
    size_t rest = size_t{route.vrf} << 16 | size_t{route.prefix.length} << 1 | static_cast<size_t>(route.family);
    return std::hash<std::string_view>()(octets) ^ rest * 0x9e3779b97f4a7c15u;
}

Routes::Routes(sp_arrays& arrays, GracePeriods& grace, Objects& objects) : objects_(objects), fib_(arrays, grace) {}

uint32_t Routes::find(uint32_t vrf_id, Family family, const Prefix& prefix) const {
    auto vrf = objects_.find(Space::kVrf, vrf_id);
    return vrf ? fib_.find(*vrf, family, prefix) : 0;
}

RouteAction Routes::action_of(uint32_t leaf) const {
    uint32_t kind = sp_leaf_kind(leaf);
    uint32_t id = has_target(kind) ? objects_.id_of(target_space(kind), sp_leaf_slot(leaf)) : 0;
    return {static_cast<sp_route_kind>(kind), id};
}

const Notes* Routes::notes(uint32_t vrf, Family family, const Prefix& prefix) const {
    if (notes_.empty()) {
        return nullptr;
    }
    auto found = notes_.find({vrf, family, prefix});
    return found == notes_.end() ? nullptr : &found->second;
}

std::optional<uint32_t> Routes::acquire_target(RouteAction action) {
    if (!has_target(action.kind)) {
        return sp_leaf(action.kind, 0);
    }
    auto slot = objects_.acquire(target_space(action.kind), action.object_id);
    return slot ? std::optional(sp_leaf(action.kind, *slot)) : std::nullopt;
}

void Routes::release_target(uint32_t leaf) {
    uint32_t kind = sp_leaf_kind(leaf);
    if (has_target(kind)) {
        objects_.release(target_space(kind), sp_leaf_slot(leaf));
    }
}

Result Routes::full(Family family) const {
    return {Code::kResourceExhausted,
            std::string(route_table_name(family)) + ": no room in the trie; raise the capacity of words"};
}

Result Routes::put(uint32_t vrf_id, Family family, const Prefix& prefix, RouteAction action, Notes notes,
                   uint32_t& vrf, uint32_t& leaf) {
    auto slot = objects_.acquire(Space::kVrf, vrf_id);
    if (!slot) {
        return objects_.exhausted(Space::kVrf);
    }
    vrf = *slot;
    Result result;
    uint32_t before = fib_.find(vrf, family, prefix);
    auto target = acquire_target(action);
    if (before == 0 && fib_.size(family) >= kRoutes[static_cast<size_t>(family)]) {
        result = {Code::kResourceExhausted, std::string(route_table_name(family)) + " is full: " +
                                                std::to_string(kRoutes[static_cast<size_t>(family)]) + " routes"};
    } else if (!target) {
        result = objects_.exhausted(target_space(action.kind));
    } else if (result = check_notes({vrf, family, prefix}, notes); result.ok()) {
        leaf = *target;
        if (leaf != before && fib_.set(vrf, family, prefix, leaf) != FibResult::kDone) {
            result = full(family);
        } else {
            set_notes({vrf, family, prefix}, std::move(notes));
        }
    }
    if (!result.ok()) {
        if (target) {
            release_target(*target);
        }
        objects_.release(Space::kVrf, vrf);
    } else if (before != 0) {
        release_target(before);
        objects_.release(Space::kVrf, vrf);
    }
    return result;
}

Result Routes::remove(uint32_t vrf_id, Family family, const Prefix& prefix) {
    return restore_erased(objects_.slot(Space::kVrf, vrf_id), family, prefix);
}

Result Routes::restore(uint32_t vrf, Family family, const Prefix& prefix, uint32_t leaf) {
    uint32_t put_vrf = 0, put_leaf = 0;
    return put(vrf == 0 ? 0 : objects_.id_of(Space::kVrf, vrf), family, prefix, action_of(leaf), {}, put_vrf,
               put_leaf);
}

Result Routes::restore_erased(uint32_t vrf, Family family, const Prefix& prefix) {
    uint32_t before = fib_.find(vrf, family, prefix);
    if (before == 0) {
        return {};
    }
    if (fib_.erase(vrf, family, prefix) != FibResult::kDone) {
        return full(family);
    }
    set_notes({vrf, family, prefix}, {});
    release_target(before);
    objects_.release(Space::kVrf, vrf);
    return {};
}

Result Routes::restore_notes(uint32_t vrf, Family family, const Prefix& prefix, Notes notes) {
    Result result = check_notes({vrf, family, prefix}, notes);
    if (result.ok() && fib_.find(vrf, family, prefix) != 0) {
        set_notes({vrf, family, prefix}, std::move(notes));
    }
    return result;
}

// Whether there is room for notes in the place of those that the route has.
Result Routes::check_notes(const RouteAt& route, const Notes& notes) const {
    if (notes.empty()) {
        return {};
    }
    auto found = notes_.find(route);
    size_t before = found == notes_.end() ? 0 : note_size(found->second);
    if (note_octets_ - before + note_size(notes) <= kRouteNoteOctets) {
        return {};
    }
    return {Code::kResourceExhausted, std::string(route_table_name(route.family)) + ": metadata of all routes takes " +
                                          std::to_string(kRouteNoteOctets >> 20) + " MiB already"};
}

void Routes::set_notes(const RouteAt& route, Notes notes) {
    if (notes_.empty() && notes.empty()) {
        return;
    }
    auto found = notes_.try_emplace(route).first;
    note_octets_ += note_size(notes) - note_size(found->second);
    if (notes.empty()) {
        notes_.erase(found);
    } else {
        found->second = std::move(notes);
    }
}

}  // namespace splitplane
