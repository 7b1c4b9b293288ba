// SPDX-License-Identifier: Apache-2.0

#include "engine/netdev/offloads.h"

#include <array>

namespace splitplane {
namespace {

struct Offload {
    const char* name;  // of ETHTOOL_GSTRINGS
    const char* harm;
    bool generic_only;  // XDP in the driver comes before it
    bool harmless_if_fixed;
};
constexpr std::array kUnwanted = {
    Offload{"rx-vlan-hw-parse", "hides VLAN tags", false, false},
    Offload{"rx-lro", "joins packets", false, false},
    Offload{"rx-gro-hw", "joins packets", false, false},
    Offload{"rx-gro", "joins packets", true, false},
    Offload{"rx-vlan-filter", "drops VLANs that the host does not have", false, true},
};

}  // namespace

std::vector<std::string> unwanted_offloads(const std::map<std::string, OffloadState>& offloads, bool generic) {
    std::vector<std::string> names;
    for (const Offload& each : kUnwanted) {
        const auto found = offloads.find(each.name);
        if (found == offloads.end() || (each.generic_only && !generic)) continue;
        if (found->second.on && !found->second.fixed) names.emplace_back(each.name);
    }
    return names;
}

std::vector<std::string> offload_problems(const std::string& interface,
                                          const std::map<std::string, OffloadState>& offloads, bool generic) {
    std::vector<std::string> problems;
    for (const Offload& each : kUnwanted) {
        const auto found = offloads.find(each.name);
        if (found == offloads.end() || !found->second.on || (each.generic_only && !generic)) continue;
        const std::string line = std::string(each.name) + " is on and " + each.harm;
        if (!found->second.fixed) {
            problems.push_back(line + "; run: ethtool -K " + interface + " " + each.name + " off");
        } else if (!each.harmless_if_fixed) {
            problems.push_back(line + ", and its driver cannot switch it off; whoever runs this machine has to");
        }
    }
    return problems;
}

std::vector<std::string> settle_offloads(const std::string& interface, bool generic) {
    const Ethtool ethtool(interface);
    std::map<std::string, OffloadState> offloads = ethtool.offloads();
    const std::vector<std::string> unwanted = unwanted_offloads(offloads, generic);
    if (!unwanted.empty()) {
        ethtool.switch_off(unwanted);
        offloads = ethtool.offloads();
    }
    return offload_problems(interface, offloads, generic);
}

}  // namespace splitplane
