// SPDX-License-Identifier: Apache-2.0
//
// A link for tests, simulated: who sends how much by a port, and what the port lets pass of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <queue>
#include <random>

#include "tests/pipeline/world.h"

extern "C" {
#include "pipeline/packet_out.h"
}

namespace splitplane::test {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint32_t kPort = 5;
constexpr double kMega = 1e6, kGiga = 1e9;  // bits a second
constexpr uint32_t kLong = 1514, kShort = 60;  // octets of a frame

inline uint64_t rate_of(double bits_per_s) { return static_cast<uint64_t>(bits_per_s / 8 * (1u << 30) / kSecond); }
inline double wire_bits(uint32_t frame) { return 8.0 * std::max(frame + 24, 84u); }

// What somebody sends by the port: so many bits of the wire a second from one time to another, by chance spaced.
struct Sender {
    uint32_t interface;
    double bits_per_s;
    uint32_t frame = kLong;
    uint32_t cpu = 0;
    double from_s = 0, to_s = 1e9;
    Octets out = {};  // it is the controller that sends, this
};

struct Links : ::testing::Test {
    MemoryEngine engine{Capacity{.words = 1u << 12, .members = 64}, 2};
    sp_arrays& tables = engine.arrays();
    double speed = 0;
    uint64_t now = 100 * kSecond;
    std::vector<Sender> senders;
    std::vector<double> asked;  // what each sender was to have in the last run, bits of the wire a second
    std::mt19937_64 random{19};

    void port(double bits_per_s, uint64_t bits = 0) {
        speed = bits_per_s;
        sp_link& link = tables.links[kPort];
        link.speed = rate_of(bits_per_s);
        link.tick_ns = std::max<uint64_t>(1u << 20, (uint64_t{SP_LINK_BURST} << 30) / link.speed);
        const uint64_t quantum = sp_link_octets_of(link) / 16;
        tables.link_modes[kPort] = sp_link_mode(SP_LINK_SHARED | bits, quantum);
    }
    static uint64_t sp_link_octets_of(const sp_link& link) { return link.speed * link.tick_ns >> 30; }
    // Guarantees and ceilings are parts of the port's speed; interface, its VLAN and router are one number.
    void router(uint32_t slot, uint32_t weight = 1, double guarantee = 0, double ceiling = 0, uint32_t slice = 0) {
        tables.link_slots[slot] = slot;
        tables.classifier[sp_classifier_index(kPort, slot)] = sp_classifier(SP_CLASSIFIER_INGRESS, slot, slot, slot);
        tables.link_routers[slot] = {rate_of(guarantee * speed), rate_of(ceiling * speed), weight, slice, 0, 0, 0, 0, 0};
    }
    void slice(uint32_t slot, uint32_t weight = 1, double guarantee = 0, double ceiling = 0) {
        tables.link_slices[slot] = {rate_of(guarantee * speed), rate_of(ceiling * speed), weight, {}, {}};
    }
    bool passes(const Sender& sender, uint64_t at) {
        if (sender.out.empty()) {
            return !sp_native_over_link_share(&tables, kPort, sender.interface, sender.frame, sender.cpu, at);
        }
        const auto octets = static_cast<uint32_t>(sender.out.size());
        return sp_lets_out(&tables, kPort, sender.interface, sender.out.data(), octets, at) != 0;
    }
    bool contended() const { return tables.link_modes[kPort] & SP_LINK_CONTENDED; }

    // What each sender has had in the next so many seconds, bits of the wire a second.
    std::vector<double> run(double seconds) {
        struct Next {
            double at;
            size_t sender;
            bool operator>(const Next& other) const { return at > other.at; }
        };
        std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
        std::uniform_real_distribution<double> chance(0.5, 1.5);
        const double end = seconds * kSecond;
        const auto frame_of = [](const Sender& sender) {
            return sender.out.empty() ? sender.frame : static_cast<uint32_t>(sender.out.size()) + 4;
        };
        const auto gap = [&](const Sender& sender) {
            return wire_bits(frame_of(sender)) / sender.bits_per_s * kSecond * chance(random);
        };
        for (size_t each = 0; each < senders.size(); ++each) {
            queue.push({senders[each].from_s * kSecond + gap(senders[each]), each});
        }
        std::vector<double> had(senders.size());
        asked.assign(senders.size(), 0);
        while (!queue.empty() && queue.top().at < end) {
            const auto [at, each] = queue.top();
            queue.pop();
            const Sender& sender = senders[each];
            if (at > sender.to_s * kSecond) continue;
            const double rate = wire_bits(frame_of(sender)) / seconds;
            asked[each] += rate;
            if (passes(sender, now + static_cast<uint64_t>(at))) had[each] += rate;
            queue.push({at + gap(sender), each});
        }
        now += static_cast<uint64_t>(end);
        return had;
    }
    static double sum(const std::vector<double>& all) {
        double total = 0;
        for (double each : all) total += each;
        return total;
    }
};

}  // namespace splitplane::test
