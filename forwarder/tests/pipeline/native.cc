// SPDX-License-Identifier: Apache-2.0

#include "tests/pipeline/native.h"

#include <algorithm>
#include <memory>

namespace splitplane::test {

namespace {

// A copy of a frame where the pipeline may change it: exactly as long as it may be, so that a sanitizer sees every octet
// too far.
class InMemory {
  public:
    InMemory(const Octets& frame, uint64_t now_ns, uint32_t cpu, size_t headroom, uint32_t random)
        : room_(std::make_unique<uint8_t[]>(headroom + frame.size())),
          native_(std::make_unique<sp_native>(sp_native{room_.get(), now_ns, random})) {
        std::copy(frame.begin(), frame.end(), room_.get() + headroom);
        packet.data = room_.get() + headroom;
        packet.end = packet.data + frame.size();
        packet.length = static_cast<uint32_t>(frame.size());
        packet.cpu = cpu;
        packet.engine = native_.get();
    }

    sp_packet packet{};

  private:
    std::unique_ptr<uint8_t[]> room_;
    std::unique_ptr<sp_native> native_;
};

Outcome outcome_of(const sp_verdict& verdict, const sp_packet& packet) {
    Outcome outcome{verdict.action, verdict.port, verdict.reason, verdict.router_interface_id, {}, {},
                    verdict.punt_class, verdict.vrf};
    if (verdict.action == SP_ACTION_DROP) return outcome;
    outcome.frame.assign(packet.data, packet.end);
    const auto untag = [&](Octets& all) {
        if (verdict.l2_octets == SP_ETHERNET_OCTETS + SP_TAG_OCTETS) all.erase(all.begin() + 12, all.begin() + 16);
    };
    if (verdict.action == SP_ACTION_PUNT) untag(outcome.frame);
    if (verdict.action == SP_ACTION_SEND && verdict.sampled) {
        outcome.sample = outcome.frame;
        untag(outcome.sample);
        outcome.sample.resize(std::min<size_t>(outcome.sample.size(), SP_SAMPLE_OCTETS));
    }
    return outcome;
}

}  // namespace

Outcome run(const sp_arrays& tables, uint32_t port, const Octets& frame, uint64_t now_ns, uint32_t cpu,
            size_t headroom, uint32_t random) {
    InMemory in(frame, now_ns, cpu, headroom, random);
    const sp_verdict verdict = sp_native_pipeline(&tables, &in.packet, port);
    return outcome_of(verdict, in.packet);
}

std::vector<Outcome> run_burst(const sp_arrays& tables, const std::vector<Arrival>& arrivals) {
    std::vector<InMemory> all;
    std::vector<sp_packet> packets;
    std::vector<uint32_t> ports;
    for (const Arrival& arrival : arrivals) {
        packets.push_back(all.emplace_back(arrival.frame, 0, 0, kHeadroom, 0).packet);
        ports.push_back(arrival.port);
    }
    std::vector<sp_verdict> verdicts(packets.size());
    sp_native_burst(&tables, packets.data(), ports.data(), verdicts.data(), static_cast<uint32_t>(packets.size()));
    std::vector<Outcome> outcomes;
    for (size_t number = 0; number < packets.size(); ++number) {
        outcomes.push_back(outcome_of(verdicts[number], packets[number]));
    }
    return outcomes;
}

uint32_t selector_hash(const Octets& frame) {
    Octets copy = frame;
    sp_packet packet{};
    packet.data = copy.data();
    packet.end = copy.data() + copy.size();
    packet.length = static_cast<uint32_t>(copy.size());
    return sp_native_selector_hash(&packet);
}

}  // namespace splitplane::test
