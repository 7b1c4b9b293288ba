// SPDX-License-Identifier: Apache-2.0
//
// What the controller sends by a link that is shared.

#include "tests/pipeline/links.h"

namespace splitplane::test {
namespace {

struct PacketOuts : Links {
    static Octets ping(uint32_t payload = 1400) {
        return ethernet(2, 1, 0x0800, Ipv4{.protocol = 1, .payload = Octets(payload)}.octets());
    }
    static Octets bgp() {
        Octets ports;
        put(ports, 179u << 16 | 40000, 4);
        return ethernet(2, 1, 0x0800, Ipv4{.protocol = 6, .payload = ports + Octets(1000)}.octets());
    }
    // Beside one who keeps to his share a router that sends twice what the link takes has the rest.
    void expect_floods_have_their_share(const Octets& frame) {
        port(100 * kMega);
        router(1);
        router(2);
        senders = {{.interface = 1, .bits_per_s = 200 * kMega, .out = frame}, {2, 49 * kMega}};
        const auto had = parts();
        EXPECT_NEAR(had[0], 0.51, 0.01);
        EXPECT_NEAR(had[1], 0.49, 0.003);
        EXPECT_GT(tables.link_routers[1].dropped, 0u);
    }
    // The parts of the link that they have.
    std::vector<double> parts() {
        run(0.3);
        std::vector<double> had = run(1);
        for (double& each : had) each /= speed;
        return had;
    }
};

TEST_F(PacketOuts, AFloodOfThemHasItsRoutersShare) { expect_floods_have_their_share(ping()); }

TEST_F(PacketOuts, WhatCallsItselfARoutingProtocolHasLittleMore) { expect_floods_have_their_share(bgp()); }

TEST_F(PacketOuts, AloneTheyHaveTheWholeLink) {
    port(100 * kMega);
    router(1);
    senders = {{.interface = 1, .bits_per_s = 80 * kMega, .out = ping()}};
    EXPECT_NEAR(parts()[0], 0.8, 0.01);
    EXPECT_FALSE(contended());
    senders = {{.interface = 1, .bits_per_s = 150 * kMega, .out = ping()}};
    EXPECT_NEAR(parts()[0], 1, 0.01);
    EXPECT_TRUE(contended());
}

TEST_F(PacketOuts, RoutingProtocolsGoOnBesideTheirRoutersTransit) {
    port(100 * kMega);
    router(1);
    router(2);
    senders = {{1, 200 * kMega}, {2, 40 * kMega}, {.interface = 1, .bits_per_s = 0.5 * kMega, .out = bgp()}};
    auto had = parts();
    EXPECT_NEAR(had[2], 0.005, 2e-4);
    EXPECT_NEAR(had[1], 0.4, 0.002);
    EXPECT_NEAR(sum(had), 1, 0.01);
    senders[2].out = ping();
    EXPECT_LT(parts()[2], 0.004) << "what is no routing protocol's waits behind it";
}

// By their router's bucket, which is empty.
TEST_F(PacketOuts, WhatARoutingProtocolSays) {
    port(100 * kMega, SP_LINK_CONTENDED);
    router(1);
    const auto goes = [&](const Octets& frame) {
        tables.link_routers[1].bucket = now >> 10 & 0xffffffff;
        return passes({.interface = 1, .bits_per_s = 0, .out = frame}, now);
    };
    const auto ip = [](uint8_t protocol, uint8_t ttl, uint32_t ports = 0) {
        Octets payload;
        put(payload, ports, 4);
        return ethernet(2, 1, 0x0800, Ipv4{.ttl = ttl, .protocol = protocol, .payload = payload + Octets(20)}.octets());
    };
    const Octets isis = ethernet(0x0180c2000014, 1, 100, Octets(100)), arp = ethernet(2, 1, 0x0806, Octets(46));
    for (const Octets& frame : {bgp(), arp, isis, ip(89, 1), ip(17, 255, 49152u << 16 | 3784), ip(112, 255)}) {
        EXPECT_TRUE(goes(frame)) << "of " << frame.size() << " octets";
    }
    const Octets lldp = ethernet(0x0180c200000e, 1, 0x88cc, Octets(100)), other = ethernet(2, 1, 100, Octets(100));
    const Octets tagged = ethernet(2, 1, 0x0806, Octets(46), 5);
    const Octets wrong = ethernet(2, 1, 0x0800, Ipv4{.protocol = 89, .header_checksum = 1}.octets());
    for (const Octets& frame : {ping(), lldp, other, tagged, wrong, ip(17, 64, 49152u << 16 | 3784), Octets(13)}) {
        EXPECT_FALSE(goes(frame)) << "of " << frame.size() << " octets";
    }
}

}  // namespace
}  // namespace splitplane::test
