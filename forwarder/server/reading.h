// SPDX-License-Identifier: Apache-2.0
//
// What one entity of a ReadRequest asks for, read in parts: P4Runtime 1.4, sections 9.1 and 13.
//
// The tables are locked for one part at a time, so that a reading of a million routes does not stop the writers: each
// part is as of one moment between two WriteRequests, parts are not of the same moment.
#pragma once

#include <functional>

#include "engine/engine.h"
#include "server/decoding.h"
#include "server/schema.h"
#include "tables/tables.h"

namespace splitplane {

// Takes the entities of a part; false ends the reading: nobody is there to take more.
using ReadSink = std::function<bool(const p4::v1::ReadResponse&)>;

class Reading {
  public:
    // `engine`: whose losses are told, and whether it keeps routers to their shares.
    Reading(const Tables& tables, const Schema& schema, Engine& engine, ReadSink sink);
    ~Reading();

    // Give everything that a request's entity asks for to the sink.
    Result read(const p4::v1::Entity& wanted);
    bool cancelled() const { return cancelled_; }
    uint64_t entities() const { return entities_; }

  private:
    struct Filter;

    Result read_entries(const p4::v1::TableEntry& wanted);
    Result read_table(const TableSchema& table, const Filter& filter);
    Result check(const TableSchema& table, const p4::v1::TableEntry& wanted) const;
    void read_const(const TableSchema& table, const Filter& filter);
    Result read_rows(const TableSchema& table, const Filter& filter);
    Result read_routes(const TableSchema& table, const Filter& filter);
    void read_row(const TableSchema& table, Key key, const Row& row, const Filter& filter);
    Result read_route_counters(const TableSchema& table, const p4::v1::TableEntry& wanted);
    void read_route(const TableSchema& table, uint32_t vrf, const Prefix& prefix, uint32_t leaf, const Filter& filter);
    Result read_resources(const p4::v1::TableEntry& wanted, bool counters);
    Result read_resource(const TableSchema& table, const p4::v1::TableEntry& wanted, bool counters);
    void add_resource(const TableSchema& table, Key key, const Row& row, bool counters);
    Result read_members(const p4::v1::ActionProfileMember& wanted);
    Result read_groups(const p4::v1::ActionProfileGroup& wanted);
    Result read_samples(const p4::v1::DigestEntry& wanted);
    Result read_extern(const p4::v1::ExternEntry& wanted);
    void read_features();
    void read_punt_drops();
    void read_port_losses();
    template <Table table>
    void read_shares();
    void read_share_use();
    std::vector<std::pair<uint32_t, uint32_t>> slots_of(Space space) const;

    template <typename Map, typename Visit>
    void visit_all(const Map& map, Visit visit);
    template <typename Map, typename Visit>
    bool visit_one(const Map& map, const typename Map::key_type& key, Visit visit);
    template <typename Visit>
    void visit_routes(const TableSchema& table, Visit visit);
    template <typename Visit>
    bool visit_route(const TableSchema& table, const RouteKey& key, Visit visit);
    p4::v1::Entity& add();
    bool full() const;
    void flush();

    const Tables& tables_;
    const Schema& schema_;
    Engine& engine_;
    ReadSink sink_;
    google::protobuf::Arena arena_;
    p4::v1::ReadResponse* part_;
    size_t octets_ = 0;  // of the part, beside what every entry takes
    uint64_t entities_ = 0;
    bool cancelled_ = false;
};

}  // namespace splitplane
