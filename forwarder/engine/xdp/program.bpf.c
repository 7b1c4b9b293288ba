/* SPDX-License-Identifier: Apache-2.0
 *
 * The program on every port.
 */
#include "engine/xdp/run.h"

char sp_license[] SEC("license") = "Apache-2.0";

SEC("xdp")
int forward(struct xdp_md *context)
{
    sp_u32 port = sp_port_of(context->ingress_ifindex);

    if (sp_unlikely(port == 0)) {
        sp_count_engine((sp_tables)0, bpf_get_smp_processor_id(), SP_COUNT_NO_PORT);
        return XDP_DROP;
    }
    if (sp_unlikely(port & SP_PORT_OF_BOND)) {
        if (sp_is_slow_protocol(context)) {
            return XDP_PASS;
        }
        port &= SP_PORTS - 1;
    }
    return sp_run(context, port);
}
