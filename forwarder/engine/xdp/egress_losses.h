// SPDX-License-Identifier: Apache-2.0
//
// The programs of losses.bpf.c: loaded, attached and pinned, and what they have counted.
//
//     <bpffs>/<instance>/losses-redirect, losses-queue             the attachments
//     <bpffs>/<instance>/map_losses-<layout>, map_losses_owner-…   counters, kept like those of the pipeline
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/losses.h"
#include "engine/xdp/object.h"

namespace splitplane {

class XdpEgressLosses {
  public:
    // Attach beside what an earlier process has attached: `object` has the program for the ports. Never throws: where
    // the kernel lacks what it takes, losses are not counted, and problem() says why.
    XdpEgressLosses(const XdpObject& object, std::string pins);
    ~XdpEgressLosses();

    // Ports have the object's program now: count for it, and take away what the earlier process has attached.
    void take_over();
    // Why losses are not counted, one line; empty where they are.
    const std::string& problem() const { return problem_; }
    // By port number.
    std::vector<EgressLosses> read() const;

  private:
    struct Close {
        void operator()(bpf_object* object) const;
    };

    void load(const XdpObject& object);
    void attach(const char* program, const std::string& pin);
    int map(const char* name) const;
    std::string pin(const std::string& name) const { return pins_ + "/" + name; }

    std::string pins_, problem_;
    std::unique_ptr<bpf_object, Close> object_;
    uint64_t ports_map_id_ = 0;
};

}  // namespace splitplane
