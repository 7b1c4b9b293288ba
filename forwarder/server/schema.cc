// SPDX-License-Identifier: Apache-2.0
#include "server/schema.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "server/golden.h"

namespace splitplane {

namespace {

using google::protobuf::util::MessageDifferencer;
namespace p4i = p4::config::v1;

struct NamedAction {
    std::string_view name;
    Action action;
    sp_route_kind route = SP_ROUTE_NONE;
};

constexpr std::array kActions{
    NamedAction{"set_router_interface", Action::kSetRouterInterface},
    NamedAction{"set_egress_router_interface", Action::kSetEgressRouterInterface},
    NamedAction{"admit", Action::kAdmit},
    NamedAction{"set_port", Action::kSetPort},
    NamedAction{"rewrite", Action::kRewrite},
    NamedAction{"send_to_fallback", Action::kSendToFallback},
    NamedAction{"set_neighbor", Action::kSetNeighbor},
    NamedAction{"glean_neighbor", Action::kGleanNeighbor},
    NamedAction{"neighbor_failed", Action::kNeighborFailed},
    NamedAction{"count_reason", Action::kCountReason},
    NamedAction{"police", Action::kPolice},
    NamedAction{"set_nexthop", Action::kNone, SP_ROUTE_NEXTHOP},
    NamedAction{"set_nexthop_group", Action::kNone, SP_ROUTE_GROUP},
    NamedAction{"punt_local", Action::kNone, SP_ROUTE_LOCAL},
    NamedAction{"punt_glean", Action::kNone, SP_ROUTE_GLEAN},
    NamedAction{"punt_unreachable", Action::kNone, SP_ROUTE_UNREACHABLE},
    NamedAction{"blackhole", Action::kNone, SP_ROUTE_BLACKHOLE},
    NamedAction{"fallback", Action::kNone, SP_ROUTE_FALLBACK},
};

template <typename Message>
std::vector<FieldSchema> fields_of(const Message& messages) {
    std::vector<FieldSchema> fields;
    for (const auto& one : messages) {
        fields.push_back({one.id(), static_cast<uint32_t>(one.bitwidth()), one.name()});
    }
    std::sort(fields.begin(), fields.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    return fields;
}

ActionSchema action_schema(const p4i::Action& message) {
    ActionSchema schema{message.preamble().id(), message.preamble().name(), fields_of(message.params())};
    for (const auto& known : kActions) {
        if (known.name == schema.name) {
            schema.action = known.action;
            schema.route = known.route;
        }
    }
    return schema;
}

// Where a table's entries are.
void place(TableSchema& schema) {
    for (Family family : {Family::kIpv4, Family::kIpv6}) {
        if (schema.name == route_table_name(family)) {
            schema.kind = TableSchema::Kind::kRoutes;
            schema.family = family;
        }
    }
    for (size_t table = 0; table < kTables; ++table) {
        if (schema.name == traits(static_cast<Table>(table)).name) {
            schema.kind = TableSchema::Kind::kRows;
            schema.table = static_cast<Table>(table);
        }
    }
}

p4::v1::Action default_action(const p4i::TableActionCall& message) {
    p4::v1::Action action;
    action.set_action_id(message.action_id());
    for (const auto& argument : message.arguments()) {
        auto* param = action.add_params();
        param->set_param_id(argument.param_id());
        param->set_value(argument.value());
    }
    return action;
}

// The shortest bytestring of hexadecimal digits.
std::string octets_of(const std::string& digits) {
    std::string octets;
    for (size_t at = 0; at + 2 <= digits.size(); at += 2) {
        octets += static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, 16));
    }
    return octets.erase(0, std::min(octets.find_first_not_of('\0'), octets.size() - 1));
}

}  // namespace

const ActionSchema* TableSchema::find_action(uint32_t action_id, bool& for_entries) const {
    for (const auto& [action, allowed] : actions) {
        if (action->id == action_id) {
            for_entries = allowed;
            return action;
        }
    }
    return nullptr;
}

const ActionSchema* TableSchema::action_of(Action wanted) const {
    auto found = std::find_if(actions.begin(), actions.end(),
                              [&](const auto& one) { return one.second && one.first->action == wanted; });
    return found == actions.end() ? nullptr : found->first;
}

const ActionSchema* TableSchema::action_of(sp_route_kind wanted) const {
    auto found =
        std::find_if(actions.begin(), actions.end(), [&](const auto& one) { return one.first->route == wanted; });
    return found == actions.end() ? nullptr : found->first;
}

Schema::Schema() {
    if (!google::protobuf::TextFormat::ParseFromString(std::string(golden_p4info()), &p4info_)) {
        throw std::logic_error("the embedded P4Info cannot be read");
    }
    for (const auto& action : p4info_.actions()) {
        actions_.emplace(action.preamble().id(), action_schema(action));
    }
    for (const auto& message : p4info_.tables()) {
        TableSchema schema{};
        schema.id = message.preamble().id();
        schema.name = message.preamble().name();
        schema.kind = TableSchema::Kind::kConst;
        schema.size = static_cast<uint64_t>(message.size());
        schema.fields = fields_of(message.match_fields());
        schema.default_action = default_action(message.initial_default_action());
        schema.const_default = message.const_default_action_id() != 0;
        schema.selector = message.implementation_id() != 0;
        place(schema);
        for (const auto& reference : message.action_refs()) {
            bool for_entries = reference.scope() != p4i::ActionRef::DEFAULT_ONLY;
            schema.actions.emplace_back(&actions_.at(reference.id()), for_entries);
        }
        auto has_resource = [&](const auto& resources) {
            return std::any_of(resources.begin(), resources.end(),
                               [&](const auto& one) { return one.direct_table_id() == schema.id; });
        };
        schema.counted = has_resource(p4info_.direct_counters());
        schema.metered = has_resource(p4info_.direct_meters());
        tables_.push_back(std::move(schema));
    }
    const auto& profile = p4info_.action_profiles(0);
    profile_id_ = profile.preamble().id();
    max_group_size_ = profile.max_group_size();
    for (const auto& [action, for_entries] : table(Table::kNexthopGroup).actions) {
        member_action_ = for_entries ? action : member_action_;
    }
    std::istringstream entries{std::string(golden_entries())};
    for (std::string line; std::getline(entries, line);) {
        add_const_entry(line);
    }
}

void Schema::add_const_entry(const std::string& line) {
    std::istringstream words(line);
    std::string name, word;
    int priority = 0;
    words >> name >> std::hex >> priority;
    auto table = std::find_if(tables_.begin(), tables_.end(), [&](const auto& one) { return one.name == name; });
    p4::v1::TableEntry entry;
    entry.set_table_id(table->id);
    entry.set_priority(priority);
    entry.set_is_const(true);
    for (const auto& field : table->fields) {
        words >> word;
        std::string mask = octets_of(word.substr(word.find('/') + 1));
        if (mask != std::string(1, '\0')) {
            auto* match = entry.add_match();
            match->set_field_id(field.id);
            match->mutable_ternary()->set_value(octets_of(word.substr(0, word.find('/'))));
            match->mutable_ternary()->set_mask(mask);
        }
    }
    words >> word;
    auto action = std::find_if(table->actions.begin(), table->actions.end(),
                               [&](const auto& one) { return one.first->name == word; });
    auto& message = *entry.mutable_action()->mutable_action();
    message.set_action_id(action->first->id);
    for (const auto& param : action->first->params) {
        words >> word;
        message.add_params()->set_param_id(param.id);
        message.mutable_params(message.params_size() - 1)->set_value(octets_of(word));
    }
    table->entries.push_back(std::move(entry));
}

const TableSchema* Schema::find_table(uint32_t id) const {
    for (const auto& table : tables_) {
        if (table.id == id) {
            return &table;
        }
    }
    return nullptr;
}

const TableSchema& Schema::table(Table wanted) const {
    return *std::find_if(tables_.begin(), tables_.end(), [&](const auto& one) {
        return one.kind == TableSchema::Kind::kRows && one.table == wanted;
    });
}

const TableSchema& Schema::routes(Family wanted) const {
    return *std::find_if(tables_.begin(), tables_.end(), [&](const auto& one) {
        return one.kind == TableSchema::Kind::kRoutes && one.family == wanted;
    });
}

std::string Schema::difference(const p4i::P4Info& other) const {
    MessageDifferencer in_any_order;
    in_any_order.set_repeated_field_comparison(MessageDifferencer::AS_SET);
    if (in_any_order.Compare(p4info_, other)) {
        return {};
    }
    std::string report;
    MessageDifferencer in_order;
    in_order.ReportDifferencesToString(&report);
    in_order.Compare(p4info_, other);
    return report.substr(0, report.find('\n'));
}

}  // namespace splitplane
