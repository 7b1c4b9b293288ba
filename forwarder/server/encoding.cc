// SPDX-License-Identifier: Apache-2.0
#include "server/encoding.h"

#include <algorithm>

namespace splitplane {

namespace {

void encode_notes(const Notes& notes, p4::v1::TableEntry& entry) {
    if (!notes.metadata.empty()) {
        entry.set_metadata(notes.metadata);
    }
    entry.set_controller_metadata(notes.controller_metadata);
}

void encode_action(const ActionSchema& schema, const std::array<uint64_t, 3>& params, p4::v1::Action& action) {
    action.set_action_id(schema.id);
    for (size_t position = 0; position < schema.params.size(); ++position) {
        auto* param = action.add_params();
        param->set_param_id(schema.params[position].id);
        encode_value(params[position], *param->mutable_value());
    }
}

void encode_group_action(const Schema& schema, const Row& row, p4::v1::TableAction& action) {
    auto id = static_cast<uint32_t>(row.params[0]);
    if (row.action == Action::kProfileMember) {
        action.set_action_profile_member_id(id);
    } else if (row.action == Action::kProfileGroup) {
        action.set_action_profile_group_id(id);
    } else {
        using Set = p4::v1::ActionProfileActionSet;
        auto& set = *action.mutable_action_profile_action_set();
        set.set_action_selection_mode(static_cast<Set::ActionSelectionMode>(row.more().selection_mode));
        set.set_size_semantics(static_cast<Set::SizeSemantics>(row.more().size_semantics));
        for (const auto& member : row.more().members) {
            auto* one = set.add_action_profile_actions();
            encode_member(schema, member.nexthop_id, *one->mutable_action());
            one->set_weight(static_cast<int32_t>(member.weight));
        }
    }
}

}  // namespace

void encode_value(uint64_t value, std::string& octets) {
    char buffer[sizeof value];
    size_t size = 0;
    do {
        buffer[sizeof value - ++size] = static_cast<char>(value & 0xff);
        value >>= 8;
    } while (value != 0);
    octets.assign(buffer + sizeof value - size, size);
}

void encode_key(const TableSchema& table, Key key, p4::v1::TableEntry& entry) {
    const uint64_t values[] = {key.first, key.second};
    entry.set_table_id(table.id);
    for (size_t position = 0; position < table.fields.size(); ++position) {
        auto* match = entry.add_match();
        match->set_field_id(table.fields[position].id);
        encode_value(values[position], *match->mutable_exact()->mutable_value());
    }
}

void encode_row(const Schema& schema, const TableSchema& table, Key key, const Row& row, p4::v1::TableEntry& entry) {
    encode_key(table, key, entry);
    if (table.selector) {
        encode_group_action(schema, row, *entry.mutable_action());
    } else {
        encode_action(*table.action_of(row.action), row.params, *entry.mutable_action()->mutable_action());
    }
    encode_notes(row.notes(), entry);
}

void encode_route_key(const TableSchema& table, uint32_t vrf_id, const Prefix& prefix, p4::v1::TableEntry& entry) {
    entry.set_table_id(table.id);
    auto* vrf = entry.add_match();
    vrf->set_field_id(table.fields[0].id);
    encode_value(vrf_id, *vrf->mutable_exact()->mutable_value());
    if (prefix.length > 0) {
        auto* match = entry.add_match();
        match->set_field_id(table.fields[1].id);
        match->mutable_lpm()->set_prefix_len(prefix.length);
        auto end = prefix.address.begin() + table.fields[1].bits / 8;
        auto start = std::find_if(prefix.address.begin(), end - 1, [](uint8_t octet) { return octet != 0; });
        match->mutable_lpm()->mutable_value()->assign(start, end);
    }
}

void encode_route(const TableSchema& table, uint32_t vrf_id, const Prefix& prefix, RouteAction action,
                  const Notes* notes, p4::v1::TableEntry& entry) {
    encode_route_key(table, vrf_id, prefix, entry);
    encode_action(*table.action_of(action.kind), {action.object_id, 0, 0}, *entry.mutable_action()->mutable_action());
    if (notes != nullptr) {
        encode_notes(*notes, entry);
    }
}

void encode_default(const TableSchema& table, p4::v1::TableEntry& entry) {
    entry.set_table_id(table.id);
    entry.set_is_default_action(true);
    entry.set_is_const(table.const_default);
    *entry.mutable_action()->mutable_action() = table.default_action;
}

void encode_member(const Schema& schema, uint32_t nexthop_id, p4::v1::Action& action) {
    encode_action(schema.member_action(), {nexthop_id, 0, 0}, action);
}

void encode_meter(const Meter& meter, p4::v1::MeterConfig& message) {
    message.set_cir(meter.cir);
    message.set_cburst(meter.cburst);
    message.set_pir(meter.pir);
    message.set_pburst(meter.pburst);
}

void encode_count(Count count, p4::v1::CounterData& message) {
    message.set_packet_count(static_cast<int64_t>(count.packets));
    message.set_byte_count(static_cast<int64_t>(count.bytes));
}

}  // namespace splitplane
