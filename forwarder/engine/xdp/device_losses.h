// SPDX-License-Identifier: Apache-2.0
//
// What a network device says that it lost: what the kernel keeps of every device (rtnl_link_stats64), and its driver's
// counters of its rings, where it has some (ethtool -S).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/losses.h"

namespace splitplane {

// Those of frames that the driver had received and no room for, or could not send. Nothing of an interface that is
// not there.
std::vector<DeviceLoss> read_device_losses(const std::string& interface);

// Whether a driver's counter of this name is of frames that its receive rings lost, and of which queue. Drivers agree
// on no name: rx_queue_0_drops (veth, virtio_net), rx0_buff_alloc_err (mlx5), rx_missed_errors (ixgbe), …. Not those
// of what XDP programs dropped, which is how punts and drops of the pipeline end.
struct RingLoss {
    std::optional<uint32_t> queue;
};
std::optional<RingLoss> ring_loss(std::string_view name);

// Add those of a driver's counters. One that the kernel has by the same name is the same one: ixgbe's rx_missed_errors.
using DriverCounters = std::vector<std::pair<std::string, uint64_t>>;
void add_drivers(const DriverCounters& counters, std::vector<DeviceLoss>& losses);

}  // namespace splitplane
