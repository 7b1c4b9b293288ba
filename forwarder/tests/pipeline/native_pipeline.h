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
/* A CPU sends so many octets of what is shared, by ticks of 1 ns; what was offered in the tick that it ends, or 0. */
sp_u64 sp_native_offers(struct sp_link_whole *whole, sp_u64 octets, sp_u64 now_ns);
sp_u32 sp_native_selector_hash(struct sp_packet *packet);
sp_u32 sp_native_chosen(sp_u64 seed, sp_u32 vrf, sp_u32 hash, sp_u32 size);

/* On core 0: what becomes of a router's packet that came at `now_ns`, which moves on by what its program takes. */
sp_u32 sp_native_shared(const struct sp_arrays *tables, sp_u32 vrf, sp_u64 *now_ns, sp_u64 forward_ns, sp_u64 drop_ns);

/* There a poll ends. */
#define SP_NATIVE_BUDGET 64u
void sp_native_polled(const struct sp_arrays *tables, sp_u64 queue, sp_u32 work, sp_u64 now_ns);

#endif
