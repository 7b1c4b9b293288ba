// SPDX-License-Identifier: Apache-2.0

#include "tests/pipeline/random_world.h"

#include <algorithm>

extern "C" {
#include "pipeline/core_clock.h"
}

namespace splitplane::test {
namespace {

constexpr uint32_t kVrfs = 3, kInterfaces = 8, kNexthops = 12, kGroups = 4, kPorts = 4, kRoutes = 40;
constexpr uint64_t kFull = ~uint64_t{0} << 32;  // a bucket of links
constexpr uint64_t kMacs[] = {kOwnMac, kOwnMac + 1, kVirtualMac, 0x0180c2000014, 0xffffffffffff, 0x01005e000005, 0};

uint32_t vlan_of(uint32_t slot) { return slot % 3 == 0 ? 0 : slot * 10; }
uint32_t port_of(uint32_t slot) { return 1 + slot % kPorts; }

uint32_t address4(Draw& draw) {
    const uint32_t base =
        draw.one_of<uint32_t>({0x0a000000, 0x0a010203, 0x0affffff, 0xc0000281, 0x80000001, 0xdfffffff});
    return draw.chance(50) ? base : base ^ static_cast<uint32_t>(draw.bits() >> draw.one_of({40, 48, 56, 62}));
}

uint32_t special4(Draw& draw) {
    return draw.one_of<uint32_t>(
        {0xe0000005, 0xe0000100, 0xffffffff, 0xfffffffe, 0x7f000001, 0, 0xf0000001, 0x00ffffff});
}

std::pair<uint64_t, uint64_t> address6(Draw& draw) {
    const uint64_t high = draw.one_of<uint64_t>({0x20010db800000000, 0x20010db8ffffffff, 0xfec0000000000000, 0, 1});
    const uint64_t low = draw.one_of<uint64_t>({2, 1, 0x8000000000000000, 0xffffffffffffffff});
    return {draw.chance(70) ? high : high ^ draw.below(16), draw.chance(50) ? low : low ^ draw.bits() >> 56};
}

std::pair<uint64_t, uint64_t> special6(Draw& draw) {
    return {draw.one_of<uint64_t>({0xff02000000000000, 0xff05000000000000, 0xfe80000000000000, 0xfebf000000000000, 0}),
            draw.one_of<uint64_t>({0, 1, 5})};
}

uint32_t leaf(Draw& draw) {
    const auto kind =
        draw.one_of<uint32_t>({SP_ROUTE_NEXTHOP, SP_ROUTE_NEXTHOP, SP_ROUTE_GROUP, SP_ROUTE_GROUP, SP_ROUTE_LOCAL,
                               SP_ROUTE_GLEAN, SP_ROUTE_UNREACHABLE, SP_ROUTE_BLACKHOLE, SP_ROUTE_FALLBACK});
    if (kind == SP_ROUTE_NEXTHOP) return sp_leaf(kind, static_cast<uint32_t>(draw.below(kNexthops)));
    return sp_leaf(kind, kind == SP_ROUTE_GROUP ? static_cast<uint32_t>(draw.below(kGroups)) : 0);
}

void write_nexthops(Writer& write, Draw& draw) {
    sp_arrays& tables = write.tables;
    for (uint32_t slot = 1; slot < kNexthops; ++slot) {
        const auto kind = draw.one_of<uint32_t>(
            {SP_NEXTHOP_FORWARD, SP_NEXTHOP_FORWARD, SP_NEXTHOP_FORWARD, SP_NEXTHOP_GLEAN, SP_NEXTHOP_FAILED});
        // Slot kInterfaces is no interface.
        const auto egress = static_cast<uint32_t>(1 + draw.below(kInterfaces));
        tables.nexthops[slot] = sp_nexthop(kind, egress, kNeighborMac + slot);
    }
    if (draw.chance(50)) tables.ports_down[0] = draw.bits() & draw.bits();
    uint32_t base = 16;
    for (uint32_t slot = 1; slot < kGroups; ++slot) {
        const auto size = static_cast<uint32_t>(draw.below(9));
        tables.groups[slot] = sp_group(base, size);
        for (uint32_t member = 0; member < size; ++member) {
            tables.members[base + member] = static_cast<uint16_t>(draw.below(kNexthops));
        }
        base += 16;
    }
}

// A port that has no room, one that has room for all while it is contended, one that is calm.
void write_links(Writer& write, Draw& draw) {
    sp_arrays& tables = write.tables;
    for (uint32_t port = 1; port <= kPorts; ++port) {
        const auto kind = draw.below(8);
        const auto slice = kind == 0 ? 0 : static_cast<sp_u32>(draw.below(2));
        tables.link_routers[port] = {0, 0, 1, slice, 0, kind == 0 ? 0 : kFull, 0, 0, 0};
        sp_link& link = tables.links[port];
        link.tick_ns = 1u << 20;
        if (kind == 0) {
            tables.link_modes[port] = sp_link_mode(SP_LINK_SHARED | SP_LINK_CONTENDED, 0);
        } else if (kind < 3) {
            tables.link_modes[port] = sp_link_mode(SP_LINK_SHARED | SP_LINK_CONTENDED | SP_LINK_ALWAYS, 0);
            link.speed = uint64_t{1} << 36;
            link.whole.level = link.speed << SP_LINK_LEVEL_SHIFT;
            link.whole.bucket = kFull;
        } else if (kind < 5) {
            tables.link_modes[port] = sp_link_mode(SP_LINK_SHARED, draw.one_of<uint64_t>({1, 1000, 1u << 30}));
            link.speed = uint64_t{1} << 36;
        }
    }
    tables.link_slices[1].weight = 1;
    tables.link_slices[1].whole.bucket = kFull;
    tables.link_slices[1].whole.level = ~uint64_t{0} >> 16;
    for (uint32_t slot = 1; slot < kInterfaces; ++slot) tables.link_slots[slot] = port_of(slot);
}

// Often with ports, or a type of ICMPv6, of which punts have a class.
Octets payload(Draw& draw, size_t octets) {
    Octets drawn = draw.octets(octets);
    if (octets >= 4 && draw.chance(50)) {
        Octets known;
        put(known, draw.one_of<uint64_t>({179, 50'000, 135 << 8, 128 << 8}), 2);
        put(known, draw.one_of<uint64_t>({179, 520, 521, 3784, 3785, 4784, 6696}), 2);
        std::copy(known.begin(), known.end(), drawn.begin());
    }
    return drawn;
}

Octets packet4(Draw& draw) {
    Ipv4 packet{.dst = draw.chance(10) ? special4(draw) : address4(draw),
                .src = draw.chance(7) ? special4(draw) : address4(draw)};
    packet.ttl = draw.one_of<uint8_t>({0, 1, 2, 64, 64, 64, 254, 255});
    packet.protocol = draw.one_of<uint8_t>({6, 17, 132, 1, 50, 89, 112});
    packet.payload = payload(draw, draw.one_of<size_t>({0, 3, 4, 26, 80, 1000}));
    if (draw.chance(10)) packet.options = Octets(draw.one_of<size_t>({4, 40}), 1);
    if (draw.chance(10)) packet.fragment = draw.one_of<uint16_t>({0x2000, 0x1fff, 1, 0x4000});
    if (draw.chance(3)) packet.header_checksum = static_cast<int>(draw.below(65536));
    if (draw.chance(3)) packet.length = draw.one_of({0, 19, 21, 1500, 65535});
    if (draw.chance(2)) packet.words = static_cast<int>(draw.below(16));
    return packet.octets();
}

Octets packet6(Draw& draw) {
    const auto [dst_high, dst_low] = draw.chance(10) ? special6(draw) : address6(draw);
    const auto [src_high, src_low] = draw.chance(7) ? special6(draw) : address6(draw);
    Ipv6 packet{.dst_high = dst_high, .dst_low = dst_low, .src_high = src_high, .src_low = src_low};
    packet.ttl = draw.one_of<uint8_t>({0, 1, 2, 64, 64, 255});
    packet.next_header = draw.one_of<uint8_t>({6, 17, 132, 0, 58, 44, 89, 112});
    packet.payload = payload(draw, draw.one_of<size_t>({0, 3, 4, 26, 1000}));
    if (draw.chance(3)) packet.length = draw.one_of({0, 21, 1500, 65535});
    return packet.octets();
}

}  // namespace

void write_random_tables(Writer& write, uint64_t seed) {
    Draw draw(seed);
    sp_arrays& tables = write.tables;
    for (uint32_t vrf = 0; vrf <= kVrfs; ++vrf) {
        write.router(vrf);
        tables.vrfs[vrf].counted = static_cast<uint32_t>(draw.bits());
        for (uint32_t each = 0; each < SP_PUNT_CLASSES; ++each) {
            if (draw.chance(20)) tables.policers[sp_policer_index(vrf, each)].shares = 0;
        }
    }
    for (uint32_t slot = 1; slot < kInterfaces; ++slot) {
        write.interface(slot, port_of(slot), vlan_of(slot), draw.one_of<uint32_t>({68, 100, 1280, 1500, 9000}));
        tables.interfaces[slot].more_macs[draw.below(SP_INTERFACE_MACS - 1)] = kVirtualMac;
        if (draw.chance(50))
            tables.interfaces[slot].fallback = SP_FALLBACK_PRESENT | 4 << 12 | (draw.chance(80) ? 300 + slot : 0);
        if (draw.chance(5)) tables.egresses[slot].rewrite = 0;
        if (draw.chance(70)) write.sample(slot);
        const uint32_t kind = draw.chance(90) ? SP_CLASSIFIER_INGRESS : SP_CLASSIFIER_EGRESS;
        if (draw.chance(95)) write.classify(port_of(slot), vlan_of(slot), slot, 1 + slot % kVrfs, kind);
    }
    write_nexthops(write, draw);
    write_links(write, draw);
    *tables.hash_seed = draw.chance(70) ? draw.bits() : 0;
    for (uint32_t route = 0; route < kRoutes; ++route) {
        const auto vrf = static_cast<uint32_t>(1 + draw.below(kVrfs));
        const auto length = draw.one_of<uint8_t>({0, 1, 8, 9, 16, 24, 30, 31, 32});
        const uint32_t mask = length == 0 ? 0 : ~0u << (32 - length);
        write.route4(address4(draw) & mask, length, leaf(draw), vrf);
        const auto [high, low] = address6(draw);
        const auto length6 = draw.one_of<uint8_t>({0, 3, 32, 48, 63, 64});
        write.route6(length6 == 0 ? 0 : high & ~0ull << (64 - length6), 0, length6, leaf(draw), vrf);
        write.route6(high, low, 128, leaf(draw), vrf);
    }
}

void hold_back_some(sp_arrays& tables, uint64_t seed) {
    constexpr uint32_t kNs = SP_CORE_FRACTION;
    Draw draw(seed);
    for (uint32_t vrf = 1; vrf <= kVrfs; ++vrf) {
        tables.router_shares[vrf] = {draw.one_of<uint32_t>({0, 1, 7}), draw.one_of<uint32_t>({0, 1000}),
                                     draw.one_of<uint32_t>({0, 20000}), draw.one_of<uint32_t>({0, 1, 2})};
        sp_core_router router{};
        router.spent = router.told = 1'000'000'000;
        router.due = router.spent + draw.below(60'000);
        router.at = draw.one_of<uint64_t>({900'000, 1'000'000});
        router.cost = static_cast<uint32_t>(100 + draw.below(200)) * kNs;
        for (uint32_t cpu = 0; cpu < tables.cpus; ++cpu) tables.core_routers[size_t{cpu} * SP_VRFS + vrf] = router;
    }
    sp_core core{};
    core.clock = 1'000'000;
    core.left = SP_CORE_TRUST - 1;
    core.until_timed = ~0u;
    core.level = SP_CORE_WHOLE / 100;
    core.measured = 1;
    core.driver_cost = 90 * kNs;
    core.driver_drop = 40 * kNs;
    core.drop_cost = 30 * kNs;
    for (uint32_t cpu = 0; cpu < tables.cpus; ++cpu) tables.cores[cpu] = core;
}

Arrival random_arrival(Draw& draw) {
    const auto slot = static_cast<uint32_t>(draw.below(kInterfaces));
    const uint64_t to = draw.chance(80) ? kOwnMac : kMacs[draw.below(std::size(kMacs))];
    int vlan = vlan_of(slot) == 0 ? -1 : static_cast<int>(vlan_of(slot));
    if (draw.chance(6)) vlan = draw.one_of({0, 0, 1, 4095, 33});
    Octets frame;
    if (draw.chance(6)) {
        const auto ether_type = draw.one_of<uint16_t>({0x0806, 0x0028, 0x05dc, 0x0600, 0x88cc, 0x8100, 0x86dd});
        frame = ethernet(to, kHostMac, ether_type, draw.octets(40), vlan, 3);
    } else {
        const bool six = draw.chance(45);
        frame = ethernet(to, kHostMac, six ? 0x86dd : 0x0800, six ? packet6(draw) : packet4(draw), vlan, 3);
    }
    if (draw.chance(5)) frame.resize(frame.size() + draw.below(20));
    if (draw.chance(5)) frame.resize(14 + draw.below(frame.size() - 13));
    if (draw.chance(3)) frame[draw.below(frame.size())] ^= static_cast<uint8_t>(1 << draw.below(8));
    const uint32_t port = draw.chance(97) ? port_of(slot) : static_cast<uint32_t>(draw.below(SP_PORTS));
    return {port == 0 ? 1 : port, std::move(frame)};
}

std::vector<uint64_t> totals(const sp_arrays& tables) {
    const auto add = [&](std::vector<uint64_t>& to, const sp_counter* counters, size_t each) {
        for (size_t slot = 0; slot < each; ++slot) {
            uint64_t packets = 0, bytes = 0;
            for (size_t cpu = 0; cpu < tables.cpus; ++cpu) {
                packets += counters[cpu * each + slot].packets;
                bytes += counters[cpu * each + slot].bytes;
            }
            to.push_back(packets);
            to.push_back(bytes);
        }
    };
    std::vector<uint64_t> all;
    add(all, tables.rx, SP_INTERFACES);
    add(all, tables.tx, SP_INTERFACES);
    add(all, tables.reasons, size_t{SP_VRFS} * SP_REASONS);
    for (uint32_t port = 1; port <= kPorts; ++port) all.push_back(tables.link_routers[port].dropped);
    for (size_t vrf = 0; vrf < SP_VRFS; ++vrf) {
        uint64_t dropped = 0;
        for (size_t cpu = 0; cpu < tables.cpus; ++cpu) dropped += tables.core_routers[cpu * SP_VRFS + vrf].dropped;
        all.push_back(dropped);
    }
    all.insert(all.end(), tables.punt_drops, tables.punt_drops + sp_punt_drop_index(SP_INTERFACES, 0, 0));
    return all;
}

}  // namespace splitplane::test
