/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The clock of cores: at the end of each poll (NAPI) of whatever device, for the CPU that it was on (core_clock.h).
 *
 * Attached to a tracepoint and pinned like the program on the ports, and so at work while the daemon is dead. Whose poll
 * it was needs no look into the kernel's structures: of ours are those in which the pipeline has seen packets. So nobody
 * has to be told when one process takes over from another: each has cores of its own, and those of a program that is on
 * no port see none.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "pipeline/core_clock.h"

char sp_license[] SEC("license") = "GPL"; /* as of the others that are attached to the kernel itself */

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1); /* CPUs; it is the other object's */
    __uint(key_size, 4);
    __uint(value_size, sizeof(struct sp_core));
} map_cores SEC(".maps");

/* NAPI, packets, budget */
SEC("tp_btf/napi_poll")
int poll_ended(unsigned long long *context)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct sp_core *core = bpf_map_lookup_elem(&map_cores, &cpu);

    if (core) {
        sp_core_polled(core, context[0], (__u32)context[1], (__u32)context[2], bpf_ktime_get_ns());
    }
    return 0;
}
