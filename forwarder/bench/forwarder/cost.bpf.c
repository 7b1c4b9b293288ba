/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that are run over and over on one packet, each time with the next of the prepared destinations:
 *
 *     next_arrival         only writes that into the packet; what it costs is part of each of the others
 *     redirect_only        swaps the MACs and redirects: the limit
 *     kernel_lookup        forwards by bpf_fib_lookup(), as the kernel's own sample does
 *     whole_pipeline       ours
 */
#include <linux/if_ether.h>
#include <linux/ip.h>

#include "bench/forwarder/arrival.h"
#include "engine/xdp/run.h"

/* The kernel lends bpf_fib_lookup() only to programs that say this; nothing of it is distributed. */
char sp_license[] SEC("license") = "GPL";

SP_ARRAY(bench_arrivals, ARRIVALS, sizeof(struct arrival));
SP_ARRAY(bench_state, 1, 2 * sizeof(sp_u64)); /* the next arrival, ifindex of the kernel's side */

#define L2_OCTETS (SP_ETHERNET_OCTETS + SP_TAG_OCTETS)
#define AF_INET 2

static inline sp_u64 *state(void)
{
    sp_u32 zero = 0;

    return bpf_map_lookup_elem(&bench_state, &zero);
}

/* Makes a fresh packet of what the last run has left; returns the port it came in by, 0 where there is none. */
static inline sp_u32 arrive(struct xdp_md *context)
{
    sp_u8 *data = (sp_u8 *)(long)context->data, *end = (sp_u8 *)(long)context->data_end;
    sp_u64 *next = state();

    if (!next || data + L2_OCTETS + SP_IPV4_OCTETS > end) {
        return 0;
    }
    sp_u32 index = (*next)++ & (ARRIVALS - 1);
    const struct arrival *arrival = bpf_map_lookup_elem(&bench_arrivals, &index);
    if (!arrival) {
        return 0;
    }
    sp_put64(data, BENCH_OWN_MAC << 16);
    sp_put16(data + 14, arrival->tag & ((1 << ARRIVAL_VLAN_BITS) - 1));
    data[L2_OCTETS + 8] = BENCH_TTL;
    *(sp_u16 *)(data + L2_OCTETS + 10) = arrival->checksum;
    *(sp_u32 *)(data + L2_OCTETS + 16) = arrival->dst;
    return arrival->tag >> ARRIVAL_VLAN_BITS;
}

SEC("xdp")
int next_arrival(struct xdp_md *context) { return arrive(context) ? XDP_REDIRECT : XDP_ABORTED; }

SEC("xdp")
int redirect_only(struct xdp_md *context)
{
    sp_u32 port = arrive(context);
    sp_u8 *data = (sp_u8 *)(long)context->data, *end = (sp_u8 *)(long)context->data_end;

    if (data + SP_ETHERNET_OCTETS > end) {
        return XDP_ABORTED;
    }
    sp_u64 dst = sp_get64(data) >> 16, src = sp_get64(data + 4) & SP_MAC_MASK;
    sp_put64(data, src << 16 | dst >> 32);
    sp_put32(data + 8, (sp_u32)dst);
    return bpf_redirect_map(&map_ports, port, 0);
}

SEC("xdp")
int kernel_lookup(struct xdp_md *context)
{
    sp_u32 port = arrive(context);
    sp_u64 *known = state();
    sp_u8 *data = (sp_u8 *)(long)context->data, *end = (sp_u8 *)(long)context->data_end;
    struct iphdr *header = (struct iphdr *)(data + L2_OCTETS);
    struct bpf_fib_lookup lookup = {};

    if (!known || data + L2_OCTETS + SP_IPV4_OCTETS > end || sp_get16(data + 12) != SP_ETHERTYPE_VLAN ||
        sp_get16(data + 16) != SP_ETHERTYPE_IPV4 || header->ttl <= 1) {
        return XDP_ABORTED;
    }
    lookup.family = AF_INET;
    lookup.tos = header->tos;
    lookup.l4_protocol = header->protocol;
    lookup.tot_len = sp_swap16(header->tot_len);
    lookup.ipv4_src = header->saddr;
    lookup.ipv4_dst = header->daddr;
    lookup.ifindex = known[1];
    if (bpf_fib_lookup(context, &lookup, sizeof lookup, 0) != BPF_FIB_LKUP_RET_SUCCESS) {
        return XDP_ABORTED;
    }
    sp_u32 checksum = sp_get16((sp_u8 *)&header->check);
    header->ttl--;
    sp_put16((sp_u8 *)&header->check, checksum + (checksum >= 0xfeff ? 0x0101 : 0x0100));
    __builtin_memcpy(data, lookup.dmac, ETH_ALEN);
    __builtin_memcpy(data + ETH_ALEN, lookup.smac, ETH_ALEN);
    return bpf_redirect_map(&map_ports, port, 0);
}

SEC("xdp")
int whole_pipeline(struct xdp_md *context)
{
    return sp_run(context, arrive(context));
}
