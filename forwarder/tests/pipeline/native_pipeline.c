/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/native_pipeline.h"

#include "pipeline/pipeline.h"

struct sp_verdict sp_native_pipeline(sp_tables tables, struct sp_packet *packet, sp_u32 port)
{
    return sp_pipeline(tables, packet, port);
}

sp_u32 sp_native_selector_hash(struct sp_packet *packet)
{
    struct sp_meta meta = {0};

    sp_parse_ethernet(packet, &meta);
    sp_punt(packet, &meta);
    return sp_selector_hash_of(packet, &meta);
}
