// SPDX-License-Identifier: Apache-2.0
//
// Tables for tests: one router on plain memory, written as the daemon writes them.
#pragma once

#include "engine/memory_engine.h"
#include "fib/fib.h"
#include "tests/pipeline/native.h"

namespace splitplane::test {

constexpr uint64_t kOwnMac = 0x0200000000aa;
constexpr uint64_t kVirtualMac = 0x00005e000101;
constexpr uint64_t kHostMac = 0x020000000099;
constexpr uint64_t kNeighborMac = 0x0200000000bb;

constexpr uint32_t kVrf = 1;
constexpr uint32_t kLan = 1, kLanVlan = 2, kUp = 3, kUpVlan = 4;  // interface slots; ids are 100 more
constexpr uint32_t kLanPort = 1, kUpPort = 2;
constexpr uint32_t kVlan = 100, kUpTag = 200;
constexpr uint64_t kMillisecond = 1'000'000;  // nanoseconds
constexpr uint32_t kToUp = 1, kToUpVlan = 2;  // nexthop slots

struct NoReaders : GracePeriods {
    void synchronize() override {}
};

inline Prefix prefix4(uint32_t address, uint8_t length) {
    Prefix prefix;
    for (int at = 0; at < 4; ++at)
        prefix.address[static_cast<size_t>(at)] = static_cast<uint8_t>(address >> (24 - 8 * at));
    prefix.length = length;
    return prefix;
}

inline Prefix prefix6(uint64_t high, uint64_t low, uint8_t length) {
    Prefix prefix;
    for (size_t at = 0; at < 8; ++at) {
        prefix.address[at] = static_cast<uint8_t>(high >> (56 - 8 * at));
        prefix.address[at + 8] = static_cast<uint8_t>(low >> (56 - 8 * at));
    }
    prefix.length = length;
    return prefix;
}

// Writes entries into any engine's tables.
class Writer {
  public:
    explicit Writer(sp_arrays& arrays) : tables(arrays), fib(arrays, grace_) {}

    void interface(uint32_t slot, uint32_t port, uint32_t vlan, uint32_t mtu = 1500, uint64_t mac = kOwnMac) {
        tables.macs[slot] = mac;
        tables.egresses[slot] = {sp_port(port, vlan, mtu), SP_PRESENT | mac};
        tables.interfaces[slot].id = 100 + slot;
    }
    void classify(uint32_t port, uint32_t vlan, uint32_t slot, uint32_t vrf = kVrf,
                  uint32_t kind = SP_CLASSIFIER_INGRESS) {
        tables.classifier[sp_classifier_index(port, vlan)] = sp_classifier(kind, vrf, slot, slot);
    }
    void police(uint32_t vrf, uint32_t punt_class, uint32_t interval_ns = 0, uint64_t tolerance_ns = 0) {
        tables.policers[sp_policer_index(vrf, punt_class)] = {0, tolerance_ns, interval_ns, 1, 0};
    }
    // Samples of what leaves by a router interface: all of them, without a limit.
    void sample(uint32_t slot) {
        tables.egresses[slot].port |= SP_SAMPLED;
        *tables.sampling = {~0u, {0, 0, 0, 1, 0}};
    }
    void router(uint32_t vrf) {
        tables.vrfs[vrf].id = vrf;
        tables.vrfs[vrf].counted = ~0u;
        for (uint32_t each = 0; each < SP_PUNT_CLASSES; ++each) police(vrf, each);
    }
    void route4(uint32_t address, uint8_t length, uint32_t leaf, uint32_t vrf = kVrf) {
        fib.set(vrf, Family::kIpv4, prefix4(address, length), leaf);
    }
    void route6(uint64_t high, uint64_t low, uint8_t length, uint32_t leaf, uint32_t vrf = kVrf) {
        fib.set(vrf, Family::kIpv6, prefix6(high, low, length), leaf);
    }
    // The router of most tests: two interfaces towards hosts, two upwards, one of each tagged.
    void usual_router() {
        router(0);
        router(kVrf);
        interface(kLan, kLanPort, 0);
        interface(kLanVlan, kLanPort, kVlan);
        interface(kUp, kUpPort, 0);
        interface(kUpVlan, kUpPort, kUpTag);
        tables.interfaces[kLan].more_macs[2] = kVirtualMac;
        for (uint32_t slot = kLan; slot <= kLanVlan; ++slot) classify(kLanPort, slot == kLan ? 0 : kVlan, slot);
        for (uint32_t slot = kUp; slot <= kUpVlan; ++slot) classify(kUpPort, slot == kUp ? 0 : kUpTag, slot);
        tables.nexthops[kToUp] = sp_nexthop(SP_NEXTHOP_FORWARD, kUp, kNeighborMac);
        tables.nexthops[kToUpVlan] = sp_nexthop(SP_NEXTHOP_FORWARD, kUpVlan, kNeighborMac);
        route4(0x0a020000, 16, sp_leaf(SP_ROUTE_NEXTHOP, kToUp));
        route6(0x20010db800020000, 0, 48, sp_leaf(SP_ROUTE_NEXTHOP, kToUp));
        route4(0x0a030000, 16, sp_leaf(SP_ROUTE_NEXTHOP, kToUpVlan));
        route6(0x20010db800030000, 0, 48, sp_leaf(SP_ROUTE_NEXTHOP, kToUpVlan));
        route4(0x0a010001, 32, sp_leaf(SP_ROUTE_LOCAL, 0));
        route6(0x20010db800010000, 1, 128, sp_leaf(SP_ROUTE_LOCAL, 0));
    }

    sp_arrays& tables;
    Fib fib;

  private:
    NoReaders grace_;
};

// The usual router on plain memory.
struct World {
    MemoryEngine engine{Capacity{.words = 1u << 16, .members = 1u << 10}, 1};
    sp_arrays& tables = engine.arrays();
    Writer write{tables};

    World() { write.usual_router(); }

    Outcome run(const Octets& frame, uint32_t port = kLanPort, uint64_t now_ns = 0) const {
        return test::run(tables, port, frame, now_ns);
    }
    // A packet to the router by its untagged interface.
    Outcome arrives(const Ipv4& packet) const { return run(ethernet(kOwnMac, kHostMac, 0x0800, packet.octets())); }
    Outcome arrives(const Ipv6& packet) const { return run(ethernet(kOwnMac, kHostMac, 0x86dd, packet.octets())); }

    uint64_t counted(uint32_t reason, uint32_t vrf = kVrf) const {
        return tables.reasons[vrf * SP_REASONS + sp_reason_index(reason)].packets;
    }
};

}  // namespace splitplane::test
