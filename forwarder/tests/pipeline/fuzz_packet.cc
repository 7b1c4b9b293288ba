// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer: any octets as a frame, against random tables. The buffer is exactly as long as the frame and its headroom,
// so that AddressSanitizer sees every octet too far; what comes out is held against what went in.
//
//     input: mode | table | port, or a seed, of two octets | the frame, or (place, octet)s written over a random one

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tests/pipeline/random_world.h"

namespace splitplane::test {
namespace {

constexpr uint64_t kTables = 8;

struct Tables {
    MemoryEngine engine{Capacity{.words = 1u << 18, .members = 1u << 10}, 1};
    Writer write{engine.arrays()};

    explicit Tables(uint64_t seed) {
        write_random_tables(write, seed);
        // A miss of router_interface_egress punts with a TTL one less, as the contract says; here a punt is unchanged.
        for (uint32_t slot = 1; slot < 64; ++slot) engine.arrays().egresses[slot].rewrite |= SP_PRESENT;
    }
};

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

Octets untagged(Octets frame) {
    const bool tagged = frame.size() >= 18 && frame[12] == 0x81 && frame[13] == 0;
    if (tagged) frame.erase(frame.begin() + 12, frame.begin() + 16);
    return frame;
}

// Nothing but MACs, tag, TTL and checksum may have changed, and the checksum is right where it was.
void check_sent(const Outcome& outcome, const Octets& frame) {
    Octets in = untagged(frame), out = untagged(outcome.frame);
    require(outcome.port < SP_PORTS, "port number");
    require(in.size() == out.size(), "length of what is sent");
    require(in[12] == out[12] && in[13] == out[13], "EtherType of what is sent");
    const bool four = in[12] == 0x08 && in[13] == 0x00 && in.size() >= 34,
               six = in[12] == 0x86 && in[13] == 0xdd && in.size() >= 54;
    const size_t ttl = four ? 22 : 21;
    if (four || six) {
        require(out[ttl] == in[ttl] || out[ttl] + 1 == in[ttl], "TTL one less");
        if (four && out[ttl] != in[ttl]) {
            const auto header = [](const Octets& all) { return Octets(all.begin() + 14, all.begin() + 34); };
            require(in[14] == 0x45 && in[ttl] > 1, "what is forwarded");
            require(checksum(header(in)) == 0 && checksum(header(out)) == 0, "checksum");
            in[24] = out[24], in[25] = out[25];
        }
        in[ttl] = out[ttl];
    }
    require(std::equal(in.begin() + 14, in.end(), out.begin() + 14), "payload of what is sent");
    if (!outcome.sample.empty()) {
        const Octets head = untagged(outcome.frame);
        require(outcome.sample.size() == std::min<size_t>(head.size(), SP_SAMPLE_OCTETS), "length of a sample");
        require(std::equal(outcome.sample.begin(), outcome.sample.end(), head.begin()), "a sample is what is sent");
    }
}

void check(const Outcome& outcome, const Octets& frame) {
    switch (outcome.action) {
        case SP_ACTION_SEND:
            require(outcome.reason == SP_NO_REASON, "no reason to send");
            return check_sent(outcome, frame);
        case SP_ACTION_PUNT:
            require(outcome.reason >= SP_PUNT_CONTROL && outcome.reason <= SP_PUNT_HOP_BY_HOP, "reason of a punt");
            return require(outcome.frame == untagged(frame), "a punt is as it came in");
        default: require(outcome.action == SP_ACTION_DROP, "action");
    }
}

void try_one(const uint8_t* octets, size_t size) {
    static const auto worlds = [] {
        std::array<std::unique_ptr<Tables>, kTables> all;
        for (uint64_t seed = 0; seed < kTables; ++seed) all[seed] = std::make_unique<Tables>(seed);
        return all;
    }();
    if (size < 4) return;
    Tables& tables = *worlds[octets[1] % kTables];
    const auto number = static_cast<uint32_t>(octets[2] << 8 | octets[3]);
    Arrival arrival{number % SP_PORTS, Octets(octets + 4, octets + size)};
    if ((octets[0] & 1) == 0) {
        Draw draw(number);
        arrival = random_arrival(draw);
        for (size_t at = 4; at + 1 < size; at += 2) arrival.frame[octets[at] % arrival.frame.size()] = octets[at + 1];
    }
    check(run(tables.engine.arrays(), arrival.port, arrival.frame, 0, 0, octets[0] & 4), arrival.frame);
}

}  // namespace
}  // namespace splitplane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t size) {
    splitplane::test::try_one(octets, size);
    return 0;
}
