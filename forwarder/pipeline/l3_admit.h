/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the frame is for the router: to a MAC of the router interface, or to a group address.
 */
#ifndef SPLITPLANE_L3_ADMIT_H
#define SPLITPLANE_L3_ADMIT_H

#include "pipeline/packet.h"

static inline int sp_to_group(sp_u64 mac) { return (mac >> 40 & 1) != 0; }

/* Returns a reason. */
SP_INLINE sp_u32 sp_l3_admit(sp_tables tables, const struct sp_meta *meta)
{
    const struct sp_interface *interface;
    sp_u64 mac = meta->dst_mac;

    if (sp_likely(sp_load_long(sp_mac_at(tables, meta->interface)) == mac && mac != 0)) {
        return SP_NO_REASON;
    }
    if (sp_to_group(mac)) {
        return SP_NO_REASON;
    }
    interface = sp_interface_at(tables, meta->interface);
    if (mac != 0 && (sp_load_long(&interface->more_macs[0]) == mac || sp_load_long(&interface->more_macs[1]) == mac ||
                     sp_load_long(&interface->more_macs[2]) == mac || sp_load_long(&interface->more_macs[3]) == mac)) {
        return SP_NO_REASON;
    }
    return SP_DROP_NOT_FOR_US;
}

#endif
