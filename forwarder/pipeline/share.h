/* SPDX-License-Identifier: Apache-2.0
 *
 * A core's time is shared: a packet whose router has had its share is dropped before anything is looked up for it.
 *
 *     punt ─► share ─► route                      due:   grows with time, by the router's rate, once in a poll
 *               │ spent > due                     spent: grows with each packet, by what its like have cost
 *               ▼
 *         SP_DROP_OVER_SHARE, charged as well
 *
 * A rate is min(max(level * weight, guarantee), ceiling). The level is whatever makes the sum of what is spent equal to
 * what there is: core_clock.h sets it for the core, sp_core_slice() for the routers of a slice. Nobody is held back for
 * want of a queue: `due` may be a whole ring's packets ahead of `spent`, so that who stays below his rate loses nothing
 * however his packets come. It may be as much behind, and who stops to flood has soon paid.
 *
 * The clock is that of the last poll; no packet asks for the time, but one in 16, whose run is measured.
 */
#ifndef SPLITPLANE_SHARE_H
#define SPLITPLANE_SHARE_H

#include "pipeline/core_clock.h"
#include "pipeline/packet.h"
#include "pipeline/verdict.h"

static inline sp_u64 sp_share_rate(const struct sp_share *share, sp_u64 level)
{
    sp_u64 weight = sp_load_word(&share->weight), rate = level * (weight ? weight : 1);
    sp_u64 guarantee = (sp_u64)sp_load_word(&share->guarantee) * SP_CORE_MILLIONTH;
    sp_u64 ceiling = (sp_u64)sp_load_word(&share->ceiling) * SP_CORE_MILLIONTH;

    rate = rate < guarantee ? guarantee : rate;
    rate = ceiling && rate > ceiling ? ceiling : rate;
    return rate < SP_CORE_WHOLE ? rate : SP_CORE_WHOLE;
}

/* A level that has given `spent` where `allowed` was to be given (Stoica, Shenker, Zhang: Core-Stateless Fair Queueing,
 * SIGCOMM 1998): in one step right where it holds everybody back, in a few where it does some. */
static inline sp_u64 sp_share_level(sp_u64 level, sp_u64 allowed, sp_u64 spent)
{
    sp_u64 more = level + level / 8, less = level / 2;

    if (allowed >= spent + spent / 8) {
        level = more;
    } else {
        level = allowed <= spent / 2 ? less : level * (allowed * 1024 / spent) / 1024;
    }
    level = level > SP_CORE_LEAST ? level : SP_CORE_LEAST;
    return level < SP_CORE_WHOLE ? level : SP_CORE_WHOLE;
}

/* Who sends at present: of these the level is made. */
static inline void sp_core_count(struct sp_core *core, const struct sp_share *share, sp_u64 *seen)
{
    sp_u32 weight = sp_load_word(&share->weight);

    if (*seen != core->measured) {
        *seen = core->measured;
        core->senders++;
        core->weights += weight ? weight : 1;
        core->guaranteed += sp_load_word(&share->guarantee);
    }
}

/* The level of a slice, which is told what a router of it has spent since it was last told. */
static inline sp_u64 sp_core_slice(sp_tables tables, struct sp_core *core, sp_u32 cpu, sp_u32 slice, sp_u64 spent)
{
    struct sp_core_slice *state = sp_core_slice_at(tables, cpu, slice);

    if (!state) {
        return core->level;
    }
    const struct sp_share *share = sp_slice_share_at(tables, slice);
    sp_u64 since = core->clock - state->at;
    sp_core_count(core, share, &state->seen);
    state->spent += spent;
    if (since >= SP_CORE_TICK) {
        sp_u64 rate = sp_share_rate(share, core->level);

        if (rate == SP_CORE_WHOLE || since >= SP_CORE_PAUSE) {
            state->level = SP_CORE_WHOLE;
        } else {
            state->level = sp_share_level(state->level, rate * since / SP_CORE_WHOLE, state->spent);
        }
        state->spent = 0;
        state->at = core->clock;
    }
    return state->level;
}

/* What a router may take of the core at present, of SP_CORE_WHOLE. */
static inline sp_u64 sp_core_rate(sp_tables tables, struct sp_core *core, struct sp_core_router *router, sp_u32 cpu,
                                  sp_u32 vrf)
{
    const struct sp_share *share = sp_router_share_at(tables, vrf);
    sp_u32 slice = sp_load_word(&share->slice);

    if (!slice) {
        sp_core_count(core, share, &router->seen);
        return sp_share_rate(share, core->level);
    }
    return sp_share_rate(share, sp_core_slice(tables, core, cpu, slice, router->spent - router->told));
}

/* Gives a router what is due since its last packet. */
static inline void sp_core_raise(sp_tables tables, struct sp_core *core, struct sp_core_router *router, sp_u32 cpu,
                                 sp_u32 vrf)
{
    sp_u64 rate = sp_core_rate(tables, core, router, cpu, vrf), since = core->clock - router->at;
    sp_u64 burst = (sp_u64)(router->cost + core->driver_cost) * SP_CORE_RING / SP_CORE_FRACTION;
    burst = burst > SP_CORE_BURST ? burst : SP_CORE_BURST; /* what its packets cost may not be known yet */
    sp_u64 most = router->spent + burst;

    since = since < SP_CORE_LONG ? since : SP_CORE_LONG;
    sp_u64 due = router->due + rate * since / SP_CORE_WHOLE;
    router->told = router->spent;
    router->at = core->clock;
    if (rate == SP_CORE_WHOLE || due > most) {
        due = most;
    } else if (due + burst < router->spent) {
        due = router->spent - burst;
    }
    router->due = due;
}

/* A poll begins where the last one has ended, unless that had left nothing to do. */
static inline void sp_core_begin(const struct sp_packet *packet, struct sp_core *core)
{
    core->begun = core->ended;
    if (core->drained) {
        core->begun = sp_now_ns(packet);
        core->clock = core->begun;
        core->idle += core->begun - core->drained;
        core->drained = 0;
    }
}

/* Whether a packet is for a routing protocol, as far as can be said before the route is known, and its policer has room
 * for it. Floods of these are bounded by the policer, and by the early drop of what it would not let pass. */
SP_INLINE int sp_share_spares(sp_tables tables, const struct sp_packet *packet, const struct sp_core *core,
                                  const struct sp_meta *meta, sp_u32 reason)
{
    if (meta->keep_ttl || reason >= SP_FIRST_DROP) {
        return 0;
    }
    sp_u32 punt_class = sp_punt_class(packet, meta, SP_PUNT_LOCAL);
    if (punt_class > SP_CLASS_BGP) {
        return 0;
    }
    const struct sp_policer *policer = sp_policer_at(tables, meta->vrf, punt_class);
    const sp_u64 *share_due = sp_share_due_at(tables, meta->interface, punt_class);
    return policer && share_due && sp_would_pass(policer, share_due, core->clock);
}

/* What becomes of a packet in the stage. */
enum sp_shared { SP_SHARED_ON = 0, SP_SHARED_SPARED = 1, SP_SHARED_OVER = 2 };

static inline void sp_share_charge(struct sp_core *core, struct sp_core_router *router, sp_u32 cost, sp_u32 beside)
{
    core->charged += cost;
    router->spent += (cost + beside) / SP_CORE_FRACTION;
}

/* Of a router's first packet in a poll, and of those beyond its share: whether it is over its share now. */
static inline sp_u32 sp_share_due(sp_tables tables, const struct sp_packet *packet, sp_u32 cpu, sp_u32 vrf)
{
    struct sp_core *core = sp_core_at(tables, cpu);
    struct sp_core_router *router = sp_core_router_at(tables, cpu, vrf);

    if (!core || !router) {
        return 0;
    }
    if (core->left == SP_CORE_TRUST) {
        sp_core_begin(packet, core);
    }
    if (router->at != core->clock) {
        sp_core_raise(tables, core, router, cpu, vrf);
    }
    return router->spent > router->due && vrf != 0; /* what is nobody's is dropped anyhow */
}

/* Of a packet over its router's share: what becomes of it, which is charged. */
SP_INLINE sp_u32 sp_share_over(sp_tables tables, const struct sp_packet *packet, const struct sp_meta *meta,
                               sp_u32 reason)
{
    struct sp_core *core = sp_core_at(tables, meta->cpu);
    struct sp_core_router *router = sp_core_router_at(tables, meta->cpu, meta->vrf);

    if (!core || !router) {
        return SP_SHARED_ON;
    }
    if (sp_share_spares(tables, packet, core, meta, reason)) {
        sp_share_charge(core, router, router->cost + core->driver_cost, core->beside_cost);
        return SP_SHARED_SPARED;
    }
    sp_u32 cost = core->drop_cost + core->driver_drop;
    core->dropped++;
    router->dropped++;
    core->charged += cost;
    /* Where drops alone are too much for the core, what they are charged is had by nobody: it would have a flooder's
     * packets dropped all, and the core do nothing else. */
    if (core->saturated < SP_CORE_HOPELESS) {
        router->spent += cost / SP_CORE_FRACTION;
    }
    return SP_SHARED_OVER;
}

#if defined(__bpf__)
#include "engine/xdp/share_apart.h" /* the same, where the verifier goes through it once */
#else
#define sp_share_due_apart sp_share_due
#define sp_share_over_apart sp_share_over
#endif

/* Charges a packet to its router; returns SP_DROP_OVER_SHARE where that has had its share, else `reason`. What
 * sp_share_spares() is `spared` until it is known where it goes. */
SP_INLINE sp_u32 sp_share_core(sp_tables tables, const struct sp_packet *packet, struct sp_meta *meta, sp_u32 reason)
{
    struct sp_core *core = sp_core_at(tables, meta->cpu);
    struct sp_core_router *router = sp_core_router_at(tables, meta->cpu, meta->vrf);

    if (sp_unlikely(!core || !router || !core->left)) {
        return reason;
    }
    int is_due = core->left != SP_CORE_TRUST && router->at == core->clock && router->spent <= router->due;
    if (sp_unlikely(!is_due) && sp_share_due_apart(tables, packet, meta->cpu, meta->vrf)) {
        core->left--;
        sp_u32 shared = sp_share_over_apart(tables, packet, meta, reason);
        meta->spared = shared & SP_SHARED_SPARED;
        return shared == SP_SHARED_OVER ? SP_DROP_OVER_SHARE : reason;
    }
    core->left--;
    sp_share_charge(core, router, router->cost + core->driver_cost, core->beside_cost);
    return reason;
}

/* What was spared and is not for the router itself was none of a routing protocol's. */
SP_INLINE sp_u32 sp_share_route(sp_tables tables, const struct sp_meta *meta, sp_u32 reason, sp_u32 leaf)
{
    if (sp_unlikely(meta->spared) && sp_leaf_kind(leaf) != SP_ROUTE_LOCAL) {
        struct sp_core_router *router = sp_core_router_at(tables, meta->cpu, meta->vrf);

        if (router) {
            router->dropped++;
        }
        return SP_DROP_OVER_SHARE;
    }
    return reason;
}

static inline sp_u32 sp_core_average(sp_u32 average, sp_u64 ns)
{
    sp_u64 sample = ns * SP_CORE_FRACTION, most = average ? (sp_u64)average * 8 : SP_CORE_MOST;

    sample = sample < most ? sample : most; /* whoever was interrupted */
    sample = sample < SP_CORE_MOST ? sample : SP_CORE_MOST;
    return average ? average - average / 8 + (sp_u32)sample / 8 : (sp_u32)sample;
}

/* For the engine, around what it does for a packet: whether this is one that is measured. The distance to the next one
 * is drawn from the clock, so that no order of packets has some of them measured and others never. */
static inline void sp_core_time(const struct sp_packet *packet, struct sp_core *core)
{
    if (core->left && core->until_timed-- == 0) {
        core->timed = sp_now_ns(packet);
    }
}

/* Of a packet for which sp_core_time() has set `timed`. */
static inline void sp_core_timed(sp_tables tables, sp_u32 cpu, sp_u32 vrf, sp_u32 reason, sp_u64 now)
{
    struct sp_core *core = sp_core_at(tables, cpu);
    struct sp_core_router *router = sp_core_router_at(tables, cpu, vrf);

    if (!core || !router) {
        return;
    }
    if (reason == SP_DROP_OVER_SHARE) {
        core->drop_cost = sp_core_average(core->drop_cost, now - core->timed);
    } else {
        router->cost = sp_core_average(router->cost, now - core->timed);
    }
    core->until_timed = 8 + (now >> 4 & 15);
    core->timed = 0;
}

#endif
