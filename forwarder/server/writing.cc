// SPDX-License-Identifier: Apache-2.0
#include "server/writing.h"

#include <algorithm>
#include <set>

#include "google/rpc/status.pb.h"
#include "server/decoding.h"
#include "server/samples.h"
#include "server/shares.h"

namespace splitplane {

namespace {

constexpr size_t kTextOctets = 32 << 10;  // of all errors of a request together
constexpr const char* kErrorType = "/p4.v1.Error";

Result unknown_table(uint32_t id) {
    return {Code::kNotFound, "no table " + std::to_string(id)};
}

Result write_default(const TableSchema& table, Op op, const p4::v1::TableEntry& entry) {
    if (op != Op::kModify) {
        return refuse(Code::kInvalidArgument, table.name, "its default entry can only be modified");
    }
    if (entry.match_size() != 0 || entry.priority() != 0) {
        return refuse(Code::kInvalidArgument, table.name, "its default entry has neither match nor priority");
    }
    bool same = entry.action().has_action() && entry.action().action().action_id() == table.default_action.action_id();
    if (table.const_default || (entry.has_action() && !same)) {
        return refuse(Code::kPermissionDenied, table.name, "its default action is constant");
    }
    return {};
}

Result write_route(Tables& tables, const TableSchema& table, Op op, const p4::v1::TableEntry& entry) {
    RouteKey key;
    RouteAction action;
    Notes notes;
    Result result = decode_route_key(table, entry, key);
    if (result.ok() && op != Op::kErase) {
        result = decode_route(table, op, entry, action, notes);
    }
    return result.ok() ? tables.write_route(op, key.vrf_id, table.family, key.prefix, action, std::move(notes))
                       : result;
}

Result write_entry(Tables& tables, const Schema& schema, Op op, const p4::v1::TableEntry& entry) {
    const TableSchema* table = schema.find_table(entry.table_id());
    if (table == nullptr) {
        return unknown_table(entry.table_id());
    }
    if (entry.is_default_action()) {
        return write_default(*table, op, entry);
    }
    if (table->kind == TableSchema::Kind::kConst) {
        return refuse(Code::kPermissionDenied, table->name, "its entries are constant");
    }
    if (table->kind == TableSchema::Kind::kRoutes) {
        return write_route(tables, *table, op, entry);
    }
    Key key;
    RowWrite row;
    Result result = decode_key(*table, entry, key);
    if (result.ok() && op != Op::kErase) {
        result = decode_row(schema, *table, op, entry, row);
    }
    return result.ok() ? tables.write_row(op, table->table, key, std::move(row)) : result;
}

Result check_profile(const Schema& schema, uint32_t profile_id, const char* what, uint32_t id) {
    if (profile_id != schema.profile_id()) {
        return {Code::kNotFound, "no action profile " + std::to_string(profile_id)};
    }
    return id != 0 ? Result() : Result(Code::kInvalidArgument, std::string(what) + " ids are not 0");
}

Result write_profile_member(Tables& tables, const Schema& schema, Op op, const p4::v1::ActionProfileMember& member) {
    Result result = check_profile(schema, member.action_profile_id(), "member", member.member_id());
    uint32_t nexthop_id = 0;
    if (result.ok() && op != Op::kErase) {
        result = decode_member(schema, member.action(), nexthop_id);
    }
    return result.ok() ? tables.write_member(op, member.member_id(), nexthop_id) : result;
}

Result decode_parts(const p4::v1::ActionProfileGroup& group, std::vector<ProfileGroup::Part>& parts, int64_t& weight) {
    std::set<uint32_t> seen;
    for (const auto& member : group.members()) {
        if (!seen.insert(member.member_id()).second) {
            return {Code::kInvalidArgument, "member " + std::to_string(member.member_id()) + " is there twice"};
        }
        if (member.weight() < 1) {
            return {Code::kInvalidArgument, "a member's weight is at least 1"};
        }
        if (member.watch_kind_case() != p4::v1::ActionProfileGroup::Member::WATCH_KIND_NOT_SET) {
            return {Code::kUnimplemented, "watch ports are not watched; take the member out instead"};
        }
        weight += member.weight();
        parts.push_back({member.member_id(), static_cast<uint32_t>(member.weight())});
    }
    return {};
}

Result write_profile_group(Tables& tables, const Schema& schema, Op op, const p4::v1::ActionProfileGroup& group) {
    Result result = check_profile(schema, group.action_profile_id(), "group", group.group_id());
    std::vector<ProfileGroup::Part> parts;
    if (result.ok() && op != Op::kErase) {
        int64_t weight = 0;
        result = decode_parts(group, parts, weight);
        if (result.ok() && (group.max_size() < 0 || group.max_size() > schema.max_group_size())) {
            result = {Code::kInvalidArgument, "max_size is at most " + std::to_string(schema.max_group_size())};
        }
        int32_t most = group.max_size() != 0 ? group.max_size() : schema.max_group_size();
        if (result.ok() && weight > most) {
            result = {Code::kResourceExhausted, "the group is full: weights of " + std::to_string(most)};
        }
    }
    if (!result.ok()) {
        result.text.insert(0, "action profile group " + std::to_string(group.group_id()) + ": ");
        return result;
    }
    return tables.write_group(op, group.group_id(), group.max_size(), std::move(parts));
}

// The table and key of a direct resource's entry; MODIFY is all that there is for one.
Result find_resource(const Schema& schema, Op op, const p4::v1::TableEntry& entry, const TableSchema*& table,
                     Key& key) {
    if (op != Op::kModify) {
        return {Code::kInvalidArgument, "direct counters and meters can only be modified"};
    }
    table = schema.find_table(entry.table_id());
    if (table == nullptr) {
        return unknown_table(entry.table_id());
    }
    if (table->kind == TableSchema::Kind::kRoutes) {
        return refuse(Code::kUnimplemented, table->name, "counters of routes cannot be set");
    }
    if (table->kind == TableSchema::Kind::kConst) {
        return refuse(Code::kInvalidArgument, table->name, "it has no direct counter or meter");
    }
    return decode_key(*table, entry, key);
}

Result write_counter(Tables& tables, const Schema& schema, Op op, const p4::v1::DirectCounterEntry& entry) {
    const TableSchema* table = nullptr;
    Key key;
    Result result = find_resource(schema, op, entry.table_entry(), table, key);
    if (result.ok() && !table->counted) {
        result = refuse(Code::kInvalidArgument, table->name, "it has no direct counter");
    }
    if (!result.ok()) {
        return result;
    }
    if (!entry.has_data()) {
        return tables.rows().of(table->table).find(key) != nullptr
                   ? Result()
                   : refuse(Code::kNotFound, table->name, "no such entry");
    }
    return tables.set_count(table->table, key,
                            {static_cast<uint64_t>(entry.data().packet_count()),
                             static_cast<uint64_t>(entry.data().byte_count())});
}

Result write_meter(Tables& tables, const Schema& schema, Op op, const p4::v1::DirectMeterEntry& entry) {
    const TableSchema* table = nullptr;
    Key key;
    Result result = find_resource(schema, op, entry.table_entry(), table, key);
    std::optional<Meter> meter;
    if (result.ok() && !table->metered) {
        result = refuse(Code::kInvalidArgument, table->name, "it has no direct meter");
    }
    if (result.ok() && entry.has_counter_data()) {
        result = refuse(Code::kUnimplemented, table->name, "packets are not counted by color");
    }
    if (result.ok() && entry.has_config()) {
        result = decode_meter(entry.config(), meter.emplace());
    }
    return result.ok() ? tables.set_meter(key, meter) : result;
}

}  // namespace

Result write_update(Tables& tables, const Schema& schema, const p4::v1::Update& update) {
    if (update.type() < p4::v1::Update::INSERT || update.type() > p4::v1::Update::DELETE) {
        return {Code::kInvalidArgument, "an update is INSERT, MODIFY or DELETE"};
    }
    auto op = static_cast<Op>(update.type());
    const auto& entity = update.entity();
    switch (entity.entity_case()) {
        case p4::v1::Entity::kTableEntry:
            return write_entry(tables, schema, op, entity.table_entry());
        case p4::v1::Entity::kActionProfileMember:
            return write_profile_member(tables, schema, op, entity.action_profile_member());
        case p4::v1::Entity::kActionProfileGroup:
            return write_profile_group(tables, schema, op, entity.action_profile_group());
        case p4::v1::Entity::kDirectCounterEntry:
            return write_counter(tables, schema, op, entity.direct_counter_entry());
        case p4::v1::Entity::kDirectMeterEntry:
            return write_meter(tables, schema, op, entity.direct_meter_entry());
        case p4::v1::Entity::kDigestEntry:
            return write_samples(tables, schema, op, entity.digest_entry());
        case p4::v1::Entity::kExternEntry:
            return write_share(tables, op, entity.extern_entry());
        case p4::v1::Entity::ENTITY_NOT_SET:
            return {Code::kInvalidArgument, "an update needs an entity"};
        default:
            return {Code::kUnimplemented, "there are only tables, an action profile, a digest and shares"};
    }
}

WriteStatus write_status(const std::vector<std::pair<size_t, Result>>& refused, size_t updates) {
    if (refused.empty()) {
        return {};
    }
    google::rpc::Status status;
    status.set_code(static_cast<int>(Code::kUnknown));
    status.set_message(std::to_string(refused.size()) + " of " + std::to_string(updates) + " updates refused");
    for (size_t position = 0; position < updates; ++position) {
        status.add_details()->set_type_url(kErrorType);
    }
    size_t texts = 0;
    for (const auto& [position, result] : refused) {
        p4::v1::Error error;
        error.set_canonical_code(static_cast<int>(result.code));
        texts += result.text.size();
        if (texts <= kTextOctets) {
            error.set_message(result.text);
        }
        error.SerializeToString(status.mutable_details(static_cast<int>(position))->mutable_value());
    }
    return {false, status.message(), status.SerializeAsString()};
}

}  // namespace splitplane
