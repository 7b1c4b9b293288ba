/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a nexthop is: an egress router interface and the neighbor's MAC.
 */
#ifndef SPLITPLANE_NEXTHOP_H
#define SPLITPLANE_NEXTHOP_H

#include "pipeline/packet.h"

/* Returns a reason. */
SP_INLINE sp_u32 sp_nexthop_stage(sp_tables tables, struct sp_meta *meta, sp_u32 slot)
{
    sp_u64 nexthop = sp_load_long(sp_nexthop_at(tables, slot));

    if (sp_likely(sp_nexthop_kind(nexthop) == SP_NEXTHOP_FORWARD)) {
        meta->egress = sp_nexthop_interface(nexthop);
        meta->neighbor_mac = sp_nexthop_mac(nexthop);
        return SP_NO_REASON;
    }
    switch (sp_nexthop_kind(nexthop)) {
    case SP_NEXTHOP_GLEAN:
        return SP_PUNT_GLEAN;
    case SP_NEXTHOP_FAILED:
        return SP_DROP_NEIGHBOR_FAILED;
    default:
        return SP_PUNT_UNREACHABLE;
    }
}

#endif
