// SPDX-License-Identifier: Apache-2.0
//
// Entries of all tables but the routes', as numbers: a key of at most two fields and an action of at most three.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

extern "C" {
#include "pipeline/layout.h"
}

namespace splitplane {

enum class Table : uint8_t {
    kInterfaceClassifier,    // ingress_port, vlan_id
    kL3Admit,                // router_interface_id, dst_mac
    kRouterInterface,        // router_interface_id
    kRouterInterfaceEgress,  // router_interface_id
    kFallbackLink,           // router_interface_id
    kNexthop,                // nexthop_id
    kNexthopGroup,           // nexthop_group_id
    kReason,                 // vrf_id, reason
    kPolicer,                // vrf_id, punt_class
    kRouterShare,            // vrf_id; of no P4Info, as the next (server/shares.h)
    kSliceShare,             // slice_id
};
inline constexpr size_t kTables = 11;

struct TableTraits {
    const char* name;
    uint32_t size;  // in entries, as in p4src/common
    bool counted;   // has a direct counter
};
const TableTraits& traits(Table table);

// How many entries tables take, where that is less than their size. What a table holds already stays.
class TableLimits {
  public:
    uint32_t of(Table table) const { return limits_[static_cast<size_t>(table)].value_or(traits(table).size); }
    void set(Table table, uint32_t entries) { limits_[static_cast<size_t>(table)] = entries; }

  private:
    std::array<std::optional<uint32_t>, kTables> limits_;
};

// Actions by name; their parameters in the order of their ids.
enum class Action : uint8_t {
    kNone,
    kSetRouterInterface,        // router_interface_id, vrf_id
    kSetEgressRouterInterface,  // router_interface_id, vrf_id
    kAdmit,
    kSetPort,          // port, vlan_id, mtu
    kRewrite,          // src_mac
    kSendToFallback,   // port, vlan_id
    kSetNeighbor,      // router_interface_id, neighbor_mac
    kGleanNeighbor,    // router_interface_id
    kNeighborFailed,   // router_interface_id
    kCountReason,
    kPolice,
    kOneShot,          // a group's: Extras::members
    kProfileMember,    // a group's: the member's id
    kProfileGroup,     // a group's: the group's id
    kShare,            // weight, guarantee and ceiling (Share), slice_id
};

// The values of a table's match fields in the order of their ids; a second that is not there is 0.
struct Key {
    uint64_t first = 0;
    uint64_t second = 0;
    auto operator<=>(const Key&) const = default;
};

struct Count {
    uint64_t packets = 0;
    uint64_t bytes = 0;
};

// RFC 2698, in packets.
struct Meter {
    int64_t cir = 0;
    int64_t cburst = 0;
    int64_t pir = 0;
    int64_t pburst = 0;
    bool operator==(const Meter&) const = default;
};

// What a router, or a slice, gets of a core and of a link that are too small for all. Guarantee and ceiling are parts of
// the whole, SP_SHARE_WHOLE; 0: none.
struct Share {
    uint32_t weight = 1;
    uint32_t guarantee = 0;
    uint32_t ceiling = 0;
    bool operator==(const Share&) const = default;
};

// One of a group's actions: set_member_nexthop(nexthop_id), by weight.
struct WeightedNexthop {
    uint32_t nexthop_id;
    uint32_t weight;
    bool operator==(const WeightedNexthop&) const = default;
};

// The digest of samples: how long one may wait until it is sent, and how many are sent together at most, 0 for as many as
// the server likes.
struct SampleDigest {
    int64_t max_timeout_ns = 0;
    int32_t max_list_size = 0;
    bool operator==(const SampleDigest&) const = default;
};

// How often samples are taken where a controller wants them, or routes are counted: one of so many packets, and so many a
// second at most.
struct SampleRate {
    uint32_t one_in = 25;
    uint32_t per_s = 10'000;
    bool count_routes = false;  // by samples (route_counts.h)
};

// What is kept for the controller alone and returned as written.
struct Notes {
    std::string metadata;
    uint64_t controller_metadata = 0;
    bool empty() const { return metadata.empty() && controller_metadata == 0; }
    bool operator==(const Notes&) const = default;
};

// What few rows have.
struct Extras {
    std::vector<WeightedNexthop> members;  // of a one-shot group
    uint8_t selection_mode = 0;            // ActionSelectionMode, as written
    uint8_t size_semantics = 0;            // SizeSemantics, as written
    std::optional<Meter> meter;
    Notes notes;
    bool empty() const {
        return members.empty() && selection_mode == 0 && size_semantics == 0 && !meter && notes.empty();
    }
};

// A key or a parameter that is the id of something: all ids have 32 bits.
inline uint32_t id_of(uint64_t value) {
    return static_cast<uint32_t>(value);
}

struct Row {
    Action action = Action::kNone;
    std::array<uint64_t, 3> params{};
    Count base{};  // what the array had counted when this row's counter was 0
    std::unique_ptr<const Extras> extras;

    const Extras& more() const;
    const Notes& notes() const { return more().notes; }
};

// A share as the parameters of Action::kShare, and back.
inline std::array<uint64_t, 3> share_params(const Share& share, uint32_t slice_id) {
    return {share.weight, uint64_t{share.guarantee} << 32 | share.ceiling, slice_id};
}
inline Share share_of(const Row& row) {
    return {id_of(row.params[0]), id_of(row.params[1] >> 32), id_of(row.params[1])};
}
inline uint32_t slice_of(const Row& row) {
    return id_of(row.params[2]);
}

// A member and a group of the action profile nexthop_group_selector.
struct ProfileMember {
    uint32_t nexthop_id = 0;
    uint32_t users = 0;  // groups and entries that name it
};
struct ProfileGroup {
    struct Part {
        uint32_t member_id;
        uint32_t weight;
    };
    std::vector<Part> parts;
    int32_t max_size = 0;
    uint32_t users = 0;  // entries that name it
};

// Which router a route belongs to and where it points; `object_id` is that of SP_ROUTE_NEXTHOP and SP_ROUTE_GROUP.
struct RouteAction {
    sp_route_kind kind = SP_ROUTE_NONE;
    uint32_t object_id = 0;
};

}  // namespace splitplane
