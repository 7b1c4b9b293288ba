// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/device_losses.h"

#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "engine/xdp/object.h"

namespace splitplane {
namespace {

// Ends of names, behind an "rx" and, it may be, the number of a queue.
constexpr std::array<std::string_view, 13> kRingLosses{
    "drops",           "dropped",       "discards",       "missed",       "missed_errors", "no_dma_resources",
    "no_buffer_count", "out_of_buffer", "buff_alloc_err", "alloc_failed", "no_bufs",       "overruns",
    "nobuf",
};

bool ends_as_loss(std::string_view name) {
    return std::ranges::any_of(kRingLosses, [&](std::string_view end) {
        if (!name.ends_with(end)) return false;
        const size_t at = name.size() - end.size();
        return at == 0 || name[at - 1] == '_' || name[at - 1] == '.' || name[at - 1] == '-' || name[at - 1] == ' ';
    });
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// The kernel's own, of every device.
void add_kernels(uint32_t ifindex, std::vector<DeviceLoss>& losses) {
    const Descriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    struct {
        nlmsghdr header;
        if_stats_msg wanted;
    } request{};
    request.header.nlmsg_len = NLMSG_LENGTH(sizeof request.wanted);
    request.header.nlmsg_type = RTM_GETSTATS;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.wanted.ifindex = ifindex;
    request.wanted.filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64);
    alignas(nlmsghdr) std::array<char, 4096> answer{};
    if (!socket || ::send(socket.get(), &request, request.header.nlmsg_len, 0) < 0) return;
    const ssize_t length = ::recv(socket.get(), answer.data(), answer.size(), 0);
    const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data());
    if (length < 0 || !NLMSG_OK(header, static_cast<uint32_t>(length)) || header->nlmsg_type != RTM_NEWSTATS) return;
    const auto* attribute = reinterpret_cast<const rtattr*>(
        static_cast<const char*>(NLMSG_DATA(header)) + NLMSG_ALIGN(sizeof(if_stats_msg)));
    auto rest = static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(sizeof(if_stats_msg)));
    for (; RTA_OK(attribute, rest); attribute = RTA_NEXT(attribute, rest)) {
        if (attribute->rta_type != IFLA_STATS_LINK_64) continue;
        rtnl_link_stats64 stats{};
        std::memcpy(&stats, RTA_DATA(attribute), std::min<size_t>(sizeof stats, RTA_PAYLOAD(attribute)));
        losses.push_back({"rx_dropped", std::nullopt, stats.rx_dropped});
        losses.push_back({"rx_missed_errors", std::nullopt, stats.rx_missed_errors});
        losses.push_back({"rx_fifo_errors", std::nullopt, stats.rx_fifo_errors});
        losses.push_back({"rx_over_errors", std::nullopt, stats.rx_over_errors});
        losses.push_back({"tx_dropped", std::nullopt, stats.tx_dropped});
    }
}

bool ask(int socket, const std::string& interface, void* question) {
    ifreq request{};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_data = static_cast<char*>(question);
    return ::ioctl(socket, SIOCETHTOOL, &request) == 0;
}

// The driver's, with their names; none where it has none.
DriverCounters drivers(int socket, const std::string& interface) {
    ethtool_drvinfo driver{};
    driver.cmd = ETHTOOL_GDRVINFO;
    if (!ask(socket, interface, &driver) || driver.n_stats == 0) return {};
    const uint32_t count = driver.n_stats;
    std::vector<uint64_t> names_room((sizeof(ethtool_gstrings) + size_t{count} * ETH_GSTRING_LEN) / 8 + 1);
    auto* names = reinterpret_cast<ethtool_gstrings*>(names_room.data());
    names->cmd = ETHTOOL_GSTRINGS;
    names->string_set = ETH_SS_STATS;
    names->len = count;
    std::vector<uint64_t> values_room(sizeof(ethtool_stats) / 8 + count + 1);
    auto* values = reinterpret_cast<ethtool_stats*>(values_room.data());
    values->cmd = ETHTOOL_GSTATS;
    values->n_stats = count;
    if (!ask(socket, interface, names) || !ask(socket, interface, values)) return {};
    DriverCounters all;
    // Queues may have come or gone between the questions: no more than both have told.
    for (uint32_t at = 0; at < std::min({count, names->len, values->n_stats}); ++at) {
        const char* name = reinterpret_cast<const char*>(names->data) + size_t{at} * ETH_GSTRING_LEN;
        all.emplace_back(std::string(name, ::strnlen(name, ETH_GSTRING_LEN)), values->data[at]);
    }
    return all;
}

}  // namespace

std::optional<RingLoss> ring_loss(std::string_view name) {
    const size_t rx = name.find("rx");
    if (rx == std::string_view::npos || !ends_as_loss(name) || name.find("xdp") != std::string_view::npos) {
        return std::nullopt;
    }
    const auto* digit = std::ranges::find_if(name, is_digit);
    RingLoss loss;
    uint32_t queue = 0;
    if (digit != name.end() && std::from_chars(digit, name.end(), queue).ec == std::errc()) loss.queue = queue;
    return loss;
}

void add_drivers(const DriverCounters& counters, std::vector<DeviceLoss>& losses) {
    for (const auto& [name, frames] : counters) {
        const auto loss = ring_loss(name);
        if (loss && std::ranges::find(losses, name, &DeviceLoss::counter) == losses.end()) {
            losses.push_back({name, loss->queue, frames});
        }
    }
}

std::vector<DeviceLoss> read_device_losses(const std::string& interface) {
    std::vector<DeviceLoss> losses;
    const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    if (!socket || ::ioctl(socket.get(), SIOCGIFINDEX, &request) != 0) return losses;
    add_kernels(static_cast<uint32_t>(request.ifr_ifindex), losses);
    add_drivers(drivers(socket.get(), interface), losses);
    return losses;
}

}  // namespace splitplane
