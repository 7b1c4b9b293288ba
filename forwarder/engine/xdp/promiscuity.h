// SPDX-License-Identifier: Apache-2.0
//
// Promiscuous mode of ports: routers have MACs of their own, whose frames a NIC would otherwise drop before XDP.
//
// It outlives the process as the XDP links do, or a NIC would stop forwarding while the daemon is restarted. So it is
// not the kernel's count that a packet socket raises (PACKET_MR_PROMISC), which ends with the socket, but the flag that
// an operator sets (`ip link set dev NAME promisc on`): one bit, which counts once however often it is set. Who finds
// it set leaves it, also at the end; who sets it notes that beside the link, and whoever detaches, this process, a later
// one or `vr-forwarder detach`, takes it back. Counts of others (tcpdump, bridges) go on beside it.
#pragma once

#include <cstdint>
#include <string>

#include "engine/netdev/interfaces.h"
#include "engine/xdp/notes.h"

namespace splitplane {

// Empty, or one line that says why the interface gets only frames for its own MAC, and what to do.
std::string keep_promiscuous(const InterfaceNotes& notes, const InterfaceState& state);
void take_promiscuity_back(const InterfaceNotes& notes, uint32_t ifindex);

}  // namespace splitplane
