/* SPDX-License-Identifier: Apache-2.0
 *
 * What the generator of bench/peers and bench/hostile and its BPF programs share.
 */
#ifndef SPLITPLANE_BENCH_GENERATOR_H
#define SPLITPLANE_BENCH_GENERATOR_H

#define GENERATOR_DESTINATIONS (1u << 18) /* a power of two; going through more would take the shared cache from the forwarder */
#define GENERATOR_FRAMES (1u << 13) /* given ones, a power of two */
#define GENERATOR_HEAD 128 /* octets of a given frame; what is longer is as it was when the kernel made it: zero */
#define GENERATOR_TTL 64
#define GENERATOR_PORT 9   /* UDP: discard, RFC 863 */
#define GENERATOR_BURST 32 /* frames; a veth's ring holds 256 */

struct generator_destination {
    __be32 address;
    __u16 vlan; /* 0: untagged */
    __u16 unused;
};

struct generator_frame {
    __u8 head[GENERATOR_HEAD];
};

struct generator_settings {
    __u64 interval; /* between frames, in 1024ths of a nanosecond; 0: as fast as it goes */
    __u32 length;   /* of a frame without its check sequence, octets */
    __u32 mask;     /* number of destinations or given frames, a power of two, less one */
    __u32 sum;      /* of the IPv4 header but length and destination, RFC 1071, not folded */
    __be32 source_address;
    __u8 source[6];
    __u8 target[6];
};

struct generator_state {
    __u64 due; /* when the next frame is, as `interval` */
    __u64 sent;
    __u64 first_ns, last_ns; /* when these were; at a given rate only */
    __u32 next; /* destination or given frame */
};

struct generator_count {
    __u64 packets; /* of the generator */
    __u64 routed;  /* of these, with a TTL one less */
};

#endif
