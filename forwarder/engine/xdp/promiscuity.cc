// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/promiscuity.h"

#include <linux/if.h>
#include <linux/rtnetlink.h>

#include <cerrno>

#include "engine/descriptor.h"
#include "engine/netdev/netlink.h"

namespace splitplane {
namespace {

// 0, or an errno value.
int set_promiscuous(uint32_t ifindex, bool on) {
    NetlinkRequest request(RTM_NEWLINK, 0);
    ifinfomsg body{};
    body.ifi_index = static_cast<int>(ifindex);
    body.ifi_flags = on ? IFF_PROMISC : 0;
    body.ifi_change = IFF_PROMISC;
    request.body(body);
    return ask_netlink(NETLINK_ROUTE, request).error;
}

}  // namespace

std::string keep_promiscuous(const InterfaceNotes& notes, const InterfaceState& state) {
    if (state.promiscuous) return "";
    // Noted first: a process that ends between the two leaves nothing that nobody takes back.
    int error = notes.put(kPromiscuousNote, state.ifindex, "") ? 0 : errno;
    if (error == 0) error = set_promiscuous(state.ifindex, true);
    if (error == 0) return "";
    return "it gets frames for its own MAC alone (" + error_text(error) + "); run: ip link set dev " + state.name +
           " promisc on";
}

void take_promiscuity_back(const InterfaceNotes& notes, uint32_t ifindex) {
    if (!notes.find(kPromiscuousNote, ifindex)) return;
    set_promiscuous(ifindex, false);
    notes.drop(kPromiscuousNote, ifindex);
}

}  // namespace splitplane
