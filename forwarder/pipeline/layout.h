/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables as flat arrays: what the daemon writes in place and both builds of the pipeline read.
 *
 *     classifier[port, VLAN] ─► interface ─► vrf ─► route trie (words) ─► group ─► nexthop ─► interface
 *
 * One writer, many readers without locks. Whatever a reader takes in one piece is one aligned word here, stored and
 * loaded whole; what is longer (a trie's block, a group's members) is written where no reader looks, then
 * published by storing the one word that names it, and its room is used again only after a grace period.
 *
 * Slots are dense indexes that the daemon gives to the ids of P4Runtime; slot 0 of `vrfs` is `vrf_id` 0, nobody's.
 * Codes and sizes are those of p4src/common/ids.p4; a test compares.
 */
#ifndef SPLITPLANE_LAYOUT_H
#define SPLITPLANE_LAYOUT_H

#if defined(__bpf__)
#include <linux/types.h>
typedef __u8 sp_u8;
typedef __u16 sp_u16;
typedef __u32 sp_u32;
typedef __u64 sp_u64;
typedef __s32 sp_i32;
#else
#include <stdint.h>
typedef uint8_t sp_u8;
typedef uint16_t sp_u16;
typedef uint32_t sp_u32;
typedef uint64_t sp_u64;
typedef int32_t sp_i32;
#endif

#if defined(__cplusplus)
#define SP_STATIC_ASSERT static_assert
#else
#define SP_STATIC_ASSERT _Static_assert
#endif

/* Goes up with every change of this file: maps of another number are never taken over. */
#define SP_LAYOUT 11

/* -- sizes, in entries ------------------------------------------------------------------------------------------ */
#define SP_PORTS 512u /* bit<9> */
#define SP_VLANS 4096u
#define SP_VRFS 8192u /* ROUTERS; slot 0 is nobody's */
#define SP_SLICES 8192u /* as many as routers; slot 0 is of those that nobody gave one */
#define SP_INTERFACES 16384u
#define SP_INTERFACE_MACS 5u /* its own and VIRTUAL_MACS */
#define SP_NEXTHOPS 65536u
#define SP_GROUPS 16384u
#define SP_GROUP_WEIGHT 256u
#define SP_GROUP_MEMBERS 262144u
#define SP_PUNT_CLASSES 11u
#define SP_CLASS_SLOTS 16u /* a power of two, one for each class and some that stay free */

/* Of `words`: what is published in one piece lies in one chunk, and not in the last words of that, so that a reader who
 * has found where it begins may read so many from there. A chunk is 2 MiB; the last may be shorter. */
#define SP_WORDS_CHUNK (1u << 19)
#define SP_WORDS_SPAN 132u /* a node with more slots than there are: what 7 bits can count */
#define SP_BUCKET_WORDS 16u /* a bucket is one cache line; what consists of buckets may lie in several chunks */

/* -- reasons: PUNT_* go to the controller, DROP_* end here (ids.p4) ---------------------------------------------- */
enum sp_reason {
    SP_NO_REASON = 0,
    SP_PUNT_CONTROL = 1,
    SP_PUNT_LOCAL = 2,
    SP_PUNT_GLEAN = 3,
    SP_PUNT_TTL_EXPIRED = 4,
    SP_PUNT_MTU_EXCEEDED = 5,
    SP_PUNT_UNREACHABLE = 6,
    SP_PUNT_IP_OPTIONS = 7,
    SP_PUNT_HOP_BY_HOP = 8,
    SP_SAMPLE = 9, /* on the way to the daemon alone: what is sampled is forwarded, neither counted nor policed as a punt */
    SP_FIRST_DROP = 0x80,
    SP_DROP_UNKNOWN_INTERFACE = 0x80,
    SP_DROP_NOT_FOR_US = 0x81,
    SP_DROP_BLACKHOLE = 0x82,
    SP_DROP_NEIGHBOR_FAILED = 0x83,
    SP_DROP_MULTICAST = 0x84,
    SP_DROP_L2_MULTICAST = 0x85,
    SP_DROP_MARTIAN = 0x86,
    SP_DROP_ETHERTYPE = 0x87,
    SP_DROP_MALFORMED = 0x88,
    SP_DROP_OVER_SHARE = 0x89,
};

/* -- punt classes: what a punt is policed as, the most urgent first (ids.p4) --------------------------------------- */
enum sp_punt_class {
    SP_CLASS_BFD = 0,
    SP_CLASS_ROUTING = 1,
    SP_CLASS_BGP = 2,
    SP_CLASS_ARP = 3,
    SP_CLASS_ICMP = 4,
    SP_CLASS_LOCAL = 5,
    SP_CLASS_GLEAN = 6,
    SP_CLASS_TTL = 7,
    SP_CLASS_MTU = 8,
    SP_CLASS_UNREACHABLE = 9,
    SP_CLASS_OPTIONS = 10,
};

/* Reasons side by side, for counters: 1 to 8 are punts, 9 to 18 drops; 0 is not used. */
#define SP_REASONS 19u
static inline sp_u32 sp_reason_index(sp_u32 reason)
{
    return reason < SP_FIRST_DROP ? reason : reason - SP_FIRST_DROP + 9;
}

/* -- interface_classifier: one word for a port and VLAN; 0 is a miss --------------------------------------------- */
enum sp_classifier_kind { SP_CLASSIFIER_MISS = 0, SP_CLASSIFIER_INGRESS = 1, SP_CLASSIFIER_EGRESS = 2 };

static inline sp_u32 sp_classifier_index(sp_u32 port, sp_u32 vlan)
{
    return port * SP_VLANS + vlan;
}
/* `counter`: a slot of rx counters, one for each entry of the table. */
static inline sp_u64 sp_classifier(sp_u32 kind, sp_u32 vrf, sp_u32 interface, sp_u32 counter)
{
    return (sp_u64)kind | (sp_u64)vrf << 8 | (sp_u64)interface << 24 | (sp_u64)counter << 40;
}
static inline sp_u32 sp_classifier_kind(sp_u64 entry) { return entry & 0xff; }
static inline sp_u32 sp_classifier_vrf(sp_u64 entry) { return entry >> 8 & (SP_VRFS - 1); }
static inline sp_u32 sp_classifier_interface(sp_u64 entry) { return entry >> 24 & (SP_INTERFACES - 1); }
static inline sp_u32 sp_classifier_counter(sp_u64 entry) { return entry >> 40 & (SP_INTERFACES - 1); }

/* -- MACs as numbers: the first octet on the wire is the highest of 48 bits -------------------------------------- */

/* -- l3_admit, router_interface, router_interface_egress, fallback_link: all keyed by the router interface -------- */
/* What every packet asks for lies apart from what few ask for, so that a core's own cache has room for more routers:
 * of the interface that it comes in by one MAC (sp_arrays.macs), of the one that it leaves by two words. */
struct sp_egress {
    sp_u64 port;    /* sp_port(): where it leaves; 0: a miss of router_interface */
    sp_u64 rewrite; /* SP_PRESENT | source MAC; 0: a miss of router_interface_egress */
};
SP_STATIC_ASSERT(sizeof(struct sp_egress) == 16, "never on two cache lines");
struct sp_interface {
    sp_u64 more_macs[SP_INTERFACE_MACS - 1]; /* that it admits beside the first; 0: none */
    sp_u32 id;                               /* router_interface_id, for packet-in */
    sp_u32 fallback; /* SP_FALLBACK_PRESENT | port << 12 | VLAN; 0: a miss of fallback_link */
};

#define SP_PRESENT ((sp_u64)1 << 48)
#define SP_MAC_MASK (SP_PRESENT - 1)
#define SP_SAMPLED ((sp_u64)1 << 49) /* of sp_egress.port: what is routed out of here is looked at for samples */
#define SP_FALLBACK_PRESENT ((sp_u32)1 << 31)

static inline sp_u64 sp_port(sp_u32 port, sp_u32 vlan, sp_u32 mtu)
{
    return SP_PRESENT | (sp_u64)mtu << 32 | vlan << 16 | port;
}
static inline sp_u32 sp_port_number(sp_u64 port) { return port & (SP_PORTS - 1); }
static inline sp_u32 sp_port_vlan(sp_u64 port) { return port >> 16 & (SP_VLANS - 1); }
static inline sp_u32 sp_port_mtu(sp_u64 port) { return port >> 32 & 0xffff; }

/* -- ipv4_route, ipv6_route --------------------------------------------------------------------------------------- */
/* What a route does: a kind and, for nexthops and groups, a slot. 0 is no route. The two top bits stay free: the
 * trie marks its blocks with them. */
enum sp_route_kind {
    SP_ROUTE_NONE = 0,
    SP_ROUTE_NEXTHOP = 1,
    SP_ROUTE_GROUP = 2,
    SP_ROUTE_LOCAL = 3,
    SP_ROUTE_GLEAN = 4,
    SP_ROUTE_UNREACHABLE = 5,
    SP_ROUTE_BLACKHOLE = 6,
    SP_ROUTE_FALLBACK = 7,
};
static inline sp_u32 sp_leaf(sp_u32 kind, sp_u32 slot) { return kind << 24 | slot; }
static inline sp_u32 sp_leaf_kind(sp_u32 leaf) { return leaf >> 24; }
static inline sp_u32 sp_leaf_slot(sp_u32 leaf) { return leaf & 0xffffff; }

/* A trie of one VRF and family is one word, its root (sp_arrays.roots), that is read and written whole; its meaning is
 * trie.h's. A default route is kept apart, so that its change is one store however full the trie is. */
enum sp_family { SP_IPV4 = 0, SP_IPV6 = 1, SP_FAMILIES = 2 };

struct sp_vrf {
    sp_u32 default_leaf[SP_FAMILIES];
    sp_u32 counted; /* bit sp_reason_index(r): the table `reason` has an entry for it */
    sp_u32 id;
};

/* -- nexthop_group: sp_group(), or 0 for a miss; `members` are nexthop slots, a place of the group each --- */
static inline sp_u64 sp_group(sp_u32 base, sp_u32 size) { return (sp_u64)base << 16 | size; }
static inline sp_u32 sp_group_base(sp_u64 group) { return (sp_u32)(group >> 16); }
static inline sp_u32 sp_group_size(sp_u64 group) { return group & 0xffff; }

/* -- nexthop: one word --------------------------------------------------------------------------------------------- */
enum sp_nexthop_kind { SP_NEXTHOP_MISS = 0, SP_NEXTHOP_FORWARD = 1, SP_NEXTHOP_GLEAN = 2, SP_NEXTHOP_FAILED = 3 };

static inline sp_u64 sp_nexthop(sp_u32 kind, sp_u32 interface, sp_u64 mac)
{
    return (sp_u64)kind << 62 | (sp_u64)interface << 48 | mac;
}
static inline sp_u32 sp_nexthop_kind(sp_u64 nexthop) { return (sp_u32)(nexthop >> 62); }
static inline sp_u32 sp_nexthop_interface(sp_u64 nexthop) { return nexthop >> 48 & (SP_INTERFACES - 1); }
static inline sp_u64 sp_nexthop_mac(sp_u64 nexthop) { return nexthop & SP_MAC_MASK; }

/* -- policer: a bucket for each router and class, as virtual scheduling (ITU-T I.371, GCRA) ------------------------ */
/* A packet passes while `due` is at most `tolerance_ns` ahead of now, and moves it on by `interval_ns`. Beneath it each
 * router interface that receives has a share, a bucket of an equal part of the rate (sp_police_share); of that there is
 * only its `due` (sp_arrays.share_dues). The pipeline writes what is due atomically, the daemon the rest, and 0 there
 * where a rate or who has the slot is another one. */
struct sp_policer {
    sp_u64 due;          /* ns, of the engine's monotonic clock */
    sp_u64 tolerance_ns; /* burst, less one packet */
    sp_u32 interval_ns;  /* between packets at the rate; 0 with present: everything passes */
    sp_u32 shares;       /* router interfaces that have one; 0: a miss: everything of the class is dropped */
    sp_u64 reserved;     /* so that none lies on two cache lines */
};
SP_STATIC_ASSERT(sizeof(struct sp_policer) == 32, "never on two cache lines");
SP_STATIC_ASSERT(SP_CLASS_SLOTS * sizeof(struct sp_policer) % 64 == 0, "CPUs that police two routers share no line");

static inline sp_u32 sp_policer_index(sp_u32 vrf, sp_u32 punt_class) { return vrf * SP_CLASS_SLOTS + punt_class; }
static inline sp_u32 sp_share_index(sp_u32 interface, sp_u32 punt_class)
{
    return interface * SP_CLASS_SLOTS + punt_class;
}

/* -- samples: one of so many packets that are routed, its head only, for the controller ---------------------------- */
/* Read only for packets that leave by a router interface with SP_SAMPLED: nobody else pays for it. */
struct sp_sampling {
    sp_u32 threshold;          /* a packet is chosen when 32 random bits are not above this */
    struct sp_policer policer; /* of all routers together */
};
#define SP_SAMPLE_OCTETS 54u /* of a frame, without its tag: as far as the destination of IPv6 */

/* -- shares: what a router gets of a core and of a link that are too small for all ---------------------------------- */
/* Routers share what their slice gets, slices the whole. The daemon writes each word whole; a mixture of two
 * configurations lasts for no longer than the writing of three words, and is one of those that are allowed. */
#define SP_SHARE_WHOLE 1000000u /* guarantee and ceiling are millionths of the core or link */
#define SP_SHARE_WEIGHTS 1000u  /* the largest weight */
struct sp_share {
    sp_u32 weight;    /* 1 to SP_SHARE_WEIGHTS; 0: nobody said any, 1 */
    sp_u32 guarantee; /* 0: none */
    sp_u32 ceiling;   /* 0: none */
    sp_u32 slice;     /* of a router: its slot; of a slice: not used */
};
SP_STATIC_ASSERT(sizeof(struct sp_share) == 16, "never on two cache lines");

/* What each core knows of its routers and slices (share.h); each CPU writes only its own. Times are ns. */
struct sp_core_router {
    sp_u64 spent;   /* of the core's time, since the first process; what its packets cost, those that are dropped, too */
    sp_u64 due;     /* how much it may have spent by now: beyond it is over its share */
    sp_u64 at;      /* the core's clock when `due` was last raised */
    sp_u64 told;    /* of `spent`, what its slice knows of */
    sp_u64 dropped; /* packets over its share of the core, since the first process */
    sp_u64 seen;    /* when the time began in which it was last counted among those that send: to its slice, or the core */
    sp_u32 cost;    /* that the program takes for one of its packets, a moving average; 0: not known yet */
    sp_u32 drops;   /* of `spent`, for packets that were dropped since `due` was last raised, */
    sp_u32 is_capped; /* and whether a ceiling, its own or its slice's, was the reason */
    sp_u32 reserved;
};
SP_STATIC_ASSERT(sizeof(struct sp_core_router) == 64, "a cache line for each router");

struct sp_core_slice {
    sp_u64 at;    /* when `level` was last set */
    sp_u64 spent; /* by its routers since then */
    sp_u64 level; /* what its routers have for a weight of 1, of SP_CORE_WHOLE; 0: not set yet */
    sp_u64 seen;  /* the core's `measured` when it was last counted among those that send */
    sp_u32 weights;    /* of its routers that have sent since `at`, */
    sp_u32 guaranteed; /* and what they are guaranteed */
    sp_u32 is_capped;  /* whether its ceiling was all that it had when `level` was last set */
    sp_u32 reserved[5];
};
SP_STATIC_ASSERT(sizeof(struct sp_core_slice) == 64, "never on two cache lines");

#define SP_CORE_WHOLE ((sp_u64)1 << 32) /* all of a core's time, as a rate or level */
/* So many packets may pass between two polls: of more there is nobody who measures, and then there are no shares. */
#define SP_CORE_TRUST 8192u

/* A core: what every packet reads, what a router's first packet of a poll does, and what is known at a poll's end (NAPI). */
struct sp_core {
    sp_u64 clock;       /* when the last poll ended, or this one began */
    sp_u64 begun;       /* when this poll began */
    sp_u64 charged;     /* to all in this poll, without what other polls take */
    sp_u64 timed;       /* when the packet began whose program is timed; 0: none is */
    sp_u32 left;        /* of SP_CORE_TRUST, in this poll; 0: there are no shares */
    sp_u32 until_timed; /* packets */
    sp_u32 dropped;     /* packets over their share, in this poll */
    sp_u32 drop_cost;   /* that the program takes for one of these, a moving average */
    sp_u32 driver_cost; /* what the driver takes for a packet besides, */
    sp_u32 driver_drop; /* and for one that is dropped */
    sp_u32 beside_cost; /* what other devices' polls take for one that was sent to them */
    sp_u32 reserved;

    sp_u64 level;      /* what slices have for a weight of 1, of SP_CORE_WHOLE */
    sp_u64 measured;   /* since when the next level is measured; */
    sp_u32 weights;    /* of slices that have sent in this time, */
    sp_u32 guaranteed; /* and what they are guaranteed */
    sp_u64 drained;    /* when the ring was last empty; 0: the last poll has left something in it */
    sp_u64 ended;      /* when the last poll ended, whoever's */
    sp_u64 idle;       /* how long the ring was empty */
    sp_u64 spent;      /* by all routers */
    sp_u64 beside;     /* by other devices' polls */

    sp_u64 queue;      /* that was polled last */
    sp_u32 forwarded;  /* packets that were not dropped over their share */
    sp_u32 drains;     /* polls that left the ring empty */
    sp_u32 saturated;  /* milliseconds without any, one after the other, SP_CORE_STEPS at most */
    sp_u32 senders;    /* who has sent in this time; of a slice with several routers more than one */
    sp_u64 company;    /* when there was last more than one; 0: never */
    sp_u64 drops;      /* of `spent`, for packets of whom the level held back */
    sp_u32 unused[6];
};
SP_STATIC_ASSERT(sizeof(struct sp_core) == 192, "three cache lines");

/* -- links: the same shares of a port's speed, link_share.h ------------------------------------------------------- */
/* Rates are octets in 2^30 ns, so that no packet divides; octets are those of the wire. The daemon writes speeds and
 * shares, the pipeline the rest, atomically: CPUs that send by one port share all of it but their credits. */
#define SP_LINK_SLICES 8192u   /* slices on ports; slot 0 is none */
#define SP_LINK_ROUTERS 16384u /* routers on ports; slot 0 is of those that nobody gave one */

/* What is shared: a port's speed by slices and by routers without one, or what a slice has of it by its routers. */
struct sp_link_whole {
    sp_u64 bucket;  /* what may be sent at once, and when that was so: sp_link_bucket() */
    sp_u64 level;   /* what a weight of 1 may take: a rate << SP_LINK_LEVEL_SHIFT */
    sp_u64 since;   /* ns, of the engine's monotonic clock: when the level was computed */
    sp_u64 offered; /* octets that those who share it were let send since then */

    sp_u64 held;    /* weights of whom the level holds back, by ticks; of the last SP_LINK_MEMORY */
    sp_u64 highest; /* the highest level up to which somebody would be held back, in about as many; 0: not known */
};
#define SP_LINK_LEVEL_SHIFT 12

/* How much a port may send at once, octets: so much, or what it sends in 2^20 ns. For so long is also a tick of it, and
 * a CPU tells of what it sends in sixteenths of that. */
#define SP_LINK_BURST (1u << 16)
#define SP_LINK_BURST_SHIFT 10

struct sp_link {
    sp_u64 speed;   /* a rate */
    sp_u64 tick_ns; /* from one level to the next */
    sp_u64 use;     /* a rate: what was last sent, or was to be */
    sp_u64 calm;    /* ticks with something left, one after the other */
    struct sp_link_whole whole;
    sp_u64 reserved[6];
};
struct sp_link_slice {
    sp_u64 guarantee; /* a rate */
    sp_u64 ceiling;   /* a rate; 0: none */
    sp_u64 weight;    /* 0 is 1 */
    struct sp_link_whole whole;
    sp_u64 reserved[7];
};
struct sp_link_router {
    sp_u64 guarantee;
    sp_u64 ceiling;
    sp_u32 weight;
    sp_u32 slice;   /* its slot; 0: none */
    sp_u64 asked;   /* octets that it was to send since `told` */
    sp_u64 bucket;
    sp_u64 dropped; /* packets over its share */
    sp_u64 routing; /* a bucket: what it may send for its routing protocols beyond its share, packet_out.h */
    sp_u64 told;    /* ns: when its slice, or its port, was told of that */
};
SP_STATIC_ASSERT(sizeof(struct sp_link) == 128 && sizeof(struct sp_link_slice) == 128 &&
                     sizeof(struct sp_link_router) == 64, "whole cache lines");

/* What is asked of a port, one word; 0: its speed is not shared. Above the bits is a number of octets: so
 * many a CPU sends between two looks at the clock. */
#define SP_LINK_SHARED ((sp_u64)1)
#define SP_LINK_CONTENDED ((sp_u64)2) /* there may be too little for all: each packet is looked at */
#define SP_LINK_ALWAYS ((sp_u64)4)    /* somebody has a ceiling: it stays so */
static inline sp_u64 sp_link_mode(sp_u64 bits, sp_u64 quantum) { return bits | quantum << 8; }
static inline sp_u64 sp_link_quantum(sp_u64 mode) { return mode >> 8; }

/* What a CPU sends by a port before it looks at the port's mode again, octets of the wire; all zero at first. */
struct sp_link_credit {
    sp_u64 left;    /* of what it was given */
    sp_u64 granted; /* when it last looked: the quantum; 0 by a port that is contended */
};
#define SP_LINK_UNSHARED_CREDIT (1u << 20) /* by a port whose speed is not shared, which may change */

/* -- counters: by CPU, then slot; each CPU writes only its own ------------------------------------------------------ */
struct sp_counter {
    sp_u64 packets;
    sp_u64 bytes;
};

/* Where punts are lost on their way to the controller. They are counted by the router interface that they came in by
 * and class, by all CPUs together and by the daemon: whoever floods waits for the others. From 0 with each process. */
enum sp_punt_place {
    SP_PLACE_POLICER = 0, /* over the rate of their router and class */
    SP_PLACE_RING = 1,    /* the ring to the daemon had no room for their class */
    SP_PLACE_OUTBOX = 2,  /* the controller did not take them */
    SP_PLACES = 3,
};
static inline sp_u32 sp_punt_drop_index(sp_u32 interface, sp_u32 place, sp_u32 punt_class)
{
    return (interface * SP_PLACES + place) * SP_CLASS_SLOTS + punt_class;
}

/* What the engine and not the contract counts, by CPU. */
enum sp_engine_counter {
    SP_COUNT_POLICED = 0,      /* punts over their policer's rate */
    SP_COUNT_RING_FULL = 1,    /* punts for whose class the ring to the daemon had no room */
    SP_COUNT_NO_PORT = 2,      /* to a port that is not attached */
    SP_COUNT_NO_ROOM = 3,      /* no headroom for a VLAN tag */
    SP_COUNT_TOO_LONG = 4,     /* punts longer than the ring's longest record has room for */
    SP_COUNT_SAMPLED = 5,           /* samples chosen that the policer let pass */
    SP_COUNT_SAMPLE_POLICED = 6,    /* samples over the rate */
    SP_COUNT_SAMPLE_RING_FULL = 7,  /* samples for which the ring had no room; the packets themselves were sent */
    SP_ENGINE_COUNTERS = 8,
};

/* Why a frame that was sent, and counted so, did not leave by its port: what the kernel says behind the pipeline. By CPU
 * and port. */
enum sp_loss {
    SP_LOSS_DOWN = 0,      /* the interface is down */
    SP_LOSS_TOO_LONG = 1,  /* for the interface's MTU */
    SP_LOSS_NO_QUEUE = 2,  /* none for this CPU, or nobody polls the other end */
    SP_LOSS_UNABLE = 3,    /* the driver sends nothing for XDP */
    SP_LOSS_RING_FULL = 4, /* of the driver */
    SP_LOSS_OTHER = 5,
    SP_LOSSES = 8,
};

/* -- the arrays ------------------------------------------------------------------------------------------------------ */
/* Where an engine has put them. Lengths that are not constants above stand beside their array. */
struct sp_arrays {
    sp_u64 *classifier;              /* [SP_PORTS * SP_VLANS] */
    sp_u64 *macs;                    /* [SP_INTERFACES], the first that each admits; 0: none */
    struct sp_egress *egresses;      /* [SP_INTERFACES] */
    struct sp_interface *interfaces; /* [SP_INTERFACES] */
    sp_u64 *roots[SP_FAMILIES];      /* [SP_VRFS]; 0: no route but the default one */
    struct sp_vrf *vrfs;             /* [SP_VRFS] */
    sp_u32 *words;                   /* [word_count], a multiple of 16; chunk behind chunk */
    sp_u64 *groups;                  /* [SP_GROUPS] */
    sp_u16 *members;                 /* [member_count], a multiple of 4 */
    sp_u64 *nexthops;                /* [SP_NEXTHOPS] */
    struct sp_policer *policers;     /* [SP_VRFS * SP_CLASS_SLOTS], sp_policer_index() */
    sp_u64 *share_dues;              /* [SP_INTERFACES * SP_CLASS_SLOTS], sp_share_index(); ns */
    struct sp_share *router_shares;  /* [SP_VRFS] */
    struct sp_share *slice_shares;   /* [SP_SLICES] */
    sp_u64 *link_modes;              /* [SP_PORTS], sp_link_mode() */
    sp_u32 *link_slots;              /* [SP_INTERFACES], of link_routers: who sends by a router interface */
    struct sp_link *links;           /* [SP_PORTS] */
    struct sp_link_slice *link_slices;   /* [SP_LINK_SLICES] */
    struct sp_link_router *link_routers; /* [SP_LINK_ROUTERS] */
    struct sp_link_credit *link_credits; /* [cpus][SP_PORTS] */
    struct sp_sampling *sampling;    /* one */
    sp_u64 *ports_down;              /* [SP_PORTS / 64], a bit for each that has no link: groups do without it */
    sp_u64 *hash_seed;               /* one word, nexthop_group.h; 0: flows are spread as BMv2 does */
    struct sp_counter *rx;           /* [cpus][SP_INTERFACES], of classifier entries */
    struct sp_counter *tx;           /* [cpus][SP_INTERFACES], of router interfaces */
    struct sp_counter *reasons;      /* [cpus][SP_VRFS][SP_REASONS] */
    sp_u64 *engine_counters;         /* [cpus][SP_ENGINE_COUNTERS] */
    struct sp_core *cores;           /* [cpus]; level 0: no shares are in force there */
    struct sp_core_router *core_routers; /* [cpus][SP_VRFS] */
    struct sp_core_slice *core_slices;   /* [cpus][SP_SLICES] */
    sp_u64 *punt_drops;              /* [SP_INTERFACES][SP_PLACES][SP_CLASS_SLOTS], sp_punt_drop_index() */
    sp_u32 word_count;
    sp_u32 member_count;
    sp_u32 cpus;
};

#endif
