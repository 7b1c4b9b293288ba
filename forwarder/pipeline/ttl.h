/* SPDX-License-Identifier: Apache-2.0
 *
 * TTL, source-scope and exception checks after lookup: a packet that fails one goes to the guest, unchanged.
 */
#ifndef SPLITPLANE_TTL_H
#define SPLITPLANE_TTL_H

#include "pipeline/packet.h"

/* Returns the reason that takes the place of the route's. */
static inline sp_u32 sp_ttl(const struct sp_meta *meta, sp_u32 leaf_kind, sp_u32 reason)
{
    /* Own addresses take any TTL, a blackhole has dropped the packet; what else is not forwarded expires first. */
    if (reason == SP_PUNT_LOCAL || reason == SP_DROP_BLACKHOLE) {
        return reason;
    }
    if (meta->ttl <= 1) {
        return SP_PUNT_TTL_EXPIRED;
    }
    if (meta->link_local_source) {
        return SP_PUNT_UNREACHABLE;
    }
    if (reason == SP_NO_REASON && leaf_kind != SP_ROUTE_FALLBACK) {
        return meta->exception; /* RFC 1812 section 4.2.2.6, RFC 8200 section 4.3: not a switch's work */
    }
    return reason;
}

#endif
