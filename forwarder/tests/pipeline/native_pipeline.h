/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipeline compiled once as C, for tests in C++.
 */
#ifndef SPLITPLANE_TESTS_NATIVE_PIPELINE_H
#define SPLITPLANE_TESTS_NATIVE_PIPELINE_H

#include "pipeline/verdict.h"

struct sp_verdict sp_native_pipeline(sp_tables tables, struct sp_packet *packet, sp_u32 port);
#define SP_NATIVE_BURST 64u /* frames at most */
void sp_native_burst(sp_tables tables, struct sp_packet *packets, const sp_u32 *ports, struct sp_verdict *verdicts,
                     sp_u32 count);
/* Whether a frame that leaves by a router interface of a port is over its share of the link. */
int sp_native_over_link_share(sp_tables tables, sp_u32 port, sp_u32 interface, sp_u32 octets, sp_u32 cpu,
                              sp_u64 now_ns);
sp_u32 sp_native_selector_hash(struct sp_packet *packet);
sp_u32 sp_native_chosen(sp_u64 seed, sp_u32 vrf, sp_u32 hash, sp_u32 size);

#endif
