/* SPDX-License-Identifier: Apache-2.0
 *
 * The XDP program in user space: its entry, and the kernel's side of it, which a test writes.
 */
#ifndef SPLITPLANE_TESTS_USER_SPACE_KERNEL_H
#define SPLITPLANE_TESTS_USER_SPACE_KERNEL_H

#include <linux/bpf.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sp_arrays;

/* The program, of a frame in the lowest 4 GiB: a context has room for 32 bits of an address. */
int sp_user_forward(struct xdp_md *context);

/* Where its arrays are; what lies in `fixed` of maps.h is put there. */
void sp_user_arrays(struct sp_arrays *arrays);

/* Let frames of an interface come in by a port. */
void sp_user_port(__u32 ifindex, __u32 port);

/* bpf-helpers(7) */
void *bpf_map_lookup_elem(void *map, const void *key);
long bpf_redirect_map(void *map, __u64 key, __u64 flags);
long bpf_xdp_adjust_head(struct xdp_md *context, int delta);
__u64 bpf_xdp_get_buff_len(struct xdp_md *context);
long bpf_xdp_load_bytes(struct xdp_md *context, __u32 offset, void *into, __u32 octets);
void *bpf_ringbuf_reserve(void *ring, __u64 octets, __u64 flags);
void bpf_ringbuf_submit(void *record, __u64 flags);
void bpf_ringbuf_discard(void *record, __u64 flags);
__u64 bpf_ringbuf_query(void *ring, __u64 what);

#ifdef __cplusplus
}
#endif

#endif
