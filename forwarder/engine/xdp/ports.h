// SPDX-License-Identifier: Apache-2.0
//
// The ports of the XDP engine: which interface is which, in what mode the program is attached, and what is wrong.
//
// A native program cannot send through an interface whose driver has no native XDP, so all ports are native or all are
// generic. Which it is depends on what forbids native XDP on one of them, and is decided anew whenever that changes:
//
//     offloads settled ─► hindrance known? ─► native attach ─► shortfall? ─► native
//                              │ yes              │ refused        │ yes
//                              └──────────────────┴────────────────┴─► refusal noted ─► all generic
//                                                     ▲                    │
//                                                     └─ its conditions (conditions_of()) are others
//
// A refusal is noted beside the link, so that a restart keeps generic, without a gap, for as long as its reason lasts.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/netdev/interfaces.h"
#include "engine/netdev/native.h"
#include "engine/netdev/xdp_features.h"
#include "engine/xdp/links.h"
#include "engine/xdp/notes.h"
#include "engine/xdp/object.h"

namespace splitplane {

// Not thread-safe, but for ifindex_of().
class XdpPorts {
  public:
    // Both outlive this. `pins`: the instance's directory. EngineError.
    XdpPorts(XdpObject& object, XdpFeatures& features, const std::string& pins, bool generic_only);

    // Let these be the ports, and take the program off all others. EngineError where a number is wrong, or none of them
    // could be had.
    void activate(const std::vector<Port>& ports);
    // Follow what has changed of the interfaces; returns the ports that it changed. `look`: for what the kernel tells
    // nobody, too: that somebody detached a link.
    std::vector<PortStatus> settle_changed(bool look);
    std::vector<PortStatus> statuses() const;
    // Readable when there is something for settle_changed().
    std::vector<int> descriptors() const;
    // 0: not attached. Any thread.
    uint32_t ifindex_of(uint32_t number) const { return number < SP_PORTS ? ifindexes_[number].load() : 0; }

  private:
    struct Attached {
        PortStatus status;
        uint32_t ifindex = 0;     // 0: not attached
        bool generic = false;     // of what is attached
        uint32_t mtu = 0;         // when it was
        std::string refusal;      // why it cannot be native; empty: nothing is known to forbid it
        std::string conditions;   // under which that was so
        std::string failure;      // why it is not attached
        bool attach_failed = false;  // at the last attempt
        bool changed = true;      // there is something to look at
        std::vector<uint64_t> changes;  // InterfaceState::change of its devices when it was last looked at
    };

    void settle_all(bool all);
    bool find_interface(Attached& port);
    void note_link(const PortStatus& status, uint32_t ifindex);
    bool attach_all();
    void attach(Attached& port);
    void attach_native(Attached& port, const InterfaceState& state);
    void refuse(Attached& port, const std::string& why);
    void lose(Attached& port);
    void review(Attached& port);
    void recall_refusal(Attached& port, uint32_t ifindex);
    bool any_refuses() const;
    std::string problem_of(const Attached& port, const InterfaceState& state) const;
    std::string frags_problem(const DeviceFacts& facts) const;
    std::vector<InterfaceState> devices_of(const InterfaceState& state) const;
    DeviceFacts facts_of(const InterfaceState& state) const;
    uint64_t speed_of(const Port& port, const InterfaceState& state) const;
    std::string conditions(const InterfaceState& state) const;
    void map_ports(bool all);
    void detach_others();

    XdpObject& object_;
    XdpFeatures& features_;
    InterfaceNotes notes_;
    Links links_;
    Interfaces interfaces_;
    bool generic_only_;
    bool generic_ = false;  // all ports
    std::map<uint32_t, Attached> ports_;       // by number
    std::map<uint32_t, uint64_t> mapped_;      // entries of port_of_ifindex by ifindex
    std::array<std::atomic<uint32_t>, SP_PORTS> ifindexes_{};  // by port number
};

}  // namespace splitplane
