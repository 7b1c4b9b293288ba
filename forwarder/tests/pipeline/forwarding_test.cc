// SPDX-License-Identifier: Apache-2.0
//
// route, ttl, nexthop_group, nexthop, router_interface, fallback_link: what becomes of a transit packet.

#include <gtest/gtest.h>

#include <map>

#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

constexpr uint32_t kFar = 0xc0000200, kTo = 0xc0000209;  // 192.0.2.0/24 and an address in it

struct Forwarding : ::testing::Test, World {
    void far(uint32_t leaf) { write.route4(kFar, 24, leaf); }
    uint32_t reason(const Ipv4& packet) const { return arrives(packet).reason; }
};

// -- route ------------------------------------------------------------------------------------------------------------
TEST_F(Forwarding, EachKindOfRoute) {
    EXPECT_EQ(reason({.dst = kTo}), SP_PUNT_UNREACHABLE) << "no route";
    far(sp_leaf(SP_ROUTE_GLEAN, 0));
    EXPECT_EQ(reason({.dst = kTo}), SP_PUNT_GLEAN);
    far(sp_leaf(SP_ROUTE_UNREACHABLE, 0));
    EXPECT_EQ(reason({.dst = kTo}), SP_PUNT_UNREACHABLE);
    far(sp_leaf(SP_ROUTE_BLACKHOLE, 0));
    EXPECT_EQ(reason({.dst = kTo}), SP_DROP_BLACKHOLE);
    far(sp_leaf(SP_ROUTE_LOCAL, 0));
    EXPECT_EQ(reason({.dst = kTo}), SP_PUNT_LOCAL);
    far(sp_leaf(SP_ROUTE_NEXTHOP, kToUp));
    EXPECT_EQ(reason({.dst = kTo}), SP_NO_REASON);
}

TEST_F(Forwarding, LongestPrefixOfTheRouterDecides) {
    write.router(2);
    write.interface(5, 5, 0);
    write.classify(5, 0, 5, 2);
    write.route4(0, 0, sp_leaf(SP_ROUTE_NEXTHOP, kToUp));
    write.route4(0xc0000000, 8, sp_leaf(SP_ROUTE_GLEAN, 0));
    far(sp_leaf(SP_ROUTE_BLACKHOLE, 0));
    write.route4(kTo, 32, sp_leaf(SP_ROUTE_LOCAL, 0));
    EXPECT_EQ(reason({.dst = kTo}), SP_PUNT_LOCAL);
    EXPECT_EQ(reason({.dst = kTo + 1}), SP_DROP_BLACKHOLE);
    EXPECT_EQ(reason({.dst = kFar + 256}), SP_PUNT_GLEAN);
    EXPECT_EQ(reason({.dst = 0x08080808}), SP_NO_REASON) << "the default route";
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = kTo}.octets()), 5).reason, SP_PUNT_UNREACHABLE)
        << "another router";
    EXPECT_EQ(counted(SP_PUNT_UNREACHABLE, 2), 1u);
}

TEST_F(Forwarding, Ipv6HasRoutesOfItsOwn) {
    write.route6(0, 0, 0, sp_leaf(SP_ROUTE_GLEAN, 0));
    EXPECT_EQ(arrives(Ipv6{.dst_high = 0x2001000000000000}).reason, SP_PUNT_GLEAN);
    EXPECT_EQ(arrives(Ipv6{}).reason, SP_NO_REASON);
    EXPECT_EQ(reason({.dst = kTo}), SP_PUNT_UNREACHABLE);
}

// -- ttl --------------------------------------------------------------------------------------------------------------
TEST_F(Forwarding, TtlOfOneOrLessExpires) {
    struct Row {
        uint32_t kind, with_one, with_two;
    };
    for (const Row& row : std::initializer_list<Row>{
             {SP_ROUTE_NEXTHOP, SP_PUNT_TTL_EXPIRED, SP_NO_REASON},
             {SP_ROUTE_GLEAN, SP_PUNT_TTL_EXPIRED, SP_PUNT_GLEAN},
             {SP_ROUTE_UNREACHABLE, SP_PUNT_TTL_EXPIRED, SP_PUNT_UNREACHABLE},
             {SP_ROUTE_FALLBACK, SP_PUNT_TTL_EXPIRED, SP_PUNT_UNREACHABLE},
             {SP_ROUTE_LOCAL, SP_PUNT_LOCAL, SP_PUNT_LOCAL},
             {SP_ROUTE_BLACKHOLE, SP_DROP_BLACKHOLE, SP_DROP_BLACKHOLE},
         }) {
        far(sp_leaf(row.kind, kToUp));
        EXPECT_EQ(reason({.dst = kTo, .ttl = 0}), row.with_one) << row.kind;
        EXPECT_EQ(reason({.dst = kTo, .ttl = 1}), row.with_one) << row.kind;
        EXPECT_EQ(reason({.dst = kTo, .ttl = 2}), row.with_two) << row.kind;
    }
    EXPECT_EQ(arrives(Ipv6{.ttl = 1}).reason, SP_PUNT_TTL_EXPIRED);
    EXPECT_EQ(arrives(Ipv6{.ttl = 2}).reason, SP_NO_REASON);
    EXPECT_EQ(arrives(Ipv4{.ttl = 1}).frame, ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.ttl = 1}.octets()));
}

TEST_F(Forwarding, OptionsAndHopByHopArePuntedWhereTheyWouldBeForwarded) {
    const Octets option = {0x94, 0x04, 0x00, 0x00};
    EXPECT_EQ(reason({.options = option}), SP_PUNT_IP_OPTIONS);
    EXPECT_EQ(reason({.ttl = 1, .options = option}), SP_PUNT_TTL_EXPIRED);
    EXPECT_EQ(reason({.dst = kTo, .options = option}), SP_PUNT_UNREACHABLE);
    EXPECT_EQ(arrives(Ipv6{.next_header = 0}).reason, SP_PUNT_HOP_BY_HOP);
    EXPECT_EQ(reason({.protocol = 0}), SP_NO_REASON) << "IPv4 has no such header";
    tables.nexthops[kToUp] = sp_nexthop(SP_NEXTHOP_GLEAN, 0, 0);
    EXPECT_EQ(reason({.options = option}), SP_PUNT_IP_OPTIONS) << "before the nexthop is looked at";
}

// -- router_interface -------------------------------------------------------------------------------------------------
TEST_F(Forwarding, FourWaysOfTags) {
    const Octets in = Ipv4{}.octets(), out = Ipv4{.ttl = 63}.octets();
    const Octets in3 = Ipv4{.dst = 0x0a030009}.octets(), out3 = Ipv4{.dst = 0x0a030009, .ttl = 63}.octets();
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, in)).frame, ethernet(kNeighborMac, kOwnMac, 0x0800, out));
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, in, kVlan, 7)).frame,
              ethernet(kNeighborMac, kOwnMac, 0x0800, out));
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, in3)).frame,
              ethernet(kNeighborMac, kOwnMac, 0x0800, out3, kUpTag));
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, in3, kVlan, 7)).frame,
              ethernet(kNeighborMac, kOwnMac, 0x0800, out3, kUpTag))
        << "priority 0";
    EXPECT_EQ(tables.tx[kUp].packets, 2u);
    EXPECT_EQ(tables.tx[kUp].bytes, 2 * (14 + in.size())) << "as it leaves";
    EXPECT_EQ(tables.tx[kUpVlan].bytes, 2 * (18 + in.size()));
    const Octets six = Ipv6{}.octets(), six_out = Ipv6{.ttl = 63}.octets();
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x86dd, six)).frame, ethernet(kNeighborMac, kOwnMac, 0x86dd, six_out));
}

TEST_F(Forwarding, ATrailerStays) {
    const Octets trailer(18, 0);
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{}.octets() + trailer)).frame,
              ethernet(kNeighborMac, kOwnMac, 0x0800, Ipv4{.ttl = 63}.octets() + trailer));
}

TEST_F(Forwarding, ChecksumIsRightAfterEveryTtlAndSource) {
    for (uint32_t source = 0x0a010000; source < 0x0a020000; source += 7) {
        const auto ttl = static_cast<uint8_t>(2 + source % 254);
        const Outcome outcome = arrives(Ipv4{.src = source, .ttl = ttl});
        const Octets wanted = Ipv4{.src = source, .ttl = static_cast<uint8_t>(ttl - 1)}.octets();
        ASSERT_EQ(outcome.frame, ethernet(kNeighborMac, kOwnMac, 0x0800, wanted)) << std::hex << source;
    }
}

TEST_F(Forwarding, MtuIsOfThePacketsOwnLength) {
    tables.egresses[kUp].port = sp_port(kUpPort, 0, 100);
    const Octets exact(80, 0), longer(81, 0), trailer(50, 0);
    EXPECT_EQ(reason({.payload = exact}), SP_NO_REASON);
    EXPECT_EQ(reason({.payload = longer}), SP_PUNT_MTU_EXCEEDED);
    EXPECT_EQ(arrives(Ipv6{.payload = Octets(60, 0)}).reason, SP_NO_REASON);
    EXPECT_EQ(arrives(Ipv6{.payload = Octets(61, 0)}).reason, SP_PUNT_MTU_EXCEEDED);
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.payload = exact}.octets() + trailer)).reason, SP_NO_REASON);
    const Octets punted = ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.payload = longer}.octets());
    EXPECT_EQ(run(punted).frame, punted) << "unchanged";
}

TEST_F(Forwarding, MissesOfRouterInterfacePuntUnreachable) {
    tables.egresses[kUp].port = 0;
    EXPECT_EQ(reason({}), SP_PUNT_UNREACHABLE);
    EXPECT_EQ(arrives(Ipv4{}).frame, ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{}.octets()));
    write.interface(kUp, kUpPort, 0);
    tables.egresses[kUp].rewrite = 0;
    EXPECT_EQ(reason({}), SP_PUNT_UNREACHABLE);
    EXPECT_EQ(tables.tx[kUp].packets, 0u);
}

TEST_F(Forwarding, NoRoomForATagIsDroppedAndCounted) {
    const Octets frame = ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = 0x0a030009}.octets());
    EXPECT_EQ(test::run(tables, kLanPort, frame, 0, 0, 3).action, SP_ACTION_DROP);
    EXPECT_EQ(tables.engine_counters[SP_COUNT_NO_ROOM], 1u);
    EXPECT_EQ(tables.tx[kUpVlan].packets, 0u);
    EXPECT_EQ(test::run(tables, kLanPort, frame, 0, 0, 4).action, SP_ACTION_SEND);
}

TEST_F(Forwarding, OutByTheIngressPort) {
    tables.nexthops[7] = sp_nexthop(SP_NEXTHOP_FORWARD, kLan, kNeighborMac);
    far(sp_leaf(SP_ROUTE_NEXTHOP, 7));
    EXPECT_EQ(arrives(Ipv4{.dst = kTo}).port, kLanPort);
}

// -- fallback_link ----------------------------------------------------------------------------------------------------
TEST_F(Forwarding, FallbackKeepsAddressesAndTtl) {
    far(sp_leaf(SP_ROUTE_FALLBACK, 0));
    EXPECT_EQ(reason({.dst = kTo}), SP_PUNT_UNREACHABLE) << "there is no link";
    tables.interfaces[kLan].fallback = SP_FALLBACK_PRESENT | 9 << 12 | 301;
    tables.interfaces[kLanVlan].fallback = SP_FALLBACK_PRESENT | 9 << 12;
    const Octets packet = Ipv4{.dst = kTo, .options = {1, 1, 1, 1}}.octets();
    const Outcome outcome = run(ethernet(kOwnMac, kHostMac, 0x0800, packet));
    EXPECT_EQ(outcome.action, SP_ACTION_SEND);
    EXPECT_EQ(outcome.port, 9u);
    EXPECT_EQ(outcome.frame, ethernet(kOwnMac, kHostMac, 0x0800, packet, 301));
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, packet, kVlan)).frame,
              ethernet(kOwnMac, kHostMac, 0x0800, packet))
        << "VLAN 0 is untagged";
}

// -- nexthop ----------------------------------------------------------------------------------------------------------
TEST_F(Forwarding, EachStateOfANexthop) {
    tables.nexthops[kToUp] = 0;
    EXPECT_EQ(reason({}), SP_PUNT_UNREACHABLE);
    tables.nexthops[kToUp] = sp_nexthop(SP_NEXTHOP_GLEAN, kUp, 0);
    EXPECT_EQ(reason({}), SP_PUNT_GLEAN);
    tables.nexthops[kToUp] = sp_nexthop(SP_NEXTHOP_FAILED, kUp, 0);
    EXPECT_EQ(reason({}), SP_DROP_NEIGHBOR_FAILED);
}

// -- nexthop_group ----------------------------------------------------------------------------------------------------
// CRC-32 (IEEE 802.3) bit by bit.
uint32_t crc32(const Octets& octets) {
    uint32_t crc = ~0u;
    for (const uint8_t octet : octets) {
        crc ^= octet;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

Octets selector(const Ipv4& packet, uint32_t ports) {
    Octets fields;
    put(fields, 0, 8), put(fields, packet.src, 8), put(fields, 0, 8), put(fields, packet.dst, 8);
    put(fields, packet.protocol, 1), put(fields, ports, 4);
    return fields;
}

uint32_t hash_of(const Ipv4& packet) { return selector_hash(ethernet(kOwnMac, kHostMac, 0x0800, packet.octets())); }

TEST(SelectorHash, IsTheCrcOfTheFields) {
    const Octets check = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
    ASSERT_EQ(crc32(check), 0xcbf43926u);
    constexpr uint32_t kPorts = 0x04000035;
    for (const uint8_t protocol : {6, 17, 132}) {
        const Ipv4 packet{.src = 0x0a0b0c0d, .protocol = protocol};
        EXPECT_EQ(hash_of(packet), crc32(selector(packet, kPorts)));
    }
    const Ipv6 packet{.dst_low = 0x123456789abcdef0, .src_high = 0xfedcba9876543210};
    Octets fields;
    put(fields, packet.src_high, 8), put(fields, packet.src_low, 8);
    put(fields, packet.dst_high, 8), put(fields, packet.dst_low, 8);
    put(fields, 17, 1), put(fields, kPorts, 4);
    EXPECT_EQ(selector_hash(ethernet(kOwnMac, kHostMac, 0x86dd, packet.octets())), crc32(fields));
}

TEST(SelectorHash, PortsCountOnlyWhereThereAreSome) {
    const auto without_ports = [](const Ipv4& packet) { return hash_of(packet) == crc32(selector(packet, 0)); };
    EXPECT_FALSE(without_ports({}));
    EXPECT_TRUE(without_ports({.protocol = 1}));
    EXPECT_TRUE(without_ports({.fragment = 0x2000})) << "more fragments";
    EXPECT_TRUE(without_ports({.fragment = 1}));
    EXPECT_FALSE(without_ports({.fragment = 0x4000})) << "don't fragment";
    EXPECT_TRUE(without_ports({.payload = {1, 2, 3}}));
    EXPECT_FALSE(without_ports({.payload = {1, 2, 3, 4}}));
}

TEST_F(Forwarding, AGroupSpreadsByItsHash) {
    constexpr uint32_t kBase = 64, kMembers = 7;
    for (uint32_t member = 0; member < kMembers; ++member) {
        tables.members[kBase + member] = static_cast<uint16_t>(10 + member);
        tables.nexthops[10 + member] = sp_nexthop(SP_NEXTHOP_FORWARD, kUp, kNeighborMac + member);
    }
    far(sp_leaf(SP_ROUTE_GROUP, 3));
    EXPECT_EQ(reason({.dst = kTo}), SP_PUNT_UNREACHABLE) << "no such group";
    tables.groups[3] = sp_group(kBase, kMembers);
    std::map<uint32_t, int> shares;
    for (uint32_t source = 1; source <= 700; ++source) {
        const Ipv4 packet{.dst = kTo, .src = 0x0a010000 + source};
        const uint32_t member = crc32(selector(packet, 0x04000035)) % kMembers;
        ASSERT_EQ(arrives(packet).frame[5], (kNeighborMac & 0xff) + member);
        ++shares[member];
    }
    EXPECT_EQ(shares.size(), kMembers);
    tables.nexthops[12] = sp_nexthop(SP_NEXTHOP_GLEAN, kUp, 0);
    EXPECT_GT(shares[2], 0);
}

TEST_F(Forwarding, AGroupDoesWithoutAPortThatHasNoLink) {
    constexpr uint32_t kBase = 64, kPlaces = 128, kFlows = 1000;
    constexpr uint32_t kFirstPort = 10, kMembers = 4;
    for (uint32_t member = 0; member < kMembers; ++member) {
        write.interface(40 + member, kFirstPort + member, 0);
        tables.nexthops[10 + member] = sp_nexthop(SP_NEXTHOP_FORWARD, 40 + member, kNeighborMac);
    }
    for (uint32_t place = 0; place < kPlaces; ++place) {
        tables.members[kBase + place] = static_cast<uint16_t>(10 + place % kMembers);
    }
    tables.groups[3] = sp_group(kBase, kPlaces);
    far(sp_leaf(SP_ROUTE_GROUP, 3));
    const auto ports = [&] {
        std::vector<uint32_t> all;
        for (uint32_t flow = 0; flow < kFlows; ++flow) {
            all.push_back(arrives(Ipv4{.dst = kTo, .src = 0x0a010000 + flow}).port);
        }
        return all;
    };
    const std::vector<uint32_t> before = ports();
    set_port_down(tables, kFirstPort + 1, true);
    const std::vector<uint32_t> without = ports();
    std::map<uint32_t, int> taken;  // by whom, of its flows
    for (uint32_t flow = 0; flow < kFlows; ++flow) {
        if (before[flow] == kFirstPort + 1) {
            ++taken[without[flow]];
        } else {
            EXPECT_EQ(without[flow], before[flow]) << "whose port has its link";
        }
    }
    EXPECT_EQ(taken.size(), kMembers - 1) << "all others take some, and it takes none";
    EXPECT_FALSE(taken.contains(kFirstPort + 1));
    EXPECT_EQ(ports(), without) << "a flow stays together";
    for (uint32_t member = 0; member < kMembers; ++member) set_port_down(tables, kFirstPort + member, true);
    EXPECT_EQ(ports(), before) << "where none has a link";
    for (uint32_t member = 0; member < kMembers; ++member) set_port_down(tables, kFirstPort + member, false);
    EXPECT_EQ(ports(), before);
}

}  // namespace
}  // namespace splitplane::test
