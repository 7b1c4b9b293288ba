/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipeline for packets that come many together (native builds only): what is loaded for one hides behind what is
 * loaded for the others.
 *
 *     sp_begin of all ─► look-up of all, by family (trie_bulk.h) ─► nexthops, ways out: prefetched ─► sp_finish of all
 *
 * Verdicts, frames and counters are those of sp_pipeline() for one after the other.
 */
#ifndef SPLITPLANE_BURST_H
#define SPLITPLANE_BURST_H

#include "pipeline/pipeline.h"
#include "pipeline/trie_bulk.h"

#define SP_BURST SP_TRIE_TOGETHER

/* Those of a burst that are looked up in one family's tries. */
struct sp_burst_family {
    sp_u32 count;
    sp_u8 number[SP_BURST]; /* in the burst */
    sp_u64 roots[SP_BURST];
    sp_u32 leaves[SP_BURST];
};

struct sp_burst {
    struct sp_meta metas[SP_BURST];
    sp_u32 reasons[SP_BURST];
    sp_u32 leaves[SP_BURST];
    struct sp_burst_family families[SP_FAMILIES];
    sp_u32 ipv4[SP_BURST];
    sp_u64 ipv6[SP_BURST][2];
};

static inline void sp_burst_add(sp_tables tables, struct sp_burst *burst, sp_u32 number)
{
    const struct sp_meta *meta = &burst->metas[number];
    sp_u32 family = meta->is_ipv6 ? SP_IPV6 : SP_IPV4;
    struct sp_burst_family *those = &burst->families[family];

    if (family == SP_IPV6) {
        burst->ipv6[those->count][0] = meta->destination[0];
        burst->ipv6[those->count][1] = meta->destination[1];
    } else {
        burst->ipv4[those->count] = (sp_u32)meta->destination[0];
    }
    those->number[those->count] = (sp_u8)number;
    those->roots[those->count++] = sp_load_long(sp_root_at(tables, family, meta->vrf));
}

/* sp_route() of all. */
static inline void sp_burst_route(sp_tables tables, struct sp_burst *burst)
{
    sp_trie_lookup4_bulk(tables, burst->families[SP_IPV4].roots, burst->ipv4, burst->families[SP_IPV4].leaves,
                         burst->families[SP_IPV4].count);
    sp_trie_lookup6_bulk(tables, burst->families[SP_IPV6].roots, (const sp_u64 (*)[2])burst->ipv6,
                         burst->families[SP_IPV6].leaves, burst->families[SP_IPV6].count);
    for (sp_u32 family = 0; family < SP_FAMILIES; family++) {
        const struct sp_burst_family *those = &burst->families[family];

        for (sp_u32 at = 0; at < those->count; at++) {
            sp_u32 number = those->number[at], leaf = those->leaves[at];

            if (!leaf) {
                leaf = sp_load_word(&sp_vrf_at(tables, burst->metas[number].vrf)->default_leaf[family]);
            }
            burst->leaves[number] = leaf;
            burst->reasons[number] = sp_share_route(tables, &burst->metas[number], burst->reasons[number], leaf);
            if (sp_likely(sp_leaf_kind(leaf) == SP_ROUTE_NEXTHOP)) {
                __builtin_prefetch(sp_nexthop_at(tables, sp_leaf_slot(leaf)));
            }
        }
    }
}

/* What becomes of up to SP_BURST frames, each of which came in by the port beside it. */
static inline void sp_pipeline_burst(sp_tables tables, struct sp_packet *packets, const sp_u32 *ports,
                                     struct sp_verdict *verdicts, sp_u32 count)
{
    struct sp_burst burst;

    burst.families[SP_IPV4].count = 0;
    burst.families[SP_IPV6].count = 0;
    for (sp_u32 number = 0; number < count; number++) {
        struct sp_meta meta = {.port = ports[number], .cpu = packets[number].cpu};

        burst.reasons[number] = sp_begin(tables, &packets[number], sp_core_at(tables, meta.cpu), &meta);
        burst.leaves[number] = 0;
        burst.metas[number] = meta;
        if (sp_likely(sp_is_routed(&meta, burst.reasons[number]))) {
            sp_burst_add(tables, &burst, number);
        }
    }
    sp_burst_route(tables, &burst);
    for (sp_u32 number = 0; number < count; number++) {
        sp_u32 leaf = burst.leaves[number];

        if (sp_likely(sp_leaf_kind(leaf) == SP_ROUTE_NEXTHOP)) {
            sp_u64 nexthop = sp_load_long(sp_nexthop_at(tables, sp_leaf_slot(leaf)));

            __builtin_prefetch(sp_egress_at(tables, sp_nexthop_interface(nexthop)));
        }
    }
    for (sp_u32 number = 0; number < count; number++) {
        verdicts[number] = sp_finish(tables, &packets[number], &burst.metas[number], burst.reasons[number],
                                     burst.leaves[number]);
    }
}

#endif
