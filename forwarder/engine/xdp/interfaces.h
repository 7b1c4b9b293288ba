// SPDX-License-Identifier: Apache-2.0
//
// The network interfaces of this namespace, as rtnetlink tells of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/xdp/object.h"

struct nlmsghdr;

namespace splitplane {

struct InterfaceState {
    uint32_t ifindex;
    bool up;  // administratively up and with carrier
};

// Not thread-safe.
class Interfaces {
  public:
    // Returns with all of them known. EngineError.
    Interfaces();

    // Readable when there is something for read_changes().
    int descriptor() const { return socket_.get(); }
    // Take in what has changed, without waiting. What was lost to a full socket is asked for again.
    void read_changes();

    std::optional<InterfaceState> find(const std::string& name) const;

  private:
    struct Known {
        std::string name;
        bool up;
        uint32_t dump;  // the last dump that had it
    };

    void ask();
    bool receive(bool wait);
    void take(const nlmsghdr* message);
    void forget_missing();

    Descriptor socket_;
    std::map<uint32_t, Known> known_;  // by ifindex
    uint32_t dump_ = 0;
    bool dumping_ = false;
};

}  // namespace splitplane
