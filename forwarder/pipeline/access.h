/* SPDX-License-Identifier: Apache-2.0
 *
 * How the pipeline reaches its tables: array elements by slot. Those that return a pointer return NULL where a slot is
 * out of range, which only the BPF build can come to (its verifier wants to see the check); the native build trusts the
 * writer. What an engine's maps hold in one piece comes back as a pointer that is never NULL.
 *
 * A word that another thread may store meanwhile is loaded once, by sp_load_word() or sp_load_long(), and then used.
 */
#ifndef SPLITPLANE_ACCESS_H
#define SPLITPLANE_ACCESS_H

#include "pipeline/layout.h"

/* The compiler neither tears nor repeats these loads; what a loaded index leads to is ordered by that dependency. */
static inline sp_u32 sp_load_word(const sp_u32 *at) { return *(const volatile sp_u32 *)at; }
static inline sp_u64 sp_load_long(const sp_u64 *at) { return *(const volatile sp_u64 *)at; }

/* What ordinary packets are: the compiler puts the code for all others out of their way. */
#define sp_likely(condition) __builtin_expect(!!(condition), 1)
#define sp_unlikely(condition) __builtin_expect(!!(condition), 0)

/* A value of which BPF's compiler knows nothing from here on. */
static inline sp_u32 sp_hidden(sp_u32 value)
{
#if defined(__bpf__)
    __asm__("" : "+r"(value));
#endif
    return value;
}

/* Has BPF's compiler keep a structure in memory. It would keep each member in a register that the processor does not have,
 * and at each early return write down again what all of them are by then. */
static inline void sp_in_memory(const void *structure)
{
#if defined(__bpf__)
    __asm__ volatile("" : : "r"(structure) : "memory");
#else
    (void)structure;
#endif
}

/* value & mask, of a value that is never more. BPF's verifier asks for the mask wherever it does not know that; a compiler
 * that does know (clang from 17 on of a count of bits, clang 22 of a VLAN id) would leave it out, so the value passes
 * where it cannot see it. */
static inline sp_u32 sp_bounded(sp_u32 value, sp_u32 mask)
{
#if defined(__bpf__)
    return sp_hidden(value) & mask;
#else
    (void)mask;
    return value;
#endif
}

/* A copy to compare. What BPF's verifier learns by that of a value, it would otherwise know of all copies, and go through
 * what follows once for each of their ranges. (A compiler for the host, which tests have compile this, has no __BPF__.) */
static inline sp_u64 sp_compared(sp_u64 value)
{
#if defined(__BPF__)
    __asm__("%0 ^= 0" : "+r"(value));
#endif
    return value;
}

/* Whether two values are the same, 1 or 0, of less than 64 bits each. Not by a comparison: BPF's verifier would go through
 * all that follows twice. */
static inline sp_u32 sp_alike(sp_u64 value, sp_u64 other) { return (sp_u32)(((value ^ other) - 1) >> 63); }

/* What changes a frame is never a function of its own, however seldom it is called: BPF's verifier would not know there
 * what the caller has compared with the frame's end. */
#define SP_INLINE static inline __attribute__((always_inline))

/* A function that few packets come to. BPF's verifier takes it once for all callers, not once for each way to it, if
 * its arguments are numbers; the tables are one, which a compiler that sees nobody use it would not pass. */
#if defined(__bpf__)
#define SP_APART __attribute__((noinline))
#define SP_APART_TABLES(tables) __asm__ volatile("" : : "r"(tables))
#else
#define SP_APART static __attribute__((noinline))
#define SP_APART_TABLES(tables) (void)(tables)
#endif

/* Before a loop whose index the verifier of kernel 6.1 would lose: a copy of its body for each value. */
#if defined(__bpf__)
#define SP_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SP_UNROLL
#endif

#if defined(__bpf__)
#include "engine/xdp/maps.h" /* the same functions over BPF maps */
#else

typedef const struct sp_arrays *sp_tables;

static inline const sp_u64 *sp_classifier_at(sp_tables tables, sp_u32 port, sp_u32 vlan)
{
    return tables->classifier + sp_classifier_index(port, vlan);
}
static inline const sp_u64 *sp_mac_at(sp_tables tables, sp_u32 slot)
{
    return tables->macs + (slot & (SP_INTERFACES - 1));
}
static inline const struct sp_egress *sp_egress_at(sp_tables tables, sp_u32 slot)
{
    return tables->egresses + (slot & (SP_INTERFACES - 1));
}
static inline const struct sp_interface *sp_interface_at(sp_tables tables, sp_u32 slot)
{
    return tables->interfaces + (slot & (SP_INTERFACES - 1));
}
static inline const sp_u64 *sp_root_at(sp_tables tables, sp_u32 family, sp_u32 slot)
{
    return tables->roots[family] + (slot & (SP_VRFS - 1));
}
static inline const struct sp_vrf *sp_vrf_at(sp_tables tables, sp_u32 slot)
{
    return tables->vrfs + (slot & (SP_VRFS - 1));
}
/* SP_WORDS_SPAN words from there on may be read. */
static inline const sp_u32 *sp_words_at(sp_tables tables, sp_u32 index) { return tables->words + index; }
/* The cache line of SP_BUCKET_WORDS words of this number in the same array. */
static inline const sp_u32 *sp_bucket_at(sp_tables tables, sp_u32 index)
{
    return tables->words + (sp_u64)index * SP_BUCKET_WORDS;
}
static inline const sp_u64 *sp_group_at(sp_tables tables, sp_u32 slot)
{
    return tables->groups + (slot & (SP_GROUPS - 1));
}
static inline const sp_u16 *sp_member_at(sp_tables tables, sp_u32 index) { return tables->members + index; }
static inline const sp_u64 *sp_nexthop_at(sp_tables tables, sp_u32 slot)
{
    return tables->nexthops + (slot & (SP_NEXTHOPS - 1));
}
static inline struct sp_policer *sp_policer_at(sp_tables tables, sp_u32 vrf, sp_u32 punt_class)
{
    return tables->policers + sp_policer_index(vrf & (SP_VRFS - 1), punt_class & (SP_CLASS_SLOTS - 1));
}
static inline sp_u64 *sp_share_due_at(sp_tables tables, sp_u32 interface, sp_u32 punt_class)
{
    return tables->share_dues + sp_share_index(interface, punt_class);
}
static inline sp_u64 *sp_punt_drop_at(sp_tables tables, sp_u32 interface, sp_u32 place, sp_u32 punt_class)
{
    return tables->punt_drops + sp_punt_drop_index(interface, place, punt_class);
}
static inline sp_u64 *sp_link_mode_at(sp_tables tables, sp_u32 port)
{
    return tables->link_modes + (port & (SP_PORTS - 1));
}
static inline const sp_u32 *sp_link_slot_at(sp_tables tables, sp_u32 interface)
{
    return tables->link_slots + (interface & (SP_INTERFACES - 1));
}
static inline struct sp_link *sp_link_at(sp_tables tables, sp_u32 port)
{
    return tables->links + (port & (SP_PORTS - 1));
}
static inline struct sp_link_slice *sp_link_slice_at(sp_tables tables, sp_u32 slot)
{
    return tables->link_slices + (slot & (SP_LINK_SLICES - 1));
}
static inline struct sp_link_router *sp_link_router_at(sp_tables tables, sp_u32 slot)
{
    return tables->link_routers + (slot & (SP_LINK_ROUTERS - 1));
}
static inline struct sp_link_credit *sp_link_credit_at(sp_tables tables, sp_u32 cpu, sp_u32 port)
{
    return tables->link_credits + (sp_u64)cpu * SP_PORTS + port;
}
static inline struct sp_sampling *sp_sampling_at(sp_tables tables) { return tables->sampling; }
static inline const sp_u64 *sp_ports_down_at(sp_tables tables, sp_u32 port)
{
    return tables->ports_down + (port / 64 & (SP_PORTS / 64 - 1));
}
static inline const sp_u64 *sp_hash_seed_at(sp_tables tables) { return tables->hash_seed; }
static inline struct sp_counter *sp_rx_at(sp_tables tables, sp_u32 cpu, sp_u32 slot)
{
    return tables->rx + (sp_u64)cpu * SP_INTERFACES + slot;
}
static inline struct sp_counter *sp_tx_at(sp_tables tables, sp_u32 cpu, sp_u32 slot)
{
    return tables->tx + (sp_u64)cpu * SP_INTERFACES + slot;
}
static inline struct sp_counter *sp_reason_at(sp_tables tables, sp_u32 cpu, sp_u32 vrf, sp_u32 reason_index)
{
    return tables->reasons + ((sp_u64)cpu * SP_VRFS + vrf) * SP_REASONS + reason_index;
}
static inline sp_u64 *sp_engine_counter_at(sp_tables tables, sp_u32 cpu, sp_u32 counter)
{
    return tables->engine_counters + (sp_u64)cpu * SP_ENGINE_COUNTERS + counter;
}
static inline struct sp_core *sp_core_at(sp_tables tables, sp_u32 cpu) { return tables->cores + cpu; }
static inline struct sp_core_router *sp_core_router_at(sp_tables tables, sp_u32 cpu, sp_u32 vrf)
{
    return tables->core_routers + (sp_u64)cpu * SP_VRFS + vrf;
}
static inline struct sp_core_slice *sp_core_slice_at(sp_tables tables, sp_u32 cpu, sp_u32 slice)
{
    return tables->core_slices + (sp_u64)cpu * SP_SLICES + slice;
}
static inline const struct sp_share *sp_router_share_at(sp_tables tables, sp_u32 vrf)
{
    return tables->router_shares + (vrf & (SP_VRFS - 1));
}
static inline const struct sp_share *sp_slice_share_at(sp_tables tables, sp_u32 slice)
{
    return tables->slice_shares + (slice & (SP_SLICES - 1));
}

#endif
#endif
