// SPDX-License-Identifier: Apache-2.0
#include "server/decoding.h"

#include <algorithm>

namespace splitplane {

namespace {

constexpr uint32_t kVrfField = 1, kPrefixField = 2;  // of the route tables

std::string_view significant(const std::string& octets) {
    std::string_view rest = octets;
    while (rest.size() > 1 && rest.front() == '\0') {
        rest.remove_prefix(1);
    }
    return rest;
}

Result out_of_range(const std::string& field, const std::string& octets, uint32_t bits) {
    return refuse(Code::kOutOfRange, field,
                  octets.empty() ? "an empty value" : "a value of more than " + std::to_string(bits) + " bits");
}

// What no entry of any of these tables can have.
Result check_plain(const TableSchema& table, const p4::v1::TableEntry& entry) {
    if (entry.priority() != 0) {
        return refuse(Code::kInvalidArgument, table.name, "its entries have no priority");
    }
    if (entry.idle_timeout_ns() != 0 || entry.has_time_since_last_hit()) {
        return refuse(Code::kInvalidArgument, table.name, "it has no idle timeout");
    }
    if (entry.is_const()) {
        return refuse(Code::kInvalidArgument, table.name, "is_const is not the controller's to set");
    }
    if (entry.has_counter_data() && table.kind == TableSchema::Kind::kRoutes) {
        return refuse(Code::kUnimplemented, table.name, "counters of routes cannot be set");
    }
    if (entry.has_counter_data() && !table.counted) {
        return refuse(Code::kInvalidArgument, table.name, "it has no direct counter");
    }
    if (entry.has_meter_config() && !table.metered) {
        return refuse(Code::kInvalidArgument, table.name, "it has no direct meter");
    }
    if (entry.has_meter_counter_data()) {
        return refuse(table.metered ? Code::kUnimplemented : Code::kInvalidArgument, table.name,
                      "packets are not counted by color");
    }
    if (entry.metadata().size() > kMaxMetadataOctets) {
        return refuse(Code::kResourceExhausted, table.name,
                      "metadata of more than " + std::to_string(kMaxMetadataOctets) + " octets");
    }
    return {};
}

Result decode_one_shot(const Schema& schema, const p4::v1::ActionProfileActionSet& message, RowWrite& row) {
    int64_t weights = 0;
    for (const auto& one : message.action_profile_actions()) {
        WeightedNexthop member{};
        Result result = decode_member(schema, one.action(), member.nexthop_id);
        if (!result.ok()) {
            return result;
        }
        if (one.weight() < 1) {
            return {Code::kInvalidArgument, "nexthop_group: a weight is at least 1"};
        }
        if (one.watch_kind_case() != p4::v1::ActionProfileAction::WATCH_KIND_NOT_SET) {
            return {Code::kUnimplemented, "nexthop_group: watch ports are not watched; take the member out instead"};
        }
        weights += one.weight();
        member.weight = static_cast<uint32_t>(one.weight());
        row.extras.members.push_back(member);
    }
    if (weights > schema.max_group_size()) {
        return {Code::kInvalidArgument, "nexthop_group: weights add up to " + std::to_string(schema.max_group_size()) +
                                            " at most"};
    }
    using Set = p4::v1::ActionProfileActionSet;
    if (message.action_selection_mode() > Set::HASH || message.size_semantics() > Set::SUM_OF_WEIGHTS) {
        return {Code::kUnimplemented, "nexthop_group: members are chosen by hash and sized by weight"};
    }
    row.action = Action::kOneShot;
    row.extras.selection_mode = static_cast<uint8_t>(message.action_selection_mode());
    row.extras.size_semantics = static_cast<uint8_t>(message.size_semantics());
    return {};
}

Result decode_group_action(const Schema& schema, const p4::v1::TableAction& message, RowWrite& row) {
    switch (message.type_case()) {
        case p4::v1::TableAction::kActionProfileActionSet:
            return decode_one_shot(schema, message.action_profile_action_set(), row);
        case p4::v1::TableAction::kActionProfileMemberId:
            row.action = Action::kProfileMember;
            row.params[0] = message.action_profile_member_id();
            return {};
        case p4::v1::TableAction::kActionProfileGroupId:
            row.action = Action::kProfileGroup;
            row.params[0] = message.action_profile_group_id();
            return {};
        default:
            return {Code::kInvalidArgument, "nexthop_group: takes an action set, a member or a group"};
    }
}

Result check_has_action(const TableSchema& table, Op op, const p4::v1::TableEntry& entry) {
    if (op == Op::kInsert && !entry.has_action()) {
        return refuse(Code::kInvalidArgument, table.name, "an INSERT needs an action");
    }
    return {};
}

// The exact match of one field; null where it is missing or of another kind.
const std::string* find_exact(const p4::v1::TableEntry& entry, uint32_t field_id) {
    for (const auto& match : entry.match()) {
        if (match.field_id() == field_id) {
            return match.has_exact() ? &match.exact().value() : nullptr;
        }
    }
    return nullptr;
}

Result decode_prefix(const TableSchema& table, const p4::v1::FieldMatch::LPM& match, Prefix& prefix) {
    const FieldSchema& field = table.fields[1];
    auto octets = significant(match.value());
    size_t size = field.bits / 8;
    if (octets.empty() || octets.size() > size) {
        return out_of_range(field.name, match.value(), field.bits);
    }
    if (match.prefix_len() < 1 || static_cast<uint32_t>(match.prefix_len()) > field.bits) {
        return refuse(Code::kInvalidArgument, field.name,
                      match.prefix_len() == 0 ? "a prefix of length 0 is written without its match"
                                              : "no such prefix length");
    }
    prefix.length = static_cast<uint8_t>(match.prefix_len());
    std::copy(octets.begin(), octets.end(), prefix.address.begin() + (size - octets.size()));
    uint32_t whole = prefix.length / 8, bits = prefix.length % 8;
    uint32_t loose = bits == 0 ? 0 : prefix.address[whole] & 0xffu >> bits;
    for (uint32_t at = whole + (bits != 0); at < size; ++at) {
        loose |= prefix.address[at];
    }
    return loose == 0 ? Result() : refuse(Code::kInvalidArgument, field.name, "bits are set behind the prefix");
}

}  // namespace

Result refuse(Code code, const std::string& thing, std::string_view why) {
    return {code, thing + ": " + std::string(why)};
}

Result decode_value(const FieldSchema& field, const std::string& octets, uint64_t& value) {
    auto rest = significant(octets);
    value = 0;
    for (char octet : rest) {
        value = value << 8 | static_cast<uint8_t>(octet);
    }
    bool fits = !rest.empty() && rest.size() <= sizeof value && (field.bits >= 64 || value >> field.bits == 0);
    return fits ? Result() : out_of_range(field.name, octets, field.bits);
}

Result decode_action(const TableSchema& table, const p4::v1::Action& message, const ActionSchema*& action,
                     std::array<uint64_t, 3>& params) {
    bool for_entries = false;
    action = table.find_action(message.action_id(), for_entries);
    if (action == nullptr) {
        return refuse(Code::kInvalidArgument, table.name, "no action " + std::to_string(message.action_id()));
    }
    if (!for_entries) {
        return refuse(Code::kPermissionDenied, table.name, action->name + " is a default action only");
    }
    if (static_cast<size_t>(message.params_size()) != action->params.size()) {
        return refuse(Code::kInvalidArgument, action->name,
                      "takes " + std::to_string(action->params.size()) + " parameters");
    }
    for (size_t position = 0; position < action->params.size(); ++position) {
        const FieldSchema& param = action->params[position];
        auto found = std::find_if(message.params().begin(), message.params().end(),
                                  [&](const auto& one) { return one.param_id() == param.id; });
        if (found == message.params().end()) {
            return refuse(Code::kInvalidArgument, action->name, "lacks its parameter " + param.name);
        }
        Result result = decode_value(param, found->value(), params[position]);
        if (!result.ok()) {
            return result;
        }
    }
    return {};
}

Result decode_key(const TableSchema& table, const p4::v1::TableEntry& entry, Key& key) {
    if (static_cast<size_t>(entry.match_size()) != table.fields.size()) {
        return refuse(Code::kInvalidArgument, table.name,
                      "its key has " + std::to_string(table.fields.size()) + " fields");
    }
    uint64_t* values[] = {&key.first, &key.second};
    for (size_t position = 0; position < table.fields.size(); ++position) {
        const FieldSchema& field = table.fields[position];
        const std::string* octets = find_exact(entry, field.id);
        if (octets == nullptr) {
            return refuse(Code::kInvalidArgument, table.name, "lacks an exact match of " + field.name);
        }
        Result result = decode_value(field, *octets, *values[position]);
        if (!result.ok()) {
            return result;
        }
    }
    if (table.kind == TableSchema::Kind::kRows && table.table == Table::kL3Admit && key.second == 0) {
        return refuse(Code::kInvalidArgument, table.fields[1].name, "no interface has the MAC of all zeros");
    }
    return {};
}

Result decode_route_key(const TableSchema& table, const p4::v1::TableEntry& entry, RouteKey& key) {
    bool has_vrf = false, has_prefix = false;
    for (const auto& match : entry.match()) {
        Result result;
        if (match.field_id() == kVrfField && match.has_exact() && !has_vrf) {
            uint64_t value = 0;
            result = decode_value(table.fields[0], match.exact().value(), value);
            key.vrf_id = static_cast<uint32_t>(value);
            has_vrf = true;
        } else if (match.field_id() == kPrefixField && match.has_lpm() && !has_prefix) {
            result = decode_prefix(table, match.lpm(), key.prefix);
            has_prefix = true;
        } else {
            result = refuse(Code::kInvalidArgument, table.name,
                            "no such match of field " + std::to_string(match.field_id()));
        }
        if (!result.ok()) {
            return result;
        }
    }
    return has_vrf ? Result() : refuse(Code::kInvalidArgument, table.name, "lacks an exact match of vrf_id");
}

Result decode_row(const Schema& schema, const TableSchema& table, Op op, const p4::v1::TableEntry& entry,
                  RowWrite& row) {
    Result result = check_plain(table, entry);
    if (result.ok()) {
        result = check_has_action(table, op, entry);
    }
    if (result.ok() && entry.has_action()) {
        const ActionSchema* action = nullptr;
        if (table.selector) {
            result = decode_group_action(schema, entry.action(), row);
        } else if (!entry.action().has_action()) {
            result = refuse(Code::kInvalidArgument, table.name, "takes a plain action");
        } else if (result = decode_action(table, entry.action().action(), action, row.params); result.ok()) {
            row.action = action->action;
        }
    }
    if (result.ok() && entry.has_meter_config()) {
        Meter meter;
        result = decode_meter(entry.meter_config(), meter);
        row.extras.meter = meter;
    }
    if (entry.has_counter_data()) {
        row.count = Count{static_cast<uint64_t>(entry.counter_data().packet_count()),
                          static_cast<uint64_t>(entry.counter_data().byte_count())};
    }
    row.extras.notes = {entry.metadata(), entry.controller_metadata()};
    return result;
}

Result decode_route(const TableSchema& table, Op op, const p4::v1::TableEntry& entry, RouteAction& action,
                    Notes& notes) {
    Result result = check_plain(table, entry);
    if (result.ok()) {
        result = check_has_action(table, op, entry);
    }
    if (!result.ok() || !entry.has_action()) {
        return result;
    }
    if (!entry.action().has_action()) {
        return refuse(Code::kInvalidArgument, table.name, "takes a plain action");
    }
    const ActionSchema* schema = nullptr;
    std::array<uint64_t, 3> params{};
    result = decode_action(table, entry.action().action(), schema, params);
    if (!result.ok()) {
        return result;
    }
    action = {schema->route, static_cast<uint32_t>(params[0])};
    if (!entry.metadata().empty() || entry.controller_metadata() != 0) {
        notes = {entry.metadata(), entry.controller_metadata()};
    }
    return {};
}

Result decode_member(const Schema& schema, const p4::v1::Action& message, uint32_t& nexthop_id) {
    const ActionSchema* action = nullptr;
    std::array<uint64_t, 3> params{};
    Result result = decode_action(schema.table(Table::kNexthopGroup), message, action, params);
    nexthop_id = static_cast<uint32_t>(params[0]);
    return result;
}

Result decode_meter(const p4::v1::MeterConfig& message, Meter& meter) {
    meter = {message.cir(), message.cburst(), message.pir(), message.pburst()};
    if (message.eburst() != 0) {
        return {Code::kInvalidArgument, "policer: a meter of two rates (RFC 2698) has no eburst"};
    }
    if (meter.cir < 0 || meter.cburst < 0 || meter.pir < meter.cir || meter.pburst < 0) {
        return {Code::kInvalidArgument, "policer: rates and bursts are 0 or more, and pir at least cir"};
    }
    return {};
}

}  // namespace splitplane
