// SPDX-License-Identifier: Apache-2.0

#include "tests/pipeline/native.h"

#include <algorithm>
#include <memory>

namespace splitplane::test {

Outcome run(const sp_arrays& tables, uint32_t port, const Octets& frame, uint64_t now_ns, uint32_t cpu,
            size_t headroom, uint32_t random) {
    // Exactly as long as it may be, so that a sanitizer sees every octet too far.
    const auto room = std::make_unique<uint8_t[]>(headroom + frame.size());
    std::copy(frame.begin(), frame.end(), room.get() + headroom);
    sp_native native{room.get(), now_ns, cpu, random};
    sp_packet packet{};
    packet.data = room.get() + headroom;
    packet.end = packet.data + frame.size();
    packet.length = static_cast<uint32_t>(frame.size());
    packet.engine = &native;
    sp_verdict verdict = sp_native_pipeline(&tables, &packet, port);
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

uint32_t selector_hash(const Octets& frame) {
    Octets copy = frame;
    sp_packet packet{};
    packet.data = copy.data();
    packet.end = copy.data() + copy.size();
    packet.length = static_cast<uint32_t>(copy.size());
    return sp_native_selector_hash(&packet);
}

}  // namespace splitplane::test
