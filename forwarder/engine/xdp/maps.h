/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays of layout.h as BPF maps that the daemon writes through mmap(2).
 *
 * What has a fixed size lies in one map of one element, `fixed`: the program then reads it by address, without a
 * look-up, as it does a global variable. What is sized at start, or is too long for one element (4 MiB on kernel 6.1),
 * is an array map; the kernel inlines its look-up. Counters are array maps with one element for each CPU, so that they
 * may be kept (pinned) when the others are made anew.
 *
 * Only the BPF build includes this file.
 */
#ifndef SPLITPLANE_XDP_MAPS_H
#define SPLITPLANE_XDP_MAPS_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "engine/xdp/shared.h"
#include "pipeline/access.h"

typedef sp_u32 sp_tables; /* there is one set of maps for each loaded program: always 0 */

struct sp_fixed fixed SEC(".bss");

#define SP_ARRAY(name, entries, octets)       \
    struct {                                  \
        __uint(type, BPF_MAP_TYPE_ARRAY);     \
        __uint(map_flags, BPF_F_MMAPABLE);    \
        __uint(max_entries, entries);         \
        __uint(key_size, 4);                  \
        __uint(value_size, octets);           \
    } name SEC(".maps")

SP_ARRAY(map_classifier, SP_PORTS, SP_VLANS * sizeof(sp_u64));
/* Only punts are policed, so the look-ups cost no other packet, and all of these are too long for `fixed`. */
SP_ARRAY(map_policers, SP_VRFS, SP_CLASS_SLOTS * sizeof(struct sp_policer));
SP_ARRAY(map_shares, SP_INTERFACES, SP_CLASS_SLOTS * sizeof(sp_u64));
SP_ARRAY(map_punt_drops, SP_INTERFACES, SP_PLACES * SP_CLASS_SLOTS * sizeof(sp_u64));
/* Links: asked only of ports whose speed is shared, the first three only while it is scarce. */
SP_ARRAY(map_links, SP_PORTS, sizeof(struct sp_link));
SP_ARRAY(map_link_slices, SP_LINK_SLICES, sizeof(struct sp_link_slice));
SP_ARRAY(map_link_routers, SP_LINK_ROUTERS, sizeof(struct sp_link_router));
/* max_entries: Capacity */
SP_ARRAY(map_words, 1, SP_WORDS_CHUNK * sizeof(sp_u32));
SP_ARRAY(map_members, 1, SP_MEMBERS_OCTETS);
/* max_entries: CPUs */
SP_ARRAY(map_rx, 1, SP_INTERFACES * sizeof(struct sp_counter));
SP_ARRAY(map_tx, 1, SP_INTERFACES * sizeof(struct sp_counter));
SP_ARRAY(map_reasons, 1, SP_VRFS * SP_REASONS * sizeof(struct sp_counter));
SP_ARRAY(map_engine, 1, SP_ENGINE_COUNTERS * sizeof(sp_u64));
SP_ARRAY(map_cores, 1, sizeof(struct sp_core));
SP_ARRAY(map_core_routers, 1, SP_VRFS * sizeof(struct sp_core_router));
SP_ARRAY(map_core_slices, 1, SP_SLICES * sizeof(struct sp_core_slice));
SP_ARRAY(map_link_credits, 1, SP_PORTS * sizeof(struct sp_link_credit));

/* Keeps the compiler from moving work from one side of this to the other: it would add to a look-up's pointer before
 * the null check, which the verifier refuses. */
#define SP_CHECKED(value) __asm__ volatile("" : "+r"(value))
/* The same of a pointer, which the compiler then need not be told again is not NULL. */
#define SP_FOUND(pointer)            \
    do {                             \
        SP_CHECKED(pointer);         \
        if (!(pointer)) {            \
            __builtin_unreachable(); \
        }                            \
    } while (0)

static inline const sp_u64 *sp_classifier_at(sp_tables tables, sp_u32 port, sp_u32 vlan)
{
    const sp_u64 *row = bpf_map_lookup_elem(&map_classifier, &port);

    if (!row) {
        return 0;
    }
    SP_FOUND(row);
    return row + sp_bounded(vlan, SP_VLANS - 1);
}
static inline const sp_u64 *sp_mac_at(sp_tables tables, sp_u32 slot)
{
    return fixed.macs + (slot & (SP_INTERFACES - 1));
}
static inline const struct sp_egress *sp_egress_at(sp_tables tables, sp_u32 slot)
{
    return fixed.egresses + (slot & (SP_INTERFACES - 1));
}
static inline const struct sp_interface *sp_interface_at(sp_tables tables, sp_u32 slot)
{
    return fixed.interfaces + (slot & (SP_INTERFACES - 1));
}
static inline const sp_u64 *sp_root_at(sp_tables tables, sp_u32 family, sp_u32 slot)
{
    return fixed.roots[family] + (slot & (SP_VRFS - 1));
}
static inline const struct sp_vrf *sp_vrf_at(sp_tables tables, sp_u32 slot)
{
    return fixed.vrfs + (slot & (SP_VRFS - 1));
}
static inline const sp_u32 *sp_words_at(sp_tables tables, sp_u32 index)
{
    sp_u32 chunk = index / SP_WORDS_CHUNK;
    sp_u64 offset = index % SP_WORDS_CHUNK;
    const sp_u32 *words = bpf_map_lookup_elem(&map_words, &chunk);

    SP_CHECKED(offset); /* what is compared is what is added */
    if (!words || offset > SP_WORDS_CHUNK - SP_WORDS_SPAN) {
        return 0;
    }
    SP_FOUND(words);
    return words + offset;
}
static inline const sp_u32 *sp_bucket_at(sp_tables tables, sp_u32 index)
{
    const sp_u32 together = SP_WORDS_CHUNK / SP_BUCKET_WORDS;
    sp_u32 chunk = index / together;
    const sp_u32 *words = bpf_map_lookup_elem(&map_words, &chunk);

    if (!words) {
        return 0;
    }
    SP_FOUND(words);
    return words + sp_bounded(index % together, together - 1) * SP_BUCKET_WORDS;
}
static inline const sp_u64 *sp_group_at(sp_tables tables, sp_u32 slot)
{
    return fixed.groups + (slot & (SP_GROUPS - 1));
}
static inline const sp_u16 *sp_member_at(sp_tables tables, sp_u32 index)
{
    sp_u32 line = index / SP_MEMBERS_TOGETHER;
    const sp_u16 *members = bpf_map_lookup_elem(&map_members, &line);

    if (!members) {
        return 0;
    }
    SP_FOUND(members);
    return members + (index & (SP_MEMBERS_TOGETHER - 1));
}
static inline const sp_u64 *sp_nexthop_at(sp_tables tables, sp_u32 slot)
{
    return fixed.nexthops + (slot & (SP_NEXTHOPS - 1));
}
static inline struct sp_policer *sp_policer_at(sp_tables tables, sp_u32 vrf, sp_u32 punt_class)
{
    struct sp_policer *policers = bpf_map_lookup_elem(&map_policers, &vrf);

    if (!policers) {
        return 0;
    }
    SP_FOUND(policers);
    return policers + sp_bounded(punt_class, SP_CLASS_SLOTS - 1);
}
static inline sp_u64 *sp_share_due_at(sp_tables tables, sp_u32 interface, sp_u32 punt_class)
{
    sp_u64 *dues = bpf_map_lookup_elem(&map_shares, &interface);

    if (!dues) {
        return 0;
    }
    SP_FOUND(dues);
    return dues + sp_bounded(punt_class, SP_CLASS_SLOTS - 1);
}
static inline sp_u64 *sp_punt_drop_at(sp_tables tables, sp_u32 interface, sp_u32 place, sp_u32 punt_class)
{
    sp_u64 *drops = bpf_map_lookup_elem(&map_punt_drops, &interface);

    if (!drops) {
        return 0;
    }
    SP_FOUND(drops);
    return drops + sp_punt_drop_index(0, place, sp_bounded(punt_class, SP_CLASS_SLOTS - 1));
}
static inline sp_u64 *sp_link_mode_at(sp_tables tables, sp_u32 port)
{
    return fixed.link_modes + (port & (SP_PORTS - 1));
}
static inline const sp_u32 *sp_link_slot_at(sp_tables tables, sp_u32 interface)
{
    return fixed.link_slots + (interface & (SP_INTERFACES - 1));
}
static inline struct sp_link *sp_link_at(sp_tables tables, sp_u32 port)
{
    return bpf_map_lookup_elem(&map_links, &port);
}
static inline struct sp_link_slice *sp_link_slice_at(sp_tables tables, sp_u32 slot)
{
    return bpf_map_lookup_elem(&map_link_slices, &slot);
}
static inline struct sp_link_router *sp_link_router_at(sp_tables tables, sp_u32 slot)
{
    return bpf_map_lookup_elem(&map_link_routers, &slot);
}
static inline struct sp_link_credit *sp_link_credit_at(sp_tables tables, sp_u32 cpu, sp_u32 port)
{
    struct sp_link_credit *credits = bpf_map_lookup_elem(&map_link_credits, &cpu);

    if (!credits) {
        return 0;
    }
    SP_FOUND(credits);
    return credits + (port & (SP_PORTS - 1));
}
static inline struct sp_sampling *sp_sampling_at(sp_tables tables) { return &fixed.sampling; }
static inline const sp_u64 *sp_ports_down_at(sp_tables tables, sp_u32 port)
{
    return fixed.ports_down + (port / 64 & (SP_PORTS / 64 - 1));
}
static inline const sp_u64 *sp_hash_seed_at(sp_tables tables) { return &fixed.hash_seed; }
static inline struct sp_counter *sp_rx_at(sp_tables tables, sp_u32 cpu, sp_u32 slot)
{
    struct sp_counter *counters = bpf_map_lookup_elem(&map_rx, &cpu);

    if (!counters) {
        return 0;
    }
    SP_FOUND(counters);
    return counters + (slot & (SP_INTERFACES - 1));
}
static inline struct sp_counter *sp_tx_at(sp_tables tables, sp_u32 cpu, sp_u32 slot)
{
    struct sp_counter *counters = bpf_map_lookup_elem(&map_tx, &cpu);

    if (!counters) {
        return 0;
    }
    SP_FOUND(counters);
    return counters + (slot & (SP_INTERFACES - 1));
}
static inline struct sp_counter *sp_reason_at(sp_tables tables, sp_u32 cpu, sp_u32 vrf, sp_u32 reason_index)
{
    struct sp_counter *counters = bpf_map_lookup_elem(&map_reasons, &cpu);

    if (!counters || reason_index >= SP_REASONS) {
        return 0;
    }
    SP_FOUND(counters);
    return counters + ((vrf & (SP_VRFS - 1)) * SP_REASONS + reason_index);
}
static inline sp_u64 *sp_engine_counter_at(sp_tables tables, sp_u32 cpu, sp_u32 counter)
{
    sp_u64 *counters = bpf_map_lookup_elem(&map_engine, &cpu);

    if (!counters) {
        return 0;
    }
    SP_FOUND(counters);
    return counters + (counter & (SP_ENGINE_COUNTERS - 1));
}
static inline struct sp_core *sp_core_at(sp_tables tables, sp_u32 cpu) { return bpf_map_lookup_elem(&map_cores, &cpu); }
static inline struct sp_core_router *sp_core_router_at(sp_tables tables, sp_u32 cpu, sp_u32 vrf)
{
    struct sp_core_router *routers = bpf_map_lookup_elem(&map_core_routers, &cpu);

    if (!routers) {
        return 0;
    }
    SP_FOUND(routers);
    return routers + (vrf & (SP_VRFS - 1));
}
static inline struct sp_core_slice *sp_core_slice_at(sp_tables tables, sp_u32 cpu, sp_u32 slice)
{
    struct sp_core_slice *slices = bpf_map_lookup_elem(&map_core_slices, &cpu);

    if (!slices) {
        return 0;
    }
    SP_FOUND(slices);
    return slices + (slice & (SP_SLICES - 1));
}
static inline const struct sp_share *sp_router_share_at(sp_tables tables, sp_u32 vrf)
{
    return fixed.router_shares + (vrf & (SP_VRFS - 1));
}
static inline const struct sp_share *sp_slice_share_at(sp_tables tables, sp_u32 slice)
{
    return fixed.slice_shares + (slice & (SP_SLICES - 1));
}

#endif
