// SPDX-License-Identifier: Apache-2.0
//
// The XDP engine on real interfaces: forwarding, punts, packets out, and what outlives what. Needs root; everything is
// in a network namespace of this process's own.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/xdp/xdp_engine.h"
#include "tests/engine/wires.h"
#include "tests/pipeline/world.h"

namespace splitplane::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What the engine's thread says, for a test to wait on.
template <typename T>
class Heard {
  public:
    void say(T thing) {
        const std::lock_guard guard(mutex_);
        things_.push_back(std::move(thing));
        changed_.notify_all();
    }
    // The next one that `fits`; those before it are forgotten.
    template <typename Fits>
    std::optional<T> next(Fits fits) {
        std::unique_lock lock(mutex_);
        const auto until = std::chrono::steady_clock::now() + seconds(60);
        while (true) {
            while (!things_.empty()) {
                T thing = std::move(things_.front());
                things_.pop_front();
                if (fits(thing)) return thing;
            }
            if (changed_.wait_until(lock, until) == std::cv_status::timeout) return std::nullopt;
        }
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<T> things_;
};

struct Heads {
    uint32_t id;
    uint8_t reason;
    Octets frame;
};

XdpOptions options(bool generic = false) {
    XdpOptions all;
    all.bpffs = bpffs();
    all.instance = "test";
    all.capacity = {.words = 1u << 16, .members = 1u << 10};
    all.generic_only = generic;
    return all;
}

const Octets kIn = ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{}.octets());
const Octets kOut = ethernet(kNeighborMac, kOwnMac, 0x0800, Ipv4{.ttl = 63}.octets());

// An engine with the usual router on two wires.
struct Running {
    explicit Running(const Wire& lan, const Wire& up, XdpOptions with = options()) : engine(std::move(with)) {
        Writer(engine.arrays()).usual_router();
        engine.set_punt_sink([this](const Punt& punt) {
            punts.say({punt.router_interface_id, punt.reason, {punt.frame.begin(), punt.frame.end()}});
        });
        engine.set_port_sink([this](const PortStatus& status) { ports.say(status); });
        engine.activate({{kLanPort, lan.near()}, {kUpPort, up.near()}});
    }

    Heard<Heads> punts;
    Heard<PortStatus> ports;
    XdpEngine engine;
};

class XdpEngineTest : public ::testing::Test {
  protected:
    static void SetUpTestSuite() { problem_ = enclose(); }
    void SetUp() override {
        if (!problem_.empty()) FAIL() << problem_;
        lan.emplace("lan");
        up.emplace("up");
    }
    void TearDown() override {
        up.reset();
        lan.reset();
        if (problem_.empty()) XdpEngine::detach("test", bpffs());
    }

    std::optional<Wire> lan, up;

  private:
    static inline std::string problem_;
};

TEST_F(XdpEngineTest, ForwardsInNativeMode) {
    Running running(*lan, *up);
    for (const PortStatus& port : running.engine.ports()) {
        EXPECT_EQ(port.mode, "native");
        EXPECT_EQ(port.problem, "");
        EXPECT_TRUE(port.up && port.present);
    }
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut);
}

TEST_F(XdpEngineTest, ForwardsInGenericMode) {
    Running running(*lan, *up, options(true));
    EXPECT_EQ(running.engine.ports().front().mode, "generic");
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut);
    // In and out by VLANs, so that the head moves both ways.
    lan->send(ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = 0x0a030009}.octets()));
    EXPECT_EQ(up->receive(),
              ethernet(kNeighborMac, kOwnMac, 0x0800, Ipv4{.dst = 0x0a030009, .ttl = 63}.octets(), kUpTag));
}

TEST_F(XdpEngineTest, OnePortWithoutNativeXdpMakesAllGeneric) {
    shell("ip link add dev bridge type bridge && ip link set dev bridge up");
    Running running(*lan, *up);
    running.engine.activate({{kLanPort, "lan"}, {kUpPort, "up"}, {3, "bridge"}});
    for (const PortStatus& port : running.engine.ports()) {
        EXPECT_EQ(port.mode, "generic") << port.port.interface;
        EXPECT_EQ(port.problem, "");
    }
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut);
    shell("ip link del dev bridge");
}

TEST_F(XdpEngineTest, JumboMtuIsForwardedInGenericModeAndSaid) {
    shell("ip link set dev far-lan mtu 9000 && ip link set dev lan mtu 9000");
    Running running(*lan, *up);
    const PortStatus port = running.engine.ports().front();
    EXPECT_EQ(port.mode, "generic");
    EXPECT_NE(port.problem.find("refuses native XDP"), std::string::npos) << port.problem;
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut);
}

TEST_F(XdpEngineTest, PuntsReachTheSink) {
    Running running(*lan, *up);
    const Octets arp = ethernet(0xffffffffffff, kHostMac, 0x0806, Octets(46, 1));
    lan->send(arp);
    const auto punt = running.punts.next([](const Heads&) { return true; });
    ASSERT_TRUE(punt);
    EXPECT_EQ(punt->id, 100 + kLan);
    EXPECT_EQ(punt->reason, SP_PUNT_CONTROL);
    EXPECT_EQ(punt->frame, arp);
}

TEST_F(XdpEngineTest, TransmitsWithAndWithoutATag) {
    Running running(*lan, *up);
    EXPECT_TRUE(running.engine.transmit(kUpPort, 0, kIn));
    EXPECT_EQ(up->receive(), kIn);
    EXPECT_TRUE(running.engine.transmit(kUpPort, 3000, kIn));
    EXPECT_EQ(up->receive(), ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{}.octets(), 3000));
    EXPECT_FALSE(running.engine.transmit(9, 0, kIn)) << "no such port";
    EXPECT_FALSE(running.engine.transmit(kUpPort, 0, Octets(5, 0))) << "no frame";
    EXPECT_EQ(running.engine.transmit_failures(), 2u);
}

TEST_F(XdpEngineTest, GoesOnWhenTheProcessIsKilledAndIsTakenOver) {
    const pid_t child = ::fork();
    if (child == 0) {
        const Running running(*lan, *up);
        ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut) << "nobody there, but the kernel";
    Running running(*lan, *up);
    EXPECT_EQ(running.engine.remarks().back(), "counters go on from those of the last process");
    uint64_t packets = 0;
    for (uint32_t cpu = 0; cpu < running.engine.arrays().cpus; ++cpu) {
        packets += running.engine.arrays().rx[cpu * SP_INTERFACES + kLan].packets;
    }
    EXPECT_EQ(packets, 1u);
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut);
}

// Packets through both wires all the time, no more under way than a veth's ring holds.
class Traffic {
  public:
    Traffic(const Wire& in, const Wire& out) {
        receiver_ = std::thread([this, &out] {
            while (!done_) received_ += out.receive(milliseconds(100)).has_value();
        });
        sender_ = std::thread([this, &in] {
            while (!stop_) {
                if (sent_ - received_ > 100) {
                    std::this_thread::yield();
                } else {
                    in.send(kIn);
                    ++sent_;
                }
            }
        });
    }
    ~Traffic() { finish(); }
    // Let so many more pass.
    void flow(uint64_t count) const {
        await(received_ + count);
    }
    // How many were lost of how many.
    std::pair<uint64_t, uint64_t> finish() {
        stop_ = true;
        if (sender_.joinable()) sender_.join();
        await(sent_);
        done_ = true;
        if (receiver_.joinable()) receiver_.join();
        return {sent_ - received_, sent_};
    }

  private:
    void await(uint64_t until) const {
        const auto patience = std::chrono::steady_clock::now() + seconds(20);
        while (received_ < until && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    }

    std::atomic<bool> stop_{false}, done_{false};
    std::atomic<uint64_t> sent_{0}, received_{0};
    std::thread sender_, receiver_;
};

TEST_F(XdpEngineTest, NothingIsLostWhileItIsReplaced) {
    auto running = std::make_unique<Running>(*lan, *up);
    Traffic traffic(*lan, *up);
    for (int replacement = 0; replacement < 5; ++replacement) {
        traffic.flow(500);
        running.reset();
        traffic.flow(500);
        running = std::make_unique<Running>(*lan, *up);
    }
    const auto [lost, sent] = traffic.finish();
    EXPECT_EQ(lost, 0u);
    EXPECT_GE(sent, 5000u);
}

TEST_F(XdpEngineTest, TakesAwayTheCountersOfAnotherLayout) {
    const std::string pin = bpffs() + "/test/map_rx-", ours = pin + std::to_string(SP_LAYOUT);
    Running(*lan, *up);
    shell("mv " + ours + " " + pin + "0");
    const Running running(*lan, *up);
    shell("test -e " + ours + " && ! test -e " + pin + "0");
}

TEST_F(XdpEngineTest, AttachesAnInterfaceThatComesBack) {
    Running running(*lan, *up);
    up.reset();
    ASSERT_TRUE(
        running.ports.next([](const PortStatus& port) { return port.port.number == kUpPort && !port.present; }));
    lan->send(kIn);
    EXPECT_FALSE(running.engine.transmit(kUpPort, 0, kIn));
    up.emplace("up");
    ASSERT_TRUE(running.ports.next([](const PortStatus& port) { return port.mode == "native" && port.up; }));
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut);
    up->send(ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = 0x0a030009}.octets()));
    EXPECT_EQ(up->receive(),
              ethernet(kNeighborMac, kOwnMac, 0x0800, Ipv4{.dst = 0x0a030009, .ttl = 63}.octets(), kUpTag));
}

TEST_F(XdpEngineTest, TellsOfCarrier) {
    Running running(*lan, *up);
    shell("ip link set dev far-up down");
    ASSERT_TRUE(running.ports.next([](const PortStatus& port) { return port.port.number == kUpPort && !port.up; }));
    shell("ip link set dev far-up up");
    ASSERT_TRUE(running.ports.next([](const PortStatus& port) { return port.port.number == kUpPort && port.up; }));
}

TEST_F(XdpEngineTest, TakesAPortOffThatIsNotConfiguredAnyMore) {
    { const Running running(*lan, *up); }
    XdpEngine engine(options());
    engine.activate({{kLanPort, "lan"}});
    shell("ip -d link show dev lan | grep -q xdp");
    shell("! ip -d link show dev up | grep -q xdp");
}

TEST_F(XdpEngineTest, DetachLeavesNothing) {
    { const Running running(*lan, *up); }
    EXPECT_EQ(XdpEngine::detach("test", bpffs()), 2u);
    shell("! ip -d link show | grep -q xdp && ! test -e " + bpffs() + "/test");
    EXPECT_EQ(XdpEngine::detach("test", bpffs()), 0u);
}

TEST_F(XdpEngineTest, OneProcessHasAnInstance) {
    const Running running(*lan, *up);
    EXPECT_THROW(XdpEngine second(options()), EngineError);
    EXPECT_THROW(XdpEngine::detach("test", bpffs()), EngineError);
}

TEST_F(XdpEngineTest, MissingInterfacesAreNamed) {
    XdpEngine engine(options());
    engine.activate({{1, "lan"}, {2, "absent"}});
    EXPECT_EQ(engine.ports().back().problem, "there is no such interface");
    try {
        engine.activate({{2, "absent"}});
        FAIL() << "a plane without a port";
    } catch (const EngineError& error) {
        EXPECT_STREQ(error.what(), "absent: there is no such interface");
    }
    EXPECT_THROW(engine.activate({{0, "lan"}}), EngineError);
    EXPECT_THROW(engine.activate({{SP_PORTS, "lan"}}), EngineError);
}

TEST_F(XdpEngineTest, AnotherProgramIsLeftAlone) {
    XdpOptions other = options();
    other.instance = "other";
    {
        XdpEngine first(other);
        first.activate({{1, "lan"}});
        XdpEngine engine(options());
        engine.activate({{1, "lan"}, {2, "up"}});
        EXPECT_EQ(engine.ports().front().problem,
                  "another XDP program is attached; take it off with: ip link set dev lan xdp off");
    }
    XdpEngine::detach("other", bpffs());
}

TEST_F(XdpEngineTest, StopEndsPuntsAndNotForwarding) {
    Running running(*lan, *up);
    running.engine.stop();
    lan->send(ethernet(0xffffffffffff, kHostMac, 0x0806, Octets(46, 1)));
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut);
    running.engine.stop();
    running.punts.say({0, 0, {}});
    EXPECT_EQ(running.punts.next([](const Heads&) { return true; })->reason, 0)
        << "the ARP packet was given to the sink";
}

TEST_F(XdpEngineTest, SynchronizesWithReaders) {
    XdpEngine engine(options());
    EXPECT_NO_THROW(engine.synchronize());
}

}  // namespace
}  // namespace splitplane::test
