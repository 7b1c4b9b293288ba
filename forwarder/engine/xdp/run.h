/* SPDX-License-Identifier: Apache-2.0
 *
 * From an XDP context to an XDP action: the pipeline between two of the kernel's worlds. The program that is attached
 * and the one that is measured (bench/) share it.
 *
 * Only the BPF build includes this file.
 */
#ifndef SPLITPLANE_XDP_RUN_H
#define SPLITPLANE_XDP_RUN_H

#include "engine/xdp/port_of.h"
#include "engine/xdp/punts.h"
#include "pipeline/pipeline.h"

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, SP_PORTS);
    __type(key, __u32);
    __type(value, __u32); /* ifindex */
} map_ports SEC(".maps");

/* Frames of the slow protocols (IEEE 802.3, annex 57A), LACP among them: between a bond and its other end. */
static inline int sp_is_slow_protocol(const struct xdp_md *context)
{
    const sp_u8 *data = (const sp_u8 *)(long)context->data, *end = (const sp_u8 *)(long)context->data_end;

    return data + SP_ETHERNET_OCTETS <= end && sp_get16(data + 12) == SP_ETHERTYPE_SLOW;
}

/* The whole frame's length, octets. A frame that a driver puts into several buffers fills the first of them, which are
 * no shorter than this anywhere; so what is shorter has no more, and costs no call. */
#define SP_SHORT_BUFFER 1024u
static inline sp_u32 sp_frame_length(struct xdp_md *context, const struct sp_packet *packet)
{
    sp_u32 first = packet->end - packet->data;

    return sp_likely(first < SP_SHORT_BUFFER) ? first : (sp_u32)bpf_xdp_get_buff_len(context);
}

/* What the kernel is to do with the frame. */
static inline int sp_act(struct xdp_md *context, const struct sp_packet *packet, const struct sp_verdict *verdict)
{
    int lost;

    if (sp_likely(verdict->action == SP_ACTION_SEND)) {
        if (sp_unlikely(verdict->sampled) &&
            sp_send_sample(context, verdict, packet->end - packet->data) == SP_COUNT_RING_FULL) {
            sp_count_engine((sp_tables)0, packet->cpu, SP_COUNT_SAMPLE_RING_FULL);
        }
        if (sp_likely(bpf_redirect_map(&map_ports, verdict->port, XDP_DROP) == XDP_REDIRECT)) {
            return XDP_REDIRECT;
        }
        lost = SP_COUNT_NO_PORT;
    } else if (verdict->action == SP_ACTION_PUNT) {
        lost = sp_send_punt(context, verdict, packet->length);
        if (lost == SP_COUNT_RING_FULL) {
            sp_count_punt_drop((sp_tables)0, verdict, SP_PLACE_RING);
        }
    } else {
        return XDP_DROP;
    }
    if (lost >= 0) {
        sp_count_engine((sp_tables)0, packet->cpu, lost);
    }
    return XDP_DROP;
}

SP_APART int sp_timed_apart(sp_u32 cpu, sp_u32 vrf, sp_u32 reason)
{
    sp_core_timed((sp_tables)0, cpu, vrf, reason, bpf_ktime_get_ns());
    return 0;
}

static inline int sp_run(struct xdp_md *context, sp_u32 port)
{
    struct sp_packet packet = {.engine = context, .cpu = bpf_get_smp_processor_id()};
    struct sp_core *core = sp_core_at((sp_tables)0, packet.cpu);

    if (!core) {
        return XDP_DROP;
    }
    sp_core_time(&packet, core);
    sp_take_bounds(&packet);
    packet.length = sp_frame_length(context, &packet);
    struct sp_verdict verdict = sp_pipeline((sp_tables)0, &packet, core, port);
    int action = sp_act(context, &packet, &verdict);
    if (sp_unlikely(core->timed)) {
        sp_timed_apart(packet.cpu, verdict.vrf, verdict.reason);
    }
    return action;
}

#endif
