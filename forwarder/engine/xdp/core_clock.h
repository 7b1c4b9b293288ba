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
    // Attach it beside that of an earlier process, for the cores of `object`, if it is wanted. Never throws: where the
    // kernel takes none, routers have no shares, and problem() says why.
    XdpCoreClock(const XdpObject& object, std::string pins, bool wanted);

    // Ports have the object's program now: take away what the earlier process has attached.
    void take_over();
    bool attached() const { return attached_; }
    // Why it is not, one line; empty where it is, or nobody wants it.
    const std::string& problem() const { return problem_; }

  private:
    void attach(const XdpObject& object);

    std::string pin_, problem_;
    bool attached_ = false;
};

}  // namespace splitplane
