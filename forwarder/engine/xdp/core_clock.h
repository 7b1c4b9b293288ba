// SPDX-License-Identifier: Apache-2.0
//
// The program of clock.bpf.c: loaded, attached and pinned as <bpffs>/<instance>/core-clock.
#pragma once

#include <memory>
#include <string>

#include "engine/xdp/object.h"

namespace splitplane {

class XdpCoreClock {
  public:
    // Attach it beside that of an earlier process, for the cores of `object`. Never throws: where the kernel takes none,
    // routers have no shares, and problem() says why.
    XdpCoreClock(const XdpObject& object, std::string pins);

    // Ports have the object's program now: take away what the earlier process has attached.
    void take_over();
    // Why there are no shares, one line; empty where there are.
    const std::string& problem() const { return problem_; }

  private:
    void attach(const XdpObject& object);

    std::string pin_, problem_;
};

}  // namespace splitplane
