// SPDX-License-Identifier: Apache-2.0
//
// Entries as P4Runtime's messages, in the canonical form of section 8.3 of the specification.
#pragma once

#include "server/schema.h"
#include "tables/tables.h"

namespace splitplane {

// The shortest bytestring of a number.
void encode_value(uint64_t value, std::string& octets);

void encode_key(const TableSchema& table, Key key, p4::v1::TableEntry& entry);
void encode_row(const Schema& schema, const TableSchema& table, Key key, const Row& row, p4::v1::TableEntry& entry);
void encode_route_key(const TableSchema& table, uint32_t vrf_id, const Prefix& prefix, p4::v1::TableEntry& entry);
void encode_route(const TableSchema& table, uint32_t vrf_id, const Prefix& prefix, RouteAction action,
                  const Notes* notes, p4::v1::TableEntry& entry);
void encode_default(const TableSchema& table, p4::v1::TableEntry& entry);
void encode_member(const Schema& schema, uint32_t nexthop_id, p4::v1::Action& action);
void encode_meter(const Meter& meter, p4::v1::MeterConfig& message);
void encode_count(Count count, p4::v1::CounterData& message);

}  // namespace splitplane
