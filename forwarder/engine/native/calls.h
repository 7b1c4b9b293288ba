/* SPDX-License-Identifier: Apache-2.0
 *
 * What the pipeline asks of an engine, for a frame in plain memory: tests, fuzzing and sanitizers run on this.
 */
#ifndef SPLITPLANE_NATIVE_CALLS_H
#define SPLITPLANE_NATIVE_CALLS_H

#include "pipeline/layout.h"

/* Behind sp_packet.engine. */
struct sp_native {
    sp_u8 *room; /* the first octet that `data` may move to */
    sp_u64 now_ns;
    sp_u32 random;
};

static inline int sp_move_head(struct sp_packet *packet, int by)
{
    const struct sp_native *native = (const struct sp_native *)packet->engine;

    if (by < 0 ? packet->data - native->room < -by : packet->end - packet->data < by) {
        return 0;
    }
    packet->data += by;
    return 1;
}
static inline sp_u64 sp_now_ns(const struct sp_packet *packet)
{
    return ((const struct sp_native *)packet->engine)->now_ns;
}
static inline sp_u32 sp_random(const struct sp_packet *packet)
{
    return ((const struct sp_native *)packet->engine)->random;
}

#endif
