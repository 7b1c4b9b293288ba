/* SPDX-License-Identifier: Apache-2.0
 *
 * What the controller sends pays its router's share of the link as transit does (link_share.h): a guest that floods takes
 * no link of others. What sessions of routing protocols consist of does not wait behind its own router's transit.
 */
#ifndef SPLITPLANE_PACKET_OUT_H
#define SPLITPLANE_PACKET_OUT_H

#include "pipeline/layout.h"

/* Whether an untagged frame may leave by a port, under a VLAN (0: without a tag); `now_ns` is of the engine's monotonic
 * clock. It is charged to whose that VLAN is. Any thread. */
int sp_lets_out(const struct sp_arrays *tables, sp_u32 port, sp_u32 vlan, const sp_u8 *frame, sp_u32 octets,
                sp_u64 now_ns);

#endif
