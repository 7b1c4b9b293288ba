// SPDX-License-Identifier: Apache-2.0
//
// SR-IOV: virtual functions of a NIC, and what the host that has the NIC allows them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace splitplane {

// How many virtual functions the device at a place on its bus has; 0 where it can have none.
uint32_t virtual_functions(const std::string& bus);

// A line where the device is a virtual function that its NIC keeps from a router's work: from frames for others' MACs
// (trust), or from sending with them (spoofchk). Empty where all is well, it is none, or the NIC is not this host's.
std::string virtual_function_problem(const std::string& bus);

struct VirtualFunctionRights {
    bool trusted = false;
    bool checked = false;  // what it sends has to have its own MAC
};

// What the message about a NIC (RTM_NEWLINK, its header left out) says of one of its virtual functions; pure.
std::optional<VirtualFunctionRights> rights_in(std::span<const char> message, uint32_t function);

}  // namespace splitplane
