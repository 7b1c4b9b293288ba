/* SPDX-License-Identifier: Apache-2.0
 *
 * The longest prefix of the router decides. Own addresses and neighbors are routes of full length here.
 */
#ifndef SPLITPLANE_ROUTE_H
#define SPLITPLANE_ROUTE_H

#include "pipeline/packet.h"
#include "pipeline/trie.h"

/* Returns the leaf, SP_ROUTE_NONE where there is no route: it punts `unreachable`. */
SP_INLINE sp_u32 sp_route(sp_tables tables, const struct sp_meta *meta)
{
    sp_u32 family = meta->is_ipv6 ? SP_IPV6 : SP_IPV4, leaf;

    if (meta->is_ipv6) {
        leaf = sp_trie_lookup6(tables, sp_load_long(sp_root_at(tables, SP_IPV6, meta->vrf)), meta->destination[0],
                               meta->destination[1]);
    } else {
        leaf = sp_trie_lookup4(tables, sp_load_long(sp_root_at(tables, SP_IPV4, meta->vrf)),
                               (sp_u32)meta->destination[0]);
    }
    return leaf ? leaf : sp_load_word(&sp_vrf_at(tables, meta->vrf)->default_leaf[family]);
}

/* What a route says of itself: a reason, or SP_NO_REASON for nexthop, group and fallback. */
static inline sp_u32 sp_route_reason(sp_u32 leaf)
{
    switch (sp_leaf_kind(leaf)) {
    case SP_ROUTE_NEXTHOP:
    case SP_ROUTE_GROUP:
    case SP_ROUTE_FALLBACK:
        return SP_NO_REASON;
    case SP_ROUTE_LOCAL:
        return SP_PUNT_LOCAL;
    case SP_ROUTE_GLEAN:
        return SP_PUNT_GLEAN;
    case SP_ROUTE_BLACKHOLE:
        return SP_DROP_BLACKHOLE;
    default:
        return SP_PUNT_UNREACHABLE;
    }
}

#endif
