// SPDX-License-Identifier: Apache-2.0

#include "engine/netdev/native.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "engine/descriptor.h"
#include "engine/netdev/xdp_features.h"

namespace splitplane {
namespace {

// Before Linux 6.3 nothing tells that these run programs, but neither redirect nor take what is redirected: they drop
// (ixgbevf, nfp: no XDP_REDIRECT; mlx4_en: no ndo_xdp_xmit).
constexpr std::array kLose = {"ixgbevf", "mlx4_en", "nfp"};
// Their ndo_xdp_xmit takes the transmit queue with the number of the CPU, and refuses where there is none.
constexpr std::array kQueueOfCpu = {"mlx5_core", "i40e"};

bool is_one_of(const auto& drivers, const std::string& driver) {
    return std::ranges::find(drivers, driver) != drivers.end();
}

bool lacks(const DeviceFacts& facts, XdpFeature feature) {
    return facts.xdp_features && (*facts.xdp_features & feature) == 0;
}

std::string driver_of(const DeviceFacts& facts) {
    return facts.driver.name.empty() ? "its driver" : "its driver " + facts.driver.name;
}

// What is known to be the cause, with what to do; empty where nothing is.
std::string cause(const DeviceFacts& facts, int error) {
    if (facts.driver.name == "ixgbe" && error == EINVAL && facts.virtual_functions != 0) {
        return "SR-IOV is on; run: echo 0 > /sys/class/net/" + facts.name + "/device/sriov_numvfs";
    }
    if (facts.driver.name == "virtio_net" && facts.joins_packets) {
        return "whoever runs this machine has to switch off its offloads (QEMU: guest_csum=off,guest_tso4=off,"
               "guest_tso6=off,guest_ecn=off,guest_ufo=off), or let it do so (ctrl_guest_offloads=on)";
    }
    if (facts.mtu > kOneBufferMtu) {
        return "its MTU of " + std::to_string(facts.mtu) + " may be too large; try: ip link set dev " + facts.name +
               " mtu 1500";
    }
    if (facts.driver.name == "ixgbe" && error == EINVAL) return "DCB may be on; switch it off";
    return "";
}

}  // namespace

std::string conditions_of(const DeviceFacts& facts) {
    // Not what an attached program itself changes (NDO_XMIT).
    constexpr uint64_t kSteady = kXdpBasic | kXdpRedirect | kXdpReceiveFrags;
    const std::string features = facts.xdp_features ? std::to_string(*facts.xdp_features & kSteady) : "unknown";
    return "driver " + facts.driver.name + " mtu " + std::to_string(facts.mtu) + " features " + features +
           " channels " + std::to_string(facts.channels.now) + " joins " + std::to_string(facts.joins_packets) +
           " functions " + std::to_string(facts.virtual_functions);
}

std::string native_hindrance(const DeviceFacts& facts) {
    if (lacks(facts, kXdpBasic)) return driver_of(facts) + " has no native XDP";
    if (lacks(facts, kXdpRedirect)) return driver_of(facts) + " has native XDP without redirect";
    if (!facts.xdp_features && is_one_of(kLose, facts.driver.name)) {
        return driver_of(facts) + " has native XDP without redirect";
    }
    return "";
}

std::string native_shortfall(const DeviceFacts& facts) {
    // A veth that does not take frames does as soon as its far end polls, which is a line of its own.
    if (lacks(facts, kXdpTransmit) && facts.driver.name != "veth") {
        return driver_of(facts) + " has native XDP but sends nothing that another port redirects to it";
    }
    return "";
}

std::string native_refusal(const DeviceFacts& facts, int error, const std::string& words) {
    // The kernel's words before it asks any driver (dev_xdp_attach()).
    const bool none = words.empty() || words == "Underlying driver does not support XDP in native mode";
    const std::string why = cause(facts, error);
    if (error == EOPNOTSUPP && none && (why.empty() || !words.empty())) return driver_of(facts) + " has no native XDP";
    return driver_of(facts) + " refuses native XDP (" + (words.empty() ? error_text(error) : words) + ")" +
           (why.empty() ? "" : ": " + why);
}

std::string transmit_problem(const DeviceFacts& facts, uint32_t cpus) {
    if (facts.driver.name == "veth" && lacks(facts, kXdpTransmit)) {
        return "its far end does not poll, so what is sent to it is lost; run there: ethtool -K FAR gro on";
    }
    const Channels& channels = facts.channels;
    if (!is_one_of(kQueueOfCpu, facts.driver.name) || channels.now == 0 || channels.now >= cpus) return "";
    const std::string line = "it has " + std::to_string(channels.now) + " queues for " + std::to_string(cpus) +
                             " CPUs: what others receive for it is lost; ";
    if (channels.most >= cpus) return line + "run: ethtool -L " + facts.name + " combined " + std::to_string(cpus);
    return line + "have no interrupt of a port on CPU " + std::to_string(channels.most) + " or above" +
           (channels.most > channels.now
                ? ", and run: ethtool -L " + facts.name + " combined " + std::to_string(channels.most)
                : "");
}

bool receives_frags(const DeviceFacts& facts) {
    return facts.mtu > kOneBufferMtu && facts.xdp_features && (*facts.xdp_features & kXdpReceiveFrags) != 0;
}

bool lacks_transmit_frags(const DeviceFacts& facts) {
    return facts.mtu > kOneBufferMtu && lacks(facts, kXdpTransmitFrags) && !lacks(facts, kXdpTransmit);
}

}  // namespace splitplane
