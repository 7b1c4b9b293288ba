// SPDX-License-Identifier: Apache-2.0
//
// Offloads that change frames before XDP sees them, or keep some from it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/netdev/ethtool.h"

namespace splitplane {

// Switch off what takes VLAN tags off or joins packets (GRO too where XDP is generic, which comes after it), and what
// drops VLANs that the host has no interface for. Drivers refuse native XDP while some of these are on, so this comes
// before the program is attached. Returns what could not be switched off: a line each, with what to do.
std::vector<std::string> settle_offloads(const std::string& interface, bool generic);

// Of the offloads of an interface those that are to be off and can be; pure.
std::vector<std::string> unwanted_offloads(const std::map<std::string, OffloadState>& offloads, bool generic);
// A line for each of them that is on and does harm; pure. The filter of VLANs does none where it cannot be switched
// off: promiscuous mode opens it.
std::vector<std::string> offload_problems(const std::string& interface,
                                          const std::map<std::string, OffloadState>& offloads, bool generic);

}  // namespace splitplane
