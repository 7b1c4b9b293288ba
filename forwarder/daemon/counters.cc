// SPDX-License-Identifier: Apache-2.0

#include "daemon/counters.h"

namespace splitplane {

const std::array<const char*, SP_REASONS> kReasonNames{
    "",           "control",         "local",      "glean",
    "ttl_expired", "mtu_exceeded",   "unreachable", "ip_options",
    "hop_by_hop", "unknown_interface", "not_for_us", "blackhole",
    "neighbor_failed", "multicast",  "l2_multicast", "martian",
    "ethertype",  "malformed", "over_share",
};

const std::array<const char*, SP_PUNT_CLASSES> kPuntClassNames{
    "bfd", "routing", "bgp", "arp", "icmp", "local", "glean", "ttl", "mtu", "unreachable", "options",
};

const std::array<const char*, SP_PLACES> kPuntPlaceNames{"policer", "ring", "outbox"};

const std::array<const char*, SP_ENGINE_COUNTERS> kEngineCounterNames{
    "policed", "ring_full", "no_port", "no_room", "too_long", nullptr, nullptr, nullptr,
};

const std::array<const char*, SP_ENGINE_COUNTERS> kSampleCounterNames{
    nullptr, nullptr, nullptr, nullptr, nullptr, "taken", "policed", "ring_full",
};

namespace {

template <typename T>
T loaded(const T& word) {
    return __atomic_load_n(&word, __ATOMIC_RELAXED);
}

// One slot of an array [cpus][slots].
Traffic summed(const sp_counter* counters, uint32_t cpus, size_t slots, size_t slot) {
    Traffic sum;
    for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
        const sp_counter& counter = counters[cpu * slots + slot];
        sum += {loaded(counter.packets), loaded(counter.bytes)};
    }
    return sum;
}

void read_interfaces(const sp_arrays& arrays, std::span<const Port> ports, Counters& counters) {
    for (const Port& port : ports) {
        for (uint32_t vlan = 0; vlan < SP_VLANS; ++vlan) {
            const sp_u64 entry = loaded(arrays.classifier[sp_classifier_index(port.number, vlan)]);
            if (sp_classifier_kind(entry) != SP_CLASSIFIER_INGRESS) continue;
            const uint32_t id = arrays.interfaces[sp_classifier_interface(entry)].id;
            counters.interfaces[id].received +=
                summed(arrays.rx, arrays.cpus, SP_INTERFACES, sp_classifier_counter(entry));
        }
    }
    for (uint32_t slot = 0; slot < SP_INTERFACES; ++slot) {
        if (loaded(arrays.egresses[slot].rewrite) == 0) continue;
        counters.interfaces[arrays.interfaces[slot].id].sent += summed(arrays.tx, arrays.cpus, SP_INTERFACES, slot);
    }
}

void read_lost_punts(const sp_arrays& arrays, Counters& counters) {
    for (uint32_t slot = 0; slot < SP_INTERFACES; ++slot) {
        for (uint32_t place = 0; place < SP_PLACES; ++place) {
            for (uint32_t each = 0; each < SP_PUNT_CLASSES; ++each) {
                const uint64_t packets = loaded(arrays.punt_drops[sp_punt_drop_index(slot, place, each)]);
                if (packets != 0) counters.lost_punts[arrays.interfaces[slot].id][place][each] += packets;
            }
        }
    }
}

void read_routers(const sp_arrays& arrays, Counters& counters) {
    constexpr size_t kSlots = size_t{SP_VRFS} * SP_REASONS;
    for (uint32_t slot = 0; slot < SP_VRFS; ++slot) {
        const uint32_t id = loaded(arrays.vrfs[slot].id);  // it may go at any time
        if (slot != 0 && id == 0) continue;
        ReasonTraffic& reasons = counters.routers[id];
        for (size_t reason = 1; reason < SP_REASONS; ++reason) {
            reasons[reason] = summed(arrays.reasons, arrays.cpus, kSlots, slot * SP_REASONS + reason);
        }
    }
}

}  // namespace

Counters read_counters(const sp_arrays& arrays, std::span<const Port> ports) {
    Counters counters;
    read_interfaces(arrays, ports, counters);
    read_routers(arrays, counters);
    read_lost_punts(arrays, counters);
    for (uint32_t cpu = 0; cpu < arrays.cpus; ++cpu) {
        for (size_t each = 0; each < SP_ENGINE_COUNTERS; ++each) {
            counters.engine[each] += loaded(arrays.engine_counters[cpu * SP_ENGINE_COUNTERS + each]);
        }
    }
    return counters;
}

InterfaceTraffic Counters::all_interfaces() const {
    InterfaceTraffic all;
    for (const auto& [id, traffic] : interfaces) {
        all.received += traffic.received;
        all.sent += traffic.sent;
    }
    return all;
}

ReasonTraffic Counters::all_routers() const {
    ReasonTraffic all{};
    for (const auto& [id, reasons] : routers) {
        for (size_t reason = 1; reason < SP_REASONS; ++reason) all[reason] += reasons[reason];
    }
    return all;
}

}  // namespace splitplane
