// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
//
// Programs for bench/peers and bench/hostile: one makes packets, one repeats frames that it was given, one only
// redirects them, one counts and drops what the first has made.
//
// `generate` and `flood` run on frames of BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES. The kernel recycles these
// frames and whoever got one may have changed it, so every header is written each time. They keep to a rate by leaving
// turns out: a turn before its time returns XDP_DROP, which gives the frame back at once.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bench/generator.h"

char LICENSE[] SEC("license") = "Apache-2.0";

struct tag {
    __be16 tci;
    __be16 ether_type;
};

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} out SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, GENERATOR_DESTINATIONS);
    __type(key, __u32);
    __type(value, struct generator_destination);
} destinations SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, GENERATOR_FRAMES);
    __type(key, __u32);
    __type(value, struct generator_frame);
} frames SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct generator_count);
} counts SEC(".maps");

struct generator_settings settings;
struct generator_state state;

// Whether this turn sends, when frames are due every `interval` 1024ths of a nanosecond. What was missed while the
// generator did not run is made up for in bursts of `GENERATOR_BURST` at most, and else left out.
static __always_inline int due(void)
{
    if (settings.interval == 0)
        return 1;
    __u64 now_ns = bpf_ktime_get_ns(), now = now_ns << 10;
    if (now < state.due)
        return 0;
    if (state.sent == 0)
        state.first_ns = now_ns;
    state.last_ns = now_ns;
    __u64 latest = now - GENERATOR_BURST * settings.interval;
    if (state.due < latest)
        state.due = latest;
    state.due += settings.interval;
    return 1;
}

SEC("xdp")
int generate(struct xdp_md *context)
{
    void *data = (void *)(long)context->data;
    void *end = (void *)(long)context->data_end;
    if (data + sizeof(struct ethhdr) + sizeof(struct tag) + sizeof(struct iphdr) + sizeof(struct udphdr) > end)
        return XDP_ABORTED;
    if (!due())
        return XDP_DROP;
    // Their order is random already; to jump about in them would only take cache from the forwarder.
    __u32 index = state.next++ & settings.mask & (GENERATOR_DESTINATIONS - 1);
    struct generator_destination *destination = bpf_map_lookup_elem(&destinations, &index);
    if (!destination)
        return XDP_ABORTED;

    struct ethhdr *ethernet = data;
    __builtin_memcpy(ethernet->h_dest, settings.target, ETH_ALEN);
    __builtin_memcpy(ethernet->h_source, settings.source, ETH_ALEN);
    void *next = ethernet + 1;
    __u32 header = sizeof(*ethernet);
    if (destination->vlan) {
        struct tag *tag = next;
        ethernet->h_proto = bpf_htons(ETH_P_8021Q);
        tag->tci = bpf_htons(destination->vlan);
        tag->ether_type = bpf_htons(ETH_P_IP);
        next = tag + 1;
        header += sizeof(*tag);
    } else {
        ethernet->h_proto = bpf_htons(ETH_P_IP);
    }
    struct iphdr *ip = next;
    __u16 length = (__u16)(settings.length - header);
    ip->version = 4;
    ip->ihl = 5;
    ip->tos = 0;
    ip->tot_len = bpf_htons(length);
    ip->id = 0;
    ip->frag_off = 0;
    ip->ttl = GENERATOR_TTL;
    ip->protocol = IPPROTO_UDP;
    ip->saddr = settings.source_address;
    ip->daddr = destination->address;
    // RFC 1071; all but these is the same in each packet.
    __u32 sum = settings.sum + ip->tot_len + (destination->address & 0xffff) + (destination->address >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    ip->check = (__u16)~sum;
    struct udphdr *udp = (void *)(ip + 1);
    udp->source = bpf_htons(GENERATOR_PORT);
    udp->dest = bpf_htons(GENERATOR_PORT);
    udp->len = bpf_htons((__u16)(length - sizeof(*ip)));
    udp->check = 0;
    state.sent++;
    return (int)bpf_redirect_map(&out, 0, 0);
}

SEC("xdp")
int flood(struct xdp_md *context)
{
    if (!due())
        return XDP_DROP;
    __u32 index = state.next++ & settings.mask & (GENERATOR_FRAMES - 1), head = settings.length;
    struct generator_frame *frame = bpf_map_lookup_elem(&frames, &index);
    if (head > GENERATOR_HEAD)
        head = GENERATOR_HEAD;
    if (!frame || head == 0 || bpf_xdp_store_bytes(context, 0, frame->head, head))
        return XDP_ABORTED;
    state.sent++;
    return (int)bpf_redirect_map(&out, 0, 0);
}

SEC("xdp")
int redirect(struct xdp_md *context)
{
    (void)context;
    return (int)bpf_redirect_map(&out, 0, 0);
}

SEC("xdp")
int receive(struct xdp_md *context)
{
    __u32 zero = 0;
    struct generator_count *count = bpf_map_lookup_elem(&counts, &zero);
    void *data = (void *)(long)context->data;
    void *end = (void *)(long)context->data_end;
    struct ethhdr *ethernet = data;
    struct iphdr *ip = (void *)(ethernet + 1);
    if (!count || (void *)(ethernet + 1) > end)
        return XDP_DROP;
    if (ethernet->h_proto == bpf_htons(ETH_P_8021Q))
        ip = (void *)ip + sizeof(struct tag);
    struct udphdr *udp = (void *)(ip + 1);
    if ((void *)(udp + 1) > end || ip->protocol != IPPROTO_UDP || udp->dest != bpf_htons(GENERATOR_PORT))
        return XDP_PASS; // not of the generator: a question for the receiver's MAC, for one
    count->packets++;
    if (ip->ttl == GENERATOR_TTL - 1)
        count->routed++;
    return XDP_DROP;
}
