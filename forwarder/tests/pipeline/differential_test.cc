// SPDX-License-Identifier: Apache-2.0
//
// The BPF build against the native build: the same random tables, the same random frames, and what becomes of them must
// be the same, octet by octet and counter by counter. Needs root; no packet leaves the kernel (BPF_PROG_TEST_RUN).

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sched.h>

#include <numeric>
#include <optional>

#include "engine/xdp/object.h"
#include "tests/pipeline/random_world.h"

extern "C" {
#include "pipeline/trie.h"
}

namespace splitplane::test {
namespace {

constexpr Capacity kCapacity{.words = 1u << 18, .members = 1u << 10};
constexpr uint32_t kLoopback = 1;  // ifindex by which frames of BPF_PROG_TEST_RUN come in

// The BPF build behind the interface of run().
class InKernel {
  public:
    InKernel() : object_(XdpObject::forwarding_program(), kCapacity) {
        ring_ = ring_buffer__new(object_.map("map_punts"), take, this, nullptr);
    }
    ~InKernel() { ring_buffer__free(ring_); }

    sp_arrays& tables() { return object_.arrays(); }

    // `leads_to`: the only port that is attached.
    Outcome run(uint32_t port, const Octets& frame, uint32_t leads_to) {
        object_.fixed().port_of_ifindex[kLoopback] = uint64_t{kLoopback} << 32 | port;
        bpf_map_update_elem(object_.map("map_ports"), &leads_to, &kLoopback, BPF_ANY);
        punt_.reset();
        sample_.reset();
        Octets out(4096);
        bpf_test_run_opts options{};
        options.sz = sizeof options;
        options.data_in = frame.data();
        options.data_size_in = static_cast<uint32_t>(frame.size());
        options.data_out = out.data();
        options.data_size_out = static_cast<uint32_t>(out.size());
        options.repeat = 1;
        EXPECT_EQ(bpf_prog_test_run_opts(object_.program("forward"), &options), 0) << error_text(errno);
        out.resize(options.data_size_out);
        bpf_map_delete_elem(object_.map("map_ports"), &leads_to);
        ring_buffer__consume(ring_);
        if (punt_) return *punt_;
        if (options.retval == XDP_REDIRECT) {
            Outcome sent{SP_ACTION_SEND, leads_to, 0, 0, out, {}};
            if (sample_) sent.router_interface_id = sample_->router_interface_id, sent.sample = sample_->frame;
            return sent;
        }
        return {SP_ACTION_DROP, 0, 0, 0, {}, {}};
    }

  private:
    static int take(void* self, void* octets, size_t) {
        const auto* record = static_cast<const sp_punt_record*>(octets);
        const auto* frame = reinterpret_cast<const uint8_t*>(record + 1);
        auto& taken = record->reason == SP_SAMPLE ? static_cast<InKernel*>(self)->sample_
                                                  : static_cast<InKernel*>(self)->punt_;
        taken = Outcome{SP_ACTION_PUNT, 0, record->reason, record->router_interface_id,
                        {frame, frame + record->length}, {}, record->punt_class, record->router};
        return 0;
    }

    XdpObject object_;
    ring_buffer* ring_ = nullptr;
    std::optional<Outcome> punt_, sample_;
};

class Differential : public ::testing::TestWithParam<uint64_t> {};

TEST_P(Differential, SameVerdictsOctetsAndCounters) {
    InKernel kernel;
    MemoryEngine native(kCapacity, 1);
    Writer to_kernel(kernel.tables()), to_native(native.arrays());
    write_random_tables(to_kernel, GetParam());
    write_random_tables(to_native, GetParam());
    Draw draw(GetParam() ^ 0x5eed);
    uint32_t seen[3] = {}, samples = 0;
    for (int number = 0; number < 3000; ++number) {
        const Arrival arrival = random_arrival(draw);
        const Outcome wanted = run(native.arrays(), arrival.port, arrival.frame);
        const Outcome got = kernel.run(arrival.port, arrival.frame, wanted.port);
        ++seen[wanted.action];
        ASSERT_EQ(got.action, wanted.action) << "frame " << number << ", reason " << wanted.reason;
        ASSERT_EQ(got.port, wanted.port) << "frame " << number;
        ASSERT_EQ(got.router_interface_id, wanted.router_interface_id) << "frame " << number;
        ASSERT_EQ(got.frame, wanted.frame) << "frame " << number;
        ASSERT_EQ(got.sample, wanted.sample) << "frame " << number;
        samples += !wanted.sample.empty();
        if (wanted.action == SP_ACTION_PUNT) {
            ASSERT_EQ(got.reason, wanted.reason) << "frame " << number;
            ASSERT_EQ(got.punt_class, wanted.punt_class) << "frame " << number;
            ASSERT_EQ(got.vrf, wanted.vrf) << "frame " << number;
        }
    }
    EXPECT_EQ(totals(kernel.tables()), totals(native.arrays()));
    for (const uint32_t count : seen) EXPECT_GT(count, 10u) << "the frames are one-sided";
    EXPECT_GT(samples, 0u);
}

// Each core knows only what it has seen itself, so all frames have to come to one.
TEST_P(Differential, SameWhereACoreIsShared) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(::sched_getcpu()), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    InKernel kernel;
    MemoryEngine native(kCapacity, 1);
    Writer to_kernel(kernel.tables()), to_native(native.arrays());
    write_random_tables(to_kernel, GetParam());
    write_random_tables(to_native, GetParam());
    hold_back_some(kernel.tables(), GetParam());
    hold_back_some(native.arrays(), GetParam());
    Draw draw(GetParam() ^ 0xc04e);
    uint32_t over_share = 0;
    for (int number = 0; number < 1500; ++number) {
        const Arrival arrival = random_arrival(draw);
        const Outcome wanted = run(native.arrays(), arrival.port, arrival.frame);
        const Outcome got = kernel.run(arrival.port, arrival.frame, wanted.port);
        over_share += wanted.reason == SP_DROP_OVER_SHARE;
        ASSERT_EQ(got.action, wanted.action) << "frame " << number << ", reason " << wanted.reason;
        ASSERT_EQ(got.frame, wanted.frame) << "frame " << number;
    }
    EXPECT_EQ(totals(kernel.tables()), totals(native.arrays()));
    EXPECT_GT(over_share, 50u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Differential, ::testing::Range<uint64_t>(1, 9));

// Roots of words and of buckets, with lists and without: a nexthop's MAC says which route a packet took.
TEST(Routes, AreTheSameInTablesOfAllSizes) {
    for (const uint32_t routes : {20u, 150u, 400u, 3000u}) {
        InKernel kernel;
        MemoryEngine native(kCapacity, 1);
        std::vector<uint32_t> addresses;
        for (sp_arrays* tables : {&kernel.tables(), &native.arrays()}) {
            Writer write(*tables);
            write.usual_router();
            std::mt19937 chance(routes);
            addresses.clear();
            for (uint32_t number = 0; number < routes; ++number) {
                const uint32_t slot = 100 + chance() % 300 + (chance() % 200 == 0 ? 9000 : 0);
                tables->nexthops[slot] = sp_nexthop(SP_NEXTHOP_FORWARD, kUp, 0x020000000000 + slot);
                addresses.push_back(0x10000000 + static_cast<uint32_t>(chance() % 0xb0000000));
                const auto length = static_cast<uint8_t>(chance() % 50 == 0 ? 25 + chance() % 8 : 8 + chance() % 17);
                write.route4(addresses.back() & ~0u << (32 - length), length, sp_leaf(SP_ROUTE_NEXTHOP, slot));
            }
            write.fib.settle();
        }
        ASSERT_EQ(sp_trie_root_has_buckets(native.arrays().roots[SP_IPV4][kVrf]), routes > 160);
        uint32_t sent = 0;
        for (uint32_t number = 0; number < 2000; ++number) {
            const uint32_t near = number % 2 == 0 ? 0 : 1u << number % 29;
            const Ipv4 packet{.dst = addresses[number % addresses.size()] ^ near};
            const Octets frame = ethernet(kOwnMac, kHostMac, 0x0800, packet.octets());
            const Outcome wanted = run(native.arrays(), kLanPort, frame);
            const Outcome got = kernel.run(kLanPort, frame, kUpPort);
            ASSERT_EQ(got.action, wanted.action) << std::hex << packet.dst;
            ASSERT_EQ(got.frame, wanted.frame) << std::hex << packet.dst;
            sent += wanted.action == SP_ACTION_SEND;
        }
        EXPECT_GT(sent, 900u);
    }
}

TEST(Ring, FramesOfAllLengthsArriveWhole) {
    InKernel kernel;
    Writer write(kernel.tables());
    write.usual_router();
    for (size_t length : {28, 200, 242, 243, 256, 257, 2033, 2034, 2035, 2047, 2048, 2049, 3000}) {
        const Octets payload(length, static_cast<uint8_t>(length));
        const Outcome plain = kernel.run(kLanPort, ethernet(0xffffffffffff, kHostMac, 0x0806, payload), 1);
        EXPECT_EQ(plain.frame, ethernet(0xffffffffffff, kHostMac, 0x0806, payload)) << length;
        const Outcome tagged = kernel.run(kLanPort, ethernet(0xffffffffffff, kHostMac, 0x0806, payload, kVlan), 1);
        EXPECT_EQ(tagged.frame, plain.frame) << length;
    }
}

TEST(Ring, FullIsCounted) {
    XdpObject object(XdpObject::forwarding_program(), kCapacity);
    Writer write(object.arrays());
    write.usual_router();
    object.fixed().port_of_ifindex[kLoopback] = uint64_t{kLoopback} << 32 | kLanPort;
    const Octets frame = ethernet(0xffffffffffff, kHostMac, 0x0806, Octets(1000, 1));
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    options.data_in = frame.data();
    options.data_size_in = static_cast<uint32_t>(frame.size());
    options.repeat = SP_PUNT_RING_OCTETS / SP_PUNT_MIDDLE;
    ASSERT_EQ(bpf_prog_test_run_opts(object.program("forward"), &options), 0);
    uint64_t full = 0;
    for (uint32_t cpu = 0; cpu < object.arrays().cpus; ++cpu) {
        full += object.arrays().engine_counters[cpu * SP_ENGINE_COUNTERS + SP_COUNT_RING_FULL];
    }
    EXPECT_GT(full, 0u);
    const uint32_t kept_free = options.repeat * (8 - SP_RING_EIGHTHS(SP_CLASS_ARP)) / 8;
    EXPECT_LT(full, kept_free + options.repeat / 10) << "the ring takes nearly as many as its size says";
    EXPECT_EQ(object.arrays().punt_drops[sp_punt_drop_index(kLan, SP_PLACE_RING, SP_CLASS_ARP)], full);
}

// Nobody reads the ring: each class finds it full before the more urgent do, and BFD as the last.
TEST(Ring, AFloodLeavesRoomForWhatIsMoreUrgent) {
    XdpObject object(XdpObject::forwarding_program(), kCapacity);
    Writer write(object.arrays());
    write.usual_router();
    object.fixed().port_of_ifindex[kLoopback] = uint64_t{kLoopback} << 32 | kLanPort;
    const auto flood = [&](const Octets& frame, uint32_t repeat) {
        bpf_test_run_opts options{};
        options.sz = sizeof options;
        options.data_in = frame.data();
        options.data_size_in = static_cast<uint32_t>(frame.size());
        options.repeat = static_cast<int>(repeat);
        ASSERT_EQ(bpf_prog_test_run_opts(object.program("forward"), &options), 0);
    };
    const auto lost = [&](uint32_t punt_class) {
        return object.arrays().punt_drops[sp_punt_drop_index(kLan, SP_PLACE_RING, punt_class)];
    };
    const uint32_t whole = SP_PUNT_RING_OCTETS / SP_PUNT_SHORT;
    const auto udp = [](uint16_t port) {
        Octets datagram(28);
        datagram[2] = static_cast<uint8_t>(port >> 8);
        datagram[3] = static_cast<uint8_t>(port);
        return Ipv4{.dst = 0x0a010001, .ttl = 255, .protocol = 17, .payload = datagram}.octets();
    };
    const Octets ping = ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{.dst = 0x0a010001, .protocol = 1}.octets());
    const Octets bfd = ethernet(kOwnMac, kHostMac, 0x0800, udp(3784));
    const Octets arp = ethernet(0xffffffffffff, kHostMac, 0x0806, Octets(28));
    flood(ping, whole);
    EXPECT_GT(lost(SP_CLASS_ICMP), whole / 3);
    flood(arp, whole / 16);
    EXPECT_EQ(lost(SP_CLASS_ARP), 0u) << "an eighth is left to it";
    flood(arp, whole);
    EXPECT_GT(lost(SP_CLASS_ARP), whole / 2);
    flood(bfd, whole / 4);
    EXPECT_EQ(lost(SP_CLASS_BFD), 0u) << "and three eighths to BFD";
    flood(bfd, whole);
    EXPECT_GT(lost(SP_CLASS_BFD), whole / 2) << "of all there is";
    EXPECT_EQ(object.arrays().punt_drops[sp_punt_drop_index(kUp, SP_PLACE_RING, SP_CLASS_ICMP)], 0u);
}

TEST(Ports, UnknownInterfaceAndUnattachedPortAreCounted) {
    InKernel kernel;
    Writer write(kernel.tables());
    write.usual_router();
    const Octets frame = ethernet(kOwnMac, kHostMac, 0x0800, Ipv4{}.octets());
    EXPECT_EQ(kernel.run(kLanPort, frame, kUpPort).action, SP_ACTION_SEND);
    EXPECT_EQ(kernel.run(kLanPort, frame, kUpPort + 1).action, SP_ACTION_DROP) << "not attached";
    EXPECT_EQ(kernel.run(0, frame, kUpPort).action, SP_ACTION_DROP) << "not a port";
    uint64_t lost = 0;
    for (uint32_t cpu = 0; cpu < kernel.tables().cpus; ++cpu) {
        lost += kernel.tables().engine_counters[cpu * SP_ENGINE_COUNTERS + SP_COUNT_NO_PORT];
    }
    EXPECT_EQ(lost, 2u);
}

}  // namespace
}  // namespace splitplane::test
