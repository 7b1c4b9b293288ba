// SPDX-License-Identifier: Apache-2.0
//
// interface_classifier, l3_admit and punt: what is not a transit packet.

#include <gtest/gtest.h>

#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

constexpr uint64_t kBroadcast = 0xffffffffffff;
const Octets kPacket = Ipv4{}.octets();

struct Ingress : ::testing::Test, World {
    uint32_t reason(const Octets& frame, uint32_t port = kLanPort) const { return run(frame, port).reason; }
    uint32_t reason(const Ipv4& packet, uint64_t to = kOwnMac) const {
        return reason(ethernet(to, kHostMac, 0x0800, packet.octets()));
    }
    uint32_t reason(const Ipv6& packet, uint64_t to = kOwnMac) const {
        return reason(ethernet(to, kHostMac, 0x86dd, packet.octets()));
    }
};

// -- interface_classifier ---------------------------------------------------------------------------------------------
TEST_F(Ingress, KnownPortAndVlanAreCountedWithTheirTag) {
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, kPacket)).action, SP_ACTION_SEND);
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, kPacket, kVlan, 5)).action, SP_ACTION_SEND);
    EXPECT_EQ(tables.rx[kLan].packets, 1u);
    EXPECT_EQ(tables.rx[kLan].bytes, 14 + kPacket.size());
    EXPECT_EQ(tables.rx[kLanVlan].bytes, 18 + kPacket.size());
}

TEST_F(Ingress, UnknownPortOrVlanIsNobodys) {
    EXPECT_EQ(reason(ethernet(kOwnMac, kHostMac, 0x0800, kPacket), 9), SP_DROP_UNKNOWN_INTERFACE);
    EXPECT_EQ(reason(ethernet(kOwnMac, kHostMac, 0x0800, kPacket, kVlan + 1)), SP_DROP_UNKNOWN_INTERFACE);
    EXPECT_EQ(counted(SP_DROP_UNKNOWN_INTERFACE, 0), 2u);
    EXPECT_EQ(tables.reasons[sp_reason_index(SP_DROP_UNKNOWN_INTERFACE)].bytes, 14 + 18 + 2 * kPacket.size());
}

TEST_F(Ingress, AFrameWithAPriorityTagIsUntagged) {
    const Octets plain = ethernet(kOwnMac, kHostMac, 0x0800, kPacket);
    const Octets tagged = ethernet(kOwnMac, kHostMac, 0x0800, kPacket, 0, 7);
    const Outcome outcome = run(tagged);
    EXPECT_EQ(outcome.action, SP_ACTION_SEND);
    EXPECT_EQ(outcome.frame, run(plain).frame) << "its tag does not go on";
    EXPECT_EQ(tables.rx[kLan].packets, 2u);
    EXPECT_EQ(tables.rx[kLan].bytes, tagged.size() + plain.size());
    EXPECT_EQ(run(ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = 0x0a030009}.octets(), 0, 5)).frame,
              run(ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = 0x0a030009}.octets())).frame)
        << "the tag of the way out is another";
    const Outcome punt = run(ethernet(kBroadcast, kHostMac, 0x0806, Octets(28, 7), 0, 7));
    EXPECT_EQ(punt.router_interface_id, 100 + kLan);
    EXPECT_EQ(punt.frame, ethernet(kBroadcast, kHostMac, 0x0806, Octets(28, 7))) << "without its tag";
    tables.classifier[sp_classifier_index(kLanPort, 0)] = 0;
    EXPECT_EQ(reason(tagged), SP_DROP_UNKNOWN_INTERFACE) << "a port with VLANs only";
}

TEST_F(Ingress, TagCutShortIsAnEtherTypeOfAnUntaggedFrame) {
    Octets frame = ethernet(kOwnMac, kHostMac, 0x8100, {0x00, 0x64, 0x08});
    EXPECT_EQ(reason(frame), SP_DROP_ETHERTYPE);
    frame.push_back(0x00);
    EXPECT_EQ(reason(frame), SP_DROP_MALFORMED) << "VLAN 100, an IPv4 packet of no octets";
}

TEST_F(Ingress, SecondTagIsAnEtherType) {
    Octets inner = {0x00, 0x05, 0x08, 0x00};
    EXPECT_EQ(reason(ethernet(kOwnMac, kHostMac, 0x8100, inner + kPacket, kVlan)), SP_DROP_ETHERTYPE);
}

TEST_F(Ingress, FrameShorterThanItsHeaderIsMalformed) {
    for (size_t length = 0; length < 14; ++length) {
        EXPECT_EQ(reason(Octets(length, 0xff)), SP_DROP_MALFORMED) << length;
    }
}

TEST_F(Ingress, FallbackLinkGoesStraightOutWithItsTtl) {
    write.classify(7, 300, kUpVlan, kVrf, SP_CLASSIFIER_EGRESS);
    const Octets payload = Ipv4{.ttl = 1}.octets();
    const Outcome outcome = run(ethernet(kNeighborMac, kHostMac, 0x0800, payload, 300), 7);
    EXPECT_EQ(outcome.action, SP_ACTION_SEND);
    EXPECT_EQ(outcome.port, kUpPort);
    EXPECT_EQ(outcome.frame, ethernet(kNeighborMac, kOwnMac, 0x0800, payload, kUpTag));
    EXPECT_EQ(tables.rx[kUpVlan].packets, 1u);
    EXPECT_EQ(tables.tx[kUpVlan].packets, 1u);
}

TEST_F(Ingress, FallbackLinkCarriesWhatIsNoIp) {
    write.classify(7, 300, kUp, kVrf, SP_CLASSIFIER_EGRESS);
    const Octets payload(3000, 1);
    EXPECT_EQ(run(ethernet(kNeighborMac, kHostMac, 0x88cc, payload, 300), 7).frame,
              ethernet(kNeighborMac, kOwnMac, 0x88cc, payload));
}

TEST_F(Ingress, FallbackLinkToNoInterfacePuntsUnreachable) {
    write.classify(7, 300, 9, kVrf, SP_CLASSIFIER_EGRESS);
    tables.interfaces[9].id = 109;
    const Outcome outcome = run(ethernet(kNeighborMac, kHostMac, 0x0800, kPacket, 300), 7);
    EXPECT_EQ(outcome.reason, SP_PUNT_UNREACHABLE);
    EXPECT_EQ(outcome.router_interface_id, 109u);
    EXPECT_EQ(outcome.frame, ethernet(kNeighborMac, kHostMac, 0x0800, kPacket)) << "as it came in, without its tag";
}

// -- l3_admit ---------------------------------------------------------------------------------------------------------
TEST_F(Ingress, OwnAndVirtualMacsAreAdmitted) {
    EXPECT_EQ(reason(Ipv4{}, kOwnMac), SP_NO_REASON);
    EXPECT_EQ(reason(Ipv4{}, kVirtualMac), SP_NO_REASON);
    EXPECT_EQ(reason(Ipv4{}, kOwnMac + 1), SP_DROP_NOT_FOR_US);
    EXPECT_EQ(reason(Ipv4{}, 0), SP_DROP_NOT_FOR_US) << "0 in the table is no MAC";
    EXPECT_EQ(reason(ethernet(kOwnMac + 1, kHostMac, 0x0806, kPacket)), SP_DROP_NOT_FOR_US);
    EXPECT_EQ(counted(SP_DROP_NOT_FOR_US), 3u);
}

// -- punt: others -----------------------------------------------------------------------------------------------------
TEST_F(Ingress, ArpIsControl) {
    const Octets frame = ethernet(kBroadcast, kHostMac, 0x0806, Octets(28, 7));
    const Outcome outcome = run(ethernet(kBroadcast, kHostMac, 0x0806, Octets(28, 7), kVlan));
    EXPECT_EQ(outcome.action, SP_ACTION_PUNT);
    EXPECT_EQ(outcome.reason, SP_PUNT_CONTROL);
    EXPECT_EQ(outcome.router_interface_id, 100 + kLanVlan);
    EXPECT_EQ(outcome.frame, frame) << "without its tag";
    EXPECT_EQ(run(frame).frame, frame);
}

TEST_F(Ingress, IsisIsControlByItsMacsAndALength) {
    for (const uint64_t mac : {0x0180c2000014ull, 0x0180c2000015ull, 0x09002b000005ull}) {
        for (const uint16_t length : {0x0000, 0x0100, 0x03ff, 0x0400, 0x05ff}) {
            EXPECT_EQ(reason(ethernet(mac, kHostMac, length, kPacket)), SP_PUNT_CONTROL);
        }
        EXPECT_EQ(reason(ethernet(mac, kHostMac, 0x8870, kPacket)), SP_PUNT_CONTROL) << "a long PDU";
        EXPECT_EQ(reason(ethernet(mac, kHostMac, 0x0600, kPacket)), SP_DROP_ETHERTYPE);
        EXPECT_EQ(reason(ethernet(mac + 16, kHostMac, 0x8870, kPacket)), SP_DROP_ETHERTYPE);
        EXPECT_EQ(reason(ethernet(mac + 16, kHostMac, 0x0100, kPacket)), SP_DROP_ETHERTYPE);
    }
}

TEST_F(Ingress, OtherEtherTypesAreDropped) {
    for (const uint16_t ether_type : {0x0600, 0x88cc, 0x8847, 0x88a8, 0x0801, 0xffff}) {
        EXPECT_EQ(reason(ethernet(kOwnMac, kHostMac, ether_type, kPacket)), SP_DROP_ETHERTYPE);
    }
}

// -- punt: malformed --------------------------------------------------------------------------------------------------
TEST_F(Ingress, Ipv4HasToBeIpv4) {
    for (size_t length = 0; length < kPacket.size(); ++length) {
        const Octets cut(kPacket.begin(), kPacket.begin() + static_cast<long>(length));
        EXPECT_EQ(reason(ethernet(kOwnMac, kHostMac, 0x0800, cut)), SP_DROP_MALFORMED) << length;
        EXPECT_EQ(reason(ethernet(kOwnMac, kHostMac, 0x0800, cut, kVlan)), SP_DROP_MALFORMED) << length;
    }
    EXPECT_EQ(reason(Ipv4{.version = 6}), SP_DROP_MALFORMED);
    EXPECT_EQ(reason(Ipv4{.words = 4}), SP_DROP_MALFORMED);
    EXPECT_EQ(reason(Ipv4{.words = 15}), SP_DROP_MALFORMED);
    EXPECT_EQ(reason(Ipv4{.length = 19}), SP_DROP_MALFORMED);
    EXPECT_EQ(reason(Ipv4{.length = 37}), SP_DROP_MALFORMED);
    EXPECT_EQ(reason(Ipv4{.length = 65535}), SP_DROP_MALFORMED);
    EXPECT_EQ(reason(Ipv4{.options = {1, 1, 1, 1}, .length = 23}), SP_DROP_MALFORMED);
    EXPECT_EQ(reason(Ipv4{.dst = 0xe0000005, .length = 65535}), SP_DROP_MALFORMED) << "before control";
}

TEST_F(Ingress, Ipv4ChecksumIsVerifiedWithoutOptions) {
    const int right = kPacket[10] << 8 | kPacket[11];
    for (int bit = 0; bit < 16; ++bit) {
        EXPECT_EQ(reason(Ipv4{.header_checksum = right ^ 1 << bit}), SP_DROP_MALFORMED);
    }
    EXPECT_EQ(reason(Ipv4{.dst = 0x0a010001, .options = {1, 1, 1, 1}, .header_checksum = 1}), SP_PUNT_LOCAL);
}

TEST_F(Ingress, Ipv4ChecksumOfAllOnesIsNoZero) {
    // The words add up to 0xffff, so that the checksum is 0: search for the identification that does it.
    for (uint32_t source = 0x0a010000; source < 0x0a020000; ++source) {
        const Ipv4 packet{.src = source};
        if (packet.octets()[10] != 0 || packet.octets()[11] != 0) continue;
        EXPECT_EQ(reason(packet), SP_NO_REASON);
        EXPECT_EQ(reason(Ipv4{.src = source, .header_checksum = 0xffff}), SP_DROP_MALFORMED);
        return;
    }
    FAIL() << "no such source";
}

TEST_F(Ingress, Ipv6HasToBeIpv6) {
    const Octets packet = Ipv6{}.octets();
    for (size_t length = 0; length < packet.size(); ++length) {
        const Octets cut(packet.begin(), packet.begin() + static_cast<long>(length));
        EXPECT_EQ(reason(ethernet(kOwnMac, kHostMac, 0x86dd, cut)), SP_DROP_MALFORMED) << length;
    }
    EXPECT_EQ(reason(Ipv6{.version = 4}), SP_DROP_MALFORMED);
    EXPECT_EQ(reason(Ipv6{.length = 17}), SP_DROP_MALFORMED);
    EXPECT_EQ(reason(Ipv6{.length = 65535}), SP_DROP_MALFORMED);
    EXPECT_EQ(reason(Ipv6{.payload = {}}), SP_NO_REASON);
}

// -- punt: addresses --------------------------------------------------------------------------------------------------
TEST_F(Ingress, Ipv4Addresses) {
    struct Row {
        uint32_t address, as_destination, as_source;
    };
    constexpr uint32_t kOn = SP_PUNT_UNREACHABLE;  // there is no route
    for (const Row& row : std::initializer_list<Row>{{0x00000000, SP_DROP_MARTIAN, SP_DROP_MARTIAN},
                                                     {0x00ffffff, SP_DROP_MARTIAN, SP_DROP_MARTIAN},
                                                     {0x01000000, kOn, SP_NO_REASON},
                                                     {0x7effffff, kOn, SP_NO_REASON},
                                                     {0x7f000000, SP_DROP_MARTIAN, SP_DROP_MARTIAN},
                                                     {0x7fffffff, SP_DROP_MARTIAN, SP_DROP_MARTIAN},
                                                     {0x80000000, kOn, SP_NO_REASON},
                                                     {0xdfffffff, kOn, SP_NO_REASON},
                                                     {0xe0000000, SP_PUNT_CONTROL, SP_DROP_MARTIAN},
                                                     {0xe00000ff, SP_PUNT_CONTROL, SP_DROP_MARTIAN},
                                                     {0xe0000100, SP_DROP_MULTICAST, SP_DROP_MARTIAN},
                                                     {0xefffffff, SP_DROP_MULTICAST, SP_DROP_MARTIAN},
                                                     {0xf0000000, SP_DROP_MARTIAN, SP_DROP_MARTIAN},
                                                     {0xfffffffe, SP_DROP_MARTIAN, SP_DROP_MARTIAN},
                                                     {0xffffffff, SP_PUNT_CONTROL, SP_DROP_MARTIAN}}) {
        EXPECT_EQ(reason(Ipv4{.dst = row.address}), row.as_destination) << std::hex << row.address;
        EXPECT_EQ(reason(Ipv4{.src = row.address}), row.as_source) << std::hex << row.address;
    }
}

TEST_F(Ingress, Ipv6Addresses) {
    struct Row {
        uint64_t high, low;
        uint32_t as_destination, as_source;
    };
    constexpr uint32_t kOn = SP_PUNT_UNREACHABLE;
    for (const Row& row : std::initializer_list<Row>{
             {0, 0, SP_DROP_MARTIAN, SP_DROP_MARTIAN},
             {0, 1, SP_DROP_MARTIAN, SP_DROP_MARTIAN},
             {0, 2, kOn, SP_NO_REASON},
             {1, 0, kOn, SP_NO_REASON},
             {0xfe7fffffffffffff, 0, kOn, SP_NO_REASON},
             {0xfe80000000000000, 1, SP_PUNT_CONTROL, SP_PUNT_UNREACHABLE},
             {0xfebfffffffffffff, 1, SP_PUNT_CONTROL, SP_PUNT_UNREACHABLE},
             {0xfec0000000000000, 1, kOn, SP_NO_REASON},
             {0xff01000000000000, 1, SP_DROP_MULTICAST, SP_DROP_MARTIAN},
             {0xff02000000000000, 5, SP_PUNT_CONTROL, SP_DROP_MARTIAN},
             {0xff02ffffffffffff, 5, SP_PUNT_CONTROL, SP_DROP_MARTIAN},
             {0xff12000000000000, 5, SP_DROP_MULTICAST, SP_DROP_MARTIAN},
             {0xffffffffffffffff, 5, SP_DROP_MULTICAST, SP_DROP_MARTIAN},
         }) {
        EXPECT_EQ(reason(Ipv6{.dst_high = row.high, .dst_low = row.low}), row.as_destination) << std::hex << row.high;
        EXPECT_EQ(reason(Ipv6{.src_high = row.high, .src_low = row.low}), row.as_source) << std::hex << row.high;
    }
}

TEST_F(Ingress, LinkLocalSourceMayReachTheRouterItself) {
    const uint64_t own = 0x20010db800010000;
    EXPECT_EQ(reason(Ipv6{.dst_high = own, .dst_low = 1, .src_high = 0xfe80000000000000}), SP_PUNT_LOCAL);
}

TEST_F(Ingress, UnicastIpInAGroupFrameIsDropped) {
    EXPECT_EQ(reason(Ipv4{}, kBroadcast), SP_DROP_L2_MULTICAST);
    EXPECT_EQ(reason(Ipv6{}, 0x333300000001), SP_DROP_L2_MULTICAST);
    EXPECT_EQ(reason(Ipv4{.src = 0x7f000001}, kBroadcast), SP_DROP_L2_MULTICAST) << "before martian";
    EXPECT_EQ(reason(Ipv4{.dst = 0xe0000005}, 0x01005e000005), SP_PUNT_CONTROL);
    EXPECT_EQ(reason(Ipv4{.dst = 0xffffffff}, kBroadcast), SP_PUNT_CONTROL);
    EXPECT_EQ(reason(Ipv4{.dst = 0xe0000105}, 0x01005e000105), SP_DROP_MULTICAST);
}

}  // namespace
}  // namespace splitplane::test
