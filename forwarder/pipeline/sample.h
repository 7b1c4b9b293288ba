/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the packets that are routed a controller gets to see: one of so many at random, and not too many a second.
 * It sees the head of the frame as it leaves, so that nothing has to be kept aside on the way.
 */
#ifndef SPLITPLANE_SAMPLE_H
#define SPLITPLANE_SAMPLE_H

#include "pipeline/verdict.h"

/* Only for what a router interface with SP_SAMPLED sends. What another plane has routed is not sampled. */
SP_INLINE void sp_sample(sp_tables tables, const struct sp_packet *packet, const struct sp_meta *meta,
                         struct sp_verdict *verdict)
{
    struct sp_sampling *sampling = sp_sampling_at(tables);

    if (meta->keep_ttl || sp_random(packet) > sp_load_word(&sampling->threshold)) {
        return;
    }
    if (!sp_police(&sampling->policer, sp_now_ns(packet))) {
        sp_count_engine(tables, meta->cpu, SP_COUNT_SAMPLE_POLICED);
        return;
    }
    sp_count_engine(tables, meta->cpu, SP_COUNT_SAMPLED);
    verdict->sampled = 1;
    verdict->interface = meta->interface;
    verdict->router_interface_id = sp_load_word(&sp_interface_at(tables, meta->interface)->id);
    verdict->l2_octets = meta->egress_l2_octets;
}

#endif
