/* SPDX-License-Identifier: Apache-2.0
 *
 * What the BPF program and its loader agree on beyond layout.h.
 */
#ifndef SPLITPLANE_XDP_SHARED_H
#define SPLITPLANE_XDP_SHARED_H

#include "pipeline/layout.h"

/* Members are too short for a map element, which is rounded up to 8 octets: a cache line's worth of them is one. So an
 * array of them has no gaps. */
#define SP_MEMBERS_TOGETHER 32u
#define SP_MEMBERS_OCTETS (SP_MEMBERS_TOGETHER * 2u)

/* Which port an interface is: open addressing by the low bits of ifindex, at most SP_PORT_PROBES steps away. An entry
 * is ifindex << 32 | SP_PORT_OF_BOND | port; 0 is free. */
#define SP_PORT_SLOTS 4096u
#define SP_PORT_PROBES 8u
/* A bond or a member of it: LACP is its host's. */
#define SP_PORT_OF_BOND (1u << 31)

struct sp_fixed {
    sp_u64 macs[SP_INTERFACES];
    sp_u64 roots[SP_FAMILIES][SP_VRFS];
    sp_u64 nexthops[SP_NEXTHOPS];
    struct sp_egress egresses[SP_INTERFACES];
    struct sp_interface interfaces[SP_INTERFACES];
    struct sp_vrf vrfs[SP_VRFS];
    struct sp_share router_shares[SP_VRFS];
    struct sp_share slice_shares[SP_SLICES];
    sp_u64 link_modes[SP_PORTS];
    sp_u32 link_slots[SP_INTERFACES];
    struct sp_sampling sampling;
    sp_u64 hash_seed;
    sp_u64 ports_down[SP_PORTS / 64];
    sp_u64 namespace_inode; /* of the network namespace that the ports are in (carrier.bpf.c) */
    sp_u64 groups[SP_GROUPS];
    sp_u64 port_of_ifindex[SP_PORT_SLOTS];
} __attribute__((aligned(64)));

/* A punted packet, or a sample, in the ring buffer; the frame follows, untagged, `length` octets of the room that was reserved. */
struct sp_punt_record {
    sp_u32 router_interface_id;
    sp_u32 length;
    sp_u8 reason;
    sp_u8 punt_class;
    sp_u16 router;    /* the slot of its VRF */
    sp_u16 interface; /* that of the router interface */
    sp_u8 reserved[2];
};

/* The ring takes records of fixed sizes only: the frame's room in each of them, octets. A frame that is longer than the
 * last is not punted, and counted as SP_COUNT_TOO_LONG. */
#define SP_PUNT_SHORT 256u
SP_STATIC_ASSERT(SP_PUNT_SHORT >= SP_SAMPLE_OCTETS, "a sample fits the shortest record");
#define SP_PUNT_MIDDLE 2048u
#define SP_PUNT_LONG 16384u
#define SP_PUNT_RING_OCTETS (8u << 20)

/* A class finds no room in the ring once so much of it is full, in eighths: the most urgent may fill it, and each of the
 * next leaves an eighth to those before it. So a flood of what is less urgent keeps nothing of them out. Samples, which
 * nobody misses, have a quarter. */
#define SP_RING_EIGHTHS(punt_class) ((punt_class) <= SP_CLASS_ARP ? 8 - (punt_class) : 4)
#define SP_RING_EIGHTHS_OF_SAMPLES 2

#endif
