// SPDX-License-Identifier: Apache-2.0
//
// What ethtool(8) shows and sets of an interface.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/descriptor.h"

namespace splitplane {

struct OffloadState {
    bool on;
    bool fixed;  // the driver does not let it be changed
};

struct Channels {
    uint32_t now = 0;   // pairs of queues; 0 where the driver does not tell
    uint32_t most = 0;  // that it can have
};

struct Driver {
    std::string name;  // "ixgbe"; empty where it does not tell
    std::string bus;   // "0000:01:00.0"
};

// One interface, by name. What it does not answer is empty.
class Ethtool {
  public:
    explicit Ethtool(const std::string& interface);

    Driver driver() const;
    Channels channels() const;
    // Of its link, bits a second; 0 where it has none, or does not tell. What is no hardware may tell anything.
    uint64_t speed() const;
    // Offloads by the names of `ethtool -k NAME` in full ("rx-gro-hw", for generic-receive-offload "rx-gro").
    std::map<std::string, OffloadState> offloads() const;
    // Switch some of them off; which of them are off then, offloads() says.
    void switch_off(const std::vector<std::string>& names) const;

  private:
    bool ask(void* request) const;
    std::vector<std::string> offload_names() const;

    std::string interface_;
    Descriptor socket_;
};

}  // namespace splitplane
