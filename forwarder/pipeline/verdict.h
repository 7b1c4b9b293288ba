/* SPDX-License-Identifier: Apache-2.0
 *
 * What is not forwarded: counted by router and reason, and if it is a punt, policed by router and class.
 */
#ifndef SPLITPLANE_VERDICT_H
#define SPLITPLANE_VERDICT_H

#include "pipeline/interface_classifier.h"
#include "pipeline/packet.h"
#include "pipeline/punt_class.h"

enum sp_action { SP_ACTION_DROP = 0, SP_ACTION_SEND = 1, SP_ACTION_PUNT = 2 };

/* What the engine is to do with the frame. */
struct sp_verdict {
    sp_u32 action;
    sp_u32 port;                /* to send it out of */
    sp_u32 reason;              /* why it is dropped or punted */
    sp_u32 punt_class;          /* of a punt */
    sp_u32 vrf;                 /* whose frame it is: a slot; 0: nobody's */
    sp_u32 interface;           /* by which a punt or a sample came in: a slot, */
    sp_u32 router_interface_id; /* and its id */
    sp_u32 l2_octets;           /* of a punt, which is as it came in, and of a sample, which is as it leaves */
    sp_u32 sampled;             /* whether the head of what is sent is a sample as well */
};

/* How often to try again where another CPU was faster; after that the packet counts as one too many. */
#define SP_POLICER_TRIES 4

/* Least burst of a share, in packets. */
#define SP_SHARE_BURST 4

/* Virtual scheduling (ITU-T I.371): whether a packet conforms. */
static inline int sp_conforms(sp_u64 *due_at, sp_u64 now, sp_u64 interval, sp_u64 tolerance)
{
    for (int tries = 0; tries < SP_POLICER_TRIES; tries++) {
        sp_u64 due = sp_load_long(due_at);
        sp_u64 start = due > now ? due : now;
        if (start - now > tolerance) {
            return 0;
        }
        if (__sync_val_compare_and_swap(due_at, due, start + interval) == due) {
            return 1;
        }
    }
    return 0;
}

/* Counts a packet that passes in any case. */
static inline void sp_charge(sp_u64 *due_at, sp_u64 now, sp_u64 interval)
{
    sp_u64 due = sp_load_long(due_at);

    if (due < now && __sync_val_compare_and_swap(due_at, due, now + interval) == due) {
        return;
    }
    __sync_fetch_and_add(due_at, interval);
}

/* Whether a packet is within the rate of a policer that has no shares. */
static inline int sp_police(struct sp_policer *policer, sp_u64 now)
{
    sp_u32 interval = sp_load_word(&policer->interval_ns);

    if (!sp_load_word(&policer->shares)) {
        return 0;
    }
    return interval == 0 || sp_conforms(&policer->due, now, interval, sp_load_long(&policer->tolerance_ns));
}

/* The least that a share's tolerance is. */
static inline sp_u64 sp_share_tolerance(sp_u64 of_share, sp_u64 tolerance)
{
    sp_u64 least = of_share * (SP_SHARE_BURST - 1);

    return tolerance > least ? tolerance : least;
}

/* Whether a punt is within the share of the interface that it came in by, or within what the others leave of the rate.
 *
 *     of its share ──► passes; is one less for what is left
 *     more than it ──► passes while something is left
 *
 * The shares add up to the rate, and whoever keeps to his own loses nothing to others, however much they send; nor does
 * the rate lie idle while one of them could use it (as rate and ceil of HTB in Linux). */
static inline int sp_police_share(struct sp_policer *policer, sp_u64 *share_due, sp_u64 now)
{
    sp_u64 interval = sp_load_word(&policer->interval_ns);
    sp_u64 tolerance = sp_load_long(&policer->tolerance_ns);
    sp_u32 shares = sp_load_word(&policer->shares);
    sp_u64 of_share = interval * shares;

    if (shares == 0 || interval == 0) {
        return shares != 0;
    }
    if (shares > 1 && share_due && sp_conforms(share_due, now, of_share, sp_share_tolerance(of_share, tolerance))) {
        sp_charge(&policer->due, now, interval);
        return 1;
    }
    return sp_conforms(&policer->due, now, interval, tolerance);
}

/* Whether sp_police_share() would let a packet pass; nothing is counted. */
static inline int sp_would_pass(const struct sp_policer *policer, const sp_u64 *share_due, sp_u64 now)
{
    sp_u64 interval = sp_load_word(&policer->interval_ns);
    sp_u64 tolerance = sp_load_long(&policer->tolerance_ns);
    sp_u32 shares = sp_load_word(&policer->shares);

    if (shares == 0 || interval == 0) {
        return shares != 0;
    }
    return sp_load_long(&policer->due) <= now + tolerance ||
           (shares > 1 && sp_load_long(share_due) <= now + sp_share_tolerance(interval * shares, tolerance));
}

/* sp_police_share() of a router's packet that came in by that interface. */
SP_APART int sp_police_punt(sp_tables tables, sp_u32 vrf, sp_u32 interface, sp_u32 punt_class, sp_u64 now)
{
    struct sp_policer *policer = sp_policer_at(tables, vrf, punt_class);

    SP_APART_TABLES(tables);
    return policer && sp_police_share(policer, sp_share_due_at(tables, interface, punt_class), now);
}

static inline void sp_count_engine(sp_tables tables, sp_u32 cpu, sp_u32 counter)
{
    sp_u64 *at = sp_engine_counter_at(tables, cpu, counter);

    if (at) {
        *at += 1;
    }
}

static inline void sp_count_punt_drop(sp_tables tables, const struct sp_verdict *verdict, sp_u32 place)
{
    sp_u64 *at = sp_punt_drop_at(tables, verdict->interface, place, verdict->punt_class);

    if (at) {
        __sync_fetch_and_add(at, 1);
    }
}

/* Counts and polices what has a reason; punts are counted before the policer drops any. */
static inline void sp_verdict_stage(sp_tables tables, const struct sp_packet *packet, const struct sp_meta *meta,
                                    struct sp_verdict *verdict)
{
    const struct sp_vrf *vrf = sp_vrf_at(tables, meta->vrf);
    sp_u32 index = sp_reason_index(verdict->reason);

    if (sp_load_word(&vrf->counted) >> (index & 31) & 1) {
        sp_count(sp_reason_at(tables, meta->cpu, meta->vrf, index), packet->length);
    }
    if (verdict->reason >= SP_FIRST_DROP) {
        return;
    }
    verdict->punt_class = sp_punt_class(packet, meta, verdict->reason);
    verdict->interface = meta->interface;
    if (!sp_police_punt(tables, meta->vrf, meta->interface, verdict->punt_class, sp_now_ns(packet))) {
        sp_count_engine(tables, meta->cpu, SP_COUNT_POLICED);
        sp_count_punt_drop(tables, verdict, SP_PLACE_POLICER);
        return;
    }
    verdict->action = SP_ACTION_PUNT;
    verdict->router_interface_id = sp_load_word(&sp_interface_at(tables, meta->interface)->id);
    verdict->l2_octets = meta->l2_octets;
}

#endif
