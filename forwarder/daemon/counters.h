// SPDX-License-Identifier: Apache-2.0
//
// What the pipeline has counted, summed over CPUs, by the ids of P4Runtime.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>

#include "engine/engine.h"

namespace splitplane {

struct Traffic {
    uint64_t packets = 0;
    uint64_t octets = 0;
    void operator+=(const Traffic& more) { packets += more.packets, octets += more.octets; }
};

struct InterfaceTraffic {
    Traffic received;
    Traffic sent;
};

// By sp_reason_index(); 0 is not used.
using ReasonTraffic = std::array<Traffic, SP_REASONS>;

// Punts that were lost, by sp_punt_place and sp_punt_class.
using LostPunts = std::array<std::array<uint64_t, SP_PUNT_CLASSES>, SP_PLACES>;

struct Counters {
    std::map<uint32_t, InterfaceTraffic> interfaces;  // by router_interface_id
    std::map<uint32_t, ReasonTraffic> routers;        // by vrf_id; 0: packets that are no router's
    std::map<uint32_t, LostPunts> lost_punts;         // by router_interface_id, of those that lost some
    std::array<uint64_t, SP_ENGINE_COUNTERS> engine{};

    InterfaceTraffic all_interfaces() const;
    ReasonTraffic all_routers() const;
};

// Read them while packets go on being counted: each number is one that was true, not all at the same instant.
// Interfaces are those on the ports.
Counters read_counters(const sp_arrays& arrays, std::span<const Port> ports);

// "ttl_expired", "blackhole", …, as the controller calls them (docs/planes.md); by sp_reason_index(), from 1 on.
extern const std::array<const char*, SP_REASONS> kReasonNames;
constexpr size_t kFirstDrop = 9;

// "bfd", "routing", … by sp_punt_class; "policer", "ring", "outbox" by sp_punt_place.
extern const std::array<const char*, SP_PUNT_CLASSES> kPuntClassNames;
extern const std::array<const char*, SP_PLACES> kPuntPlaceNames;

// Packets that are lost by it: "policed", "ring_full", …; nullptr for other counters.
extern const std::array<const char*, SP_ENGINE_COUNTERS> kEngineCounterNames;
// Of the same counters those of samples, whose packets are sent all the same: "taken", "policed", "ring_full".
extern const std::array<const char*, SP_ENGINE_COUNTERS> kSampleCounterNames;

}  // namespace splitplane
