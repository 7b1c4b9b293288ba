// SPDX-License-Identifier: Apache-2.0
//
// All tables of the pipeline: what a controller writes goes into the arrays and into the journal, what it reads comes
// from them.
//
//     write_* ─► Routes ─► fib/ ─► words          ─┐
//             └► Rows ──► interfaces, nexthops, … ─┴─► commit ─► journal ─► replayed by the next process
//
// A thing that refers to an id that has no entry (yet) is accepted: it acts as a miss until there is one.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>

#include "tables/journal.h"
#include "tables/records.h"
#include "tables/route_counts.h"
#include "tables/routes.h"
#include "tables/rows.h"

namespace splitplane {

inline constexpr uint32_t kProfileMembers = SP_GROUP_MEMBERS;
inline constexpr uint32_t kProfileGroups = SP_GROUPS;
inline constexpr size_t kMaxMetadataOctets = 4096;  // of one entry

// An entry as a controller wants it. Without an action, MODIFY leaves the one there is, and the notes.
struct RowWrite {
    Action action = Action::kNone;
    std::array<uint64_t, 3> params{};
    Extras extras;
    std::optional<Count> count;  // its counter's value, if it is to have another than 0 or the one it has
};

struct ElectionId {
    uint64_t high = 0;
    uint64_t low = 0;
    auto operator<=>(const ElectionId&) const = default;
};

struct JournalStatus {
    size_t octets = 0;
    size_t rewrites = 0;
    size_t cut_octets = 0;  // of a frame that the process before did not finish
    size_t routes_replayed = 0;
    bool broken = false;    // changes are not kept: the file cannot be written
    bool rewriting = false;  // a new file is being written, some entries with each commit
};

// What a router has had of the cores, and what it lost as it was over its share, since its slot became its own.
struct ShareUse {
    uint64_t core_ns = 0;
    uint64_t over_share_core = 0;  // packets
    uint64_t over_share_link = 0;  // packets
    bool operator==(const ShareUse&) const = default;
};

// Not for two threads at a time: whoever calls anything but lock() holds the lock.
class Tables {
  public:
    // Fill the arrays, all zero except counters, with what the journal holds; without a path nothing is kept.
    // JournalError. Limits are for what is written later: what forwards goes on.
    Tables(sp_arrays& arrays, GracePeriods& grace, std::filesystem::path journal = {}, SampleRate rate = {},
           const TableLimits& limits = {});

    [[nodiscard]] std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }

    // -- writing: values fit their fields, and prefixes have no bits behind their length ---------------------------
    // Without a kind, MODIFY leaves the action there is, and the notes.
    Result write_route(Op op, uint32_t vrf_id, Family family, const Prefix& prefix, RouteAction action, Notes notes);
    Result write_row(Op op, Table table, Key key, RowWrite row);
    Result set_count(Table table, Key key, Count count);
    Result set_meter(Key key, std::optional<Meter> meter);
    Result write_member(Op op, uint32_t member_id, uint32_t nexthop_id);
    Result write_group(Op op, uint32_t group_id, int32_t max_size, std::vector<ProfileGroup::Part> parts);
    // The one digest that there is.
    Result write_samples(Op op, const SampleDigest& digest);
    void set_pipeline(std::string config);
    void set_election(ElectionId highest);
    // Remove every entry; pipeline and election id stay.
    void clear();
    // Keep what was written since the last call, and divide links by it; before it is confirmed to anybody.
    void commit();

    // -- reading ---------------------------------------------------------------------------------------------------
    const Routes& routes() const { return routes_; }
    const Rows& rows() const { return rows_; }
    const Objects& objects() const { return objects_; }
    std::optional<SampleDigest> samples() const { return rows_.router_interfaces().samples(); }  // without the lock, too
    // Where a router interface sends; without the lock, too.
    std::optional<WayOut> way_out(uint32_t router_interface_id) const {
        return rows_.router_interfaces().way_out(router_interface_id);
    }
    // Of punts that came in by a router interface's slot, those lost at a place; without the lock, too.
    uint64_t punt_drops(uint32_t interface, uint32_t place, uint32_t punt_class) const {
        return __atomic_load_n(&arrays_.punt_drops[sp_punt_drop_index(interface, place, punt_class)], __ATOMIC_RELAXED);
    }
    void count_punt_drop(uint32_t interface, uint32_t place, uint32_t punt_class) {
        __atomic_fetch_add(&arrays_.punt_drops[sp_punt_drop_index(interface, place, punt_class)], 1, __ATOMIC_RELAXED);
    }
    // Whether routes are counted, by samples; those that were lost; without the lock, too.
    bool counts_routes() const { return route_counts_.kept(); }
    uint64_t route_samples_dropped() const { return route_counts_.dropped(); }
    // Take a sample that the engine gives; without the lock, too.
    void count_routed(const RoutedPacket& sample);
    // Have the counts of routes be those of all samples that have come.
    void settle_route_counts() { route_counts_.settle(routes_); }
    Count route_count(const RouteAt& route) const { return route_counts_.of(route); }
    // By a router's slot; without the lock, too.
    ShareUse share_use(uint32_t vrf) const;
    bool hashes_by_router() const { return *arrays_.hash_seed != 0; }  // set before there are readers
    // How links are divided; without the lock, too.
    LinkShares& links() { return rows_.links(); }
    const std::string& pipeline() const { return pipeline_; }
    ElectionId election() const { return election_; }
    JournalStatus journal_status() const;

  private:
    // How far a rewriting of the journal has come.
    struct Rewriting {
        size_t table = 0;
        std::optional<Key> key;
        size_t family = 0;
        Routes::Cursor route;
    };

    Result insert_or_modify(Op op, Table table, Key key, RowWrite wanted, const Row* before);
    Result modify_without_action(Table table, Key key, const RowWrite& wanted, const Row& before);
    Result check_mixing(Action action) const;
    Result check_profile_row(const RowWrite& row) const;
    void clear_routes();

    void replay(std::span<const uint8_t> records);
    void replay_one(RecordReader& reader);
    void replay_row(RecordReader& reader);
    void replay_route(RecordKind kind, RecordReader& reader);
    void rewrite_some();
    void begin_rewriting();
    size_t rewrite_rows(RecordWriter& records, size_t limit);
    size_t rewrite_routes(RecordWriter& records, size_t limit);
    size_t live_octets() const;

    sp_arrays& arrays_;
    mutable std::mutex mutex_;
    RecordWriter pending_;
    Objects objects_;
    Rows rows_;
    Routes routes_;
    RouteCounts route_counts_;
    std::string pipeline_;
    ElectionId election_;
    Journal journal_;
    Rewriting rewriting_;
    bool links_changed_ = false;  // what links are divided by
    size_t rewrites_ = 0, cut_octets_ = 0, routes_replayed_ = 0;
    size_t rewritten_octets_ = 0;  // of the file when the last rewriting ended
};

}  // namespace splitplane
