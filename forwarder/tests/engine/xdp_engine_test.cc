// SPDX-License-Identifier: Apache-2.0
//
// The XDP engine on real interfaces: forwarding, punts, packets out, and what outlives what. Needs root; everything is
// in a network namespace of this process's own.

#include <bpf/bpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/if_tun.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <condition_variable>
#include <deque>
#include <future>
#include <latch>
#include <map>
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

// What the engine's threads say, for a test to wait on.
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

class XdpEngineTest : public OnTwoWires {};

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

const std::string kNoNative = "its driver bridge has no native XDP";

// How ports are, as "mode: problem" by their interfaces.
std::map<std::string, std::string> told(XdpEngine& engine) {
    std::map<std::string, std::string> all;
    for (const PortStatus& port : engine.ports()) all[port.port.interface] = port.mode + ": " + port.problem;
    return all;
}

TEST_F(XdpEngineTest, OnePortWithoutNativeXdpMakesAllGenericUntilItIsGone) {
    shell("ip link add dev bridge type bridge && ip link set dev bridge up");
    Running running(*lan, *up);
    running.engine.activate({{kLanPort, "lan"}, {kUpPort, "up"}, {3, "bridge"}});
    const std::string others = "generic: generic because bridge is";
    EXPECT_EQ(told(running.engine), (std::map<std::string, std::string>{
                                        {"lan", others}, {"up", others}, {"bridge", "generic: " + kNoNative}}));
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut);
    shell("ip link del dev bridge");
    for (const uint32_t number : {kLanPort, kUpPort}) {
        const auto native = [&](const PortStatus& port) { return port.port.number == number && port.mode == "native"; };
        ASSERT_TRUE(running.ports.next(native));
    }
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut);
}

TEST_F(XdpEngineTest, APortWithoutNativeXdpThatComesLaterMakesAllGeneric) {
    Running running(*lan, *up);
    running.engine.activate({{kLanPort, "lan"}, {kUpPort, "up"}, {3, "bridge"}});
    shell("ip link add dev bridge type bridge && ip link set dev bridge up");
    ASSERT_TRUE(running.ports.next([](const PortStatus& port) { return port.port.number == 3 && port.present; }));
    lan->send(kIn);
    EXPECT_EQ(up->receive(), kOut);
    EXPECT_EQ(told(running.engine)["lan"], "generic: generic because bridge is");
    shell("ip link del dev bridge");
}

TEST_F(XdpEngineTest, ARestartKeepsGenericForItsReasonAndNoLonger) {
    shell("ip link add dev bridge type bridge && ip link set dev bridge up");
    const std::vector<Port> all{{kLanPort, "lan"}, {kUpPort, "up"}, {3, "bridge"}};
    { Running(*lan, *up).engine.activate(all); }
    {
        Running running(*lan, *up);  // the program of the two is replaced, as nothing refuses any more
        EXPECT_EQ(told(running.engine)["lan"], "native: ");
        running.engine.activate(all);
    }
    shell("ip -d link show dev lan | grep -q xdpgeneric");
    XdpEngine engine(options());
    engine.activate(all);
    EXPECT_EQ(told(engine)["bridge"], "generic: " + kNoNative) << "also where it was an earlier process that tried";
    shell("ip link del dev bridge");
}

// What is converted is detached first. A port that cannot be attached again is not said to be attached: here because
// the bridge that it is in has the program by then, if the bridge's number is the lower one.
TEST_F(XdpEngineTest, APortThatCannotBeConvertedIsNotAttached) {
    for (const uint32_t bridge_port : {9u, 1u}) {
        shell("ip link add dev bridge type bridge && ip link set dev bridge up && ip link set dev lan master bridge");
        XdpEngine engine(options());
        engine.activate({{5, "lan"}, {bridge_port, "bridge"}});
        const std::string lan_told = told(engine)["lan"];
        const bool attached = std::system("ip -d link show dev lan | grep -q xdpgeneric") == 0;
        EXPECT_EQ(attached, bridge_port == 9) << lan_told;
        EXPECT_EQ(lan_told.starts_with("generic: "), attached) << lan_told;
        EXPECT_EQ(lan_told.starts_with(": another XDP program is attached"), !attached) << lan_told;
        EXPECT_EQ(engine.transmit(5, 0, kIn), attached);
        engine.activate({{kUpPort, "up"}});
        shell("ip link del dev bridge");
    }
}

// It is tried again whenever its interface changes, which may take a while: nothing is sent by it meanwhile.
TEST_F(XdpEngineTest, NothingIsSentByAPortWhileItIsTriedAgain) {
    shell("ip link add dev bridge type bridge && ip link set dev bridge up && ip link set dev lan master bridge");
    XdpEngine engine(options());
    engine.activate({{5, "lan"}, {1, "bridge"}});
    ASSERT_TRUE(told(engine)["lan"].starts_with(": another XDP program is attached"));
    std::atomic<bool> ended = false;
    std::jthread changes([&ended] {
        for (int mtu = 1400; mtu < 1460; ++mtu) shell("ip link set dev lan mtu " + std::to_string(mtu));
        ended = true;
    });
    size_t tries = 0, sent = 0;
    for (; !ended; ++tries) sent += engine.transmit(5, 0, kIn);
    EXPECT_EQ(sent, 0u) << "of " << tries;
    engine.activate({{kUpPort, "up"}});
    shell("ip link del dev bridge");
}

// A frame longer than a page: in several buffers where XDP is native.
TEST_F(XdpEngineTest, JumboFramesAreForwardedAndCountedWhole) {
    for (const bool generic : {false, true}) {
        for (const char* name : {"lan", "up", "far-lan", "far-up"}) {
            shell(std::string("ip link set dev ") + name + " mtu 9000");
        }
        Running running(*lan, *up, options(generic));
        running.engine.arrays().egresses[kUp].port = sp_port(kUpPort, 0, 9000);
        const std::string lan_told = told(running.engine)["lan"];
        if (generic || XdpFeatures().known()) {
            EXPECT_EQ(lan_told, generic ? "generic: " : "native: ");
        } else {  // before Linux 6.3
            EXPECT_NE(lan_told.find("its MTU of 9000 may be too large"), std::string::npos) << lan_told;
        }
        const Ipv4 packet{.payload = Octets(8000, 7)};
        const Octets frame = ethernet(kOwnMac, kHostMac, 0x0800, packet.octets());
        Ipv4 routed = packet;
        routed.ttl = 63;
        lan->send(frame);
        EXPECT_EQ(up->receive(), ethernet(kNeighborMac, kOwnMac, 0x0800, routed.octets()));
        uint64_t received = 0, sent = 0;
        const sp_arrays& arrays = running.engine.arrays();
        for (uint32_t cpu = 0; cpu < arrays.cpus; ++cpu) {
            received += arrays.rx[cpu * SP_INTERFACES + kLan].bytes;
            sent += arrays.tx[cpu * SP_INTERFACES + kUp].bytes;
        }
        EXPECT_EQ(received, frame.size());
        EXPECT_EQ(sent, frame.size());
        shell("rm " + bpffs() + "/test/map_*");  // the next engine's counters begin at 0
    }
}

TEST_F(XdpEngineTest, SaysThatAFarEndDoesNotPollUntilItDoes) {
    if (!XdpFeatures().known()) GTEST_SKIP() << "Linux tells it from 6.3 on";
    Running running(*lan, *up);
    shell("ethtool -K far-up gro off");
    const auto says = [](const char* word) {
        return [word](const PortStatus& port) {
            const bool said = port.problem.find(word) != std::string::npos;
            return port.port.number == kUpPort && (*word == 0 ? port.problem.empty() : said);
        };
    };
    ASSERT_TRUE(running.ports.next(says("its far end does not poll")));
    shell("ethtool -K far-up gro on");
    ASSERT_TRUE(running.ports.next(says("")));
}

// -- promiscuous mode -------------------------------------------------------------------------------------------------
const char* const kLanIsPromiscuous = "ip link show dev lan | grep -q PROMISC";
const char* const kLanIsNot = "! ip link show dev lan | grep -q PROMISC";

TEST_F(XdpEngineTest, PortsArePromiscuousUntilTheyAreDetached) {
    shell(kLanIsNot);
    const pid_t child = ::fork();
    if (child == 0) {
        const Running running(*lan, *up);
        ::kill(::getpid(), SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
    shell(kLanIsPromiscuous);  // as forwarding goes on without the process
    {
        const Running running(*lan, *up);
        shell(kLanIsPromiscuous);
    }
    {
        XdpEngine engine(options());
        engine.activate({{kUpPort, "up"}});
        shell(kLanIsNot);
    }
    XdpEngine::detach("test", bpffs());
    shell("! ip link show dev up | grep -q PROMISC");
}

TEST_F(XdpEngineTest, PromiscuousModeThatAnOperatorSetIsLeft) {
    shell("ip link set dev lan promisc on");
    { const Running running(*lan, *up); }
    XdpEngine::detach("test", bpffs());
    shell(kLanIsPromiscuous);
    shell("ip link set dev lan promisc off");
}

TEST_F(XdpEngineTest, PromiscuousModeThatIsSwitchedOffComesBack) {
    const Running running(*lan, *up);
    shell("ip link set dev lan promisc off");
    // The kernel tells of the change, and then of that back: the second is there once `ip monitor` would show it.
    const auto until = std::chrono::steady_clock::now() + seconds(60);
    while (std::system(kLanIsPromiscuous) != 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    shell(kLanIsPromiscuous);
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

// A driver may take seconds for a port.
TEST_F(XdpEngineTest, PuntsDoNotWaitForPorts) {
    Heard<uint8_t> punts;
    std::latch busy(1);
    std::promise<bool> came;
    XdpEngine engine(options());
    Writer(engine.arrays()).usual_router();
    engine.set_punt_sink([&](const Punt& punt) { punts.say(punt.reason); });
    engine.set_port_sink([&](const PortStatus&) {
        if (busy.try_wait()) return;
        busy.count_down();
        came.set_value(punts.next([](uint8_t) { return true; }).has_value());
    });
    engine.activate({{kLanPort, "lan"}, {kUpPort, "up"}});
    shell("ip link set dev far-up down");
    busy.wait();
    lan->send(ethernet(0xffffffffffff, kHostMac, 0x0806, Octets(46, 1)));
    EXPECT_TRUE(came.get_future().get());
}

// Lets bpf(2) with a command wait in this thread until somebody says at the descriptor that it may go on.
int hold_back(uint32_t command) {
    std::array<sock_filter, 6> lines{{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_bpf, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, command, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    const sock_fprog filter{lines.size(), lines.data()};
    constexpr unsigned kListener = SECCOMP_FILTER_FLAG_NEW_LISTENER;
    return static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, kListener, &filter));
}

// Nor does who asks how they are: a watchdog would end the process.
TEST_F(XdpEngineTest, TellsOfPortsWhileADriverTakesItsTime) {
    std::promise<int> held;
    XdpEngine engine(options());
    std::thread activating([&] {
        held.set_value(hold_back(BPF_LINK_CREATE));
        engine.activate({{kLanPort, "lan"}});
    });
    const Descriptor attaches(held.get_future().get());
    seccomp_notif attach{};
    EXPECT_EQ(::ioctl(attaches.get(), SECCOMP_IOCTL_NOTIF_RECV, &attach), 0);
    const auto asked = std::async(std::launch::async, [&] { return engine.ports(); });
    EXPECT_EQ(asked.wait_for(seconds(10)), std::future_status::ready);
    seccomp_notif_resp go_on{.id = attach.id, .val = 0, .error = 0, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    EXPECT_EQ(::ioctl(attaches.get(), SECCOMP_IOCTL_NOTIF_SEND, &go_on), 0);
    activating.join();
    EXPECT_EQ(engine.ports().front().mode, "native");
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

TEST_F(XdpEngineTest, APortThatIsSlowToSendTakesNoRoomOfOthers) {
    Running running(*lan, *up);
    shell("tc qdisc add dev up root tbf rate 8kbit burst 1600 limit 16777216");
    int taken = 0;
    while (taken < 10000 && running.engine.transmit(kUpPort, 0, kIn)) ++taken;
    EXPECT_GT(taken, 0);
    EXPECT_LT(taken, 10000) << "what waits is bounded";
    EXPECT_TRUE(running.engine.transmit(kLanPort, 0, kIn));
    EXPECT_EQ(lan->receive(), kIn);
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

// As `bpftool link detach` does. The kernel tells nobody, so more than once: there is late news of the start.
TEST_F(XdpEngineTest, AttachesAgainWhatSomebodyDetached) {
    XdpOptions with = options(true);
    with.look_every = milliseconds(50);
    const Running running(*lan, *up, with);
    const std::string pin = bpffs() + "/test/link-" + std::to_string(if_nametoindex("lan"));
    for (int times = 0; times < 5; ++times) {
        ASSERT_EQ(bpf_link_detach(Descriptor(bpf_obj_get(pin.c_str())).get()), 0);
        std::optional<Octets> out;
        for (int tries = 0; tries < 600 && !out; ++tries) {
            lan->send(kIn);
            out = up->receive(milliseconds(50));
        }
        ASSERT_EQ(out, kOut);
    }
}

// It is gone and there again before the engine looks.
TEST_F(XdpEngineTest, ForwardsByAnotherInterfaceOfTheSameNameAndNumber) {
    std::latch busy(1), again(1);
    Heard<PortStatus> ports;
    XdpEngine engine(options());
    Writer(engine.arrays()).usual_router();
    engine.set_port_sink([&](const PortStatus& status) {
        if (!busy.try_wait()) {
            busy.count_down();
            again.wait();
        }
        ports.say(status);
    });
    engine.activate({{kLanPort, "lan"}, {kUpPort, "up"}});
    shell("ip link set dev lan down");
    busy.wait();
    const uint32_t index = if_nametoindex("up");
    up.reset();
    up.emplace("up", index);
    shell("ip link set dev lan up");
    again.count_down();
    ASSERT_TRUE(ports.next([](const PortStatus& port) { return port.port.number == kLanPort && port.up; }));
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

// Why the kernel notes no lost link itself; empty where it does. tests/native/test_forwarder_kernel.py runs these tests on
// kernels that do.
std::string without_carrier(const XdpEngine& engine) {
    for (const std::string& remark : engine.remarks()) {
        if (remark.find("netif_carrier_off") != std::string::npos) return remark;
    }
    return {};
}

// What the kernel notes itself, in the moment in which the driver says it, while nobody of ours runs.
TEST_F(XdpEngineTest, APortWithoutALinkIsKnownWithoutTheProcess) {
    Running running(*lan, *up);
    if (const std::string why = without_carrier(running.engine); !why.empty()) GTEST_SKIP() << why;
    const auto is_down = [&](uint32_t port) { return running.engine.arrays().ports_down[0] >> port & 1; };
    EXPECT_EQ(running.engine.arrays().ports_down[0], 0u);
    running.engine.stop();
    shell("ip link set dev far-up down");
    EXPECT_TRUE(is_down(kUpPort));
    EXPECT_FALSE(is_down(kLanPort));
    shell("ip link set dev far-up up");
    EXPECT_EQ(running.engine.arrays().ports_down[0], 0u);
}

// A TAP interface of this process: of its link rtnetlink tells up to a second late, as of hardware's; of a veth's at once.
class Tap {
  public:
    explicit Tap(const std::string& name) : device_(::open("/dev/net/tun", O_RDWR | O_CLOEXEC)) {
        ifreq request{};
        name.copy(request.ifr_name, IFNAMSIZ - 1);
        request.ifr_flags = IFF_TAP | IFF_NO_PI;
        EXPECT_EQ(::ioctl(device_.get(), TUNSETIFF, &request), 0);
        shell("ip link set dev " + name + " up");
    }
    void carrier(int on) const { EXPECT_EQ(::ioctl(device_.get(), TUNSETCARRIER, &on), 0); }

  private:
    Descriptor device_;
};

// What rtnetlink has told before a link was lost does not undo what the kernel has noted of that.
TEST_F(XdpEngineTest, OldNewsDoNotBringALostLinkBack) {
    const Tap tap("tap"), other("other");
    Heard<PortStatus> ports;
    XdpEngine engine(options());
    engine.set_port_sink([&](const PortStatus& status) { ports.say(status); });
    engine.activate({{kLanPort, lan->near()}, {kUpPort, "tap"}});
    other.carrier(0);  // from now on the kernel waits a second before it tells
    tap.carrier(0);
    set_port_down(engine.arrays(), kUpPort, true);  // as carrier.bpf.c, where the kernel takes that
    shell("ip link add dev more type veth peer name still-more");  // has the engine look at all ports
    shell("ip link set dev far-lan down");
    ASSERT_TRUE(ports.next([](const PortStatus& port) { return port.port.number == kLanPort && !port.up; }));
    EXPECT_TRUE(is_port_down(engine.arrays(), kUpPort));
    tap.carrier(1);
    const auto until = std::chrono::steady_clock::now() + seconds(60);
    while (is_port_down(engine.arrays(), kUpPort) && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_FALSE(is_port_down(engine.arrays(), kUpPort));
}

// An interface of the same number in another network namespace is another one.
TEST_F(XdpEngineTest, LinksOfOtherNamespacesAreNotItsOwn) {
    Running running(*lan, *up);
    if (const std::string why = without_carrier(running.engine); !why.empty()) GTEST_SKIP() << why;
    running.engine.stop();
    for (const Wire* wire : {&*lan, &*up}) {
        const std::string index = std::to_string(if_nametoindex(wire->near().c_str()));
        shell("unshare --net sh -c 'ip link add dev n index " + index + " type veth peer name m && ip link set dev n up && "
              "ip link set dev m up && ip link set dev m down'");
    }
    EXPECT_EQ(running.engine.arrays().ports_down[0], 0u);
}

// While a process fills its tables from the journal.
TEST_F(XdpEngineTest, AttachesAnInterfaceThatComesBetweenMakingTheEngineAndActivatingIt) {
    up.reset();
    XdpEngine engine(options());
    up.emplace("up");
    engine.activate({{kUpPort, "up"}});
    EXPECT_EQ(engine.ports().front().mode, "native");
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

// With membarrier(2) refused, as it is on kernels with nohz_full CPUs: a filter of calls stands for these.
TEST_F(XdpEngineTest, SynchronizesWithReadersWithoutMembarrier) {
    const pid_t child = ::fork();
    if (child == 0) {
        std::array<sock_filter, 4> lines{{
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        }};
        const sock_fprog filter{lines.size(), lines.data()};
        if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) ::_exit(2);
        try {
            XdpEngine engine(options());
            engine.synchronize();
        } catch (const EngineError&) {
            ::_exit(1);
        }
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace splitplane::test
