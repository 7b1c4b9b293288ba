// SPDX-License-Identifier: Apache-2.0
//
// punt_class: what each packet for the guest is policed as.

#include <gtest/gtest.h>

#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

constexpr uint32_t kOwn = 0x0a010001, kGroup = 0xe0000005;

Octets ports(uint32_t source, uint32_t destination) {
    Octets octets;
    put(octets, source, 2);
    put(octets, destination, 2);
    return octets + Octets(16);
}

Octets icmp(uint8_t type) {
    Octets octets(8);
    octets[0] = type;
    return octets;
}

struct PuntClasses : ::testing::Test, World {
    // The class that lets a frame through, alone of all; SP_PUNT_CLASSES where none does, or more than one.
    uint32_t class_of(const Octets& frame) {
        uint32_t found = SP_PUNT_CLASSES, passed = 0;
        for (uint32_t open = 0; open < SP_PUNT_CLASSES; ++open) {
            for (uint32_t each = 0; each < SP_PUNT_CLASSES; ++each) {
                tables.policers[sp_policer_index(kVrf, each)].shares = each == open;
            }
            if (run(frame).action == SP_ACTION_PUNT) {
                found = open;
                ++passed;
            }
        }
        return passed == 1 ? found : SP_PUNT_CLASSES;
    }
    uint32_t class_of(const Ipv4& packet) { return class_of(ethernet(kOwnMac, kHostMac, 0x0800, packet.octets())); }
    uint32_t class_of(Ipv6 packet) {
        packet.dst_high = 0x20010db800010000;
        packet.dst_low = 1;
        return class_of(ethernet(kOwnMac, kHostMac, 0x86dd, packet.octets()));
    }
    uint32_t udp(uint32_t port, uint8_t ttl) {
        const uint32_t ipv4 = class_of(Ipv4{.dst = kOwn, .ttl = ttl, .payload = ports(50'000, port)});
        EXPECT_EQ(class_of(Ipv6{.ttl = ttl, .payload = ports(50'000, port)}), ipv4);
        EXPECT_EQ(class_of(Ipv4{.dst = kGroup, .ttl = ttl, .payload = ports(50'000, port)}), ipv4);
        return ipv4;
    }
    uint32_t protocol(uint8_t number, uint8_t ttl) {
        const uint32_t ipv4 = class_of(Ipv4{.dst = kOwn, .ttl = ttl, .protocol = number});
        EXPECT_EQ(class_of(Ipv6{.ttl = ttl, .next_header = number}), ipv4);
        EXPECT_EQ(class_of(Ipv4{.dst = kGroup, .ttl = ttl, .protocol = number}), ipv4);
        return ipv4;
    }
};

TEST_F(PuntClasses, ByReasonOnTheWayThrough) {
    write.route4(0x0a050000, 16, sp_leaf(SP_ROUTE_GLEAN, 0));
    EXPECT_EQ(class_of(Ipv4{.dst = 0x0a050001}), SP_CLASS_GLEAN);
    EXPECT_EQ(class_of(Ipv4{.ttl = 1}), SP_CLASS_TTL);
    EXPECT_EQ(class_of(Ipv4{.payload = Octets(1481)}), SP_CLASS_MTU);
    EXPECT_EQ(class_of(Ipv4{.dst = 0x08080808}), SP_CLASS_UNREACHABLE);
    EXPECT_EQ(class_of(Ipv4{.options = {1, 1, 1, 1}}), SP_CLASS_OPTIONS);
    EXPECT_EQ(class_of(ethernet(kOwnMac, kHostMac, 0x86dd, Ipv6{.next_header = 0}.octets())), SP_CLASS_OPTIONS);
    EXPECT_EQ(class_of(Ipv4{.ttl = 1, .protocol = 89}), SP_CLASS_TTL) << "what is on its way has no protocol's class";
}

TEST_F(PuntClasses, RoutingProtocols) {
    EXPECT_EQ(protocol(89, 1), SP_CLASS_ROUTING) << "OSPF";
    EXPECT_EQ(protocol(88, 2), SP_CLASS_ROUTING) << "EIGRP";
    EXPECT_EQ(protocol(112, 255), SP_CLASS_ROUTING) << "VRRP";
    EXPECT_EQ(protocol(112, 254), SP_CLASS_LOCAL) << "VRRP that is not from the link";
    EXPECT_EQ(udp(520, 1), SP_CLASS_ROUTING) << "RIP";
    EXPECT_EQ(udp(521, 255), SP_CLASS_ROUTING) << "RIPng";
    EXPECT_EQ(udp(6696, 1), SP_CLASS_ROUTING) << "Babel";
    EXPECT_EQ(class_of(ethernet(0x0180c2000014, kHostMac, 40, Octets(40))), SP_CLASS_ROUTING) << "IS-IS";
    EXPECT_EQ(class_of(ethernet(0x0180c2000015, kHostMac, 0x8870, Octets(40))), SP_CLASS_ROUTING);
}

TEST_F(PuntClasses, BgpByPortAtEitherEnd) {
    for (const auto& octets : {ports(179, 40'000), ports(40'000, 179)}) {
        EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .ttl = 1, .protocol = 6, .payload = octets}), SP_CLASS_BGP);
        EXPECT_EQ(class_of(Ipv6{.ttl = 255, .next_header = 6, .payload = octets}), SP_CLASS_BGP);
        EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .protocol = 17, .payload = octets}), SP_CLASS_LOCAL) << "UDP";
    }
    EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .protocol = 6, .payload = ports(40'000, 22)}), SP_CLASS_LOCAL);
}

TEST_F(PuntClasses, BfdOfASingleHopComesFromTheLink) {
    EXPECT_EQ(udp(3784, 255), SP_CLASS_BFD);
    EXPECT_EQ(udp(3784, 254), SP_CLASS_LOCAL);
    EXPECT_EQ(udp(3785, 255), SP_CLASS_BFD);
    EXPECT_EQ(udp(3785, 254), SP_CLASS_BFD) << "an echo that the neighbor has forwarded";
    EXPECT_EQ(udp(3785, 253), SP_CLASS_LOCAL);
    EXPECT_EQ(udp(4784, 12), SP_CLASS_BFD) << "several hops";
}

TEST_F(PuntClasses, ArpAndNeighborDiscovery) {
    EXPECT_EQ(class_of(ethernet(0xffffffffffff, kHostMac, 0x0806, Octets(28))), SP_CLASS_ARP);
    for (uint8_t type = 133; type <= 137; ++type) {
        EXPECT_EQ(class_of(Ipv6{.ttl = 255, .next_header = 58, .payload = icmp(type)}), SP_CLASS_ARP);
        EXPECT_EQ(class_of(Ipv6{.ttl = 254, .next_header = 58, .payload = icmp(type)}), SP_CLASS_ICMP);
    }
    for (const uint8_t type : {128, 132, 138}) {
        EXPECT_EQ(class_of(Ipv6{.ttl = 255, .next_header = 58, .payload = icmp(type)}), SP_CLASS_ICMP);
    }
    EXPECT_EQ(class_of(Ipv6{.ttl = 255, .next_header = 58, .payload = Octets(3, 135)}), SP_CLASS_ICMP) << "too short";
}

TEST_F(PuntClasses, IcmpIsOfItsFamily) {
    EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .protocol = 1, .payload = icmp(8)}), SP_CLASS_ICMP);
    EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .protocol = 58, .payload = icmp(135)}), SP_CLASS_LOCAL);
    EXPECT_EQ(class_of(Ipv6{.next_header = 1, .payload = icmp(8)}), SP_CLASS_LOCAL);
}

TEST_F(PuntClasses, FragmentsAndOptionsHaveNoPorts) {
    for (const uint16_t fragment : {0x2000, 0x0001, 0x2001}) {
        EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .protocol = 6, .fragment = fragment, .payload = ports(179, 179)}),
                  SP_CLASS_LOCAL);
        EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .protocol = 89, .fragment = fragment}), SP_CLASS_ROUTING);
        EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .protocol = 1, .fragment = fragment}), SP_CLASS_ICMP);
    }
    const Octets options(4, 1);
    EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .protocol = 6, .payload = ports(179, 179), .options = options}),
              SP_CLASS_LOCAL);
    EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .protocol = 89, .options = options}), SP_CLASS_ROUTING);
    for (const uint8_t header : {0, 43, 44, 60}) {
        EXPECT_EQ(class_of(Ipv6{.next_header = header, .payload = Octets{89, 0, 1, 4, 0, 0, 0, 0}}), SP_CLASS_LOCAL);
    }
    EXPECT_EQ(class_of(Ipv4{.dst = kOwn, .protocol = 6, .payload = {0, 179, 0}}), SP_CLASS_LOCAL) << "cut short";
}

}  // namespace
}  // namespace splitplane::test
