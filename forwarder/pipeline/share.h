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

    guarantee = guarantee < SP_CORE_USABLE ? guarantee : SP_CORE_USABLE;
    rate = rate < guarantee ? guarantee : rate;
    rate = ceiling && rate > ceiling ? ceiling : rate;
    return rate < SP_CORE_WHOLE ? rate : SP_CORE_WHOLE;
}

/* Whether it is a share's ceiling that makes its rate. */
static inline int sp_share_is_capped(const struct sp_share *share, sp_u64 rate)
{
    sp_u32 ceiling = sp_load_word(&share->ceiling);

    return ceiling && rate >= (sp_u64)ceiling * SP_CORE_MILLIONTH;
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

/* Who sends at present: of these the level is made. Returns whether he was not counted since then. */
static inline int sp_core_count(const struct sp_share *share, sp_u64 since, sp_u64 *seen, sp_u32 *weights,
                                sp_u32 *guaranteed)
{
    sp_u32 weight = sp_load_word(&share->weight);

    if (*seen == since) {
        return 0;
    }
    *seen = since;
    *weights += weight ? weight : 1;
    *guaranteed += sp_load_word(&share->guarantee);
    return 1;
}

/* Tells a slice what a router of it has spent since it was last told, and sets its level where it is time. */
static inline void sp_core_slice(struct sp_core *core, struct sp_core_router *router,
                                 const struct sp_share *router_share, struct sp_core_slice *state,
                                 const struct sp_share *share)
{
    sp_u64 since = core->clock - state->at;

    core->senders += sp_core_count(share, core->measured, &state->seen, &core->weights, &core->guaranteed);
    int has_company = state->weights != 0;
    if (sp_core_count(router_share, state->at, &router->seen, &state->weights, &state->guaranteed)) {
        core->senders += has_company; /* a slice that is alone is to be divided, too */
    }
    state->spent += router->spent - router->told;
    if (since < SP_CORE_TICK) {
        return;
    }
    sp_u64 rate = sp_share_rate(share, core->level), level = SP_CORE_WHOLE;
    sp_u64 least = sp_core_level_of(rate, state->weights, state->guaranteed);

    if (rate != SP_CORE_WHOLE && since < SP_CORE_PAUSE) {
        level = sp_share_level(state->level, rate * since / SP_CORE_WHOLE, state->spent);
    }
    state->level = level > least ? level : least;
    state->is_capped = (sp_u32)sp_share_is_capped(share, rate);
    state->spent = 0;
    state->weights = 0;
    state->guaranteed = 0;
    state->at = core->clock;
}

/* What a router may take of the core at present, of SP_CORE_WHOLE. */
static inline sp_u64 sp_core_rate(sp_tables tables, const struct sp_core *core, struct sp_core_router *router,
                                  sp_u32 cpu, sp_u32 vrf)
{
    const struct sp_share *share = sp_router_share_at(tables, vrf);
    sp_u32 slice = sp_load_word(&share->slice);
    const struct sp_core_slice *state = slice ? sp_core_slice_at(tables, cpu, slice) : 0;
    sp_u64 rate = sp_share_rate(share, state ? state->level : core->level);

    router->is_capped = (sp_u32)sp_share_is_capped(share, rate) | (state ? state->is_capped : 0);
    return rate;
}

/* Gives a router what is due since its last packet. Drops are paid with most of it, and what they took beyond is no debt:
 * a part is for what it forwards. */
static inline void sp_core_raise(sp_tables tables, struct sp_core *core, struct sp_core_router *router, sp_u32 cpu,
                                 sp_u32 vrf)
{
    core->drops += router->is_capped ? 0 : router->drops; /* no level changes those of a ceiling */
    sp_u64 rate = sp_core_rate(tables, core, router, cpu, vrf), since = core->clock - router->at;
    sp_u64 burst = (sp_u64)(router->cost + core->driver_cost) * SP_CORE_RING / SP_CORE_FRACTION;
    burst = burst > SP_CORE_BURST ? burst : SP_CORE_BURST; /* what its packets cost may not be known yet */
    sp_u64 most = router->spent + burst;

    since = since < SP_CORE_LONG ? since : SP_CORE_LONG;
    sp_u64 gain = rate * since / SP_CORE_WHOLE, due = router->due + gain;
    gain -= gain / SP_CORE_KEPT;
    due += router->drops > gain ? router->drops - gain : 0;
    router->drops = 0;
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

/* What becomes of a packet in the stage; one that is spared has its class as well. */
enum sp_shared { SP_SHARED_ON = 0, SP_SHARED_OVER = 1, SP_SHARED_SPARED = 2 };

/* Of a packet over its router's share: it is spared where it is for a routing protocol, as far as can be said before the
 * route is known, and its policer has room for it. That bounds floods of these: the policer is charged by what reaches
 * the router (sp_verdict_stage), and by what turns out to be on its way elsewhere (sp_share_miss); beyond, they are
 * dropped as early as any other. */
SP_INLINE sp_u32 sp_share_spares(sp_tables tables, const struct sp_packet *packet, const struct sp_core *core,
                                 const struct sp_meta *meta, sp_u32 reason)
{
    if (meta->keep_ttl || reason >= SP_FIRST_DROP) {
        return SP_SHARED_OVER;
    }
    sp_u32 punt_class = sp_punt_class(packet, meta, SP_PUNT_LOCAL);
    if (punt_class > SP_CLASS_BGP) {
        return SP_SHARED_OVER;
    }
    const struct sp_policer *policer = sp_policer_at(tables, meta->vrf, punt_class);
    const sp_u64 *share_due = sp_share_due_at(tables, meta->interface, punt_class);
    int passes = policer && share_due && sp_would_pass(policer, share_due, core->clock);
    return passes ? SP_SHARED_SPARED + punt_class : SP_SHARED_OVER;
}

/* Of a packet that was spared and is none for the router itself. */
static inline void sp_share_miss(sp_tables tables, sp_u32 cpu, sp_u32 vrf, sp_u32 interface, sp_u32 punt_class)
{
    const struct sp_core *core = sp_core_at(tables, cpu);
    struct sp_core_router *router = sp_core_router_at(tables, cpu, vrf);

    if (!core || !router) {
        return;
    }
    router->dropped++;
    sp_police_punt(tables, vrf, interface, punt_class, core->clock);
}

static inline void sp_share_charge(struct sp_core *core, struct sp_core_router *router, sp_u32 cost, sp_u32 beside)
{
    core->charged += cost;
    router->spent += (cost + beside) / SP_CORE_FRACTION;
}

/* Charges a packet that is dropped. */
static inline void sp_share_drop(struct sp_core *core, struct sp_core_router *router)
{
    sp_u32 cost = core->drop_cost + core->driver_drop;

    core->dropped++;
    core->charged += cost;
    router->dropped++;
    router->spent += cost / SP_CORE_FRACTION;
    router->drops += cost / SP_CORE_FRACTION;
}

/* Of a router's first packet in a poll: what it tells its core and slice. */
static inline void sp_share_begin(sp_tables tables, const struct sp_packet *packet, sp_u32 cpu, sp_u32 vrf)
{
    struct sp_core *core = sp_core_at(tables, cpu);
    struct sp_core_router *router = sp_core_router_at(tables, cpu, vrf);

    if (!core || !router) {
        return;
    }
    if (core->left == SP_CORE_TRUST) {
        sp_core_begin(packet, core);
    }
    if (router->at == core->clock) {
        return;
    }
    const struct sp_share *share = sp_router_share_at(tables, vrf);
    sp_u32 slice = sp_load_word(&share->slice);
    struct sp_core_slice *state = slice ? sp_core_slice_at(tables, cpu, slice) : 0;
    if (state) {
        sp_core_slice(core, router, share, state, sp_slice_share_at(tables, slice));
    } else {
        core->senders += sp_core_count(share, core->measured, &router->seen, &core->weights, &core->guaranteed);
    }
}

/* Then it has more of its share due. Of it, and of those beyond its share: whether it is over its share now. */
static inline sp_u32 sp_share_over_now(sp_tables tables, sp_u32 cpu, sp_u32 vrf)
{
    struct sp_core *core = sp_core_at(tables, cpu);
    struct sp_core_router *router = sp_core_router_at(tables, cpu, vrf);

    if (!core || !router) {
        return 0;
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
    sp_u32 shared = sp_share_spares(tables, packet, core, meta, reason);
    if (shared == SP_SHARED_OVER) {
        sp_share_drop(core, router);
    } else {
        sp_share_charge(core, router, router->cost + core->driver_cost, core->beside_cost);
    }
    return shared;
}

#if defined(__bpf__)
#include "engine/xdp/share_apart.h" /* the same, where the verifier goes through it once */
#else
static inline sp_u32 sp_share_due_apart(sp_tables tables, const struct sp_packet *packet, sp_u32 cpu, sp_u32 vrf)
{
    sp_share_begin(tables, packet, cpu, vrf);
    return sp_share_over_now(tables, cpu, vrf);
}
#define sp_share_over_apart sp_share_over
#define sp_share_miss_apart sp_share_miss
#endif

/* Charges a packet to its router; returns SP_DROP_OVER_SHARE where that has had its share, else `reason`. What
 * sp_share_spares() is `spared` until it is known where it goes. */
SP_INLINE sp_u32 sp_share_core(sp_tables tables, const struct sp_packet *packet, struct sp_core *core,
                               struct sp_meta *meta, sp_u32 reason)
{
    if (!core->left) {
        return reason;
    }
    struct sp_core_router *router = sp_core_router_at(tables, meta->cpu, meta->vrf);
    if (sp_unlikely(!router)) {
        return reason;
    }
    int is_due = core->left != SP_CORE_TRUST && router->at == core->clock && router->spent <= router->due;
    if (sp_unlikely(!is_due) && sp_likely(sp_share_due_apart(tables, packet, meta->cpu, meta->vrf))) {
        core->left--;
        sp_u32 shared = sp_share_over_apart(tables, packet, meta, reason);
        meta->spared = sp_hidden(shared);
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
        sp_share_miss_apart(tables, meta->cpu, meta->vrf, meta->interface, meta->spared - SP_SHARED_SPARED);
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
