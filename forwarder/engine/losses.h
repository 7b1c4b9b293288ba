// SPDX-License-Identifier: Apache-2.0
//
// Frames that a port lost outside of the pipeline: behind it, where they had been counted as sent, and before it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

extern "C" {
#include "pipeline/layout.h"
}

namespace splitplane {

// By sp_loss: "down", "too_long", …; nullptr for those that there are not.
inline constexpr std::array<const char*, SP_LOSSES> kLossNames{
    "down", "too_long", "no_queue", "unable", "ring_full", "other", nullptr, nullptr,
};

// Frames by sp_loss.
using EgressLosses = std::array<uint64_t, SP_LOSSES>;

// A counter of the device's own, from 0 with the device.
struct DeviceLoss {
    std::string counter;            // as the kernel or the driver calls it
    std::optional<uint32_t> queue;  // none: of all queues, or the driver does not say
    uint64_t frames;
    bool operator==(const DeviceLoss&) const = default;
};

struct PortLosses {
    uint32_t port;
    EgressLosses egress{};
    std::vector<DeviceLoss> device;
};

}  // namespace splitplane
