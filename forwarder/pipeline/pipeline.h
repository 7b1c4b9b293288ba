/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipeline contract in its order, as p4src/common/pipeline.p4 states it; stages are named as its tables.
 *
 *     interface_classifier ─► l3_admit ─► punt ─► share ─► route ─► ttl
 *                 │                                                  │ fallback_link
 *                 │ from a fallback link                             ▼
 *                 │                     nexthop_group ─► nexthop ─► router_interface ─► out
 *                 └──────────────────────────────► share ─────────►
 *       verdict ◄── whatever is punted or dropped
 *
 * Each stage returns SP_NO_REASON for a packet that goes on.
 *
 * It is in two halves with the look-up between them, for an engine that takes packets one by one (sp_pipeline()) and
 * for one that takes many together (burst.h):
 *
 *     sp_begin: as far as share ─► sp_route ─► sp_finish: from ttl on, and the verdict
 *
 * `share` is the one stage that the contract does not have: it drops what a core that is too small for all has no time
 * for (share.h).
 */
#ifndef SPLITPLANE_PIPELINE_H
#define SPLITPLANE_PIPELINE_H

#include "pipeline/fallback_link.h"
#include "pipeline/interface_classifier.h"
#include "pipeline/l3_admit.h"
#include "pipeline/nexthop.h"
#include "pipeline/nexthop_group.h"
#include "pipeline/packet.h"
#include "pipeline/punt.h"
#include "pipeline/route.h"
#include "pipeline/router_interface.h"
#include "pipeline/sample.h"
#include "pipeline/share.h"
#include "pipeline/ttl.h"
#include "pipeline/verdict.h"

SP_INLINE sp_u32 sp_punt(const struct sp_packet *packet, struct sp_meta *meta)
{
    if (sp_likely(meta->ether_type == SP_ETHERTYPE_IPV4)) {
        return sp_punt_ipv4(packet, meta);
    }
    if (meta->ether_type == SP_ETHERTYPE_IPV6) {
        return sp_punt_ipv6(packet, meta);
    }
    return sp_punt_others(meta);
}

/* Whose the frame is, and what keeps it from being routed; returns a reason. */
SP_INLINE sp_u32 sp_admit(sp_tables tables, const struct sp_packet *packet, struct sp_meta *meta)
{
    sp_u32 reason;

    if (sp_unlikely(!sp_parse_ethernet(packet, meta))) {
        return SP_DROP_MALFORMED;
    }
    reason = sp_interface_classifier(tables, packet, meta);
    if (sp_unlikely(reason != SP_NO_REASON || meta->keep_ttl)) {
        return reason;
    }
    reason = sp_l3_admit(tables, meta);
    return reason != SP_NO_REASON ? reason : sp_punt(packet, meta);
}

/* The half before the look-up, on a core; returns a reason. */
SP_INLINE sp_u32 sp_begin(sp_tables tables, const struct sp_packet *packet, struct sp_core *core,
                          struct sp_meta *meta)
{
    return sp_share_core(tables, packet, core, meta, sp_admit(tables, packet, meta));
}

/* Whether sp_begin() has left a packet to look up: not one that another plane has routed. */
SP_INLINE int sp_is_routed(const struct sp_meta *meta, sp_u32 reason)
{
    return reason == SP_NO_REASON && !meta->keep_ttl;
}

/* From the route to the way out; returns a reason. */
SP_INLINE sp_u32 sp_forward(sp_tables tables, struct sp_packet *packet, struct sp_meta *meta, sp_u32 leaf, int *sent)
{
    sp_u32 nexthop = sp_leaf_slot(leaf);
    sp_u32 reason = sp_ttl(meta, sp_leaf_kind(leaf), sp_route_reason(leaf));

    if (sp_unlikely(reason != SP_NO_REASON)) {
        return reason;
    }
    if (sp_unlikely(sp_leaf_kind(leaf) == SP_ROUTE_FALLBACK)) {
        return sp_fallback_link(tables, packet, meta, sent);
    }
    if (sp_leaf_kind(leaf) == SP_ROUTE_GROUP && !sp_nexthop_group(tables, packet, meta, nexthop, &nexthop)) {
        return SP_PUNT_UNREACHABLE;
    }
    reason = sp_nexthop_stage(tables, meta, nexthop);
    if (sp_unlikely(reason != SP_NO_REASON)) {
        return reason;
    }
    return sp_router_interface(tables, packet, meta, sent);
}

/* The half behind the look-up: what becomes of a packet for which sp_begin() gave that reason and, where it is routed,
 * sp_route() that leaf. The frame is changed only if it is to be sent. */
SP_INLINE struct sp_verdict sp_finish(sp_tables tables, struct sp_packet *packet, struct sp_meta *meta, sp_u32 reason,
                                      sp_u32 leaf)
{
    struct sp_verdict verdict = {.action = SP_ACTION_DROP, .reason = reason, .vrf = meta->vrf};
    int sent = 0;

    if (sp_likely(sp_is_routed(meta, reason))) {
        verdict.reason = sp_forward(tables, packet, meta, leaf, &sent);
    } else if (reason == SP_NO_REASON) {
        verdict.reason = sp_router_interface(tables, packet, meta, &sent);
    }
    if (sp_unlikely(verdict.reason != SP_NO_REASON)) {
        sp_verdict_stage(tables, packet, meta, &verdict);
    } else if (sp_likely(sent)) {
        verdict.action = SP_ACTION_SEND;
        verdict.port = meta->egress_port;
        if (sp_unlikely(meta->sampled)) {
            sp_sample(tables, packet, meta, &verdict);
        }
    } else {
        sp_count_engine(tables, meta->cpu, SP_COUNT_NO_ROOM);
    }
    return verdict;
}

/* What becomes, on a core, of a frame that came in by a port. */
SP_INLINE struct sp_verdict sp_pipeline(sp_tables tables, struct sp_packet *packet, struct sp_core *core, sp_u32 port)
{
    struct sp_meta meta = {.port = port, .cpu = packet->cpu};
    sp_in_memory(&meta);
    sp_u32 reason = sp_begin(tables, packet, core, &meta), leaf = 0;

    if (sp_likely(sp_is_routed(&meta, reason))) {
        leaf = sp_route(tables, &meta);
        reason = sp_share_route(tables, &meta, reason, leaf);
    }
    return sp_finish(tables, packet, &meta, reason, leaf);
}

#endif
