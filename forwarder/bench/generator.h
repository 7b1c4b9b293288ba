/* SPDX-License-Identifier: Apache-2.0
 *
 * What the generator of bench/peers, bench/hostile and bench/fairness and its BPF programs share.
 */
#ifndef SPLITPLANE_BENCH_GENERATOR_H
#define SPLITPLANE_BENCH_GENERATOR_H

#define GENERATOR_DESTINATIONS (1u << 18) /* a power of two; going through more would take the shared cache from the forwarder */
#define GENERATOR_FRAMES (1u << 13) /* given ones, a power of two */
#define GENERATOR_HEAD 128 /* octets of a given frame; what is longer is as it was when the kernel made it: zero */
#define GENERATOR_TTL 64
#define GENERATOR_PORT 9   /* UDP: discard, RFC 863 */
#define GENERATOR_BURST 32 /* frames; a veth's ring holds 256 */
#define GENERATOR_ENTRANCES 64u /* interfaces that an offer goes to, a power of two */

/* What is offered is counted by router, which its VLAN says, and by the window of time in which it was sent. */
#define GENERATOR_ROUTERS 128u /* a power of two; the VLAN's lowest bits */
#define GENERATOR_WINDOWS 2048u /* a power of two; what comes after them is not counted */
#define GENERATOR_WINDOW_NS 10000000u
#define GENERATOR_PHASES 8u /* a power of two */
#define GENERATOR_WAITS 4096u /* of 1,024 ns each; the last one has what waited longer, too */
#define GENERATOR_MOST_STEPS 4096u

struct generator_destination {
    __be32 address;
    __u16 vlan; /* 0: untagged */
    __u16 entrance; /* of an offer: which of its interfaces */
};

struct generator_phase {
    __u64 until_ns;
    __u64 interval; /* as that of the settings */
    __u32 first, mask; /* which destinations: from this one on, so many, a power of two, less one */
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
    __u64 begin_ns;    /* of an offer: its first window's, and nothing is sent before */
    __u64 measured_ns; /* of who observes: packets that were sent before are not in `waits` */
    __u32 phases;      /* of an offer */
    __u32 steps;       /* of a loop, for each frame that an interface sends; at most GENERATOR_MOST_STEPS */
    __u32 slowed;      /* that interface */
    __u32 namespace_inode; /* its network namespace's */
};

struct generator_state {
    __u64 due; /* when the next frame is, as `interval` */
    __u64 sent;
    __u64 first_ns, last_ns; /* when these were; at a given rate only */
    __u32 next; /* destination or given frame */
    __u32 phase;
    __u64 window_end_ns; /* of the window that is counted in */
    __u32 window;
};

struct generator_count {
    __u64 packets; /* of the generator */
    __u64 routed;  /* of these, with a TTL one less */
};

#endif
