/* SPDX-License-Identifier: Apache-2.0
 *
 * What the pipeline asks of an engine, in the kernel. Only the BPF build includes this file.
 */
#ifndef SPLITPLANE_XDP_CALLS_H
#define SPLITPLANE_XDP_CALLS_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

static inline void sp_take_bounds(struct sp_packet *packet)
{
    struct xdp_md *context = packet->engine;

    packet->data = (sp_u8 *)(long)context->data;
    packet->end = (sp_u8 *)(long)context->data_end;
}
static inline int sp_move_head(struct sp_packet *packet, int by)
{
    if (bpf_xdp_adjust_head(packet->engine, by) != 0) {
        return 0;
    }
    sp_take_bounds(packet);
    return 1;
}
static inline sp_u64 sp_now_ns(const struct sp_packet *packet) { return bpf_ktime_get_ns(); }
static inline sp_u32 sp_random(const struct sp_packet *packet) { return bpf_get_prandom_u32(); }

#endif
