// SPDX-License-Identifier: Apache-2.0
//
// P4Runtime's messages as numbers that fit their fields, or why they are none: P4Runtime 1.4, sections 8.3 and 9.1.
#pragma once

#include "server/schema.h"
#include "tables/tables.h"

namespace splitplane {

// The number that a bytestring of any length holds; kOutOfRange where it is empty or does not fit.
Result decode_value(const FieldSchema& field, const std::string& octets, uint64_t& value);
Result decode_action(const TableSchema& table, const p4::v1::Action& message, const ActionSchema*& action,
                     std::array<uint64_t, 3>& params);

struct RouteKey {
    uint32_t vrf_id = 0;
    Prefix prefix;
};
Result decode_key(const TableSchema& table, const p4::v1::TableEntry& entry, Key& key);
Result decode_route_key(const TableSchema& table, const p4::v1::TableEntry& entry, RouteKey& key);

// What an INSERT or MODIFY of an entry says beside its key.
Result decode_row(const Schema& schema, const TableSchema& table, Op op, const p4::v1::TableEntry& entry,
                  RowWrite& row);
Result decode_route(const TableSchema& table, Op op, const p4::v1::TableEntry& entry, RouteAction& action,
                    Notes& notes);
// set_member_nexthop.
Result decode_member(const Schema& schema, const p4::v1::Action& message, uint32_t& nexthop_id);
Result decode_meter(const p4::v1::MeterConfig& message, Meter& meter);

Result refuse(Code code, const std::string& thing, std::string_view why);

}  // namespace splitplane
