// SPDX-License-Identifier: Apache-2.0
//
// The network interfaces of this namespace, as rtnetlink tells of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/descriptor.h"

struct nlmsghdr;

namespace splitplane {

struct InterfaceState {
    uint32_t ifindex = 0;
    std::string name;
    bool up = false;           // administratively up and with carrier
    bool promiscuous = false;  // by who configures it (IFF_PROMISC), sockets that ask for it not counted
    uint32_t mtu = 0;          // octets, without the Ethernet header
    std::string kind;          // "bond", "veth"; empty of most hardware
    std::string bus;           // that it is a device on ("pci", "virtio"); empty of what is none
    uint32_t master = 0;       // the ifindex of the bond or bridge that it is a member of; 0: none
    uint64_t change = 0;       // a number that grows with each message about it
};

// Whether an interface is up and has its carrier at this moment; nothing where the kernel does not say.
std::optional<bool> is_link_up(uint32_t ifindex);

// What rtnetlink's messages add up to: octets in, and when all interfaces are to be asked for out. Not thread-safe.
//
//     overrun, interrupted or failed dump ──► wanted ──► dump ──► DONE, complete ──► what it did not have is gone
//                                               ▲                    │ overrun meanwhile
//                                               └────────────────────┘
//
// One dump at a time: the kernel answers EBUSY to a second one, which is not an end of it.
class InterfaceTable {
  public:
    // The number (nlmsg_seq) of the dump that is to be asked for now; none where none is wanted, or it has to wait for
    // the next message. It is taken for asked.
    std::optional<uint32_t> next_dump();
    // Messages as they were received together.
    void take(std::span<const char> messages);
    // The dump that was to be asked for could not be.
    void refused() {
        dumping_ = false;
        wanted_ = waits_ = true;
    }
    // Messages were lost.
    void overrun() { wanted_ = true; }
    // All that was ever asked for has come.
    bool complete() const { return !wanted_ && !dumping_; }

    std::optional<InterfaceState> find(const std::string& name) const;
    std::optional<InterfaceState> find(uint32_t ifindex) const;
    // The members of a bond or bridge.
    std::vector<InterfaceState> members(uint32_t master) const;

  private:
    struct Known {
        InterfaceState state;
        uint32_t dump;  // the last dump that had it
    };

    void take_one(const nlmsghdr* message);
    void take_link(const nlmsghdr* message);
    void end_dump(bool whole);

    std::map<uint32_t, Known> known_;  // by ifindex
    uint64_t changes_ = 0;
    uint32_t dump_ = 0;
    bool wanted_ = true;        // a dump has to begin after now
    bool dumping_ = false;      // one is under way
    bool interrupted_ = false;  // and something changed between its parts (NLM_F_DUMP_INTR)
    bool waits_ = false;        // the kernel refused one: not before something else is heard
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

    const InterfaceTable& all() const { return table_; }

  private:
    bool ask();
    bool receive(bool wait);

    Descriptor socket_;
    InterfaceTable table_;
};

}  // namespace splitplane
