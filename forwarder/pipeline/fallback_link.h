/* SPDX-License-Identifier: Apache-2.0
 *
 * The way to the plane that holds all routes: a link to it and a tag that names the ingress router interface. The frame
 * keeps its addresses and its TTL: that plane runs the whole pipeline on it.
 */
#ifndef SPLITPLANE_FALLBACK_LINK_H
#define SPLITPLANE_FALLBACK_LINK_H

#include "pipeline/router_interface.h"

/* Returns a reason; `*sent` is 0 where there was no room for a tag. */
SP_INLINE sp_u32 sp_fallback_link(sp_tables tables, struct sp_packet *packet, struct sp_meta *meta, int *sent)
{
    sp_u32 link = sp_load_word(&sp_interface_at(tables, meta->interface)->fallback);

    if (!(link & SP_FALLBACK_PRESENT) || packet->data + SP_ETHERNET_OCTETS > packet->end) {
        return SP_PUNT_UNREACHABLE;
    }
    sp_u64 src_mac = sp_get64(packet->data + 6) >> 16;
    *sent = sp_put_ethernet(packet, meta, meta->dst_mac, src_mac, link & (SP_VLANS - 1));
    meta->egress_port = link >> 12 & (SP_PORTS - 1);
    return SP_NO_REASON;
}

#endif
