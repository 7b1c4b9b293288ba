// SPDX-License-Identifier: Apache-2.0
#include "tables/tables.h"

#include <algorithm>
#include <numeric>

namespace splitplane {

namespace {

constexpr const char* kSelector = "nexthop_group_selector";

Result exists(const char* what) {
    return {Code::kAlreadyExists, std::string(what) + ": exists already"};
}

Result missing(const char* what) {
    return {Code::kNotFound, std::string(what) + ": no such entry"};
}

// Whether entries of a table say who sends by which port, or with what share.
bool divides_links(Table table) {
    switch (table) {
        case Table::kL3Admit:
        case Table::kRouterInterfaceEgress:
        case Table::kFallbackLink:
        case Table::kNexthop:
        case Table::kNexthopGroup:
        case Table::kReason:
        case Table::kPolicer: return false;
        default: return true;
    }
}

Result named(Code code, const char* what, uint32_t id, const char* why) {
    return {code, std::string(what) + " " + std::to_string(id) + ": " + why};
}

}  // namespace

// -- routes ----------------------------------------------------------------------------------------------------------
Result Tables::write_route(Op op, uint32_t vrf_id, Family family, const Prefix& prefix, RouteAction action,
                           Notes notes) {
    uint32_t before = routes_.find(vrf_id, family, prefix);
    if (op == Op::kInsert && before != 0) {
        return exists(route_table_name(family));
    }
    if (op != Op::kInsert && before == 0) {
        return missing(route_table_name(family));
    }
    if (op != Op::kModify) {
        route_counts_.settle(routes_);  // what has come belongs to the routes of now
    }
    if (op == Op::kErase) {
        uint32_t vrf = objects_.slot(Space::kVrf, vrf_id);
        Result result = routes_.remove(vrf_id, family, prefix);
        if (result.ok()) {
            route_counts_.forget({vrf, family, prefix});
            pending_.route_gone(vrf, family, prefix);
        }
        return result;
    }
    if (action.kind == SP_ROUTE_NONE) {
        return {};
    }
    uint32_t vrf = 0, leaf = 0;
    bool noted = !notes.empty();
    Result result = routes_.put(vrf_id, family, prefix, action, std::move(notes), vrf, leaf);
    if (result.ok()) {
        pending_.route(vrf, family, prefix, leaf, noted ? routes_.notes(vrf, family, prefix) : nullptr);
    }
    return result;
}

// Whoever has the tables is not waited for: he may have a million routes to write.
void Tables::count_routed(const RoutedPacket& sample) {
    constexpr size_t kAtOnce = 1024;
    if (route_counts_.take(sample) >= kAtOnce) {
        if (std::unique_lock lock(mutex_, std::try_to_lock); lock) {
            settle_route_counts();
        }
    }
}

// -- rows ------------------------------------------------------------------------------------------------------------
Result Tables::write_row(Op op, Table table, Key key, RowWrite wanted) {
    links_changed_ |= divides_links(table);
    const Row* before = rows_.of(table).find(key);
    if (op == Op::kInsert && before != nullptr) {
        return exists(traits(table).name);
    }
    if (op != Op::kInsert && before == nullptr) {
        return missing(traits(table).name);
    }
    if (op == Op::kErase) {
        rows_.of(table).remove(key);
        pending_.row_gone(table, key);
        return {};
    }
    if (wanted.action == Action::kNone) {
        return modify_without_action(table, key, wanted, *before);
    }
    return insert_or_modify(op, table, key, std::move(wanted), before);
}

Result Tables::insert_or_modify(Op op, Table table, Key key, RowWrite wanted, const Row* before) {
    if (table == Table::kNexthopGroup) {
        Result result = check_profile_row(wanted);
        if (!result.ok()) {
            return result;
        }
    }
    Row row;
    row.action = wanted.action;
    row.params = wanted.params;
    if (!wanted.extras.empty()) {
        row.extras = std::make_unique<const Extras>(std::move(wanted.extras));
    }
    if (before != nullptr) {
        row.base = before->base;
    }
    Result result = rows_.of(table).put(key, std::move(row));
    if (!result.ok()) {
        return result;
    }
    if (traits(table).counted && (op == Op::kInsert || wanted.count)) {
        return set_count(table, key, wanted.count.value_or(Count{}));
    }
    pending_.row(table, key, *rows_.of(table).find(key));
    return {};
}

Result Tables::modify_without_action(Table table, Key key, const RowWrite& wanted, const Row& before) {
    if (table == Table::kPolicer && wanted.extras.meter != before.more().meter) {
        return set_meter(key, wanted.extras.meter);
    }
    return wanted.count ? set_count(table, key, *wanted.count) : Result();
}

Result Tables::set_count(Table table, Key key, Count count) {
    EntryTable& of = rows_.of(table);
    const Row* row = of.find(key);
    if (row == nullptr) {
        return missing(traits(table).name);
    }
    of.set_base(key, of.base_for(key, count));
    pending_.row(table, key, *row);
    return {};
}

Result Tables::set_meter(Key key, std::optional<Meter> meter) {
    EntryTable& policers = rows_.of(Table::kPolicer);
    const Row* before = policers.find(key);
    if (before == nullptr) {
        return missing(traits(Table::kPolicer).name);
    }
    Extras extras;
    extras.notes = before->notes();
    extras.meter = meter;
    Row row;
    row.action = before->action;
    if (!extras.empty()) {
        row.extras = std::make_unique<const Extras>(std::move(extras));
    }
    Result result = policers.put(key, std::move(row));
    if (result.ok()) {
        pending_.row(Table::kPolicer, key, *policers.find(key));
    }
    return result;
}

// -- the action profile: P4Runtime 1.4, section 9.2 -------------------------------------------------------------------
Result Tables::check_mixing(Action action) const {
    bool one_shot = action == Action::kOneShot;
    const NexthopGroup& profile = rows_.profile();
    bool refused = one_shot ? !profile.members().empty() || !profile.groups().empty() : profile.has_one_shots();
    if (!refused) {
        return {};
    }
    return {Code::kInvalidArgument, std::string(kSelector) + ": programmed by " +
                                        (one_shot ? "members and groups" : "one-shot action sets") +
                                        " already, and not by both"};
}

Result Tables::check_profile_row(const RowWrite& row) const {
    auto id = static_cast<uint32_t>(row.params[0]);
    if (row.action == Action::kProfileMember && !rows_.profile().members().contains(id)) {
        return named(Code::kNotFound, "action profile member", id, "does not exist");
    }
    if (row.action == Action::kProfileGroup && !rows_.profile().groups().contains(id)) {
        return named(Code::kNotFound, "action profile group", id, "does not exist");
    }
    return check_mixing(row.action);
}

Result Tables::write_member(Op op, uint32_t member_id, uint32_t nexthop_id) {
    NexthopGroup& profile = rows_.profile();
    auto found = profile.members().find(member_id);
    bool there = found != profile.members().end();
    if (op == Op::kInsert) {
        if (there) {
            return named(Code::kAlreadyExists, "action profile member", member_id, "exists already");
        }
        if (profile.members().size() >= kProfileMembers) {
            return {Code::kResourceExhausted,
                    std::string(kSelector) + " is full: " + std::to_string(kProfileMembers) + " members"};
        }
        Result result = check_mixing(Action::kProfileMember);
        if (!result.ok()) {
            return result;
        }
    } else if (!there) {
        return named(Code::kNotFound, "action profile member", member_id, "does not exist");
    }
    if (op == Op::kErase) {
        if (found->second.users > 0) {
            return named(Code::kFailedPrecondition, "action profile member", member_id, "is in use");
        }
        profile.remove_member(member_id);
        pending_.member_gone(member_id);
        return {};
    }
    Result result = profile.put_member(member_id, nexthop_id);
    if (result.ok()) {
        pending_.member(member_id, nexthop_id);
    }
    return result;
}

Result Tables::write_group(Op op, uint32_t group_id, int32_t max_size, std::vector<ProfileGroup::Part> parts) {
    NexthopGroup& profile = rows_.profile();
    auto found = profile.groups().find(group_id);
    bool there = found != profile.groups().end();
    if (op != Op::kInsert && !there) {
        return named(Code::kNotFound, "action profile group", group_id, "does not exist");
    }
    if (op == Op::kErase) {
        if (found->second.users > 0) {
            return named(Code::kFailedPrecondition, "action profile group", group_id, "is in use");
        }
        profile.remove_group(group_id);
        pending_.group_gone(group_id);
        return {};
    }
    if (op == Op::kInsert) {
        if (there) {
            return named(Code::kAlreadyExists, "action profile group", group_id, "exists already");
        }
        if (profile.groups().size() >= kProfileGroups) {
            return {Code::kResourceExhausted,
                    std::string(kSelector) + " is full: " + std::to_string(kProfileGroups) + " groups"};
        }
        Result result = check_mixing(Action::kProfileGroup);
        if (!result.ok()) {
            return result;
        }
    } else if (found->second.max_size != max_size) {
        return named(Code::kInvalidArgument, "action profile group", group_id, "max_size cannot change");
    }
    auto stranger = std::find_if(parts.begin(), parts.end(),
                                 [&](const auto& part) { return !profile.members().contains(part.member_id); });
    if (stranger != parts.end()) {
        return named(Code::kNotFound, "action profile member", stranger->member_id, "does not exist");
    }
    Result result = profile.put_group(group_id, max_size, std::move(parts));
    if (result.ok()) {
        pending_.group(group_id, profile.groups().at(group_id));
    }
    return result;
}

// -- samples: P4Runtime 1.4, section 9.8 ------------------------------------------------------------------------------
Result Tables::write_samples(Op op, const SampleDigest& digest) {
    bool there = samples().has_value();
    if (there == (op == Op::kInsert)) {
        return {there ? Code::kAlreadyExists : Code::kNotFound,
                there ? "digest: enabled already" : "digest: not enabled"};
    }
    rows_.router_interfaces().sample(op == Op::kErase ? std::nullopt : std::optional(digest));
    pending_.samples(samples());
    return {};
}

// -- the whole -------------------------------------------------------------------------------------------------------
void Tables::set_pipeline(std::string config) {
    pipeline_ = std::move(config);
    pending_.pipeline(pipeline_);
}

void Tables::set_election(ElectionId highest) {
    election_ = highest;
    pending_.election(highest.high, highest.low);
}

// The ways in go first, so that nothing is forwarded by half of the tables.
void Tables::clear() {
    links_changed_ = true;
    NexthopGroup& profile = rows_.profile();
    for (size_t table = 0; table < kTables; ++table) {
        EntryTable& of = rows_.of(static_cast<Table>(table));
        while (!of.rows().empty()) {
            of.remove(of.rows().begin()->first);
        }
    }
    while (!profile.groups().empty()) {
        profile.remove_group(profile.groups().begin()->first);
    }
    while (!profile.members().empty()) {
        profile.remove_member(profile.members().begin()->first);
    }
    clear_routes();
    route_counts_.settle(routes_);  // there is none for them
    route_counts_.clear();
    rows_.router_interfaces().sample(std::nullopt);
    pending_.cleared();
}

void Tables::clear_routes() {
    constexpr size_t kAtOnce = 4096;
    for (Family family : {Family::kIpv4, Family::kIpv6}) {
        std::vector<std::pair<uint32_t, Prefix>> some;
        Routes::Cursor cursor;
        do {
            some.clear();
            routes_.visit(family, cursor, kAtOnce,
                          [&](uint32_t vrf, const Prefix& prefix, uint32_t) { some.emplace_back(vrf, prefix); });
            for (const auto& [vrf, prefix] : some) {
                routes_.restore_erased(vrf, family, prefix);
            }
        } while (!some.empty());
    }
}

ShareUse Tables::share_use(uint32_t vrf) const {
    const uint32_t at = vrf * SP_REASONS + sp_reason_index(SP_DROP_OVER_SHARE);
    ShareUse use;
    uint64_t over_share = 0;
    for (uint32_t cpu = 0; cpu < arrays_.cpus; ++cpu) {
        const sp_core_router& core = arrays_.core_routers[size_t{cpu} * SP_VRFS + vrf];
        use.core_ns += __atomic_load_n(&core.spent, __ATOMIC_RELAXED);
        use.over_share_core += __atomic_load_n(&core.dropped, __ATOMIC_RELAXED);
        over_share += __atomic_load_n(&arrays_.reasons[size_t{cpu} * SP_VRFS * SP_REASONS + at].packets,
                                      __ATOMIC_RELAXED);
    }
    use.over_share_link = over_share - std::min(over_share, use.over_share_core);  // they are not of one moment
    return use;
}

JournalStatus Tables::journal_status() const {
    return {journal_.octets(), rewrites_, cut_octets_, routes_replayed_, journal_.broken(), journal_.rewriting()};
}

}  // namespace splitplane
