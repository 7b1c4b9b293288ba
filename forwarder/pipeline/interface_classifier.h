/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose packet it is: the port and VLAN that it came in by are a router's, or nobody's.
 */
#ifndef SPLITPLANE_INTERFACE_CLASSIFIER_H
#define SPLITPLANE_INTERFACE_CLASSIFIER_H

#include "pipeline/packet.h"

static inline void sp_count(struct sp_counter *counter, sp_u32 octets)
{
    if (sp_likely(counter)) {
        counter->packets += 1;
        counter->bytes += octets;
    }
}

/* Counts what came in under the entry, octets of the frame with its tag. Returns a reason. */
SP_INLINE sp_u32 sp_interface_classifier(sp_tables tables, const struct sp_packet *packet, struct sp_meta *meta)
{
    const sp_u64 *at = sp_classifier_at(tables, meta->port, meta->vlan);
    sp_u64 entry = at ? sp_load_long(at) : 0;

    if (sp_unlikely(sp_classifier_kind(entry) == SP_CLASSIFIER_MISS)) {
        return SP_DROP_UNKNOWN_INTERFACE;
    }
    meta->vrf = sp_classifier_vrf(entry);
    meta->interface = sp_classifier_interface(entry);
    sp_count(sp_rx_at(tables, meta->cpu, sp_classifier_counter(entry)), packet->length);
    if (sp_unlikely(sp_classifier_kind(entry) == SP_CLASSIFIER_EGRESS)) {
        /* A fallback link: the forwarder of another plane has routed the packet and names the router interface that it
         * leaves by. Its neighbor's MAC is in the frame and its TTL was counted. */
        meta->keep_ttl = 1;
        meta->egress = meta->interface;
        meta->neighbor_mac = meta->dst_mac;
    }
    return SP_NO_REASON;
}

#endif
