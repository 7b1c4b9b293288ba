// SPDX-License-Identifier: Apache-2.0
//
// What drivers say of XDP (generic netlink, family "netdev", Linux 6.3).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/descriptor.h"

namespace splitplane {

// NETDEV_XDP_ACT_… of linux/netdev.h, which Debian 12 does not have.
enum XdpFeature : uint64_t {
    kXdpBasic = 1,           // programs that pass, drop and send back
    kXdpRedirect = 2,        // programs that redirect
    kXdpTransmit = 4,        // takes what others redirect
    kXdpReceiveFrags = 32,   // frames in several buffers come in
    kXdpTransmitFrags = 64,  // and are taken from others
};

// Not thread-safe.
class XdpFeatures {
  public:
    XdpFeatures();

    // Whether this kernel tells.
    bool known() const { return family_ != 0; }
    // XdpFeature bits of an interface; none where the kernel does not tell.
    std::optional<uint64_t> of(uint32_t ifindex) const;
    // Readable when features of an interface have changed; -1 where the kernel does not tell.
    int descriptor() const { return changes_.get(); }
    // Take in all that have, without waiting: whether any has. What they are now, of() says.
    bool forget_changes();

  private:
    uint16_t family_ = 0;
    Descriptor changes_;
};

// The features in a message of the family, its header left out; none where it has none.
std::optional<uint64_t> xdp_features_in(std::span<const char> message);

}  // namespace splitplane
