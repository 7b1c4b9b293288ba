// SPDX-License-Identifier: Apache-2.0
//
// What ports lose behind the program and before it: counted by port and reason, also while nobody is there but the
// kernel. Needs root; everything is in a network namespace of this process's own.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <numeric>
#include <thread>

#include "engine/xdp/device_losses.h"
#include "engine/xdp/xdp_engine.h"
#include "tests/engine/wires.h"
#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

XdpOptions options(bool generic = false) {
    XdpOptions all;
    all.bpffs = bpffs();
    all.instance = "test";
    all.capacity = {.words = 1u << 16, .members = 1u << 10};
    all.generic_only = generic;
    return all;
}

Octets packet(size_t octets = 16) {
    return ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.payload = Octets(octets, 1)}.octets());
}

class Losses : public OnTwoWires {
  protected:
    std::unique_ptr<XdpEngine> running(bool generic = false) const {
        auto engine = std::make_unique<XdpEngine>(options(generic));
        for (const std::string& remark : engine->remarks()) {
            EXPECT_EQ(remark.find("not counted"), std::string::npos) << remark;
        }
        Writer(engine->arrays()).usual_router();
        engine->activate({{kLanPort, "lan"}, {kUpPort, "up"}});
        return engine;
    }
    static EgressLosses lost(XdpEngine& engine, uint32_t port = kUpPort) {
        const std::vector<PortLosses> all = engine.losses();
        return std::ranges::find(all, port, &PortLosses::port)->egress;
    }
    static uint64_t sum(const EgressLosses& losses) { return std::accumulate(losses.begin(), losses.end(), 0ull); }
    // Until so many are lost: the kernel counts them in its own time.
    static void await(XdpEngine& engine, uint64_t frames) {
        const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (sum(lost(engine)) < frames && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    }
    static void expect_only(XdpEngine& engine, sp_loss reason, uint64_t frames) {
        await(engine, frames);
        EgressLosses wanted{};
        wanted[reason] = frames;
        EXPECT_EQ(lost(engine), wanted);
        EXPECT_EQ(sum(lost(engine, kLanPort)), 0u) << "of another port";
    }
};

TEST_F(Losses, APortThatIsDown) {
    const auto engine = running();
    shell("ip link set dev up down");
    lan->send(packet());
    lan->send(packet());
    expect_only(*engine, SP_LOSS_DOWN, 2);
}

TEST_F(Losses, APortThatIsDownInGenericMode) {
    const auto engine = running(true);
    shell("ip link set dev up down");
    lan->send(packet());
    expect_only(*engine, SP_LOSS_DOWN, 1);
}

TEST_F(Losses, LongerThanThePortTakes) {
    const auto engine = running();
    shell("ip link set dev up mtu 1000");
    lan->send(packet(1200));
    expect_only(*engine, SP_LOSS_TOO_LONG, 1);
    lan->send(packet(900));
    EXPECT_TRUE(up->receive());
}

// A veth whose other end is not polled cannot send; Linux knows that from 6.3 on, before that the driver says it.
TEST_F(Losses, WhereNobodyPolls) {
    const auto engine = running();
    shell("ethtool -K far-up gro off");
    for (int frame = 0; frame < 3; ++frame) lan->send(packet());
    await(*engine, 3);
    const EgressLosses seen = lost(*engine);
    EXPECT_EQ(seen[SP_LOSS_NO_QUEUE] + seen[SP_LOSS_UNABLE], 3u);
    EXPECT_EQ(sum(seen), 3u);
}

// What a veth's other end is too small for its driver leaves, as it does what its ring has no room for.
TEST_F(Losses, WhatTheDriverDoesNotTake) {
    const auto engine = running();
    shell("ip link set dev far-up mtu 1000");
    for (int frame = 0; frame < 3; ++frame) lan->send(packet(1300));
    expect_only(*engine, SP_LOSS_RING_FULL, 3);
}

TEST_F(Losses, WhatLeavesIsNotLost) {
    const auto engine = running();
    lan->send(packet());
    EXPECT_TRUE(up->receive());
    EXPECT_EQ(sum(lost(*engine)), 0u);
}

TEST_F(Losses, AreCountedWhileTheProcessIsDead) {
    const pid_t child = ::fork();
    if (child == 0) {
        const auto engine = running();
        ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    shell("ip link set dev up down");
    lan->send(packet());
    const auto engine = running();
    expect_only(*engine, SP_LOSS_DOWN, 1);
}

// Old programs and new ones are attached at the same time for a while.
TEST_F(Losses, AreCountedOnceWhileItIsReplaced) {
    auto engine = running();
    shell("ip link set dev far-up mtu 1000");
    uint64_t sent = 0;
    const auto send = [&](int frames) {
        for (int frame = 0; frame < frames; ++frame, ++sent) lan->send(packet(1300));
        await(*engine, sent);
    };
    for (int replacement = 0; replacement < 3; ++replacement) {
        send(50);
        engine.reset();
        // Loaded and attached, and the ports are still the earlier one's.
        engine = std::make_unique<XdpEngine>(options());
        Writer(engine->arrays()).usual_router();
        for (int frame = 0; frame < 50; ++frame, ++sent) lan->send(packet(1300));
        engine->activate({{kLanPort, "lan"}, {kUpPort, "up"}});
        await(*engine, sent);
    }
    send(50);
    expect_only(*engine, SP_LOSS_RING_FULL, sent);
}

TEST_F(Losses, OfAnotherInstanceAreItsOwn) {
    const Wire left("left"), right("right");
    XdpOptions other = options();
    other.instance = "other";
    {
        XdpEngine second(other);
        Writer(second.arrays()).usual_router();
        second.activate({{kLanPort, "left"}, {kUpPort, "right"}});
        const auto engine = running();
        shell("ip link set dev far-right mtu 1000 && ip link set dev up down");
        left.send(packet(1300));
        lan->send(packet());
        expect_only(*engine, SP_LOSS_DOWN, 1);
        expect_only(second, SP_LOSS_RING_FULL, 1);
    }
    XdpEngine::detach("other", bpffs());
}

TEST_F(Losses, DetachTakesTheirProgramsAway) {
    running().reset();
    shell("test -e " + bpffs() + "/test/losses-queue && ! test -e " + bpffs() + "/test/losses-queue-next");
    XdpEngine::detach("test", bpffs());
    shell("! test -e " + bpffs() + "/test");
}

TEST_F(Losses, DevicesTellTheirOwn) {
    const auto engine = running();
    const auto counted = [](const std::string& counter) {
        const std::vector<DeviceLoss> all = read_device_losses("up");
        const auto found = std::ranges::find(all, counter, &DeviceLoss::counter);
        return found == all.end() ? std::nullopt : std::optional(*found);
    };
    ASSERT_TRUE(counted("tx_dropped"));
    const uint64_t before = counted("tx_dropped")->frames;
    shell("ip link set dev far-up mtu 1000");
    engine->transmit(kUpPort, 0, packet(1300));
    EXPECT_EQ(counted("tx_dropped")->frames, before + 1);
    ASSERT_TRUE(counted("rx_queue_0_drops")) << "of the driver, by queue";
    EXPECT_EQ(counted("rx_queue_0_drops")->queue, 0u);
    EXPECT_FALSE(counted("rx_queue_0_xdp_drops")) << "what the program dropped is not lost by the ring";
    EXPECT_TRUE(read_device_losses("absent").empty());
}

TEST(RingLosses, ThatTheKernelHasByTheSameNameAreThereOnce) {
    std::vector<DeviceLoss> losses{{"rx_missed_errors", std::nullopt, 500}};
    add_drivers({{"rx_missed_errors", 500}, {"rx_packets", 7}, {"rx_queue_1_drops", 3}}, losses);
    EXPECT_EQ(losses, (std::vector<DeviceLoss>{{"rx_missed_errors", std::nullopt, 500}, {"rx_queue_1_drops", 1, 3}}));
}

TEST(RingLosses, AreKnownByTheNamesOfManyDrivers) {
    const auto queue = [](const char* name) {
        const auto loss = ring_loss(name);
        return !loss ? -2 : loss->queue ? static_cast<int>(*loss->queue) : -1;
    };
    EXPECT_EQ(queue("rx_queue_0_drops"), 0) << "veth, virtio_net";
    EXPECT_EQ(queue("rx12_drops"), 12) << "virtio_net of Linux 6.8";
    EXPECT_EQ(queue("rx3_buff_alloc_err"), 3) << "mlx5";
    EXPECT_EQ(queue("rx_out_of_buffer"), -1) << "mlx5";
    EXPECT_EQ(queue("rx7_dropped"), 7) << "mlx4";
    EXPECT_EQ(queue("rx_missed_errors"), -1) << "ixgbe";
    EXPECT_EQ(queue("rx_no_dma_resources"), -1) << "ixgbe";
    EXPECT_EQ(queue("rx_no_buffer_count"), -1) << "e1000e, igb";
    EXPECT_EQ(queue("port.rx_dropped"), -1) << "i40e";
    EXPECT_EQ(queue("rx_dropped.nic"), -2) << "ice: known by rx_dropped of the kernel";
    EXPECT_EQ(queue("[4]: rx_discards"), 4) << "bnxt";
    for (const char* name :
         {"rx_queue_0_xdp_drops", "rx0_xdp_drop", "rx_packets", "tx_dropped", "rx_queue_0_bytes", ""}) {
        EXPECT_EQ(queue(name), -2) << name;
    }
}

}  // namespace
}  // namespace splitplane::test
