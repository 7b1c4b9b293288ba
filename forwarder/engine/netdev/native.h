// SPDX-License-Identifier: Apache-2.0
//
// Whether an interface can have XDP in its driver, by what is known of drivers; pure. docs/nics.md has it for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/netdev/ethtool.h"

namespace splitplane {

// What is known of an interface before the program is attached.
struct DeviceFacts {
    std::string name;
    Driver driver;
    uint32_t mtu = 0;                      // octets, without the Ethernet header
    Channels channels;
    std::optional<uint64_t> xdp_features;  // XdpFeature bits; none where the kernel does not tell
    bool joins_packets = false;            // LRO or GRO-HW is on, and stays so
    uint32_t virtual_functions = 0;        // that it has (SR-IOV)
};

// What an attach of a native program depends on, as a line: where it is another one than when the driver refused, it is
// worth to try again.
std::string conditions_of(const DeviceFacts& facts);

// Why a native program would be no use, or be refused, before one is attached; empty where it is to be tried. A driver
// may run programs and yet lose what they redirect.
std::string native_hindrance(const DeviceFacts& facts);

// The same once one is attached: some drivers say only then that they take what others redirect to them.
std::string native_shortfall(const DeviceFacts& facts);

// What to say of a driver that refused: an errno value and the kernel's own words, which may be empty.
std::string native_refusal(const DeviceFacts& facts, int error, const std::string& words);

// Of an attached native program: a line where frames will be lost that this interface is to send; else empty. `cpus` is
// how many may receive frames, the highest number and one.
std::string transmit_problem(const DeviceFacts& facts, uint32_t cpus);

// The MTU up to which a frame lies in one buffer whatever the driver.
constexpr uint32_t kOneBufferMtu = 1500;
// Whether frames may come in in several buffers, and whether such frames can be sent.
bool receives_frags(const DeviceFacts& facts);
bool lacks_transmit_frags(const DeviceFacts& facts);

}  // namespace splitplane
