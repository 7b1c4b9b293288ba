// SPDX-License-Identifier: Apache-2.0
//
// The one pipeline that this server runs, as its P4Info says it, and what the P4Info's ids are in tables/.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "p4/config/v1/p4info.pb.h"
#include "p4/v1/p4runtime.pb.h"
#include "tables/row.h"
#include "tables/routes.h"

namespace splitplane {

struct FieldSchema {
    uint32_t id;
    uint32_t bits;
    std::string name;
};

struct ActionSchema {
    uint32_t id;
    std::string name;
    std::vector<FieldSchema> params;       // in the order of their ids
    Action action = Action::kNone;         // kNone: one of a route's, or one that no entry has
    sp_route_kind route = SP_ROUTE_NONE;
};

struct TableSchema {
    enum class Kind { kRows, kRoutes, kConst };

    uint32_t id;
    std::string name;
    Kind kind;
    Table table{};    // of kRows
    Family family{};  // of kRoutes
    uint64_t size;
    std::vector<FieldSchema> fields;                              // in the order of their ids
    std::vector<std::pair<const ActionSchema*, bool>> actions;    // with whether entries may have it
    p4::v1::Action default_action;
    bool const_default;
    bool counted;
    bool metered;
    bool selector;
    std::vector<p4::v1::TableEntry> entries;  // of kConst, with falling priority

    // With whether an entry may have it; null where the table does not have it at all.
    const ActionSchema* find_action(uint32_t action_id, bool& for_entries) const;
    const ActionSchema* action_of(Action action) const;
    const ActionSchema* action_of(sp_route_kind kind) const;
};

class Schema {
  public:
    // Of the P4Info that the build embedded.
    Schema();

    const p4::config::v1::P4Info& p4info() const { return p4info_; }
    const TableSchema* find_table(uint32_t id) const;
    const std::vector<TableSchema>& tables() const { return tables_; }
    const TableSchema& table(Table table) const;
    const TableSchema& routes(Family family) const;

    // The action profile, and the one action that its members have.
    uint32_t profile_id() const { return profile_id_; }
    const ActionSchema& member_action() const { return *member_action_; }
    int32_t max_group_size() const { return max_group_size_; }

    // The one digest.
    uint32_t sample_digest_id() const { return p4info_.digests(0).preamble().id(); }

    // Empty where a P4Info is this one, in whatever order; else the first difference in one line.
    std::string difference(const p4::config::v1::P4Info& other) const;

  private:
    void add_const_entry(const std::string& line);

    p4::config::v1::P4Info p4info_;
    std::unordered_map<uint32_t, ActionSchema> actions_;
    std::vector<TableSchema> tables_;
    const ActionSchema* member_action_ = nullptr;
    uint32_t profile_id_ = 0;
    int32_t max_group_size_ = 0;
};

// The fields of the controller headers: p4src/common/headers.p4.
inline constexpr uint32_t kPacketInInterface = 1, kPacketInReason = 2, kPacketOutInterface = 1;
inline constexpr uint32_t kInterfaceIdBits = 32, kSampleTimestampBits = 48;

}  // namespace splitplane
