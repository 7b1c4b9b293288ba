/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What the kernel could not send after the program on the ports had redirected it, counted by egress port and reason.
 *
 *     redirect ──► queue of the CPU and port ──► driver, when the poll ends
 *        │ xdp_redirect_err: each frame              │ xdp_devmap_xmit: once for all in the queue
 *
 * Attached to tracepoints and pinned like the program on the ports, and so at work while the daemon is dead. While one
 * process takes over from another both have programs here: of redirects each counts those into its own map of ports, of
 * queues the one whose map `map_losses_owner` names.
 *
 * No pipeline here: none of its tables but `fixed`, which is the other object's.
 */
#include <linux/bpf.h>

#include <linux/errno.h>

#include <bpf/bpf_helpers.h>

#include "engine/xdp/shared.h"

char sp_license[] SEC("license") = "GPL"; /* which the kernel asks of programs that look into its structures */

/* Of the kernel's own only what is asked for, found by its name in the BTF of the kernel that loads this. */
struct net_device {
    int ifindex;
} __attribute__((preserve_access_index));

struct sp_fixed fixed SEC(".bss");
const volatile __u32 ports_map_id = 0; /* of the devmap that the program on the ports redirects into */

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1); /* CPUs */
    __uint(key_size, 4);
    __uint(value_size, SP_PORTS * SP_LOSSES * sizeof(sp_u64));
} map_losses SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64); /* ports_map_id of who counts */
} map_losses_owner SEC(".maps");

static __always_inline __u32 sp_loss_of(int error)
{
    switch (-error) {
    case ENETDOWN:
        return SP_LOSS_DOWN;
    case EMSGSIZE:
        return SP_LOSS_TOO_LONG;
    case ENXIO:
        return SP_LOSS_NO_QUEUE;
    case EOPNOTSUPP:
        return SP_LOSS_UNABLE;
    case 0:
    case EBUSY:
    case ENOSPC:
    case ENOBUFS:
        return SP_LOSS_RING_FULL;
    default:
        return SP_LOSS_OTHER;
    }
}

static __always_inline void sp_count_loss(__u32 port, int error, __u64 frames)
{
    __u32 cpu = bpf_get_smp_processor_id();
    sp_u64 *counters = bpf_map_lookup_elem(&map_losses, &cpu);

    __u32 index = port * SP_LOSSES + sp_loss_of(error);
    __asm__("" : "+r"(index)); /* the verifier wants to see the mask, though no key of the map is more */
    index &= SP_PORTS * SP_LOSSES - 1;
    if (counters) {
        counters[index] += frames;
    }
}

static __always_inline __u32 sp_port_of_device(const struct net_device *device)
{
    __u32 ifindex = device->ifindex;

#pragma clang loop unroll(disable)
    for (__u32 probe = 0; probe < SP_PORT_PROBES; probe++) {
        sp_u64 entry = *(volatile sp_u64 *)&fixed.port_of_ifindex[(ifindex + probe) & (SP_PORT_SLOTS - 1)];
        if (entry >> 32 == ifindex) {
            return entry & (SP_PORTS - 1);
        }
    }
    return 0;
}

/* device, program, target, error, type and id of the map, key in it: the port */
SEC("tp_btf/xdp_redirect_err")
int redirect_lost(unsigned long long *context)
{
    if ((__u32)context[5] == ports_map_id) {
        sp_count_loss((__u32)context[6], (int)context[3], 1);
    }
    return 0;
}

/* from device, to device, frames sent, frames dropped, error */
SEC("tp_btf/xdp_devmap_xmit")
int queue_lost(unsigned long long *context)
{
    __u32 first = 0, port;
    int dropped = (int)context[3];

    if (dropped <= 0) {
        return 0;
    }
    __u64 *owner = bpf_map_lookup_elem(&map_losses_owner, &first);
    if (!owner || *owner != ports_map_id || !sp_port_of_device((const struct net_device *)context[0])) {
        return 0;
    }
    port = sp_port_of_device((const struct net_device *)context[1]);
    if (port) {
        sp_count_loss(port, (int)context[4], dropped);
    }
    return 0;
}
