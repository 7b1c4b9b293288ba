/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs of bench/forwarder and the one that runs them agree on.
 */
#ifndef SPLITPLANE_BENCH_ARRIVAL_H
#define SPLITPLANE_BENCH_ARRIVAL_H

#include "pipeline/layout.h"

/* What makes one packet differ from the next. */
struct arrival {
    sp_u32 dst;      /* network order */
    sp_u16 checksum; /* of the header with it, network order */
    sp_u16 vlan;     /* network order */
    sp_u32 port;
    sp_u32 reserved;
};

#define ARRIVALS (1u << 20)

#define BENCH_FRAME_OCTETS 64
#define BENCH_OWN_MAC 0x0200000000aaull
#define BENCH_TTL 64

#endif
