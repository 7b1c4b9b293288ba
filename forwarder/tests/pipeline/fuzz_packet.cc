// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer: any octets as a frame, against random tables. The buffer is exactly as long as the frame and its headroom,
// so that AddressSanitizer sees every octet too far; what comes out is held against what went in, and what was counted
// says that it has come to one end and no other.
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
constexpr uint32_t kVrfs = 4, kSlots = 64;  // as many as the random tables have, and more

struct Tables {
    MemoryEngine engine{Capacity{.words = 1u << 18, .members = 1u << 10}, 1};
    Writer write{engine.arrays()};

    explicit Tables(uint64_t seed) {
        write_random_tables(write, seed);
        // A miss of router_interface_egress punts with a TTL one less, as the contract says; here a punt is unchanged.
        for (uint32_t slot = 1; slot < kSlots; ++slot) engine.arrays().egresses[slot].rewrite |= SP_PRESENT;
        for (uint32_t vrf = 0; vrf < kVrfs; ++vrf) engine.arrays().vrfs[vrf].counted = ~0u;  // each end is counted
    }
};

// What was counted so far, of all interfaces and routers of the random tables.
struct Counted {
    sp_counter rx{}, tx{}, reasons{};
    uint64_t no_room = 0, policed = 0;

    explicit Counted(const sp_arrays& tables) {
        for (uint32_t slot = 0; slot < kSlots; ++slot) add(rx, tables.rx[slot]), add(tx, tables.tx[slot]);
        for (uint32_t at = 0; at < kVrfs * SP_REASONS; ++at) add(reasons, tables.reasons[at]);
        no_room = tables.engine_counters[SP_COUNT_NO_ROOM];
        policed = tables.engine_counters[SP_COUNT_POLICED];
    }

  private:
    static void add(sp_counter& to, const sp_counter& counter) {
        to.packets += counter.packets;
        to.bytes += counter.bytes;
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

bool is_ipv4(const Octets& frame) { return frame[12] == 0x08 && frame[13] == 0x00 && frame.size() >= 34; }
bool is_ipv6(const Octets& frame) { return frame[12] == 0x86 && frame[13] == 0xdd && frame.size() >= 54; }

// Nothing but MACs and tag may have changed, and of what is `routed` the TTL, by one, with a checksum that is right.
void check_sent(const Outcome& outcome, const Octets& frame, bool routed) {
    Octets in = untagged(frame), out = outcome.frame;
    if (out.size() != in.size()) out = untagged(out);  // a tag behind the first is payload, and may be what is left
    require(outcome.port < SP_PORTS, "port number");
    require(in.size() == out.size(), "length of what is sent");
    require(in[12] == out[12] && in[13] == out[13], "EtherType of what is sent");
    if (routed) {
        require(is_ipv4(in) || is_ipv6(in), "what is routed");
        const size_t ttl = is_ipv4(in) ? 22 : 21;
        require(in[ttl] > 1 && out[ttl] + 1 == in[ttl], "TTL one less");
        in[ttl] = out[ttl];
        if (is_ipv4(in)) {
            const auto header = [](const Octets& all) { return Octets(all.begin() + 14, all.begin() + 34); };
            require(in[14] == 0x45 && checksum(header(out)) == 0, "checksum");
            in[24] = out[24], in[25] = out[25];
        }
    }
    require(std::equal(in.begin() + 14, in.end(), out.begin() + 14), "payload of what is sent");
    if (!outcome.sample.empty()) {
        require(outcome.sample.size() == std::min<size_t>(out.size(), SP_SAMPLE_OCTETS), "length of a sample");
        require(std::equal(outcome.sample.begin(), outcome.sample.end(), out.begin()), "a sample is what is sent");
    }
}

// A punt for the router itself has the class of its protocol, any other the class of its reason.
bool is_class_of(uint32_t punt_class, uint32_t reason) {
    constexpr uint32_t kOfReason[] = {SP_CLASS_GLEAN, SP_CLASS_TTL, SP_CLASS_MTU, SP_CLASS_UNREACHABLE,
                                      SP_CLASS_OPTIONS, SP_CLASS_OPTIONS};
    return reason < SP_PUNT_GLEAN ? punt_class <= SP_CLASS_LOCAL : punt_class == kOfReason[reason - SP_PUNT_GLEAN];
}

// Where a frame came in; 0 where it is nobody's.
uint64_t entry_of(const sp_arrays& tables, const Arrival& arrival) {
    const Octets& frame = arrival.frame;
    if (frame.size() < 14) return 0;
    const bool tagged = frame.size() >= 18 && frame[12] == 0x81 && frame[13] == 0;
    const uint32_t vlan = tagged ? (frame[14] << 8 | frame[15]) & 0xfffu : 0;
    return tables.classifier[sp_classifier_index(arrival.port, vlan)];
}

void check(const sp_arrays& tables, const Counted& before, const Outcome& outcome, const Arrival& arrival) {
    const Counted after(tables);
    const uint64_t entry = entry_of(tables, arrival);
    const Octets& frame = arrival.frame;
    const uint64_t sent = after.tx.packets - before.tx.packets, ended = after.reasons.packets - before.reasons.packets,
                   no_room = after.no_room - before.no_room, policed = after.policed - before.policed;
    const bool known = sp_classifier_kind(entry) != SP_CLASSIFIER_MISS,
               is_punt = outcome.reason != SP_NO_REASON && outcome.reason < SP_FIRST_DROP;
    require(after.rx.packets - before.rx.packets == known, "counted once where it came in");
    require(after.rx.bytes - before.rx.bytes == (known ? frame.size() : 0), "octets where it came in");
    require(ended == (outcome.reason != SP_NO_REASON), "a reason is counted once");
    require(after.reasons.bytes - before.reasons.bytes == ended * frame.size(), "octets of a reason");
    require(no_room == (outcome.action == SP_ACTION_DROP && ended == 0), "what ends without a reason had no room");
    require(policed == (outcome.action == SP_ACTION_DROP && is_punt), "a punt that ends here was one too many");
    switch (outcome.action) {
        case SP_ACTION_SEND: {
            require(known && ended == 0 && sent <= 1, "one end");
            require(after.tx.bytes - before.tx.bytes == sent * outcome.frame.size(), "octets of what is sent");
            // Only the link to a fallback plane is no router interface.
            return check_sent(outcome, frame, sent == 1 && sp_classifier_kind(entry) == SP_CLASSIFIER_INGRESS);
        }
        case SP_ACTION_PUNT:
            require(known && sent == 0 && is_punt && outcome.reason <= SP_PUNT_HOP_BY_HOP, "reason of a punt");
            require(is_class_of(outcome.punt_class, outcome.reason), "class of a punt");
            require(outcome.vrf == sp_classifier_vrf(entry), "whose punt it is");
            require(outcome.router_interface_id == tables.interfaces[sp_classifier_interface(entry)].id,
                    "by which interface a punt came in");
            return require(outcome.frame == untagged(frame), "a punt is as it came in");
        default:
            require(outcome.action == SP_ACTION_DROP, "action");
            require(sent == 0, "what is dropped is not sent");
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
    const Counted before(tables.engine.arrays());
    check(tables.engine.arrays(), before,
          run(tables.engine.arrays(), arrival.port, arrival.frame, 0, 0, octets[0] & 4), arrival);
}

}  // namespace
}  // namespace splitplane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t size) {
    splitplane::test::try_one(octets, size);
    return 0;
}
