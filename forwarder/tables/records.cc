// SPDX-License-Identifier: Apache-2.0
#include "tables/records.h"

namespace splitplane {

namespace {

constexpr size_t kAddressOctets[2] = {4, 16};

// Which of the extras follow a row.
constexpr uint8_t kHasMembers = 1, kHasMeter = 2, kHasNotes = 4;

}  // namespace

// -- writing ---------------------------------------------------------------------------------------------------------
void RecordWriter::put(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    octets_.insert(octets_.end(), text.begin(), text.end());
}

void RecordWriter::key(RecordKind kind, uint32_t vrf, Family family, const Prefix& prefix) {
    put(kind);
    put(static_cast<uint16_t>(vrf));
    put(family);
    put(prefix.length);
    octets_.insert(octets_.end(), prefix.address.begin(),
                   prefix.address.begin() + kAddressOctets[static_cast<size_t>(family)]);
}

void RecordWriter::notes(const Notes& notes) {
    put(notes.controller_metadata);
    put(std::string_view(notes.metadata));
}

void RecordWriter::slot(Space space, uint32_t slot, uint32_t id) {
    put(RecordKind::kSlot);
    put(space);
    put(slot);
    put(id);
}

void RecordWriter::route(uint32_t vrf, Family family, const Prefix& prefix, uint32_t leaf, const Notes* has) {
    key(RecordKind::kRoute, vrf, family, prefix);
    put(leaf);
    if (has != nullptr) {
        key(RecordKind::kRouteNotes, vrf, family, prefix);
        notes(*has);
    }
}

void RecordWriter::route_gone(uint32_t vrf, Family family, const Prefix& prefix) {
    key(RecordKind::kRouteGone, vrf, family, prefix);
}

void RecordWriter::row(Table table, Key key, const Row& row) {
    const Extras& extras = row.more();
    uint8_t has = (extras.members.empty() ? 0 : kHasMembers) | (extras.meter ? kHasMeter : 0) |
                  (extras.notes.empty() ? 0 : kHasNotes);
    put(RecordKind::kRow);
    put(table);
    put(key);
    put(row.action);
    put(row.params);
    put(row.base);
    put(extras.selection_mode);
    put(extras.size_semantics);
    put(has);
    if (has & kHasMembers) {
        put(static_cast<uint32_t>(extras.members.size()));
        for (const auto& member : extras.members) {
            put(member);
        }
    }
    if (has & kHasMeter) {
        put(*extras.meter);
    }
    if (has & kHasNotes) {
        notes(extras.notes);
    }
}

void RecordWriter::row_gone(Table table, Key key) {
    put(RecordKind::kRowGone);
    put(table);
    put(key);
}

void RecordWriter::member(uint32_t member_id, uint32_t nexthop_id) {
    put(RecordKind::kMember);
    put(member_id);
    put(nexthop_id);
}

void RecordWriter::member_gone(uint32_t member_id) {
    put(RecordKind::kMemberGone);
    put(member_id);
}

void RecordWriter::group(uint32_t group_id, const ProfileGroup& group) {
    put(RecordKind::kGroup);
    put(group_id);
    put(group.max_size);
    put(static_cast<uint32_t>(group.parts.size()));
    for (const auto& part : group.parts) {
        put(part);
    }
}

void RecordWriter::group_gone(uint32_t group_id) {
    put(RecordKind::kGroupGone);
    put(group_id);
}

void RecordWriter::pipeline(std::string_view config) {
    put(RecordKind::kPipeline);
    put(config);
}

void RecordWriter::election(uint64_t high, uint64_t low) {
    put(RecordKind::kElection);
    put(high);
    put(low);
}

void RecordWriter::cleared() {
    put(RecordKind::kCleared);
}

void RecordWriter::samples(const std::optional<SampleDigest>& digest) {
    if (!digest) {
        put(RecordKind::kSamplesGone);
        return;
    }
    put(RecordKind::kSamples);
    put(digest->max_timeout_ns);
    put(digest->max_list_size);
}

// -- reading ---------------------------------------------------------------------------------------------------------
std::span<const uint8_t> RecordReader::take(size_t size) {
    if (size > rest_.size()) {
        ok_ = false;
        rest_ = {};
        return {};
    }
    auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
}

std::string RecordReader::text() {
    auto octets = take(get<uint32_t>());
    return {reinterpret_cast<const char*>(octets.data()), octets.size()};
}

Prefix RecordReader::prefix(Family family) {
    Prefix prefix;
    prefix.length = get<uint8_t>();
    auto octets = take(kAddressOctets[static_cast<size_t>(family)]);
    std::copy(octets.begin(), octets.end(), prefix.address.begin());
    return prefix;
}

Notes RecordReader::notes() {
    Notes notes;
    notes.controller_metadata = get<uint64_t>();
    notes.metadata = text();
    return notes;
}

Row RecordReader::row() {
    Row row;
    Extras extras;
    row.action = get<Action>();
    row.params = get<std::array<uint64_t, 3>>();
    row.base = get<Count>();
    extras.selection_mode = get<uint8_t>();
    extras.size_semantics = get<uint8_t>();
    auto has = get<uint8_t>();
    if (has & kHasMembers) {
        for (auto left = get<uint32_t>(); left > 0 && ok_; --left) {
            extras.members.push_back(get<WeightedNexthop>());
        }
    }
    if (has & kHasMeter) {
        extras.meter = get<Meter>();
    }
    if (has & kHasNotes) {
        extras.notes = notes();
    }
    if (!extras.empty()) {
        row.extras = std::make_unique<const Extras>(std::move(extras));
    }
    return row;
}

ProfileGroup RecordReader::group() {
    ProfileGroup group;
    group.max_size = get<int32_t>();
    for (auto left = get<uint32_t>(); left > 0 && ok_; --left) {
        group.parts.push_back(get<ProfileGroup::Part>());
    }
    return group;
}

}  // namespace splitplane
