// SPDX-License-Identifier: Apache-2.0
//
// What the journal's frames hold: one record for each change, by slot where an array is meant and by id where a table
// is. Repeating a record changes nothing, so that an older state may be written behind a newer one of the same entry.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fib/fib.h"
#include "tables/objects.h"
#include "tables/row.h"

namespace splitplane {

enum class RecordKind : uint8_t {
    kSlot = 1,
    kRoute = 2,       // with the notes of the route gone
    kRouteNotes = 3,  // behind its route
    kRouteGone = 4,
    kRow = 5,
    kRowGone = 6,
    kMember = 7,
    kMemberGone = 8,
    kGroup = 9,
    kGroupGone = 10,
    kPipeline = 11,
    kElection = 12,
    kCleared = 13,  // all entries are gone
    kCloneSession = 14,  // of samples, in earlier versions: read over
    kSamples = 15,
    kSamplesGone = 16,
};

class RecordWriter {
  public:
    void slot(Space space, uint32_t slot, uint32_t id);
    void route(uint32_t vrf, Family family, const Prefix& prefix, uint32_t leaf, const Notes* notes);
    void route_gone(uint32_t vrf, Family family, const Prefix& prefix);
    void row(Table table, Key key, const Row& row);
    void row_gone(Table table, Key key);
    void member(uint32_t member_id, uint32_t nexthop_id);
    void member_gone(uint32_t member_id);
    void group(uint32_t group_id, const ProfileGroup& group);
    void group_gone(uint32_t group_id);
    void pipeline(std::string_view config);
    void election(uint64_t high, uint64_t low);
    void cleared();
    void samples(const std::optional<SampleDigest>& digest);

    std::span<const uint8_t> octets() const { return octets_; }
    void reset() { octets_.clear(); }

  private:
    template <typename T>
    void put(T value) {
        static_assert(std::is_trivially_copyable_v<T>);
        size_t at = octets_.size();
        octets_.resize(at + sizeof value);
        memcpy(octets_.data() + at, &value, sizeof value);
    }
    void put(std::string_view text);
    void key(RecordKind kind, uint32_t vrf, Family family, const Prefix& prefix);
    void notes(const Notes& notes);

    std::vector<uint8_t> octets_;
};

// Reads what the writer wrote. Every get() past the end gives zeros and makes ok() false.
class RecordReader {
  public:
    explicit RecordReader(std::span<const uint8_t> octets) : rest_(octets) {}

    bool ok() const { return ok_; }
    bool done() const { return rest_.empty(); }

    template <typename T>
    T get() {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        auto octets = take(sizeof value);
        if (octets.size() == sizeof value) {
            memcpy(&value, octets.data(), sizeof value);
        }
        return value;
    }
    std::string text();
    Prefix prefix(Family family);
    Notes notes();
    Row row();
    ProfileGroup group();

  private:
    std::span<const uint8_t> take(size_t size);

    std::span<const uint8_t> rest_;
    bool ok_ = true;
};

}  // namespace splitplane
