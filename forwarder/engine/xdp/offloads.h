// SPDX-License-Identifier: Apache-2.0
//
// Offloads that change frames before XDP sees them.
#pragma once

#include <string>

namespace splitplane {

// Switch off what takes VLAN tags off (rxvlan) or joins packets (LRO; GRO where XDP is generic, which comes after it).
// Empty, or one line that says what could not be switched off and what to do.
std::string settle_offloads(const std::string& interface, bool generic);

}  // namespace splitplane
