// SPDX-License-Identifier: Apache-2.0
//
// The port to an engine: who gives packets to the pipeline and owns the memory that its tables live in.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/losses.h"

extern "C" {
#include "pipeline/layout.h"
}

namespace splitplane {

// What an engine cannot do, in one line that names the thing and the remedy.
class EngineError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The kernel's verifier refuses the program. It is never for want of a privilege.
class VerifierRefused : public EngineError {
  public:
    VerifierRefused(const std::string& verdict, std::string log)
        : EngineError("the kernel's verifier refuses the XDP program: " + verdict), log_(std::move(log)) {}
    // All that the verifier said, in lines.
    const std::string& log() const { return log_; }

  private:
    std::string log_;
};

// A port of the plane: its number and the network interface that it is.
struct Port {
    uint32_t number;        // 1 to SP_PORTS - 1
    std::string interface;  // its name
    uint64_t speed = 0;     // of its link as it was declared, bits a second; 0: nobody said any
};

struct PortStatus {
    Port port;
    bool up = false;        // administratively up and with carrier
    bool present = false;   // the interface exists
    std::string mode;       // "native", "generic"; empty while not attached
    std::string problem;    // one line, empty when all is well
    uint64_t speed = 0;     // of its link, bits a second, as declared or as its hardware says; 0: not known
};

// A packet for the controller, untagged: a punt as it came in, or the head of a sampled one as it leaves.
struct Punt {
    uint32_t router_interface_id;  // by which it came in
    uint8_t reason;                // sp_reason
    uint8_t punt_class;            // sp_punt_class; of a sample 0
    uint16_t router;               // the slot of its VRF
    uint16_t interface;            // and that of the router interface
    std::span<const uint8_t> frame;
};
using PuntSink = std::function<void(const Punt&)>;

// Room for routes, fixed when the engine is made.
struct Capacity {
    uint32_t words = 1u << 24;    // leaves and roots: 4 octets each
    uint32_t members = 1u << 21;  // places of nexthop groups: 2 octets each
};

// Tell the pipeline whether a port has lost its link. Any thread.
inline void set_port_down(sp_arrays& arrays, uint32_t port, bool down) {
    const sp_u64 bit = sp_u64{1} << port % 64;
    if (down) {
        __atomic_fetch_or(&arrays.ports_down[port / 64], bit, __ATOMIC_RELAXED);
    } else {
        __atomic_fetch_and(&arrays.ports_down[port / 64], ~bit, __ATOMIC_RELAXED);
    }
}

inline bool is_port_down(const sp_arrays& arrays, uint32_t port) {
    return __atomic_load_n(&arrays.ports_down[port / 64], __ATOMIC_RELAXED) >> port % 64 & 1;
}

class Engine {
  public:
    virtual ~Engine() = default;

    // The tables. Zeroed, or (counters only) taken over from the engine that ran before.
    virtual sp_arrays& arrays() = 0;

    // Return once every packet that was in the pipeline at the time of the call has left it: what was unpublished
    // before the call may be used again. Any thread.
    virtual void synchronize() = 0;

    // Let ports' packets go through these tables from now on. Where an engine of an earlier process is attached, its
    // program is replaced without a gap. EngineError where a port cannot be had and none of the others was attached;
    // a port that fails later, or among others, is told by ports().
    virtual void activate(const std::vector<Port>& ports) = 0;

    // As they were found last: nobody waits for a driver.
    virtual std::vector<PortStatus> ports() = 0;

    // What each port has lost outside of the pipeline, since the first process attached to it.
    virtual std::vector<PortLosses> losses() = 0;

    // Whom punts are given to, on a thread of the engine's own that does nothing else. Set before activate().
    virtual void set_punt_sink(PuntSink sink) = 0;

    // Send an untagged frame out of a port, with a tag unless `vlan` is 0. False, and counted, where the port takes
    // none. Any thread.
    virtual bool transmit(uint32_t port, uint16_t vlan, std::span<const uint8_t> frame) = 0;

    // Give no more punts to the sink, and return when it is not being called. Packets go on being forwarded.
    virtual void stop() = 0;

    // Whom changes of ports are told to, one by one, on another thread of the engine's; what activate() finds is in
    // ports(). Set before activate().
    virtual void set_port_sink(std::function<void(const PortStatus&)> sink) = 0;

    // Frames that transmit() could not send.
    virtual uint64_t transmit_failures() const = 0;

    // Whether routers have shares of a core here (sp_arrays.cores): whether somebody measures.
    virtual bool shares() const = 0;

    // One line for people: "XDP on 4 ports, layout 4".
    virtual std::string description() const = 0;

    // What an operator may want to know of the start, a line each.
    virtual std::vector<std::string> remarks() const = 0;
};

}  // namespace splitplane
