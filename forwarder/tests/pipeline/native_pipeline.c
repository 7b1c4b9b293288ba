/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/native_pipeline.h"

#include "pipeline/burst.h"
#include "pipeline/core_clock.h"

struct sp_verdict sp_native_pipeline(sp_tables tables, struct sp_packet *packet, sp_u32 port)
{
    return sp_pipeline(tables, packet, sp_core_at(tables, packet->cpu), port);
}

SP_STATIC_ASSERT(SP_NATIVE_BURST == SP_BURST, "what tests in C++, which do not read that header, take");

void sp_native_burst(sp_tables tables, struct sp_packet *packets, const sp_u32 *ports, struct sp_verdict *verdicts,
                     sp_u32 count)
{
    sp_pipeline_burst(tables, packets, ports, verdicts, count);
}

int sp_native_over_link_share(sp_tables tables, sp_u32 port, sp_u32 interface, sp_u32 octets, sp_u32 cpu, sp_u64 now_ns)
{
    struct sp_native native = {.now_ns = now_ns};
    struct sp_packet packet = {.length = octets, .cpu = cpu, .engine = &native};
    struct sp_meta meta = {.cpu = cpu, .egress = interface};

    return sp_over_link_share(tables, &packet, &meta, port, octets);
}

sp_u64 sp_native_offers(struct sp_link_whole *whole, sp_u64 octets, sp_u64 now_ns)
{
    sp_u64 elapsed_ns, offered;

    __sync_fetch_and_add(&whole->offered, octets);
    return sp_link_tick(whole, 1, now_ns, &elapsed_ns, &offered) ? offered : 0;
}

sp_u32 sp_native_selector_hash(struct sp_packet *packet)
{
    struct sp_meta meta = {0};

    sp_parse_ethernet(packet, &meta);
    sp_punt(packet, &meta);
    return sp_selector_hash_of(packet, &meta);
}

sp_u32 sp_native_chosen(sp_u64 seed, sp_u32 vrf, sp_u32 hash, sp_u32 size)
{
    return sp_chosen(seed, vrf, hash, size);
}

sp_u32 sp_native_shared(sp_tables tables, sp_u32 vrf, sp_u64 *now_ns, sp_u64 forward_ns, sp_u64 drop_ns)
{
    struct sp_native native = {.now_ns = *now_ns};
    struct sp_packet packet = {.engine = &native};
    struct sp_meta meta = {.vrf = vrf, .keep_ttl = 1};

    sp_core_time(&packet, tables->cores);
    sp_u32 reason = sp_share_core(tables, &packet, tables->cores, &meta, SP_NO_REASON);
    *now_ns += reason == SP_DROP_OVER_SHARE ? drop_ns : forward_ns;
    if (tables->cores->timed) {
        sp_core_timed(tables, 0, vrf, reason, *now_ns);
    }
    return reason;
}

void sp_native_polled(sp_tables tables, sp_u64 queue, sp_u32 work, sp_u64 now_ns)
{
    sp_core_polled(tables->cores, queue, work, SP_NATIVE_BUDGET, now_ns);
}
