// SPDX-License-Identifier: Apache-2.0
#include "server/reading.h"

#include "server/device_features.h"
#include "server/encoding.h"
#include "server/port_losses.h"
#include "server/punt_drops.h"
#include "server/samples.h"
#include "server/shares.h"

namespace splitplane {

namespace {

constexpr int kEntitiesAtOnce = 2000;      // some 150 KiB, and 1 ms of the lock
constexpr size_t kOctetsAtOnce = 1 << 20;  // where notes and groups are long: clients take 4 MiB by default
constexpr size_t kRoutesAtOnce = 100;
constexpr size_t kMemberOctets = 32;
constexpr const char* kUncounted = "routes are not counted one by one; start vr-forwarder with --route-counters";

}  // namespace

struct Reading::Filter {
    const p4::v1::TableEntry& wanted;
    bool any_table;
    uint32_t action_id;
};

Reading::Reading(const Tables& tables, const Schema& schema, Engine& engine, ReadSink sink)
    : tables_(tables),
      schema_(schema),
      engine_(engine),
      sink_(std::move(sink)),
      part_(google::protobuf::Arena::CreateMessage<p4::v1::ReadResponse>(&arena_)) {}

Reading::~Reading() = default;

p4::v1::Entity& Reading::add() {
    ++entities_;
    return *part_->add_entities();
}

bool Reading::full() const {
    return part_->entities_size() >= kEntitiesAtOnce || octets_ >= kOctetsAtOnce;
}

// Not with the lock held: the sink waits for the client.
void Reading::flush() {
    if (part_->entities_size() > 0) {
        cancelled_ = cancelled_ || !sink_(*part_);
        arena_.Reset();
        octets_ = 0;
        part_ = google::protobuf::Arena::CreateMessage<p4::v1::ReadResponse>(&arena_);
    }
}

// All of a map, in parts.
template <typename Map, typename Visit>
void Reading::visit_all(const Map& map, Visit visit) {
    std::optional<typename Map::key_type> behind;
    for (bool more = true; more && !cancelled_;) {
        {
            auto lock = tables_.lock();
            auto entry = behind ? map.upper_bound(*behind) : map.begin();
            for (; entry != map.end() && !full(); ++entry) {
                visit(entry->first, entry->second);
                behind = entry->first;
            }
            more = entry != map.end();
        }
        flush();
    }
}

// One of a map; false: there is none.
template <typename Map, typename Visit>
bool Reading::visit_one(const Map& map, const typename Map::key_type& key, Visit visit) {
    bool found = false;
    {
        auto lock = tables_.lock();
        auto entry = map.find(key);
        found = entry != map.end();
        if (found) {
            visit(entry->first, entry->second);
        }
    }
    flush();
    return found;
}

Result Reading::read(const p4::v1::Entity& wanted) {
    switch (wanted.entity_case()) {
        case p4::v1::Entity::kTableEntry:
            return read_entries(wanted.table_entry());
        case p4::v1::Entity::kActionProfileMember:
            return read_members(wanted.action_profile_member());
        case p4::v1::Entity::kActionProfileGroup:
            return read_groups(wanted.action_profile_group());
        case p4::v1::Entity::kDirectCounterEntry:
            return read_resources(wanted.direct_counter_entry().table_entry(), true);
        case p4::v1::Entity::kDirectMeterEntry:
            return read_resources(wanted.direct_meter_entry().table_entry(), false);
        case p4::v1::Entity::kDigestEntry:
            return read_samples(wanted.digest_entry());
        case p4::v1::Entity::kExternEntry:
            return read_extern(wanted.extern_entry());
        case p4::v1::Entity::kPacketReplicationEngineEntry:
            return {};  // none can be written, so there is none; clients that clear a device ask first
        case p4::v1::Entity::ENTITY_NOT_SET:
            return {Code::kInvalidArgument, "a read needs an entity"};
        default:
            return {Code::kUnimplemented,
                    "there are only tables, an action profile, a digest, lost punts and frames, features and shares"};
    }
}

// Without an id all digests are wanted.
Result Reading::read_samples(const p4::v1::DigestEntry& wanted) {
    Result result = wanted.digest_id() == 0 ? Result() : check_digest(schema_, wanted.digest_id());
    if (const auto digest = tables_.samples(); result.ok() && digest) {
        encode_samples(schema_, *digest, *add().mutable_digest_entry());
    }
    flush();
    return result;
}

// Without an id all of the type are wanted.
Result Reading::read_extern(const p4::v1::ExternEntry& wanted) {
    struct Extern {
        uint32_t type, id;
        void (Reading::*read)();
    };
    static constexpr Extern kAll[] = {
        {kPuntDropsType, kFeaturesId, &Reading::read_features},
        {kPuntDropsType, kPuntDropsId, &Reading::read_punt_drops},
        {kPuntDropsType, kPortLossesId, &Reading::read_port_losses},
        {kSharesType, kSliceShareId, &Reading::read_shares<Table::kSliceShare>},
        {kSharesType, kRouterShareId, &Reading::read_shares<Table::kRouterShare>},
        {kSharesType, kShareUseId, &Reading::read_share_use},
    };
    bool found = false;
    for (const Extern& one : kAll) {
        if (one.type == wanted.extern_type_id() && (one.id == wanted.extern_id() || wanted.extern_id() == 0)) {
            (this->*one.read)();
            found = true;
        }
    }
    flush();
    return found ? Result()
                 : Result(Code::kNotFound, "no extern " + std::to_string(wanted.extern_id()) + " of type " +
                                               std::to_string(wanted.extern_type_id()));
}

void Reading::read_features() {
    std::vector<std::string> names{"resilient_hash", "local_failover"};
    if (tables_.hashes_by_router()) {
        names.emplace_back("hash_by_router");
    }
    if (engine_.shares()) {
        names.emplace_back("shares");
    }
    if (tables_.counts_routes()) {
        names.emplace_back("sampled_route_counters");
    }
    encode_features(names, *add().mutable_extern_entry());
}

// The slots of a space, and the ids that they stand for.
std::vector<std::pair<uint32_t, uint32_t>> Reading::slots_of(Space space) const {
    std::vector<std::pair<uint32_t, uint32_t>> slots;
    auto lock = tables_.lock();
    tables_.objects().of(space).each([&](uint32_t slot, uint32_t id) { slots.emplace_back(slot, id); });
    return slots;
}

// Of all router interfaces; what is counted meanwhile is counted or not.
void Reading::read_punt_drops() {
    const auto interfaces = slots_of(Space::kInterface);
    for (auto at = interfaces.begin(); at != interfaces.end() && !cancelled_; ++at) {
        for (uint32_t place = 0; place < SP_PLACES; ++place) {
            for (uint32_t each = 0; each < SP_PUNT_CLASSES; ++each) {
                if (const uint64_t packets = tables_.punt_drops(at->first, place, each)) {
                    encode_punt_drops({at->second, place, each, packets}, *add().mutable_extern_entry());
                }
            }
        }
        if (full()) {
            flush();
        }
    }
}

// Of all ports that the engine has; what is lost meanwhile is counted or not.
void Reading::read_port_losses() {
    for (const PortLosses& losses : engine_.losses()) {
        encode_port_losses(losses, [this]() -> auto& { return *add().mutable_extern_entry(); });
        if (full()) {
            flush();
        }
    }
}

template <Table table>
void Reading::read_shares() {
    visit_all(tables_.rows().of(table).rows(), [this](Key key, const Row& row) {
        encode_share(table, key, row, *add().mutable_extern_entry());
    });
}

// Of all routers that have had anything; what is counted meanwhile is counted or not.
void Reading::read_share_use() {
    const auto routers = slots_of(Space::kVrf);
    for (auto at = routers.begin(); at != routers.end() && !cancelled_; ++at) {
        if (const ShareUse use = tables_.share_use(at->first); use != ShareUse()) {
            encode_share_use(at->second, use, *add().mutable_extern_entry());
        }
        if (full()) {
            flush();
        }
    }
}

// -- table entries ---------------------------------------------------------------------------------------------------
Result Reading::read_entries(const p4::v1::TableEntry& wanted) {
    uint32_t action_id = wanted.action().has_action() ? wanted.action().action().action_id() : 0;
    if (wanted.table_id() != 0) {
        const TableSchema* table = schema_.find_table(wanted.table_id());
        if (table == nullptr) {
            return {Code::kNotFound, "no table " + std::to_string(wanted.table_id())};
        }
        Result result = check(*table, wanted);
        return result.ok() ? read_table(*table, {wanted, false, action_id}) : result;
    }
    if (wanted.match_size() != 0 || wanted.has_action() || wanted.priority() != 0) {
        return {Code::kInvalidArgument, "a read of all tables takes no filter"};
    }
    for (const auto& table : schema_.tables()) {
        Result result = read_table(table, {wanted, true, 0});
        if (!result.ok() || cancelled_) {
            return result;
        }
    }
    return {};
}

Result Reading::check(const TableSchema& table, const p4::v1::TableEntry& wanted) const {
    if (wanted.has_counter_data() && table.kind == TableSchema::Kind::kRoutes && !tables_.counts_routes()) {
        return refuse(Code::kUnimplemented, table.name, kUncounted);
    }
    if ((wanted.has_counter_data() && !table.counted) || (wanted.has_meter_config() && !table.metered)) {
        return refuse(Code::kInvalidArgument, table.name, "it has no direct counter or meter of this kind");
    }
    if (wanted.has_meter_counter_data()) {
        return refuse(Code::kUnimplemented, table.name, "packets are not counted by color");
    }
    if (wanted.has_time_since_last_hit() || wanted.idle_timeout_ns() != 0) {
        return refuse(Code::kInvalidArgument, table.name, "it has no idle timeout");
    }
    return {};
}

Result Reading::read_table(const TableSchema& table, const Filter& filter) {
    if (filter.wanted.is_default_action()) {
        encode_default(table, *add().mutable_table_entry());
        flush();
        return {};
    }
    if (table.kind == TableSchema::Kind::kConst) {
        read_const(table, filter);
        return {};
    }
    return table.kind == TableSchema::Kind::kRoutes ? read_routes(table, filter) : read_rows(table, filter);
}

void Reading::read_const(const TableSchema& table, const Filter& filter) {
    const auto& wanted = filter.wanted;
    p4::v1::TableEntry key;
    *key.mutable_match() = wanted.match();
    for (const auto& entry : table.entries) {
        p4::v1::TableEntry other;
        *other.mutable_match() = entry.match();
        bool same = (wanted.match_size() == 0 || key.SerializeAsString() == other.SerializeAsString()) &&
                    (wanted.priority() == 0 || wanted.priority() == entry.priority()) &&
                    (filter.action_id == 0 || filter.action_id == entry.action().action().action_id());
        if (same && wanted.metadata().empty() && wanted.controller_metadata() == 0) {
            *add().mutable_table_entry() = entry;
        }
    }
    flush();
}

Result Reading::read_rows(const TableSchema& table, const Filter& filter) {
    const auto& rows = tables_.rows().of(table.table).rows();
    const auto visit = [&](Key key, const Row& row) { read_row(table, key, row, filter); };
    Result result;
    if (filter.wanted.match_size() == 0) {
        visit_all(rows, visit);
    } else if (Key key; (result = decode_key(table, filter.wanted, key)).ok()) {
        visit_one(rows, key, visit);
    }
    return result;
}

Result Reading::read_routes(const TableSchema& table, const Filter& filter) {
    const auto visit = [&](uint32_t vrf, const Prefix& prefix, uint32_t leaf) {
        read_route(table, vrf, prefix, leaf, filter);
    };
    Result result;
    if (filter.wanted.match_size() == 0) {
        visit_routes(table, visit);
    } else if (RouteKey key; (result = decode_route_key(table, filter.wanted, key)).ok()) {
        visit_route(table, key, visit);
    }
    return result;
}

void Reading::read_row(const TableSchema& table, Key key, const Row& row, const Filter& filter) {
    const auto& wanted = filter.wanted;
    const Notes& notes = row.notes();
    const ActionSchema* action = table.selector ? nullptr : table.action_of(row.action);
    bool other = (filter.action_id != 0 && (action == nullptr || action->id != filter.action_id)) ||
                 (wanted.controller_metadata() != 0 && wanted.controller_metadata() != notes.controller_metadata) ||
                 (!wanted.metadata().empty() && wanted.metadata() != notes.metadata) || wanted.priority() != 0;
    if (other) {
        return;
    }
    auto& entry = *add().mutable_table_entry();
    octets_ += notes.metadata.size() + row.more().members.size() * kMemberOctets;
    encode_row(schema_, table, key, row, entry);
    if (wanted.has_counter_data() && table.counted) {
        encode_count(tables_.rows().of(table.table).count(key, row), *entry.mutable_counter_data());
    }
    if (wanted.has_meter_config() && row.more().meter) {
        encode_meter(*row.more().meter, *entry.mutable_meter_config());
    }
}

// All routes of a table, in parts.
template <typename Visit>
void Reading::visit_routes(const TableSchema& table, Visit visit) {
    Routes::Cursor cursor;
    for (bool more = true; more && !cancelled_;) {
        {
            auto lock = tables_.lock();
            for (int some = 0; more && !full() && some * kRoutesAtOnce < kEntitiesAtOnce; ++some) {
                more = tables_.routes().visit(table.family, cursor, kRoutesAtOnce, visit);
            }
        }
        flush();
    }
}

// One route; false: there is none.
template <typename Visit>
bool Reading::visit_route(const TableSchema& table, const RouteKey& key, Visit visit) {
    uint32_t leaf = 0;
    {
        auto lock = tables_.lock();
        leaf = tables_.routes().find(key.vrf_id, table.family, key.prefix);
        if (leaf != 0) {
            visit(tables_.objects().slot(Space::kVrf, key.vrf_id), key.prefix, leaf);
        }
    }
    flush();
    return leaf != 0;
}

void Reading::read_route(const TableSchema& table, uint32_t vrf, const Prefix& prefix, uint32_t leaf,
                         const Filter& filter) {
    const auto& wanted = filter.wanted;
    RouteAction action = tables_.routes().action_of(leaf);
    const Notes* notes = tables_.routes().notes(vrf, table.family, prefix);
    bool noted = wanted.controller_metadata() != 0 || !wanted.metadata().empty();
    bool other = (filter.action_id != 0 && table.action_of(action.kind)->id != filter.action_id) ||
                 wanted.priority() != 0 || (noted && notes == nullptr) ||
                 (noted && wanted.controller_metadata() != 0 &&
                  wanted.controller_metadata() != notes->controller_metadata) ||
                 (noted && !wanted.metadata().empty() && wanted.metadata() != notes->metadata);
    if (!other) {
        octets_ += notes == nullptr ? 0 : notes->metadata.size();
        auto& entry = *add().mutable_table_entry();
        encode_route(table, tables_.objects().id_of(Space::kVrf, vrf), prefix, action, notes, entry);
        if (wanted.has_counter_data() && tables_.counts_routes()) {
            encode_count(tables_.route_count({vrf, table.family, prefix}), *entry.mutable_counter_data());
        }
    }
}

// -- direct counters and meters --------------------------------------------------------------------------------------
Result Reading::read_resources(const p4::v1::TableEntry& wanted, bool counters) {
    if (wanted.table_id() != 0) {
        const TableSchema* table = schema_.find_table(wanted.table_id());
        if (table == nullptr) {
            return {Code::kNotFound, "no table " + std::to_string(wanted.table_id())};
        }
        if (counters && table->kind == TableSchema::Kind::kRoutes) {
            return read_route_counters(*table, wanted);
        }
        if (!(counters ? table->counted : table->metered)) {
            return refuse(Code::kInvalidArgument, table->name, "it has no direct counter or meter of this kind");
        }
        return read_resource(*table, wanted, counters);
    }
    for (const auto& table : schema_.tables()) {
        bool has = table.kind == TableSchema::Kind::kRows && (counters ? table.counted : table.metered);
        if (has && !cancelled_) {
            read_resource(table, wanted, counters);
        } else if (table.kind == TableSchema::Kind::kRoutes && counters && tables_.counts_routes() && !cancelled_) {
            read_route_counters(table, wanted);
        }
    }
    return {};
}

Result Reading::read_route_counters(const TableSchema& table, const p4::v1::TableEntry& wanted) {
    if (!tables_.counts_routes()) {
        return refuse(Code::kUnimplemented, table.name, kUncounted);
    }
    const auto visit = [&](uint32_t vrf, const Prefix& prefix, uint32_t) {
        auto& entry = *add().mutable_direct_counter_entry();
        encode_route_key(table, tables_.objects().id_of(Space::kVrf, vrf), prefix, *entry.mutable_table_entry());
        encode_count(tables_.route_count({vrf, table.family, prefix}), *entry.mutable_data());
    };
    Result result;
    if (wanted.match_size() == 0) {
        visit_routes(table, visit);
    } else if (RouteKey key; (result = decode_route_key(table, wanted, key)).ok() && !visit_route(table, key, visit)) {
        result = refuse(Code::kNotFound, table.name, "no such entry");
    }
    return result;
}

Result Reading::read_resource(const TableSchema& table, const p4::v1::TableEntry& wanted, bool counters) {
    const auto& rows = tables_.rows().of(table.table).rows();
    const auto visit = [&](Key key, const Row& row) { add_resource(table, key, row, counters); };
    Result result;
    if (wanted.match_size() == 0) {
        visit_all(rows, visit);
    } else if (Key key; (result = decode_key(table, wanted, key)).ok() && !visit_one(rows, key, visit)) {
        result = refuse(Code::kNotFound, table.name, "no such entry");
    }
    return result;
}

void Reading::add_resource(const TableSchema& table, Key key, const Row& row, bool counters) {
    auto& entity = add();
    if (counters) {
        encode_key(table, key, *entity.mutable_direct_counter_entry()->mutable_table_entry());
        encode_count(tables_.rows().of(table.table).count(key, row),
                     *entity.mutable_direct_counter_entry()->mutable_data());
        return;
    }
    encode_key(table, key, *entity.mutable_direct_meter_entry()->mutable_table_entry());
    if (row.more().meter) {
        encode_meter(*row.more().meter, *entity.mutable_direct_meter_entry()->mutable_config());
    }
}

// -- the action profile ----------------------------------------------------------------------------------------------
Result Reading::read_members(const p4::v1::ActionProfileMember& wanted) {
    if (wanted.action_profile_id() != 0 && wanted.action_profile_id() != schema_.profile_id()) {
        return {Code::kNotFound, "no action profile " + std::to_string(wanted.action_profile_id())};
    }
    const auto& members = tables_.rows().profile().members();
    const auto visit = [this](uint32_t id, const ProfileMember& member) {
        auto& message = *add().mutable_action_profile_member();
        message.set_action_profile_id(schema_.profile_id());
        message.set_member_id(id);
        encode_member(schema_, member.nexthop_id, *message.mutable_action());
    };
    if (wanted.member_id() == 0) {
        visit_all(members, visit);
    } else {
        visit_one(members, wanted.member_id(), visit);
    }
    return {};
}

Result Reading::read_groups(const p4::v1::ActionProfileGroup& wanted) {
    if (wanted.action_profile_id() != 0 && wanted.action_profile_id() != schema_.profile_id()) {
        return {Code::kNotFound, "no action profile " + std::to_string(wanted.action_profile_id())};
    }
    const auto& groups = tables_.rows().profile().groups();
    const auto visit = [this](uint32_t id, const ProfileGroup& group) {
        auto& message = *add().mutable_action_profile_group();
        message.set_action_profile_id(schema_.profile_id());
        message.set_group_id(id);
        message.set_max_size(group.max_size);
        octets_ += group.parts.size() * kMemberOctets;
        for (const auto& part : group.parts) {
            auto* member = message.add_members();
            member->set_member_id(part.member_id);
            member->set_weight(static_cast<int32_t>(part.weight));
        }
    };
    if (wanted.group_id() == 0) {
        visit_all(groups, visit);
    } else {
        visit_one(groups, wanted.group_id(), visit);
    }
    return {};
}

}  // namespace splitplane
