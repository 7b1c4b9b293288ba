/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/native_pipeline.h"

#include "pipeline/burst.h"

struct sp_verdict sp_native_pipeline(sp_tables tables, struct sp_packet *packet, sp_u32 port)
{
    return sp_pipeline(tables, packet, port);
}

SP_STATIC_ASSERT(SP_NATIVE_BURST == SP_BURST, "what tests in C++, which do not read that header, take");

void sp_native_burst(sp_tables tables, struct sp_packet *packets, const sp_u32 *ports, struct sp_verdict *verdicts,
                     sp_u32 count)
{
    sp_pipeline_burst(tables, packets, ports, verdicts, count);
}

int sp_native_over_link_share(sp_tables tables, sp_u32 port, sp_u32 interface, sp_u32 octets, sp_u32 cpu, sp_u64 now_ns)
{
    struct sp_native native = {0, now_ns, cpu, 0};
    struct sp_packet packet = {0, 0, octets, &native};
    struct sp_meta meta = {.cpu = cpu, .egress = interface};

    return sp_over_link_share(tables, &packet, &meta, port, octets);
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
