// SPDX-License-Identifier: Apache-2.0
//
// Shares of a core in the kernel: polls are measured, and what is over a share is dropped, also while nobody is there but
// the kernel. Needs root; everything is in a network namespace of this process's own.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "engine/xdp/xdp_engine.h"
#include "tests/engine/wires.h"
#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

constexpr uint32_t kFree = 2;  // the VRF of the tagged interface; kVrf has a ceiling
constexpr int kMany = 3000;    // more than a ring, which is what a router has credit for

constexpr uint8_t kOrdinary = 1, kLast = 2;

Octets packet(int vlan, uint8_t octet = kOrdinary) {
    return ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.payload = Octets(16, octet)}.octets(), vlan);
}

class SharesOfACore : public OnTwoWires {
  protected:
    static XdpOptions options() {
        XdpOptions all;
        all.bpffs = bpffs();
        all.instance = "test";
        all.capacity = {.words = 1u << 16, .members = 1u << 10};
        return all;
    }
    std::unique_ptr<XdpEngine> running() const {
        auto engine = std::make_unique<XdpEngine>(options());
        Writer write(engine->arrays());
        write.usual_router();
        write.router(kFree);
        write.classify(kLanPort, kVlan, kLanVlan, kFree);
        write.route4(0x0a020000, 16, sp_leaf(SP_ROUTE_NEXTHOP, kToUp), kFree);
        engine->arrays().router_shares[kVrf] = {1, 0, 1, 0};  // a millionth of a core
        engine->activate({{kLanPort, "lan"}, {kUpPort, "up"}});
        return engine;
    }
    static sp_core_router sum(XdpEngine& engine, uint32_t vrf) {
        const sp_arrays& arrays = engine.arrays();
        sp_core_router all{};
        for (uint32_t cpu = 0; cpu < arrays.cpus; ++cpu) {
            all.spent += arrays.core_routers[size_t{cpu} * SP_VRFS + vrf].spent;
            all.dropped += arrays.core_routers[size_t{cpu} * SP_VRFS + vrf].dropped;
        }
        return all;
    }
    static uint64_t over_share(XdpEngine& engine, uint32_t vrf) {
        const sp_arrays& arrays = engine.arrays();
        uint64_t packets = 0;
        for (uint32_t cpu = 0; cpu < arrays.cpus; ++cpu) {
            packets += arrays.reasons[(size_t{cpu} * SP_VRFS + vrf) * SP_REASONS + sp_reason_index(SP_DROP_OVER_SHARE)]
                           .packets;
        }
        return packets;
    }
    // So many packets, few enough at a time that no queue overflows; how many have come out. The last one is another,
    // of the router that nobody holds back, and overtakes none.
    int pass(int packets, int vlan = -1) const {
        int passed = 0;
        for (int number = 0; number < packets; ++number) {
            lan->send(packet(vlan));
            while (up->receive(std::chrono::milliseconds(0))) ++passed;
        }
        lan->send(packet(kVlan, kLast));
        for (;;) {
            const auto frame = up->receive();
            if (!frame || frame->back() == kLast) return passed;
            ++passed;
        }
    }
};

TEST_F(SharesOfACore, OneThatHasACeilingIsHeldBackAndNoOther) {
    const auto engine = running();
    ASSERT_TRUE(engine->shares());
    const int passed = pass(kMany);
    const sp_core_router held_back = sum(*engine, kVrf);
    EXPECT_LT(passed, kMany / 2);
    EXPECT_GT(held_back.dropped, 0u);
    EXPECT_EQ(over_share(*engine, kVrf), held_back.dropped);
    EXPECT_EQ(static_cast<uint64_t>(passed) + held_back.dropped, uint64_t{kMany});
    EXPECT_EQ(pass(kMany, kVlan), kMany);
    EXPECT_EQ(sum(*engine, kFree).dropped, 0u);
    EXPECT_GT(sum(*engine, kFree).spent, 0u);
}

TEST_F(SharesOfACore, GoOnWhileTheProcessIsDead) {
    const pid_t child = ::fork();
    if (child == 0) {
        const auto engine = running();
        ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_LT(pass(kMany), kMany / 2);
    const auto engine = running();
    const uint64_t before = sum(*engine, kVrf).dropped;
    EXPECT_GT(before, 0u) << "of the process before";
    EXPECT_LT(pass(kMany), kMany / 2);
    EXPECT_GT(sum(*engine, kVrf).dropped, before);
}

// Nothing is dropped by a clock that stands still.
TEST_F(SharesOfACore, EndWithTheClock) {
    const auto engine = running();
    EXPECT_LT(pass(kMany), kMany / 2);
    shell("rm " + bpffs() + "/test/core-clock");
    int passed = 0;
    for (int round = 0; round < 40 && passed != kMany; ++round) {
        passed = pass(kMany);  // spread over cores as it comes, each of which trusts the clock for SP_CORE_TRUST packets
    }
    EXPECT_EQ(passed, kMany);
}

}  // namespace
}  // namespace splitplane::test
