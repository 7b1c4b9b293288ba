/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/packet_out.h"

#include "pipeline/pipeline.h"

/* What a router may send for its routing protocols although its share is used up: a 128th of the link, or 64 kbit/s. */
#define SP_ROUTING_SHIFT 7
#define SP_ROUTING_LEAST 8590u /* a rate */

static int sp_is_for_routing(const sp_u8 *frame, sp_u32 octets)
{
    struct sp_packet packet = {.data = (sp_u8 *)frame, .end = (sp_u8 *)frame + octets, .length = octets};
    struct sp_meta meta = {0};

    if (!sp_parse_ethernet(&packet, &meta) || meta.l2_octets != SP_ETHERNET_OCTETS) {
        return 0;
    }
    sp_u32 reason = sp_punt(&packet, &meta);
    if (reason != SP_NO_REASON && reason != SP_PUNT_CONTROL) {
        return 0;
    }
    return sp_punt_class(&packet, &meta, SP_PUNT_CONTROL) <= SP_CLASS_ARP;
}

/* It is taken from the port whatever that has left: what others may send follows. */
static int sp_routing_goes(struct sp_link *link, struct sp_link_router *router, sp_u64 way, sp_u64 now_ns)
{
    sp_u64 speed = sp_load_long(&link->speed), rate = speed >> SP_ROUTING_SHIFT;
    struct sp_link_left left = {0, sp_link_burst(speed, SP_LINK_ROUTER_BURST_SHIFT, SP_LINK_ROUTER_BURST)};

    rate = rate > SP_ROUTING_LEAST ? rate : SP_ROUTING_LEAST;
    if (!sp_link_takes(&router->routing, rate, way, now_ns, 0, &left)) {
        return 0;
    }
    left.most = sp_link_burst(speed, SP_LINK_BURST_SHIFT, SP_LINK_BURST);
    __sync_fetch_and_add(&link->whole.offered, sp_link_way_octets(way));
    sp_link_takes(&link->whole.bucket, speed, way, now_ns, 0, &left);
    return 1;
}

int sp_lets_out(sp_tables tables, sp_u32 port, sp_u32 vlan, const sp_u8 *frame, sp_u32 octets, sp_u64 now_ns)
{
    sp_u64 *mode_at = sp_link_mode_at(tables, port), mode = sp_load_long(mode_at);
    sp_u64 wire = sp_wire_octets(octets + (vlan ? SP_TAG_OCTETS : 0));
    struct sp_link *link = sp_link_at(tables, port);

    if (!mode) {
        return 1;
    }
    if (!(mode & SP_LINK_CONTENDED)) {
        sp_link_gather(link, mode_at, wire, now_ns);
        return 1;
    }
    sp_u64 entry = sp_load_long(sp_classifier_at(tables, port, vlan));
    if (sp_classifier_kind(entry) == SP_CLASSIFIER_MISS) {
        return 0; /* by an interface that is not enabled: nobody's, and so is no part of what is scarce */
    }
    sp_u32 interface = sp_classifier_interface(entry);
    sp_u64 way = sp_link_way(port, interface, (sp_u32)wire);
    struct sp_link_router *router = sp_link_router_at(tables, sp_load_word(sp_link_slot_at(tables, interface)));

    sp_link_keep_time(tables, way, now_ns);
    return (sp_is_for_routing(frame, octets) && sp_routing_goes(link, router, way, now_ns)) ||
           !sp_link_is_over(tables, way, now_ns);
}
