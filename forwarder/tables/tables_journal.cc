// SPDX-License-Identifier: Apache-2.0
//
// Tables and their journal: replay at the start, and rewriting when most of the file is superseded.
#include "tables/tables.h"

#include <algorithm>

namespace splitplane {

namespace {

constexpr size_t kRewriteEntries = 20'000;     // with each request while a rewriting is under way: some 10 ms
constexpr size_t kRewriteFromOctets = 4 << 20;  // a smaller file is left alone
constexpr size_t kRouteOctets[2] = {13, 25};
constexpr size_t kRowOctets = 80;

bool known(Table table) {
    return static_cast<size_t>(table) < kTables;
}

void check_fits(const Result& result) {
    if (!result.ok()) {
        throw JournalError("the journal does not fit into these tables: " + result.text);
    }
}

}  // namespace

Tables::Tables(sp_arrays& arrays, GracePeriods& grace, std::filesystem::path journal, SampleRate rate,
               const TableLimits& limits)
    : arrays_(arrays),
      objects_(arrays, grace, [this](Space space, uint32_t slot, uint32_t id) { pending_.slot(space, slot, id); }),
      rows_(arrays, grace, objects_, rate),
      routes_(arrays, grace, objects_),
      route_counts_(arrays, rate),
      journal_(std::move(journal)) {
    cut_octets_ = journal_.replay([this](std::span<const uint8_t> records) { replay(records); });
    objects_.restored();
    routes_replayed_ = routes_.size(Family::kIpv4) + routes_.size(Family::kIpv6);
    pending_.reset();
    rows_.limit(limits);
}

// -- replay ----------------------------------------------------------------------------------------------------------
void Tables::replay(std::span<const uint8_t> records) {
    RecordReader reader(records);
    while (!reader.done()) {
        replay_one(reader);
    }
    if (!reader.ok()) {
        throw JournalError("the journal holds what this version cannot read; remove it to start with empty tables");
    }
}

void Tables::replay_one(RecordReader& reader) {
    switch (auto kind = reader.get<RecordKind>(); kind) {
        case RecordKind::kSlot: {
            auto space = reader.get<Space>();
            auto slot = reader.get<uint32_t>(), id = reader.get<uint32_t>();
            if (static_cast<size_t>(space) < kSpaces && !objects_.restore(space, slot, id)) {
                throw JournalError("the journal gives slot " + std::to_string(slot) + " of " +
                                   objects_.of(space).name() + " to " + std::to_string(id) +
                                   " while another has it; remove it to start with empty tables");
            }
            break;
        }
        case RecordKind::kRoute:
        case RecordKind::kRouteNotes:
        case RecordKind::kRouteGone:
            replay_route(kind, reader);
            break;
        case RecordKind::kRow:
            replay_row(reader);
            break;
        case RecordKind::kRowGone: {
            auto table = reader.get<Table>();
            auto key = reader.get<Key>();
            if (known(table)) {
                rows_.of(table).remove(key);
            }
            break;
        }
        case RecordKind::kMember: {
            auto member_id = reader.get<uint32_t>();
            check_fits(rows_.profile().put_member(member_id, reader.get<uint32_t>()));
            break;
        }
        case RecordKind::kMemberGone:
            rows_.profile().remove_member(reader.get<uint32_t>());
            break;
        case RecordKind::kGroup: {
            auto group_id = reader.get<uint32_t>();
            ProfileGroup group = reader.group();
            check_fits(rows_.profile().put_group(group_id, group.max_size, std::move(group.parts)));
            break;
        }
        case RecordKind::kGroupGone:
            rows_.profile().remove_group(reader.get<uint32_t>());
            break;
        case RecordKind::kPipeline:
            pipeline_ = reader.text();
            break;
        case RecordKind::kElection:
            election_.high = reader.get<uint64_t>();
            election_.low = reader.get<uint64_t>();
            break;
        case RecordKind::kCleared:
            clear();
            break;
        case RecordKind::kCloneSession:
            reader.get<uint64_t>();
            break;
        case RecordKind::kSamples: {
            SampleDigest digest;
            digest.max_timeout_ns = reader.get<int64_t>();
            digest.max_list_size = reader.get<int32_t>();
            rows_.router_interfaces().sample(digest);
            break;
        }
        case RecordKind::kSamplesGone:
            rows_.router_interfaces().sample(std::nullopt);
            break;
        default:
            throw JournalError("the journal holds a record of kind " + std::to_string(static_cast<int>(kind)) +
                               ", which this version does not know; remove it to start with empty tables");
    }
    pending_.reset();
}

void Tables::replay_route(RecordKind kind, RecordReader& reader) {
    auto vrf = reader.get<uint16_t>();
    auto family = reader.get<Family>();
    if (vrf >= SP_VRFS || static_cast<size_t>(family) > 1) {
        return;
    }
    Prefix prefix = reader.prefix(family);
    if (kind == RecordKind::kRoute) {
        check_fits(routes_.restore(vrf, family, prefix, reader.get<uint32_t>()));
    } else if (kind == RecordKind::kRouteNotes) {
        check_fits(routes_.restore_notes(vrf, family, prefix, reader.notes()));
    } else {
        check_fits(routes_.restore_erased(vrf, family, prefix));
    }
}

void Tables::replay_row(RecordReader& reader) {
    auto table = reader.get<Table>();
    auto key = reader.get<Key>();
    Row row = reader.row();
    if (!known(table)) {
        return;
    }
    check_fits(rows_.of(table).put(key, std::move(row)));
    if (traits(table).counted) {
        rows_.of(table).adopt_base(key);
    }
}

// -- rewriting -------------------------------------------------------------------------------------------------------
void Tables::commit() {
    if (links_changed_) rows_.links().divide();
    links_changed_ = false;
    journal_.append(pending_.octets());
    pending_.reset();
    const size_t live = std::max(live_octets(), rewritten_octets_);
    bool superseded = journal_.octets() > kRewriteFromOctets && journal_.octets() > 2 * live;
    if (!journal_.rewriting() && (superseded || journal_.broken())) {
        begin_rewriting();
    }
    if (journal_.rewriting()) {
        rewrite_some();
    }
}

// At least: not all of what rows have of their own is counted, as their notes.
size_t Tables::live_octets() const {
    size_t octets = pipeline_.size() + routes_.note_octets();
    for (Family family : {Family::kIpv4, Family::kIpv6}) {
        octets += routes_.size(family) * kRouteOctets[static_cast<size_t>(family)];
    }
    for (size_t table = 0; table < kTables; ++table) {
        octets += rows_.of(static_cast<Table>(table)).rows().size() * kRowOctets;
    }
    return octets;
}

// What others name comes first, all at once; then rows and routes, part by part. Whatever changes meanwhile is
// recorded behind, so that the new file never says more than is true.
void Tables::begin_rewriting() {
    if (!journal_.begin_rewrite()) {
        return;
    }
    rewriting_ = {};
    RecordWriter records;
    for (size_t space = 0; space < kSpaces; ++space) {
        objects_.of(static_cast<Space>(space)).each([&](uint32_t slot, uint32_t id) {
            records.slot(static_cast<Space>(space), slot, id);
        });
    }
    records.pipeline(pipeline_);
    records.election(election_.high, election_.low);
    records.samples(samples());
    for (const auto& [member_id, member] : rows_.profile().members()) {
        records.member(member_id, member.nexthop_id);
    }
    for (const auto& [group_id, group] : rows_.profile().groups()) {
        records.group(group_id, group);
    }
    journal_.append_rewrite(records.octets());
}

void Tables::rewrite_some() {
    RecordWriter records;
    size_t left = kRewriteEntries;
    left -= rewrite_rows(records, left);
    left -= rewrite_routes(records, left);
    bool done = rewriting_.table == kTables && rewriting_.family == 2;
    if (journal_.append_rewrite(records.octets()) && done && journal_.finish_rewrite()) {
        ++rewrites_;
        rewritten_octets_ = journal_.octets();
    }
}

size_t Tables::rewrite_rows(RecordWriter& records, size_t limit) {
    size_t written = 0;
    while (rewriting_.table < kTables && written < limit) {
        auto table = static_cast<Table>(rewriting_.table);
        const auto& rows = rows_.of(table).rows();
        auto row = rewriting_.key ? rows.upper_bound(*rewriting_.key) : rows.begin();
        for (; row != rows.end() && written < limit; ++row, ++written) {
            records.row(table, row->first, row->second);
            rewriting_.key = row->first;
        }
        if (row == rows.end()) {
            ++rewriting_.table;
            rewriting_.key.reset();
        }
    }
    return written;
}

size_t Tables::rewrite_routes(RecordWriter& records, size_t limit) {
    size_t written = 0;
    while (rewriting_.table == kTables && rewriting_.family < 2 && written < limit) {
        auto family = static_cast<Family>(rewriting_.family);
        bool more = routes_.visit(family, rewriting_.route, limit - written,
                                  [&](uint32_t vrf, const Prefix& prefix, uint32_t leaf) {
                                      records.route(vrf, family, prefix, leaf, routes_.notes(vrf, family, prefix));
                                      ++written;
                                  });
        if (!more) {
            ++rewriting_.family;
            rewriting_.route = {};
        }
    }
    return written;
}

}  // namespace splitplane
