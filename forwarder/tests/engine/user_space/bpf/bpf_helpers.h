/* SPDX-License-Identifier: Apache-2.0
 *
 * In the place of libbpf's header: what the XDP program asks of the kernel, for a build of it that runs as any program.
 */
#ifndef SPLITPLANE_TESTS_BPF_HELPERS_H
#define SPLITPLANE_TESTS_BPF_HELPERS_H

#include "tests/engine/user_space/kernel.h"

#define SEC(name)
#define __uint(name, number) int (*name)[number]
#define __type(name, type) typeof(type) *name

static inline __u64 bpf_ktime_get_ns(void) { return 0; }
static inline __u32 bpf_get_smp_processor_id(void) { return 0; }
static inline __u32 bpf_get_prandom_u32(void) { return 0; }

#endif
