/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs of bench/forwarder and the one that runs them agree on.
 */
#ifndef SPLITPLANE_BENCH_ARRIVAL_H
#define SPLITPLANE_BENCH_ARRIVAL_H

#include "pipeline/layout.h"

/* What makes one packet differ from the next. Small, because going through all of them takes room in the cache
 * that a forwarder would have for its tables. */
struct arrival {
    sp_u32 dst;      /* network order */
    sp_u16 checksum; /* of the header with it, network order */
    sp_u16 tag;      /* host order: the VLAN, above it the port */
};
#define ARRIVAL_VLAN_BITS 12

#define ARRIVALS (1u << 18)

#define BENCH_FRAME_OCTETS 64
#define BENCH_OWN_MAC 0x0200000000aaull
#define BENCH_TTL 64

#endif
