// SPDX-License-Identifier: Apache-2.0
//
// The engine in the kernel: an XDP program on every port, which goes on when this process ends.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/netdev/xdp_features.h"
#include "engine/xdp/carrier.h"
#include "engine/xdp/core_clock.h"
#include "engine/xdp/egress_losses.h"
#include "engine/xdp/grace_period.h"
#include "engine/xdp/links.h"
#include "engine/xdp/object.h"
#include "engine/xdp/ports.h"

struct ring_buffer;

namespace splitplane {

struct XdpOptions {
    std::string instance = "vr-forwarder";  // its directory below the bpffs
    std::string bpffs = "/sys/fs/bpf";
    Capacity capacity;
    bool generic_only = false;  // never try native XDP
    bool core_shares = true;    // divide cores that are too small for all
    std::chrono::milliseconds look_every{10'000};  // at ports, for what the kernel tells nobody
};

class XdpEngine : public Engine {
  public:
    // Loads the program and makes its tables; nothing is attached yet, and what an earlier process attached goes on by
    // its own tables. EngineError.
    explicit XdpEngine(XdpOptions options = {});
    // The program stays on the ports; punts find nobody to take them.
    ~XdpEngine() override;

    sp_arrays& arrays() override { return object_.arrays(); }
    void synchronize() override { grace_.wait(); }
    void activate(const std::vector<Port>& ports) override;
    std::vector<PortStatus> ports() override;
    std::vector<PortLosses> losses() override;
    void set_punt_sink(PuntSink sink) override { sink_ = std::move(sink); }
    bool transmit(uint32_t port, uint16_t vlan, std::span<const uint8_t> frame) override;
    void stop() override;
    void set_port_sink(std::function<void(const PortStatus&)> sink) override { port_sink_ = std::move(sink); }
    uint64_t transmit_failures() const override { return transmit_failures_; }
    bool shares() const override { return clock_.attached(); }
    std::string description() const override;
    std::vector<std::string> remarks() const override;

    // Take the program off all ports of an instance whose process has ended. Returns how many there were.
    static size_t detach(const std::string& instance, const std::string& bpffs = "/sys/fs/bpf");

  private:
    struct FreeRing {
        void operator()(ring_buffer* ring) const;
    };

    void open_packet_sockets(const std::vector<Port>& ports);
    void settle_changed();
    void tell_ports();
    void run(std::vector<int> descriptors, int every_ms, const std::function<void()>& take);
    static int take_punt(void* engine, void* record, size_t octets);

    XdpOptions options_;
    PinDirectory pins_;
    XdpFeatures features_;
    XdpObject object_;
    Carrier carrier_;
    XdpEgressLosses losses_;
    XdpCoreClock clock_;
    GracePeriod grace_;
    // AF_PACKET sockets for transmit(), by port number, and none taken away: what a port is slow to send fills its own.
    std::array<Descriptor, SP_PORTS> packets_;
    Descriptor stop_;
    std::unique_ptr<ring_buffer, FreeRing> ring_;
    PuntSink sink_;
    std::function<void(const PortStatus&)> port_sink_;
    std::atomic<uint64_t> transmit_failures_{0};
    std::chrono::steady_clock::time_point looked_;  // at all ports (look_every)
    std::mutex mutex_;  // of what follows; for as long as drivers take
    XdpPorts ports_;
    std::mutex told_mutex_;  // of what follows
    std::vector<PortStatus> told_;  // of the ports, by ports()
    // One of punts and one of ports: drivers take up to seconds to attach a program, and no punt waits for that.
    std::vector<std::thread> threads_;
};

}  // namespace splitplane
