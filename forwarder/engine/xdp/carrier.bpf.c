/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Notes for the pipeline which ports have lost their link, in the moment in which a driver says so: the kernel tells
 * processes later, of a physical interface up to a second. It goes on while the daemon does not run.
 *
 *     driver ─► netif_carrier_off ─► ports_down ─► nexthop_group chooses another member
 *
 * An object of its own, over the same `fixed`: a kernel without what it needs runs the other one.
 */
#include "engine/xdp/port_of.h"

char sp_license[] SEC("license") = "GPL"; /* which the kernel asks of programs that look into its structures */

/* Of the kernel's structures what is read here; libbpf looks up where that is. */
#define SP_KERNEL __attribute__((preserve_access_index))
struct ns_common {
    unsigned int inum;
} SP_KERNEL;
struct net {
    struct ns_common ns;
} SP_KERNEL;
typedef struct {
    struct net *net;
} possible_net_t;
struct net_device {
    int ifindex;
    possible_net_t nd_net;
} SP_KERNEL;

static inline int sp_note_link(const struct net_device *device, int lost)
{
    sp_u32 port;

    if (device->nd_net.net->ns.inum != fixed.namespace_inode) {
        return 0;
    }
    port = sp_port_of(device->ifindex);
    if (port != 0 && !(port & SP_PORT_OF_BOND)) { /* a bond has others, and a carrier of its own */
        sp_u64 *word = &fixed.ports_down[port / 64 & (SP_PORTS / 64 - 1)];
        sp_u64 bit = (sp_u64)1 << (port & 63);

        if (lost) {
            __sync_fetch_and_or(word, bit);
        } else {
            __sync_fetch_and_and(word, ~bit);
        }
    }
    return 0;
}

SEC("fentry/netif_carrier_off")
int link_lost(unsigned long long *context)
{
    return sp_note_link((const struct net_device *)context[0], 1);
}

SEC("fentry/netif_carrier_on")
int link_back(unsigned long long *context)
{
    return sp_note_link((const struct net_device *)context[0], 0);
}
