// SPDX-License-Identifier: Apache-2.0
//
// Waiting until every BPF program that runs has ended.
#pragma once

#include "engine/xdp/object.h"

namespace splitplane {

// By an update of a map of maps: the kernel answers it once no program can use what was there before, with
// synchronize_rcu(), on every kernel that is supported. membarrier(2), which does the same in passing, refuses where
// there are nohz_full CPUs and does nothing while one CPU is online.
class GracePeriod {
  public:
    // EngineError where it cannot be had.
    GracePeriod();
    // Return once every program that ran at the time of the call has ended. Any thread. EngineError.
    void wait() const;

  private:
    Descriptor inner_, outer_;
};

}  // namespace splitplane
