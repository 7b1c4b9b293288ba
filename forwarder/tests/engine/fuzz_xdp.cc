// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer: any octets as a frame for the XDP program, built for user space, against the native build over the same
// random tables. What it sends must be the same octets; what it punts or samples must stand in the ring as a record
// that says so, and where it does not, one counter says why.
//
//     input: mode | length | port, or a seed, of two octets | the frame, or (place, octet)s written over a random one

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/engine/user_space/kernel.h"
#include "tests/pipeline/random_world.h"

extern "C" {
#include "engine/xdp/shared.h"
}

namespace splitplane::test {
namespace {

constexpr uint32_t kIfindex = 7;
constexpr size_t kRoom = 1 << 16;
enum Mode : uint8_t { kAsItIs = 1, kLonger = 2, kTight = 4, kRingFull = 8, kDetached = 16 };

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

// The kernel around one run of the program.
struct Kernel {
    uint8_t* room;        // of the frame and its headroom
    uint32_t headroom = 0;
    bool ring_full = false, detached = false;
    std::unique_ptr<uint8_t[]> reserved;  // exactly as long as what was asked for
    std::vector<std::unique_ptr<uint8_t[]>> records;
    uint32_t sent_to = 0;
};
Kernel the_kernel;

struct Run {
    int action;
    Octets frame;
};

Run run_program(const Octets& frame, uint8_t mode) {
    Kernel& kernel = the_kernel;
    kernel.headroom = mode & kTight ? 0 : kHeadroom;
    kernel.ring_full = mode & kRingFull;
    kernel.detached = mode & kDetached;
    kernel.records.clear();
    kernel.sent_to = 0;
    ASAN_POISON_MEMORY_REGION(kernel.room, kRoom);
    ASAN_UNPOISON_MEMORY_REGION(kernel.room, kernel.headroom + frame.size());
    std::copy(frame.begin(), frame.end(), kernel.room + kernel.headroom);
    xdp_md context{};
    context.data = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(kernel.room)) + kernel.headroom;
    context.data_end = context.data + static_cast<uint32_t>(frame.size());
    context.ingress_ifindex = kIfindex;
    const int action = sp_user_forward(&context);
    require(kernel.reserved == nullptr, "what was reserved of the ring is submitted or discarded");
    const auto* begin = reinterpret_cast<const uint8_t*>(uintptr_t{context.data});
    return {action, {begin, begin + (context.data_end - context.data)}};
}

// What the ring has is one record of the frame, as the daemon is given it.
void check_record(const Outcome& wanted, uint32_t reason, const Octets& frame) {
    require(the_kernel.records.size() == 1, "one record");
    const auto* record = reinterpret_cast<const sp_punt_record*>(the_kernel.records[0].get());
    const auto* octets = reinterpret_cast<const uint8_t*>(record + 1);
    require(record->reason == reason, "reason of a record");
    require(record->router_interface_id == wanted.router_interface_id, "router interface of a record");
    require(record->punt_class == wanted.punt_class && record->router == wanted.vrf, "class and router of a record");
    require(record->length == frame.size() && std::equal(frame.begin(), frame.end(), octets), "frame of a record");
}

using Engine = std::array<uint64_t, SP_ENGINE_COUNTERS>;

Engine engine_counters(const sp_arrays& tables) {
    Engine all;
    std::copy_n(tables.engine_counters, all.size(), all.begin());
    return all;
}

void check(const Outcome& wanted, const Run& got, uint8_t mode, Engine counted) {
    const bool full = mode & kRingFull;
    if (wanted.action == SP_ACTION_SEND) {
        require(got.frame == wanted.frame, "what is sent");
        require(got.action == (mode & kDetached ? XDP_DROP : XDP_REDIRECT), "a frame for a port");
        require(the_kernel.sent_to == wanted.port, "which port");
        if (mode & kDetached) --counted[SP_COUNT_NO_PORT];
        if (!wanted.sample.empty()) --counted[SP_COUNT_SAMPLED];
        if (!wanted.sample.empty() && full) --counted[SP_COUNT_SAMPLE_RING_FULL];
        if (!wanted.sample.empty() && !full) return check_record(wanted, SP_SAMPLE, wanted.sample);
    } else {
        require(got.action == XDP_DROP, "what is not sent");
        require(the_kernel.sent_to == 0, "no port");
        if (wanted.action == SP_ACTION_PUNT) {
            const bool fits = wanted.frame.size() <= SP_PUNT_LONG;
            if (fits && !full) return check_record(wanted, wanted.reason, wanted.frame);
            --counted[full ? SP_COUNT_RING_FULL : SP_COUNT_TOO_LONG];
        } else {
            const bool is_punt = wanted.reason != SP_NO_REASON && wanted.reason < SP_FIRST_DROP;
            if (is_punt) --counted[SP_COUNT_POLICED];
            if (wanted.reason == SP_NO_REASON) --counted[SP_COUNT_NO_ROOM];
        }
    }
    require(the_kernel.records.empty(), "nothing in the ring");
    require(counted == Engine{}, "what is lost is counted once");
}

struct Tables {
    MemoryEngine engine{Capacity{.words = SP_WORDS_CHUNK, .members = 1u << 10}, 1};
    sp_arrays& arrays = engine.arrays();

    Tables() {
        sp_user_arrays(&arrays);
        Writer write(arrays);
        write_random_tables(write, 1);
        for (uint32_t slot = 1; slot < 64; ++slot) arrays.egresses[slot].rewrite |= SP_PRESENT;  // see fuzz_packet.cc
        void* room = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
        require(room != MAP_FAILED, "memory below 4 GiB");
        the_kernel.room = static_cast<uint8_t*>(room);
    }
};

void try_one(const uint8_t* octets, size_t size) {
    static Tables tables;
    if (size < 4) return;
    const uint8_t mode = octets[0];
    const auto number = static_cast<uint32_t>(octets[2] << 8 | octets[3]);
    Arrival arrival{number % SP_PORTS, Octets(octets + 4, octets + size)};
    if ((mode & kAsItIs) == 0) {
        Draw draw(number);
        arrival = random_arrival(draw);
        for (size_t at = 4; at + 1 < size; at += 2) arrival.frame[octets[at] % arrival.frame.size()] = octets[at + 1];
    }
    if (mode & kLonger) arrival.frame.resize(arrival.frame.size() + (size_t{octets[1]} << 7));
    if (arrival.port == 0) arrival.port = 1;
    sp_user_port(kIfindex, arrival.port);
    const Outcome wanted = run(tables.arrays, arrival.port, arrival.frame, 0, 0, mode & kTight ? 0 : kHeadroom);
    Engine counted = engine_counters(tables.arrays);
    const Run got = run_program(arrival.frame, mode);
    const Engine after = engine_counters(tables.arrays);
    for (size_t at = 0; at < counted.size(); ++at) counted[at] = after[at] - counted[at];
    check(wanted, got, mode, counted);
}

}  // namespace
}  // namespace splitplane::test

using splitplane::test::the_kernel;

extern "C" {

long bpf_redirect_map(void*, __u64 key, __u64 flags) {
    the_kernel.sent_to = static_cast<uint32_t>(key);
    return the_kernel.detached ? static_cast<long>(flags & 3) : XDP_REDIRECT;
}

long bpf_xdp_adjust_head(xdp_md* context, int delta) {
    const int64_t data = int64_t{context->data} + delta;
    if (data < reinterpret_cast<intptr_t>(the_kernel.room) || data + 14 > context->data_end) return -22;
    context->data += delta;
    return 0;
}

__u64 bpf_xdp_get_buff_len(xdp_md* context) { return context->data_end - context->data; }

long bpf_xdp_load_bytes(xdp_md* context, __u32 offset, void* into, __u32 octets) {
    splitplane::test::require(octets > 0, "a load of nothing, which the kernel refuses");
    if (uint64_t{context->data} + offset + octets > context->data_end) return -22;
    std::memcpy(into, reinterpret_cast<const void*>(uintptr_t{context->data} + offset), octets);
    return 0;
}

void* bpf_ringbuf_reserve(void*, __u64 octets, __u64) {
    if (the_kernel.ring_full) return nullptr;
    splitplane::test::require(the_kernel.reserved == nullptr, "one record at a time");
    the_kernel.reserved = std::make_unique<uint8_t[]>(octets);
    return the_kernel.reserved.get();
}

void bpf_ringbuf_submit(void* record, __u64) {
    splitplane::test::require(record == the_kernel.reserved.get(), "what is submitted was reserved");
    the_kernel.records.push_back(std::move(the_kernel.reserved));
}

void bpf_ringbuf_discard(void* record, __u64) {
    splitplane::test::require(record == the_kernel.reserved.get(), "what is discarded was reserved");
    the_kernel.reserved.reset();
}

__u64 bpf_ringbuf_query(void*, __u64 what) {
    splitplane::test::require(what == BPF_RB_AVAIL_DATA, "asked how much is in the ring");
    return the_kernel.ring_full ? SP_PUNT_RING_OCTETS : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t size) {
    splitplane::test::try_one(octets, size);
    return 0;
}

}  // extern "C"
