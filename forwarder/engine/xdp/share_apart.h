/* SPDX-License-Identifier: Apache-2.0
 *
 * What share.h does for few packets, in functions that the kernel's verifier takes by themselves: what they come to is a
 * number that it knows nothing of, so that it goes on from there once and not for each of their ways. So it needs a
 * quarter of the steps.
 *
 * Only the BPF build includes this file.
 */
#ifndef SPLITPLANE_XDP_SHARE_APART_H
#define SPLITPLANE_XDP_SHARE_APART_H

#include "pipeline/share.h"

#define SP_APART __attribute__((noinline)) /* and global: static ones are gone through with each call */

SP_APART int sp_begin_of(sp_u32 cpu, sp_u32 vrf)
{
    struct sp_packet nothing = {0}; /* it has the clock, which asks no packet */

    sp_share_begin((sp_tables)0, &nothing, cpu, vrf);
    return 0;
}

SP_APART int sp_due_of(sp_u32 cpu, sp_u32 vrf)
{
    return (int)sp_share_over_now((sp_tables)0, cpu, vrf);
}

/* Two, because the stack of the one that calls them leaves 96 octets to each. */
static inline sp_u32 sp_share_due_apart(sp_tables tables, const struct sp_packet *packet, sp_u32 cpu, sp_u32 vrf)
{
    sp_begin_of(cpu, vrf);
    return (sp_u32)sp_due_of(cpu, vrf);
}

/* Numbers are all that may be handed over. */
SP_APART int sp_over_of(struct xdp_md *context, sp_u64 whose, sp_u64 link, sp_u64 packet_of, sp_u32 reason)
{
    struct sp_packet packet = {.engine = context};
    struct sp_meta meta = {
        .cpu = (sp_u32)whose,
        .vrf = whose >> 32 & (SP_VRFS - 1),
        .interface = whose >> 48 & (SP_INTERFACES - 1),
        .ether_type = link & 0xffff,
        .l2_octets = link >> 16 & 31,
        .keep_ttl = link >> 32 & 1,
        .l3_length = (sp_u32)packet_of,
        .ttl = packet_of >> 32 & 0xff,
        .protocol = packet_of >> 40 & 0xff,
        .exception = packet_of >> 48 & 0xff,
        .is_ipv6 = packet_of >> 56 & 1,
    };

    sp_take_bounds(&packet);
    return (int)sp_share_over((sp_tables)0, &packet, &meta, reason);
}

SP_INLINE sp_u32 sp_share_over_apart(sp_tables tables, const struct sp_packet *packet, const struct sp_meta *meta,
                                     sp_u32 reason)
{
    return (sp_u32)sp_over_of(packet->engine, meta->cpu | (sp_u64)meta->vrf << 32 | (sp_u64)meta->interface << 48,
                              meta->ether_type | meta->l2_octets << 16 | (sp_u64)meta->keep_ttl << 32,
                               meta->l3_length | (sp_u64)meta->ttl << 32 | (sp_u64)meta->protocol << 40 |
                                   (sp_u64)meta->exception << 48 | (sp_u64)meta->is_ipv6 << 56,
                               reason);
}

SP_APART int sp_miss_of(sp_u32 cpu, sp_u32 vrf, sp_u32 interface, sp_u32 punt_class)
{
    sp_share_miss((sp_tables)0, cpu, vrf, interface, punt_class);
    return 0;
}

static inline void sp_share_miss_apart(sp_tables tables, sp_u32 cpu, sp_u32 vrf, sp_u32 interface, sp_u32 punt_class)
{
    sp_miss_of(cpu, vrf, interface, punt_class);
}

#endif
