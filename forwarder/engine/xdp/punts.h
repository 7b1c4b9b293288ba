/* SPDX-License-Identifier: Apache-2.0
 *
 * Punted frames, and the heads of sampled ones, go to the daemon through a ring buffer: bounded, and what finds it too
 * full for its class is dropped and counted.
 *
 * Only the BPF build includes this file.
 */
#ifndef SPLITPLANE_XDP_PUNTS_H
#define SPLITPLANE_XDP_PUNTS_H

#include "engine/xdp/maps.h"
#include "pipeline/verdict.h"

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, SP_PUNT_RING_OCTETS);
} map_punts SEC(".maps");

#define SP_MACS_OCTETS 12u

/* Copies the frame without its tag into `room` octets behind a record. The comparisons tell the verifier what is known
 * anyhow: bpf_xdp_load_bytes() takes no length of 0 and none that may be longer than its target. */
static inline int sp_copy_untagged(struct xdp_md *context, struct sp_punt_record *record, sp_u32 room, sp_u32 length,
                                   sp_u32 tag_octets)
{
    sp_u8 *frame = (sp_u8 *)(record + 1);
    sp_u32 rest = length - SP_MACS_OCTETS - 1; /* one less than what is behind the MACs */

    SP_CHECKED(rest); /* kernel 6.1 learns from one comparison, and not from one with 0 */
    if (rest > room - SP_MACS_OCTETS - 1) {
        return -1;
    }
    if (bpf_xdp_load_bytes(context, 0, frame, SP_MACS_OCTETS) != 0) {
        return -1;
    }
    return (int)bpf_xdp_load_bytes(context, SP_MACS_OCTETS + tag_octets, frame + SP_MACS_OCTETS, rest + 1);
}

#define SP_PUNT_INTO(room)                                                                                \
    do {                                                                                                  \
        struct sp_punt_record *record = bpf_ringbuf_reserve(&map_punts, sizeof *record + (room), 0);       \
        if (!record) {                                                                                    \
            return SP_COUNT_RING_FULL;                                                                    \
        }                                                                                                 \
        record->router_interface_id = verdict->router_interface_id;                                       \
        record->length = length;                                                                          \
        record->reason = (sp_u8)reason;                                                                   \
        record->punt_class = (sp_u8)verdict->punt_class;                                                  \
        record->router = (sp_u16)verdict->vrf;                                                            \
        record->interface = (sp_u16)verdict->interface;                                                   \
        if (sp_copy_untagged(context, record, (room), length, tag_octets) != 0) {                         \
            bpf_ringbuf_discard(record, 0);                                                               \
            return SP_COUNT_TOO_LONG;                                                                     \
        }                                                                                                 \
        bpf_ringbuf_submit(record, 0);                                                                    \
        return -1;                                                                                        \
    } while (0)

static inline int sp_ring_is_full(sp_u64 eighths)
{
    return bpf_ringbuf_query(&map_punts, BPF_RB_AVAIL_DATA) >= SP_PUNT_RING_OCTETS / 8 * eighths;
}

/* Returns the counter (sp_engine_counter) that says why the frame is lost, -1 where it is not. */
static inline int sp_send_punt(struct xdp_md *context, const struct sp_verdict *verdict, sp_u32 frame_length)
{
    sp_u32 tag_octets = verdict->l2_octets == SP_ETHERNET_OCTETS ? 0 : SP_TAG_OCTETS;
    sp_u32 length = frame_length - tag_octets, reason = verdict->reason;

    if (sp_ring_is_full(SP_RING_EIGHTHS(verdict->punt_class))) {
        return SP_COUNT_RING_FULL;
    }
    if (length <= SP_PUNT_SHORT) {
        SP_PUNT_INTO(SP_PUNT_SHORT);
    } else if (length <= SP_PUNT_MIDDLE) {
        SP_PUNT_INTO(SP_PUNT_MIDDLE);
    } else if (length <= SP_PUNT_LONG) {
        SP_PUNT_INTO(SP_PUNT_LONG);
    }
    return SP_COUNT_TOO_LONG;
}

/* The same of the head of a frame that is sent, `frame_length` octets with its tag. */
static inline int sp_send_sample(struct xdp_md *context, const struct sp_verdict *verdict, sp_u32 frame_length)
{
    sp_u32 tag_octets = verdict->l2_octets == SP_ETHERNET_OCTETS ? 0 : SP_TAG_OCTETS;
    sp_u32 length = frame_length - tag_octets, reason = SP_SAMPLE;

    if (sp_ring_is_full(SP_RING_EIGHTHS_OF_SAMPLES)) {
        return SP_COUNT_RING_FULL;
    }
    if (length > SP_SAMPLE_OCTETS) {
        length = SP_SAMPLE_OCTETS;
    }
    SP_PUNT_INTO(SP_PUNT_SHORT);
}

#endif
