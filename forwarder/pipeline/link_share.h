/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a link has room for a packet, and whose: a port's speed by weighted max-min with guarantees and ceilings, by
 * slice and then by router. Decided before the frame is changed, and without a queue.
 *
 *     calm        each CPU has a credit, and tells the port when it is spent; nearly its speed in a tick ───────┐
 *      ▲                                                                                                        ▼
 *      └── for 16 ticks clearly less ── contended: each packet asks the buckets of its router, slice and port
 *
 * A router's bucket is filled at the rate that its share says, min(max(level * weight, guarantee), ceiling); so is a
 * slice's, and a port's at its speed. What a router's bucket has no room for is dropped. Once a tick a level is made to
 * fit:
 *
 *     level += (what there is + a part of what the bucket has beyond a half - what those who share it were let send)
 *              / (4 * weights of whom the level holds back)
 *
 * That is a quarter of Newton's step to where all is taken, whatever part of it does not depend on the level. So the
 * bucket of what is scarce stays half full. Once a tick each router, and each slice, tells what it asked for: if that is
 * all that the level leaves it, it is held back. Where there is too little, no level is higher than what somebody asks
 * for (as the fair rate of CSFQ, Stoica, Shenker and Zhang 1998): it would take long to come down from there.
 *
 * While a level has not yet followed what changed, the emptier the bucket of what is scarce is, the fuller has to be the
 * bucket of who takes from it. Whoever keeps to his share has a full one, and loses nothing to others that way.
 */
#ifndef SPLITPLANE_LINK_SHARE_H
#define SPLITPLANE_LINK_SHARE_H

#include "pipeline/packet.h"

/* What the wire takes beside the frame: preamble and delimiter 8, check sequence 4, gap 12; and of the shortest frame
 * (IEEE 802.3 clauses 3 and 4). */
#define SP_WIRE_OCTETS 24u
#define SP_WIRE_LEAST 84u

/* How much a router may send at once: half of what its port may, so that one who begins to send does not empty the
 * port's bucket for those who keep to their shares; 32 frames at least, octets. */
#define SP_LINK_ROUTER_BURST (32u * 1538u)
#define SP_LINK_ROUTER_BURST_SHIFT (SP_LINK_BURST_SHIFT + 1)

#define SP_LINK_CALM_TICKS 16
#define SP_LINK_MEMORY 8         /* ticks for which it counts who was held back, and who asked for most */
#define SP_LINK_TOLD_TICKS 1024  /* between two packets of who is held back, at most: of many each sends seldom */
#define SP_LINK_ASKED_TICKS 16   /* between two packets of which a rate is made of whom nothing holds back */
#define SP_LINK_STEP_SHIFT 2     /* of Newton's step */
#define SP_LINK_BEYOND 3         /* 32nds of what a bucket has beyond a half, which a tick is to bring back */
#define SP_LINK_TRIES 4 /* where other CPUs were faster; after that a packet counts as one too many */

static inline sp_u32 sp_wire_octets(sp_u32 frame_octets)
{
    sp_u32 octets = frame_octets + SP_WIRE_OCTETS;

    return octets > SP_WIRE_LEAST ? octets : SP_WIRE_LEAST;
}

/* Where a packet is to leave, in one word: what BPF's verifier takes by itself has numbers as its arguments. */
static inline sp_u64 sp_link_way(sp_u32 port, sp_u32 interface, sp_u32 octets)
{
    return (sp_u64)octets << 32 | interface << 16 | port;
}
static inline sp_u32 sp_link_way_port(sp_u64 way) { return way & (SP_PORTS - 1); }
static inline sp_u32 sp_link_way_interface(sp_u64 way) { return way >> 16 & (SP_INTERFACES - 1); }
static inline sp_u32 sp_link_way_octets(sp_u64 way) { return (sp_u32)(way >> 32); }

/* -- buckets ------------------------------------------------------------------------------------------------------- */
/* One word: what it has, in sixteenths of an octet, and when that was so, in units of 1,024 ns. */
#define SP_BUCKET_PARTS 4  /* as a shift */
#define SP_BUCKET_CLOCK 10 /* as a shift */
#define SP_BUCKET_MOST (1ull << 31)
#define SP_BUCKET_LONG (1u << 27) /* two minutes: whatever is filled for so long is full */
#define SP_BUCKET_SKEW 0xffff0000u /* between CPUs' clocks: less than that back is not a long time ahead */

static inline sp_u64 sp_link_bucket(sp_u64 has, sp_u32 at) { return has << 32 | at; }

static inline sp_u64 sp_link_burst(sp_u64 rate, sp_u32 shift, sp_u64 least)
{
    sp_u64 octets = rate >> shift > least ? rate >> shift : least;

    return octets << SP_BUCKET_PARTS < SP_BUCKET_MOST ? octets << SP_BUCKET_PARTS : SP_BUCKET_MOST;
}

/* What a bucket has by now; moves `*at` to where its clock is, which never goes back. */
static inline sp_u64 sp_link_filled(sp_u64 bucket, sp_u64 rate, sp_u64 most, sp_u32 *at)
{
    sp_u64 elapsed = *at - (sp_u32)bucket, has = bucket >> 32;

    elapsed &= 0xffffffff;
    if (elapsed > SP_BUCKET_SKEW) {
        *at = (sp_u32)bucket;
        elapsed = 0;
    } else if (elapsed > SP_BUCKET_LONG) {
        elapsed = SP_BUCKET_LONG;
    }
    has += rate * elapsed >> (30 - SP_BUCKET_CLOCK - SP_BUCKET_PARTS);
    return has < most ? has : most;
}

/* How full a bucket is left by a packet that has taken from it. */
struct sp_link_left {
    sp_u64 has;
    sp_u64 most;
};

/* Takes a packet's octets from a bucket; 0 where it has too little, or, once it is less than an eighth full, where it is
 * emptier than the one before (`than`) allows. A packet that is longer than a bucket has room for takes all of it. */
SP_INLINE int sp_link_takes(sp_u64 *bucket_at, sp_u64 rate, sp_u64 way, sp_u64 now_ns,
                            const struct sp_link_left *than, struct sp_link_left *left)
{
    sp_u64 most = left->most, cost = (sp_u64)sp_link_way_octets(way) << SP_BUCKET_PARTS;

    for (int tries = 0; tries < SP_LINK_TRIES; tries++) {
        sp_u64 bucket = sp_load_long(bucket_at);
        sp_u32 at = (sp_u32)(now_ns >> SP_BUCKET_CLOCK);
        sp_u64 has = sp_link_filled(bucket, rate, most, &at);

        if (has < cost && has < most) {
            return 0;
        }
        if (than && has * 8 < most && than->has * most < (most - has * 8) * than->most) {
            return 0;
        }
        left->has = has > cost ? has - cost : 0;
        if (__sync_val_compare_and_swap(bucket_at, bucket, sp_link_bucket(left->has, at)) == bucket) {
            return 1;
        }
    }
    return 0;
}

/* -- levels -------------------------------------------------------------------------------------------------------- */
/* The highest level: a weight of 1 takes all, and more, so that who is alone on what is scarce is held back by what there
 * is. The lowest is far below what the largest weights of all routers leave. */
static inline sp_u64 sp_link_top_level(sp_u64 rate) { return rate << (SP_LINK_LEVEL_SHIFT + 1); }

#define SP_LINK_LONGEST_NS (1ull << 30) /* longer than the tick of the slowest link */

/* What is there of a rate in a time that is no longer than SP_LINK_LONGEST_NS. */
static inline sp_u64 sp_link_octets(sp_u64 rate, sp_u64 ns) { return (rate >> 6) * (ns >> 4) >> 20; }

/* What somebody has asked for in some time, who may have that rate at present. */
struct sp_link_asked {
    sp_u64 octets;
    sp_u64 elapsed_ns; /* a tick at least, SP_LINK_LONGEST_NS at most */
    sp_u64 rate;
    sp_u64 weight;
    int is_capped; /* by his ceiling, or the port's speed: no level gives him more */
};

/* Tells it to what is shared: whether the level holds him back, and up to which level it would. */
SP_INLINE void sp_link_tell(struct sp_link_whole *whole, sp_u64 tick_ns, const struct sp_link_asked *asked)
{
    sp_u64 rate = (asked->octets << 30) / asked->elapsed_ns, ticks = asked->elapsed_ns / tick_ns;
    sp_u64 weight = asked->weight ? asked->weight : 1;
    int is_certain = ticks <= SP_LINK_ASKED_TICKS; /* else he may just begin to ask for more */

    if (asked->is_capped) {
        rate = rate < asked->rate ? rate : asked->rate;
    } else if (rate >= asked->rate - asked->rate / 16) {
        __sync_fetch_and_add(&whole->held, weight * (ticks < SP_LINK_TOLD_TICKS ? ticks : SP_LINK_TOLD_TICKS));
        is_certain = 1; /* he asks for what the level leaves him, however seldom he sends */
    }
    sp_u64 level = (rate << SP_LINK_LEVEL_SHIFT) / weight;
    if (is_certain && level > sp_load_long(&whole->highest)) {
        *(volatile sp_u64 *)&whole->highest = level;
    }
}

/* What there is for those who share it, from now on at its highest level. */
static inline void sp_link_open(struct sp_link_whole *whole, sp_u64 rate)
{
    *(volatile sp_u64 *)&whole->held = 0;
    *(volatile sp_u64 *)&whole->highest = 0;
    *(volatile sp_u64 *)&whole->level = sp_link_top_level(rate);
}

/* The level from what was offered in so long a time. */
SP_INLINE void sp_link_level(struct sp_link_whole *whole, sp_u64 rate, sp_u64 tick_ns, sp_u64 offered,
                             sp_u64 elapsed_ns, sp_u64 now_ns)
{
    sp_u64 most = sp_link_burst(rate, SP_LINK_BURST_SHIFT, SP_LINK_BURST), there = sp_link_octets(rate, elapsed_ns);
    sp_u64 level = sp_load_long(&whole->level), top = sp_link_top_level(rate);
    sp_u64 held = sp_load_long(&whole->held), highest = sp_load_long(&whole->highest);
    sp_u32 at = (sp_u32)(now_ns >> SP_BUCKET_CLOCK);
    sp_u64 has = sp_link_filled(sp_load_long(&whole->bucket), rate, most, &at);
    sp_u64 beyond = has > most / 2 ? has - most / 2 : most / 2 - has, step;

    /* Nobody has sent for long. Of a slice that gets little a packet in so long a time is all there is. */
    if ((elapsed_ns > tick_ns * SP_LINK_CALM_TICKS && has == most) || elapsed_ns == SP_LINK_LONGEST_NS) {
        sp_link_open(whole, rate);
        return;
    }
    /* Not of what another CPU has made of it meanwhile, which may be less. */
    __sync_val_compare_and_swap(&whole->held, held, held - held / SP_LINK_MEMORY);
    *(volatile sp_u64 *)&whole->highest = highest - highest / SP_LINK_MEMORY;
    held = held / SP_LINK_MEMORY ? held / SP_LINK_MEMORY : 1;
    highest = highest ? highest : top;
    beyond = beyond * SP_LINK_BEYOND >> (SP_BUCKET_PARTS + 5);
    beyond = beyond < there / 2 ? beyond : there / 2;
    there = has > most / 2 ? there + beyond : there - beyond;
    step = there > offered ? there - offered : offered - there;
    step = (((step << 30) / elapsed_ns) << (SP_LINK_LEVEL_SHIFT - SP_LINK_STEP_SHIFT)) / held;
    level = level < top ? level : top;
    if (there > offered) {
        sp_u64 more = level + (step < level ? step : level);

        more = more < highest * 2 ? more : highest * 2;
        level = more > level ? more : level;
    } else {
        level = level < highest ? level : highest;
        level -= step < level / 2 ? step : level / 2;
    }
    level = level < top ? level : top;
    *(volatile sp_u64 *)&whole->level = level > top >> 24 ? level : top >> 24;
}

/* Whether it is this CPU that ends a tick; `*elapsed_ns`, and what was offered, are of the whole of it. By an exchange:
 * another CPU may end the next tick before this one, stopped meanwhile, has taken what was offered. */
static inline int sp_link_tick(struct sp_link_whole *whole, sp_u64 tick_ns, sp_u64 now_ns, sp_u64 *elapsed_ns,
                               sp_u64 *offered)
{
    sp_u64 since = sp_load_long(&whole->since);

    if (now_ns < since + tick_ns || __sync_val_compare_and_swap(&whole->since, since, now_ns) != since) {
        return 0;
    }
    *elapsed_ns = now_ns - since < SP_LINK_LONGEST_NS ? now_ns - since : SP_LINK_LONGEST_NS;
    *offered = __sync_lock_test_and_set(&whole->offered, 0);
    return 1;
}

/* -- ports --------------------------------------------------------------------------------------------------------- */
/* What is sent, as a mean of some ticks. */
static inline void sp_link_note_use(struct sp_link *link, sp_u64 offered, sp_u64 elapsed_ns)
{
    sp_u64 use = sp_load_long(&link->use), now = (offered << 30) / elapsed_ns;

    *(volatile sp_u64 *)&link->use = now > use ? use + (now - use) / 4 : use - (use - now) / 4;
}

/* A CPU tells the port of what it has sent, and looks whether that came near the port's speed. */
static inline void sp_link_gather(struct sp_link *link, sp_u64 *mode_at, sp_u64 octets, sp_u64 now_ns)
{
    sp_u64 mode = sp_load_long(mode_at), speed = sp_load_long(&link->speed), tick_ns = sp_load_long(&link->tick_ns);
    sp_u64 elapsed_ns, offered, since;

    offered = __sync_fetch_and_add(&link->whole.offered, octets) + octets;
    since = sp_load_long(&link->whole.since);
    elapsed_ns = now_ns > since + tick_ns ? now_ns - since : tick_ns;
    if (elapsed_ns < SP_LINK_LONGEST_NS && offered > sp_link_octets(speed, elapsed_ns) / 10 * 9) {
        if (__sync_val_compare_and_swap(mode_at, mode, mode | SP_LINK_CONTENDED) == mode) {
            sp_link_open(&link->whole, speed);
            *(volatile sp_u64 *)&link->whole.bucket =
                sp_link_bucket(sp_link_burst(speed, SP_LINK_BURST_SHIFT, SP_LINK_BURST),
                               (sp_u32)(now_ns >> SP_BUCKET_CLOCK));
            *(volatile sp_u64 *)&link->calm = 0;
        }
    }
    if (sp_link_tick(&link->whole, tick_ns, now_ns, &elapsed_ns, &offered)) {
        sp_link_note_use(link, offered, elapsed_ns);
    }
}

/* The end of a tick of a port that is contended, and of that where there is enough for long. */
SP_INLINE void sp_link_end_tick(struct sp_link *link, sp_u64 *mode_at, sp_u64 offered, sp_u64 elapsed_ns,
                                    sp_u64 now_ns)
{
    sp_u64 speed = sp_load_long(&link->speed), mode = sp_load_long(mode_at), calm = sp_load_long(&link->calm);

    sp_link_note_use(link, offered, elapsed_ns);
    sp_link_level(&link->whole, speed, sp_load_long(&link->tick_ns), offered, elapsed_ns, now_ns);
    calm = offered < sp_link_octets(speed, elapsed_ns) / 10 * 8 ? calm + 1 : 0;
    *(volatile sp_u64 *)&link->calm = calm;
    if (calm >= SP_LINK_CALM_TICKS && !(mode & SP_LINK_ALWAYS)) {
        __sync_val_compare_and_swap(mode_at, mode, mode & ~SP_LINK_CONTENDED);
    }
}

/* Takes from what is shared, on behalf of who has left so much in his own bucket; leaves there what a slice has. Who has
 * what his guarantee or his ceiling says may have it while there is any: it is those who divide the rest that make room. */
SP_INLINE int sp_link_take(struct sp_link_whole *whole, sp_u64 rate, sp_u64 way, sp_u64 now_ns,
                           int is_divided, struct sp_link_left *left)
{
    struct sp_link_left own = {is_divided ? left->has : left->most, left->most};

    __sync_fetch_and_add(&whole->offered, sp_link_way_octets(way));
    left->most = sp_link_burst(rate, SP_LINK_BURST_SHIFT, SP_LINK_BURST);
    if (!sp_link_takes(&whole->bucket, rate, way, now_ns, &own, left)) {
        return 0;
    }
    /* It is half full where it is scarce: that counts as nothing left. */
    left->has = left->has * 2 > left->most ? left->has * 2 - left->most : 0;
    return 1;
}

static inline struct sp_link_slice *sp_link_slice_of(sp_tables tables, const struct sp_link_router *router)
{
    sp_u32 slot = sp_load_word(&router->slice);

    return slot ? sp_link_slice_at(tables, slot) : 0;
}

/* What somebody may take of what is shared. */
struct sp_link_due {
    sp_u64 rate;
    int is_divided; /* it is his part of what is divided, neither his guarantee nor his ceiling */
    int is_capped;  /* it is his ceiling, or all of the port's speed */
};

SP_INLINE struct sp_link_due sp_link_due(sp_u64 speed, sp_u64 level, sp_u64 weight, sp_u64 guarantee, sp_u64 ceiling)
{
    sp_u64 part = level * (weight ? weight : 1) >> SP_LINK_LEVEL_SHIFT;
    sp_u64 rate = part > guarantee ? part : guarantee;

    rate = ceiling && rate > ceiling ? ceiling : rate;
    return (struct sp_link_due){rate < speed ? rate : speed, rate == part, rate < part || rate >= speed};
}

static inline struct sp_link_due sp_link_slice_due(const struct sp_link *link, const struct sp_link_slice *slice)
{
    return sp_link_due(sp_load_long(&link->speed), sp_load_long(&link->whole.level), sp_load_long(&slice->weight),
                       sp_load_long(&slice->guarantee), sp_load_long(&slice->ceiling));
}

/* Before a packet is looked at: what its port and slice have to do once a tick. */
SP_APART int sp_link_keep_time(sp_tables tables, sp_u64 way, sp_u64 now_ns)
{
    sp_u32 port = sp_link_way_port(way);
    struct sp_link *link = sp_link_at(tables, port);
    struct sp_link_router *router =
        sp_link_router_at(tables, sp_load_word(sp_link_slot_at(tables, sp_link_way_interface(way))));
    struct sp_link_slice *slice;
    sp_u64 elapsed_ns, offered;

    SP_APART_TABLES(tables);
    if (!link || !router) {
        return 0;
    }
    sp_u64 tick_ns = sp_load_long(&link->tick_ns);
    if (sp_link_tick(&link->whole, tick_ns, now_ns, &elapsed_ns, &offered)) {
        sp_link_end_tick(link, sp_link_mode_at(tables, port), offered, elapsed_ns, now_ns);
    }
    slice = sp_link_slice_of(tables, router);
    if (slice && sp_link_tick(&slice->whole, tick_ns, now_ns, &elapsed_ns, &offered)) {
        struct sp_link_due due = sp_link_slice_due(link, slice);
        struct sp_link_asked asked = {offered, elapsed_ns, due.rate, sp_load_long(&slice->weight), due.is_capped};

        sp_link_tell(&link->whole, tick_ns, &asked);
        sp_link_level(&slice->whole, due.rate, tick_ns, offered, elapsed_ns, now_ns);
    }
    return 0;
}

/* What a router asks for is told once a tick. */
SP_INLINE void sp_link_ask(struct sp_link_whole *whole, struct sp_link_router *router, sp_u64 tick_ns, sp_u64 way,
                           const struct sp_link_due *due, sp_u64 now_ns)
{
    sp_u64 told = sp_load_long(&router->told);

    if (now_ns < told + tick_ns || __sync_val_compare_and_swap(&router->told, told, now_ns) != told) {
        __sync_fetch_and_add(&router->asked, sp_link_way_octets(way));
        return;
    }
    /* Without this packet, with which the next tick begins. */
    sp_u64 octets = __sync_lock_test_and_set(&router->asked, sp_link_way_octets(way));
    struct sp_link_asked asked = {octets, now_ns - told, due->rate, sp_load_word(&router->weight), due->is_capped};
    asked.elapsed_ns = asked.elapsed_ns < SP_LINK_LONGEST_NS ? asked.elapsed_ns : SP_LINK_LONGEST_NS;
    sp_link_tell(whole, tick_ns, &asked);
}

/* Whether a packet is over its share of a port that is contended. */
SP_APART int sp_link_is_over(sp_tables tables, sp_u64 way, sp_u64 now_ns)
{
    struct sp_link *link = sp_link_at(tables, sp_link_way_port(way));
    struct sp_link_router *router =
        sp_link_router_at(tables, sp_load_word(sp_link_slot_at(tables, sp_link_way_interface(way))));
    struct sp_link_slice *slice;
    struct sp_link_due due, of_slice = {0, 0, 0};
    struct sp_link_left left;

    SP_APART_TABLES(tables);
    if (!link || !router) {
        return 0;
    }
    sp_u64 speed = sp_load_long(&link->speed), level = sp_load_long(&link->whole.level);
    slice = sp_link_slice_of(tables, router);
    if (slice) {
        of_slice = sp_link_slice_due(link, slice);
        level = sp_load_long(&slice->whole.level);
    }
    due = sp_link_due(speed, level, sp_load_word(&router->weight), sp_load_long(&router->guarantee),
                      sp_load_long(&router->ceiling));
    sp_link_ask(slice ? &slice->whole : &link->whole, router, sp_load_long(&link->tick_ns), way, &due, now_ns);
    left.most = sp_link_burst(speed, SP_LINK_ROUTER_BURST_SHIFT, SP_LINK_ROUTER_BURST);
    if (!sp_link_takes(&router->bucket, due.rate, way, now_ns, 0, &left) ||
        (slice && !sp_link_take(&slice->whole, of_slice.rate, way, now_ns, due.is_divided, &left)) ||
        !sp_link_take(&link->whole, speed, way, now_ns, slice ? of_slice.is_divided : due.is_divided, &left)) {
        __sync_fetch_and_add(&router->dropped, 1);
        return 1;
    }
    return 0;
}

/* A CPU that has sent what it was given tells the port of it, and takes more; 1 where the port is contended. */
SP_APART int sp_link_look(sp_tables tables, sp_u64 way, sp_u32 cpu, sp_u64 now_ns)
{
    sp_u32 port = sp_link_way_port(way);
    struct sp_link_credit *credit = sp_link_credit_at(tables, cpu, port);
    sp_u64 *mode_at = sp_link_mode_at(tables, port), mode = sp_load_long(mode_at);
    struct sp_link *link = sp_link_at(tables, port);

    SP_APART_TABLES(tables);
    if (!credit || !link) {
        return 0;
    }
    if (mode && !(mode & SP_LINK_CONTENDED)) {
        sp_link_gather(link, mode_at, credit->granted - credit->left + sp_link_way_octets(way), now_ns);
    }
    credit->granted = mode ? sp_link_quantum(mode) : SP_LINK_UNSHARED_CREDIT;
    if (mode & SP_LINK_CONTENDED) {
        credit->granted = 0; /* so that the next packet looks, too */
    }
    credit->left = credit->granted;
    return (mode & SP_LINK_CONTENDED) != 0;
}

/* Whether a frame of so many octets is over the share that its router has of the port by which it is to leave. */
SP_INLINE int sp_over_link_share(sp_tables tables, const struct sp_packet *packet, const struct sp_meta *meta,
                                 sp_u32 port, sp_u32 octets)
{
    struct sp_link_credit *credit = sp_link_credit_at(tables, meta->cpu, port);
    sp_u32 wire = sp_wire_octets(octets);

    if (sp_unlikely(!credit)) {
        return 0;
    }
    sp_u64 left = credit->left;
    if (sp_likely(left > wire)) {
        credit->left = left - wire;
        return 0;
    }
    sp_u64 way = sp_link_way(port, meta->egress, wire), now_ns = sp_now_ns(packet);
    if (!sp_link_look(tables, way, meta->cpu, now_ns)) {
        return 0;
    }
    sp_link_keep_time(tables, way, now_ns);
    return sp_link_is_over(tables, way, now_ns);
}

#endif
