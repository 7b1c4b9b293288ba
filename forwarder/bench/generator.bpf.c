// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
//
// Programs for bench/peers, bench/hostile and bench/fairness: one makes packets, one repeats frames that it was given,
// one only redirects them, one counts and drops what the first has made; one makes packets of many routers, at a rate
// that changes with time, one counts these by router and by when they were sent, and how long they were under way, and
// one makes sending cost more than it does.
//
// `generate`, `offer` and `flood` run on frames of BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES. The kernel recycles
// these frames and whoever got one may have changed it, so every header is written each time. They keep to a rate by
// leaving turns out: a turn before its time returns XDP_DROP, which gives the frame back at once.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bench/generator.h"

char LICENSE[] SEC("license") = "GPL"; // which the kernel asks of programs that look into its structures

// Of the kernel's structures what is read here; libbpf looks up where that is.
#define KERNEL __attribute__((preserve_access_index))
struct ns_common {
    unsigned int inum;
} KERNEL;
struct net {
    struct ns_common ns;
} KERNEL;
typedef struct {
    struct net *net;
} possible_net_t;
struct net_device {
    int ifindex;
    possible_net_t nd_net;
} KERNEL;

struct tag {
    __be16 tci;
    __be16 ether_type;
};

// What follows the UDP header of a packet that is offered.
struct stamp {
    __u64 sent_ns;
    __u16 window;
} __attribute__((packed));

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, GENERATOR_ENTRANCES);
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
struct generator_phase phases[GENERATOR_PHASES];
__u32 windows[GENERATOR_WINDOWS * GENERATOR_ROUTERS]; // packets sent, or received
__u32 waits[GENERATOR_ROUTERS * GENERATOR_WAITS];     // packets received

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

// Write a packet to a destination; returns the end of its headers, NULL where they and the stamp have no room.
static __always_inline void *write_packet(struct xdp_md *context, const struct generator_destination *destination)
{
    void *data = (void *)(long)context->data;
    void *end = (void *)(long)context->data_end;
    if (data + sizeof(struct ethhdr) + sizeof(struct tag) + sizeof(struct iphdr) + sizeof(struct udphdr) +
            sizeof(struct stamp) > end)
        return NULL;
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
    return udp + 1;
}

SEC("xdp")
int generate(struct xdp_md *context)
{
    if (!due())
        return XDP_DROP;
    // Their order is random already; to jump about in them would only take cache from the forwarder.
    __u32 index = state.next++ & settings.mask & (GENERATOR_DESTINATIONS - 1);
    struct generator_destination *destination = bpf_map_lookup_elem(&destinations, &index);
    if (!destination || !write_packet(context, destination))
        return XDP_ABORTED;
    state.sent++;
    return (int)bpf_redirect_map(&out, 0, 0);
}

static __always_inline void move_window(__u64 now_ns)
{
    if (now_ns < state.window_end_ns)
        return;
    __u64 passed = (now_ns - state.window_end_ns) / GENERATOR_WINDOW_NS + 1;
    state.window += (__u32)passed;
    state.window_end_ns += passed * GENERATOR_WINDOW_NS;
}

static __always_inline void count(__u32 window, __u32 vlan)
{
    if (window < GENERATOR_WINDOWS)
        windows[(window & (GENERATOR_WINDOWS - 1)) * GENERATOR_ROUTERS + (vlan & (GENERATOR_ROUTERS - 1))]++;
}

// As due(), in the phase of this time; nothing before the first of them and after the last.
static __always_inline int offered(struct generator_phase **current, __u64 now_ns)
{
    struct generator_phase *phase = &phases[state.phase & (GENERATOR_PHASES - 1)];
    if (now_ns < settings.begin_ns)
        return 0;
    if (now_ns >= phase->until_ns) {
        if (state.phase + 1 >= settings.phases)
            return 0;
        state.phase++;
        phase = &phases[state.phase & (GENERATOR_PHASES - 1)];
        state.due = now_ns << 10;
    }
    *current = phase;
    if (phase->interval == 0)
        return 1;
    __u64 now = now_ns << 10, latest = now - GENERATOR_BURST * phase->interval;
    if (now < state.due)
        return 0;
    if (state.due < latest)
        state.due = latest;
    state.due += phase->interval;
    return 1;
}

SEC("xdp")
int offer(struct xdp_md *context)
{
    struct generator_phase *phase;
    __u64 now_ns = bpf_ktime_get_ns();
    if (!offered(&phase, now_ns))
        return XDP_DROP;
    __u32 index = (phase->first + (state.next++ & phase->mask)) & (GENERATOR_DESTINATIONS - 1);
    struct generator_destination *destination = bpf_map_lookup_elem(&destinations, &index);
    if (!destination)
        return XDP_ABORTED;
    struct stamp *stamp = write_packet(context, destination);
    if (!stamp)
        return XDP_ABORTED;
    move_window(now_ns);
    stamp->sent_ns = now_ns;
    stamp->window = (__u16)state.window;
    count(state.window, destination->vlan);
    state.sent++;
    return (int)bpf_redirect_map(&out, destination->entrance & (GENERATOR_ENTRANCES - 1), 0);
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

// Return the IPv4 header of a packet of the generator, and its VLAN; NULL where it is not one: a question for the
// receiver's MAC, for one.
static __always_inline struct iphdr *own_packet(struct xdp_md *context, __u32 *vlan)
{
    void *data = (void *)(long)context->data;
    void *end = (void *)(long)context->data_end;
    struct ethhdr *ethernet = data;
    struct tag *tag = (void *)(ethernet + 1);
    struct iphdr *ip = (void *)tag;
    *vlan = 0;
    if ((void *)(tag + 1) > end)
        return NULL;
    if (ethernet->h_proto == bpf_htons(ETH_P_8021Q)) {
        *vlan = bpf_ntohs(tag->tci) & 0xfff;
        ip = (void *)(tag + 1);
    }
    struct udphdr *udp = (void *)(ip + 1);
    if ((void *)(udp + 1) + sizeof(struct stamp) > end || ip->protocol != IPPROTO_UDP ||
        udp->dest != bpf_htons(GENERATOR_PORT))
        return NULL;
    return ip;
}

SEC("xdp")
int receive(struct xdp_md *context)
{
    __u32 zero = 0, vlan;
    struct generator_count *count = bpf_map_lookup_elem(&counts, &zero);
    struct iphdr *ip = own_packet(context, &vlan);
    if (!count || !ip)
        return XDP_PASS;
    count->packets++;
    if (ip->ttl == GENERATOR_TTL - 1)
        count->routed++;
    return XDP_DROP;
}

SEC("xdp")
int observe(struct xdp_md *context)
{
    __u32 vlan;
    struct iphdr *ip = own_packet(context, &vlan);
    if (!ip)
        return XDP_PASS;
    struct stamp *stamp = (void *)(ip + 1) + sizeof(struct udphdr);
    if ((void *)(stamp + 1) > (void *)(long)context->data_end || ip->ttl != GENERATOR_TTL - 1)
        return XDP_DROP;
    count(stamp->window, vlan);
    if (stamp->sent_ns >= settings.measured_ns) {
        __u64 wait = (bpf_ktime_get_ns() - stamp->sent_ns) >> 10;
        if (wait > GENERATOR_WAITS - 1)
            wait = GENERATOR_WAITS - 1;
        waits[(vlan & (GENERATOR_ROUTERS - 1)) * GENERATOR_WAITS + (wait & (GENERATOR_WAITS - 1))]++;
    }
    return XDP_DROP;
}

static long step(__u32 number, void *nothing)
{
    (void)number;
    (void)nothing;
    return 0;
}

// from device, to device, frames sent, frames dropped, error; once for all frames of a queue, in the poll that
// redirected them, as a driver's own work would be
SEC("tp_btf/xdp_devmap_xmit")
int slow(unsigned long long *context)
{
    const struct net_device *device = (const struct net_device *)context[1];
    if (settings.steps == 0 || (__u32)device->ifindex != settings.slowed ||
        device->nd_net.net->ns.inum != settings.namespace_inode)
        return 0;
    __u32 sent = (__u32)context[2] & 63; // of a queue: 16 at most
    bpf_loop(sent * settings.steps, step, NULL, 0);
    return 0;
}
