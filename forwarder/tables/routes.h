// SPDX-License-Identifier: Apache-2.0
//
// ipv4_route and ipv6_route: routes by vrf_id and prefix, kept in the tries alone. What a route points to is its leaf;
// only notes of the controller, which few routes have, are kept beside.
#pragma once

#include <optional>
#include <unordered_map>

#include "fib/fib.h"
#include "tables/objects.h"
#include "tables/row.h"

namespace splitplane {

inline constexpr size_t kRoutes[2] = {1048576, 262144};  // IPV4_ROUTES, IPV6_ROUTES
inline constexpr size_t kRouteNoteOctets = 64u << 20;    // of all routes together

const char* route_table_name(Family family);

// A route by its router's slot.
struct RouteAt {
    uint32_t vrf;
    Family family;
    Prefix prefix;
    bool operator==(const RouteAt&) const = default;
};
struct RouteAtHash {
    size_t operator()(const RouteAt& route) const;
};

class Routes {
  public:
    // Where a reading of a table goes on.
    struct Cursor {
        uint32_t vrf = 0;  // slot
        std::optional<Prefix> prefix;
    };

    Routes(sp_arrays& arrays, GracePeriods& grace, Objects& objects);

    // The leaf of a route by slot, 0: none.
    uint32_t find(uint32_t vrf_id, Family family, const Prefix& prefix) const;
    RouteAction action_of(uint32_t leaf) const;
    const Notes* notes(uint32_t vrf, Family family, const Prefix& prefix) const;

    // Where a packet to an address (a prefix of full length) goes: the longest prefix that covers it, by slot.
    std::optional<Prefix> longest(uint32_t vrf, Family family, const Prefix& address) const {
        return fib_.longest(vrf, family, address);
    }

    // Insert or replace; nothing has changed where it is refused. `vrf` and `leaf` become what the route is by slot.
    Result put(uint32_t vrf_id, Family family, const Prefix& prefix, RouteAction action, Notes notes, uint32_t& vrf,
               uint32_t& leaf);
    // The route is there.
    Result remove(uint32_t vrf_id, Family family, const Prefix& prefix);

    // The same by slot, for what was recorded; slots have their ids already.
    Result restore(uint32_t vrf, Family family, const Prefix& prefix, uint32_t leaf);
    Result restore_erased(uint32_t vrf, Family family, const Prefix& prefix);
    Result restore_notes(uint32_t vrf, Family family, const Prefix& prefix, Notes notes);

    // Call visit(vrf slot, prefix, leaf) for routes from the cursor on, at most `limit`; false when there are no more.
    template <typename Visit>
    bool visit(Family family, Cursor& cursor, size_t limit, Visit visit) const {
        while (cursor.vrf < SP_VRFS) {
            uint32_t leaf = 0;
            while (limit > 0 && fib_.next(cursor.vrf, family, cursor.prefix, leaf)) {
                visit(cursor.vrf, *cursor.prefix, leaf);
                --limit;
            }
            if (limit == 0) {
                return true;
            }
            cursor = {fib_.next_used(cursor.vrf + 1, family), std::nullopt};
        }
        return false;
    }

    size_t size(Family family) const { return fib_.size(family); }
    size_t size(uint32_t vrf, Family family) const { return fib_.size(vrf, family); }
    size_t note_octets() const { return note_octets_; }
    FibMemory memory() const { return fib_.memory(); }

  private:
    std::optional<uint32_t> acquire_target(RouteAction action);
    void release_target(uint32_t leaf);
    Result check_notes(const RouteAt& route, const Notes& notes) const;
    void set_notes(const RouteAt& route, Notes notes);
    Result full(Family family) const;

    Objects& objects_;
    Fib fib_;
    std::unordered_map<RouteAt, Notes, RouteAtHash> notes_;
    size_t note_octets_ = 0;
};

}  // namespace splitplane
