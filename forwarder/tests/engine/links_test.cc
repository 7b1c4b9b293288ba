// SPDX-License-Identifier: Apache-2.0
//
// The shares of a link in the kernel: what leaves by a port of a declared speed, by router. Needs root; everything is in
// a network namespace of this process's own.

#include <gtest/gtest.h>

#include <thread>

#include "engine/netdev/ethtool.h"
#include "engine/xdp/xdp_engine.h"
#include "tables/link_shares.h"
#include "tests/engine/wires.h"
#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

using Clock = std::chrono::steady_clock;

// So slow that what may leave at once lasts longer than nearly all turns of others on this processor.
constexpr uint64_t kSpeed = 4'000'000;
constexpr uint32_t kOtherVrf = 2, kOtherLan = 5, kOtherUp = 6, kToOtherUp = 3;  // slots
constexpr uint32_t kOtherLanTag = 300, kOtherUpTag = 301;
constexpr size_t kPayload = 1476;  // octets; with both headers and a tag a frame of 1,514

XdpOptions options() {
    XdpOptions all;
    all.bpffs = bpffs();
    all.instance = "test";
    all.capacity = {.words = 1u << 16, .members = 1u << 10};
    return all;
}

// Two routers from one port to another, whose speed is declared.
class Links : public OnTwoWires {
  protected:
    void start() {
        engine.emplace(options());
        sp_arrays& tables = engine->arrays();
        Writer write(tables);
        write.usual_router();
        write.router(kOtherVrf);
        write.interface(kOtherLan, kLanPort, kOtherLanTag);
        write.interface(kOtherUp, kUpPort, kOtherUpTag);
        write.classify(kLanPort, kOtherLanTag, kOtherLan, kOtherVrf);
        tables.nexthops[kToOtherUp] = sp_nexthop(SP_NEXTHOP_FORWARD, kOtherUp, kNeighborMac);
        write.route4(0x0a020000, 16, sp_leaf(SP_ROUTE_NEXTHOP, kToOtherUp), kOtherVrf);
        shares.emplace(tables);
        shares->entered(kUp, kVrf);
        shares->entered(kOtherUp, kOtherVrf);
        tables.router_shares[kVrf].weight = 2;
        engine->activate({{kLanPort, "lan"}, {kUpPort, "up", kSpeed}});
        for (const PortStatus& port : engine->ports()) shares->set_speed(port.port.number, port.speed);
    }

    void TearDown() override {
        shares.reset();
        engine.reset();
        OnTwoWires::TearDown();
    }

    // What has left, octets of the wire by router: the first is untagged, the other one tagged.
    struct Left {
        double octets[2] = {};
        double time_s = 0;
        double sum() const { return octets[0] + octets[1]; }
    };
    // Let both send six times what the link takes, and count for so long as nothing holds this process up: while it does
    // not send buckets are filled, and whoever sends then has as much at once as each other.
    Left flood(double time_s) {
        constexpr std::chrono::milliseconds kEach{1}, kHeldUp{50}, kSettled{700};
        const Octets packet = Ipv4{.payload = Octets(kPayload)}.octets();
        const Octets first = ethernet(kOwnMac, kHostMac, 0x0800, packet);
        const Octets second = ethernet(kOwnMac, kHostMac, 0x0800, packet, kOtherLanTag);
        Left left;
        auto before = Clock::now(), from = before + kSettled;
        const auto patience = before + std::chrono::seconds(60);
        for (auto now = before; left.time_s < time_s && now < patience; now = Clock::now()) {
            if (now - before > kHeldUp) from = now + kSettled;
            const bool counts = now >= from;
            if (counts) left.time_s += std::chrono::duration<double>(now - before).count();
            for (; before < now; before += kEach) {
                lan->send(first);
                lan->send(second);
            }
            before = now;
            while (const auto frame = up->receive(std::chrono::milliseconds(0))) {
                if (counts) left.octets[frame->at(12) == 0x81] += static_cast<double>(frame->size()) + 24;
            }
            std::this_thread::sleep_for(kEach);
        }
        EXPECT_GE(left.time_s, time_s) << "this machine has no time to send";
        return left;
    }
    uint64_t dropped(uint32_t vrf) {
        uint64_t packets = 0;
        for (uint32_t cpu = 0; cpu < engine->arrays().cpus; ++cpu) {
            const size_t at = (size_t{cpu} * SP_VRFS + vrf) * SP_REASONS + sp_reason_index(SP_DROP_OVER_SHARE);
            packets += engine->arrays().reasons[at].packets;
        }
        return packets;
    }
    static uint64_t now_ns() {
        return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
    }

    std::optional<XdpEngine> engine;
    std::optional<LinkShares> shares;
};

TEST_F(Links, AreDividedByWeight) {
    start();
    const Left left = flood(3);
    EXPECT_NEAR(left.octets[0] / left.sum(), 2 / 3.0, 0.05 * 2 / 3);
    EXPECT_NEAR(left.sum() * 8 / left.time_s, kSpeed, 0.05 * kSpeed);
    EXPECT_GT(dropped(kVrf), 0u);
    EXPECT_GT(dropped(kOtherVrf), dropped(kVrf));
    const LinkStatus status = shares->status(kUpPort, now_ns());
    EXPECT_EQ(status.speed, kSpeed);
    EXPECT_TRUE(status.contended);
    EXPECT_GT(status.use, kSpeed / 2);
    EXPECT_EQ(status.over_share, dropped(kVrf) + dropped(kOtherVrf));
}

TEST_F(Links, ARouterAloneHasAllOfIt) {
    start();
    engine->arrays().router_shares[kVrf].guarantee = SP_SHARE_WHOLE / 2;
    shares->divide();
    lan->send(ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{}.octets()));
    EXPECT_TRUE(up->receive());
    EXPECT_FALSE(shares->status(kUpPort, now_ns()).contended);
    EXPECT_EQ(dropped(kVrf), 0u);
}

// What a veth tells of its speed (10 Gbit/s) means nothing.
TEST_F(Links, SpeedsAreBelievedOfHardwareOnly) {
    start();
    EXPECT_GT(Ethtool("lan").speed(), 0u);
    const std::vector<PortStatus> ports = engine->ports();
    EXPECT_EQ(ports[0].speed, 0u);
    EXPECT_EQ(ports[1].speed, kSpeed) << "as declared";
    EXPECT_EQ(shares->status(kLanPort, 0).speed, 0u);
}

}  // namespace
}  // namespace splitplane::test
