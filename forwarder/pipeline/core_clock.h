/* SPDX-License-Identifier: Apache-2.0
 *
 * What a core learns at the end of each poll (NAPI): the time, what packets cost beside their program, and whether there
 * is time left, which sets the level (share.h).
 *
 *     poll full ──► the next one begins at once            poll short: the ring is empty
 *                                                               │ until the first packet of the next: idle
 *     idle more than SP_CORE_IDLE of a millisecond ──► level up │ less ──► level down
 *     ring never empty in a millisecond            ──► level down, by more each time
 *     drops take more than SP_CORE_DROPS           ──► level up, whatever the ring is
 *
 * It aims at a ring that is empty now and then, because what overflows it is lost blindly, and at as little idle time as
 * that takes. Idle is what the ring was, not the core: while others have that, it does not count, and a core that has too
 * little time for all of them is a small one. Where everybody has what he wants the level rises to a whole core for a
 * weight of 1, and nobody is held back.
 *
 * The lower the level, the more is dropped, the faster packets are done, and the more of them the ring has room for: a
 * flood could make the core do nothing but drop. So drops have a bound, at which the ring loses the rest at no cost.
 */
#ifndef SPLITPLANE_CORE_CLOCK_H
#define SPLITPLANE_CORE_CLOCK_H

#include "pipeline/layout.h"

#define SP_CORE_RING 256u                       /* packets that may wait in a ring for a poll */
#define SP_CORE_BURST 65536u                    /* ns that a router may have ahead, at least */
#define SP_CORE_MILLIONTH 4295u                 /* of SP_CORE_WHOLE */
#define SP_CORE_USABLE (SP_CORE_WHOLE / 16 * 15) /* by guarantees: a ring that is full can be emptied */
#define SP_CORE_LONG ((sp_u64)1 << 30)          /* ns for which credit is given at most, at once */
#define SP_CORE_PAUSE ((sp_u64)1 << 24)         /* ns after which nobody is held back any more for what was before */
#define SP_CORE_LEAST 256u                      /* the lowest level; 2^24 weights of a core */
#define SP_CORE_TICK 1000000u                   /* ns between two changes of a level, at least */
#define SP_CORE_FRACTION 256u                   /* costs are in parts of a nanosecond, so that averages do not stick */
#define SP_CORE_MOST (4096u * SP_CORE_FRACTION) /* no packet costs more */
#define SP_CORE_IDLE 24u        /* 1024ths of the time that the ring is to be empty */
#define SP_CORE_STEPS 3u        /* the level goes down by 1/64 at first, and by 1/8 from the fourth millisecond on */
#define SP_CORE_ALONE ((sp_u64)1 << 34) /* ns, 17 s; some protocols say nothing for ten */
#define SP_CORE_DROPS 384u      /* 1024ths of what is spent that drops may take; the ring is to lose the rest */
#define SP_CORE_KEPT 32u        /* a part of 1/32 of what a router has is for what it forwards */
#define SP_CORE_FEW 8u          /* a poll of fewer packets says little of what each took */
#define SP_CORE_BESIDE_NS 512u  /* what a packet takes at most in another device's poll */

static inline sp_u32 sp_core_moved(sp_u32 cost, sp_u64 by, int up)
{
    if (up) {
        by += cost;
        return by < SP_CORE_MOST ? (sp_u32)by : SP_CORE_MOST;
    }
    return by < cost ? cost - (sp_u32)by : 0;
}

/* Least mean squares, normalized: what a poll took longer than was charged is shared by its packets, forwarded and
 * dropped apart. */
static inline void sp_core_calibrate(struct sp_core *core, sp_u64 took, sp_u32 packets)
{
    sp_u64 measured = took * SP_CORE_FRACTION, charged = core->charged, dropped = core->dropped;
    sp_u64 forwarded = packets - dropped, norm = forwarded * forwarded + dropped * dropped;
    sp_u64 most = (sp_u64)packets * SP_CORE_MOST;
    int up = measured > charged;

    if (packets < SP_CORE_FEW || packets > SP_CORE_TRUST || norm == 0) {
        return;
    }
    /* Whoever was interrupted, or had to wait for its core, learns little of it. */
    if (core->driver_cost != 0 && measured > charged * 2) {
        measured = charged * 2;
    }
    sp_u64 error = up ? measured - charged : charged - measured;
    error = (error < most ? error : most) / 16;
    core->driver_cost = sp_core_moved(core->driver_cost, error * forwarded / norm, up);
    core->driver_drop = sp_core_moved(core->driver_drop, error * dropped / norm, up);
}

/* What of a rate there is for a weight of 1 were all to take all that they may. */
static inline sp_u64 sp_core_level_of(sp_u64 rate, sp_u32 weights, sp_u32 guaranteed)
{
    sp_u64 before = (sp_u64)guaranteed * SP_CORE_MILLIONTH;

    return weights == 0 || rate <= before ? SP_CORE_LEAST : (rate - before) / weights + SP_CORE_LEAST;
}

/* What there is for a weight of 1 were all that send at present to take all that they may. Below it a level would hold
 * back who has not had his share, for those whose packets cost too much even when they are dropped: the ring loses
 * these blindly, and at no cost. */
static inline sp_u64 sp_core_least(const struct sp_core *core, sp_u64 elapsed)
{
    sp_u64 usable = core->spent < elapsed ? core->spent * SP_CORE_WHOLE / elapsed : SP_CORE_WHOLE;

    usable -= usable / 16; /* so that a ring that is full can be emptied */
    return sp_core_level_of(usable, core->weights, core->guaranteed);
}

/* What other devices' polls took for what was forwarded, of as many ticks as that needs. Before a pause it was little,
 * and during it they may have worked for anybody. */
static inline void sp_core_beside(struct sp_core *core, sp_u64 elapsed)
{
    if (elapsed < SP_CORE_PAUSE && core->forwarded < SP_CORE_RING) {
        return;
    }
    if (elapsed < SP_CORE_PAUSE) {
        sp_u64 ns = core->beside / core->forwarded;

        ns = ns < SP_CORE_BESIDE_NS ? ns : SP_CORE_BESIDE_NS;
        core->beside_cost = core->beside_cost - core->beside_cost / 8 + (sp_u32)ns * SP_CORE_FRACTION / 8;
    }
    core->beside = 0;
    core->forwarded = 0;
}

/* Begins to measure for the next level. */
static inline void sp_core_measure(struct sp_core *core, sp_u64 now)
{
    core->measured = now;
    core->senders = 0;
    core->weights = 0;
    core->guaranteed = 0;
    core->spent = 0;
    core->drops = 0;
    core->idle = 0;
    core->drains = 0;
}

static inline void sp_core_tick(struct sp_core *core, sp_u64 now)
{
    sp_u64 elapsed = now - core->measured, level = core->level, least = sp_core_least(core, elapsed);
    sp_u64 idle = core->idle < elapsed ? core->idle * 1024 / elapsed : 1024;
    sp_u64 drops = core->drops * 1024 / (core->spent ? core->spent : 1);

    sp_core_beside(core, elapsed);
    if (drops > SP_CORE_DROPS) {
        level += level * (drops - SP_CORE_DROPS) / 1024;
    } else if (core->drains == 0) {
        sp_u64 less = level >> (6 - core->saturated), most = level * (SP_CORE_DROPS - drops) / 1024;

        core->saturated += core->saturated < SP_CORE_STEPS;
        level -= less < most ? less : most;
    } else {
        core->saturated = 0;
        if (idle > SP_CORE_IDLE) {
            level = elapsed >= SP_CORE_PAUSE ? SP_CORE_WHOLE : level + level * (idle - SP_CORE_IDLE) / 2048;
        } else {
            level -= level * (SP_CORE_IDLE - idle) / 2048;
        }
    }
    level = level > least ? level : least;
    if (core->senders > 1) {
        core->company = now;
    } else if (core->company == 0 || now - core->company > SP_CORE_ALONE) {
        level = SP_CORE_WHOLE; /* whoever is alone has the ring to himself; it drops at no cost */
    }
    core->level = level < SP_CORE_WHOLE ? level : SP_CORE_WHOLE;
    sp_core_measure(core, now);
}

/* Nobody has measured so far: all begins anew. */
static inline void sp_core_start(struct sp_core *core, sp_u64 now)
{
    core->level = SP_CORE_WHOLE;
    core->saturated = 0;
    core->company = 0;
    core->clock = now;
    core->ended = now;
    core->drained = now;
    core->timed = 0;
    core->dropped = 0;
    core->charged = 0;
    core->left = SP_CORE_TRUST;
    core->beside = 0;
    core->forwarded = 0;
    sp_core_measure(core, now);
}

/* The poll of a queue has ended after `work` packets of at most `budget`. It was one of ours where packets have come
 * through the pipeline since the last. */
static inline void sp_core_polled(struct sp_core *core, sp_u64 queue, sp_u32 work, sp_u32 budget, sp_u64 now)
{
    sp_u32 packets = SP_CORE_TRUST - core->left;
    int is_full = work >= budget;

    if (core->left == 0) {
        sp_core_start(core, now);
        return;
    }
    if (packets == 0) {
        sp_u64 took = now - core->ended, most = (sp_u64)work * SP_CORE_BESIDE_NS;

        took = took < most ? took : most;
        core->beside += took;
        if (core->drained) {
            core->drained += took;
        } else if (queue == core->queue && !is_full) {
            core->drained = now; /* it had taken just all that there was */
            core->drains++;
        }
        core->ended = now;
        return;
    }
    sp_core_calibrate(core, now - core->begun, packets);
    core->forwarded += packets - core->dropped;
    core->spent += (core->charged + (sp_u64)(packets - core->dropped) * core->beside_cost) / SP_CORE_FRACTION;
    core->queue = queue;
    core->drained = is_full ? 0 : now;
    core->drains += !is_full;
    core->dropped = 0;
    core->charged = 0;
    core->left = SP_CORE_TRUST;
    core->ended = now;
    core->clock = now;
    if (now - core->measured >= SP_CORE_TICK) {
        sp_core_tick(core, now);
    }
}

#endif
