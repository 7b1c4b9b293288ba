// SPDX-License-Identifier: Apache-2.0
//
// An engine without packets: its tables are plain memory, its ports lists. For tests of what is above an engine, and for
// trying that without privileges.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace splitplane {

class MemoryEngine : public Engine {
  public:
    static constexpr size_t kSentAtMost = 4096;
    struct Sent {
        uint32_t port;
        uint16_t vlan;
        std::vector<uint8_t> frame;
    };

    explicit MemoryEngine(const Capacity& capacity = {}, uint32_t cpus = 2);
    ~MemoryEngine() override;

    sp_arrays& arrays() override { return arrays_; }
    void synchronize() override { ++grace_periods_; }
    void activate(const std::vector<Port>& ports) override;
    std::vector<PortStatus> ports() override;
    std::vector<PortLosses> losses() override;
    void set_punt_sink(PuntSink sink) override { sink_ = std::move(sink); }
    bool transmit(uint32_t port, uint16_t vlan, std::span<const uint8_t> frame) override;
    void stop() override { sink_ = nullptr; }
    void set_port_sink(std::function<void(const PortStatus&)> sink) override { port_sink_ = std::move(sink); }
    uint64_t transmit_failures() const override { return transmit_failures_; }
    bool shares() const override { return true; }
    std::string description() const override;
    std::vector<std::string> remarks() const override { return {}; }

    // What tests do in place of a network.
    void punt(uint32_t router_interface_id, uint8_t reason, std::span<const uint8_t> frame,
              uint8_t punt_class = SP_CLASS_LOCAL, uint16_t router = 1, uint16_t interface = 1);
    void set_up(uint32_t port, bool up);
    void set_losses(std::vector<PortLosses> losses);  // that losses() tells, in place of nothing for each port
    std::vector<Sent> sent();  // since the last call; kSentAtMost are kept
    uint64_t grace_periods() const { return grace_periods_; }

  private:
    sp_arrays arrays_{};
    std::vector<std::unique_ptr<std::byte[], void (*)(void*)>> memory_;
    std::atomic<uint64_t> grace_periods_{0};
    std::atomic<uint64_t> transmit_failures_{0};
    PuntSink sink_;
    std::function<void(const PortStatus&)> port_sink_;
    std::mutex lock_;  // of what follows
    std::vector<PortStatus> ports_;
    std::vector<Sent> sent_;
    std::vector<PortLosses> losses_;

    template <typename T>
    T* zeroed(size_t count);
};

}  // namespace splitplane
