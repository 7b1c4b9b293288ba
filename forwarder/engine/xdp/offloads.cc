// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/offloads.h"

#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "engine/xdp/object.h"

namespace splitplane {
namespace {

class Ethtool {
  public:
    explicit Ethtool(const std::string& interface)
        : interface_(interface), socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}

    std::optional<uint32_t> get(uint32_t command) const {
        ethtool_value value{command, 0};
        if (!ask(value)) return std::nullopt;
        return value.data;
    }
    bool set(uint32_t command, uint32_t data) const {
        ethtool_value value{command, data};
        return ask(value);
    }

  private:
    bool ask(ethtool_value& value) const {
        ifreq request{};
        std::strncpy(request.ifr_name, interface_.c_str(), sizeof request.ifr_name - 1);
        request.ifr_data = reinterpret_cast<char*>(&value);
        return ::ioctl(socket_.get(), SIOCETHTOOL, &request) == 0;
    }

    std::string interface_;
    Descriptor socket_;
};

std::string still_on(const std::string& interface, const char* feature, const char* harm) {
    return std::string(feature) + " is on and " + harm + "; run: ethtool -K " + interface + " " + feature + " off";
}

}  // namespace

std::string settle_offloads(const std::string& interface, bool generic) {
    const Ethtool ethtool(interface);
    const uint32_t flags = ethtool.get(ETHTOOL_GFLAGS).value_or(0);
    const uint32_t unwanted = flags & (ETH_FLAG_RXVLAN | ETH_FLAG_LRO);
    if (unwanted != 0) ethtool.set(ETHTOOL_SFLAGS, flags & ~unwanted);
    const uint32_t left = ethtool.get(ETHTOOL_GFLAGS).value_or(0);
    if ((left & ETH_FLAG_RXVLAN) != 0) return still_on(interface, "rxvlan", "hides VLAN tags");
    if ((left & ETH_FLAG_LRO) != 0) return still_on(interface, "lro", "joins packets");
    if (generic && ethtool.get(ETHTOOL_GGRO).value_or(0) != 0 && !ethtool.set(ETHTOOL_SGRO, 0)) {
        return still_on(interface, "gro", "joins packets");
    }
    return {};
}

}  // namespace splitplane
