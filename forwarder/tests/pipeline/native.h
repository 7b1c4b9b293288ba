// SPDX-License-Identifier: Apache-2.0
//
// The native build of the pipeline: a frame in, what becomes of it out.
#pragma once

#include "engine/engine.h"
#include "tests/pipeline/frames.h"

extern "C" {
#include "tests/pipeline/native_pipeline.h"
}

namespace splitplane::test {

struct Outcome {
    uint32_t action;               // sp_action
    uint32_t port = 0;             // of SP_ACTION_SEND
    uint32_t reason = 0;           // sp_reason
    uint32_t router_interface_id = 0;
    Octets frame;                  // as sent or punted; empty for a drop
    Octets sample;                 // what the controller sees of a frame that is sent; mostly nothing
    uint32_t punt_class = 0;       // sp_punt_class, of a punt
    uint32_t vrf = 0;              // whose punt it is: a slot
    bool operator==(const Outcome&) const = default;
};

constexpr size_t kHeadroom = 4;    // octets in front of a frame: one tag

// Run the pipeline on a copy of a frame that has `headroom` octets before it, and exactly these; `random` chooses samples.
Outcome run(const sp_arrays& tables, uint32_t port, const Octets& frame, uint64_t now_ns = 0, uint32_t cpu = 0,
            size_t headroom = kHeadroom, uint32_t random = 0);

struct Arrival {
    uint32_t port;
    Octets frame;
};
// The same of frames that come together, SP_NATIVE_BURST at most, at time 0 on CPU 0.
std::vector<Outcome> run_burst(const sp_arrays& tables, const std::vector<Arrival>& arrivals);

// nexthop_group's hash of a frame with an IP packet behind an untagged header.
uint32_t selector_hash(const Octets& frame);

}  // namespace splitplane::test
