/* SPDX-License-Identifier: Apache-2.0
 *
 * Which port an interface is (shared.h).
 *
 * Only the BPF build includes this file.
 */
#ifndef SPLITPLANE_XDP_PORT_OF_H
#define SPLITPLANE_XDP_PORT_OF_H

#include "engine/xdp/maps.h"

/* A port, with SP_PORT_OF_BOND or without; 0 is none. */
static inline sp_u32 sp_port_of(sp_u32 ifindex)
{
#pragma clang loop unroll(disable)
    for (sp_u32 probe = 0; probe < SP_PORT_PROBES; probe++) {
        sp_u64 entry = sp_load_long(&fixed.port_of_ifindex[(ifindex + probe) & (SP_PORT_SLOTS - 1)]);
        if (sp_likely(entry >> 32 == ifindex)) {
            return (sp_u32)entry & (SP_PORT_OF_BOND | (SP_PORTS - 1));
        }
    }
    return 0;
}

#endif
