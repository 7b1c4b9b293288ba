/* SPDX-License-Identifier: Apache-2.0
 *
 * Many look-ups at once, for engines that take packets in bursts (native builds only): the loads of one hide behind
 * those of the others.
 *
 *     root words of all ─► first blocks of all ─► second blocks of those that have one ─► ...    prefetched before
 */
#ifndef SPLITPLANE_TRIE_BULK_H
#define SPLITPLANE_TRIE_BULK_H

#include "pipeline/trie.h"

#define SP_TRIE_TOGETHER 64u

/* Look-ups that have not come to a leaf yet, and how many bits of their addresses are taken. */
struct sp_trie_going {
    sp_u32 count;
    sp_u8 number[SP_TRIE_TOGETHER];
    sp_u8 taken[SP_TRIE_TOGETHER];
};

static inline const sp_u32 *sp_trie_root_word(sp_tables tables, sp_u64 root, sp_u64 high)
{
    /* Without a root: word 0, which is 0. */
    return tables->words + sp_trie_root_base(root) + (high >> 1 >> (63 - sp_trie_root_bits(root)));
}

/* If the word leads to a block, get that, which is on two cache lines as often as on one, and go on later. */
static inline void sp_trie_go_on(sp_tables tables, struct sp_trie_going *going, sp_u32 word, sp_u32 number,
                                 sp_u32 taken)
{
    const sp_u32 *words = tables->words + (sp_u64)(word & SP_TRIE_UNIT) * 2;

    if (word & SP_TRIE_BLOCK) {
        __builtin_prefetch(words);
        __builtin_prefetch(words + 12);
        going->number[going->count] = (sp_u8)number;
        going->taken[going->count] = (sp_u8)taken;
        going->count++;
    }
}

/* sp_trie_walk() by one block. */
static inline sp_u32 sp_trie_step(sp_tables tables, sp_u32 word, sp_u64 high, sp_u32 *taken)
{
    const sp_u32 *words = tables->words + (sp_u64)(word & SP_TRIE_UNIT) * 2;
    sp_u64 bits = sp_trie_load_bits(words);
    sp_u32 length = (sp_u32)(bits & 63);

    if (!(word & SP_TRIE_PATH)) {
        *taken += SP_TRIE_STRIDE;
        return sp_load_word(words + SP_TRIE_NODE_WORDS - 1 + sp_trie_count(bits >> (~high >> 58)));
    }
    if ((high ^ bits) >> ((64 - length) & 63)) {
        return sp_load_word(words + SP_TRIE_PATH_MISS);
    }
    *taken += length;
    return sp_load_word(words + SP_TRIE_PATH_HIT);
}

/* sp_trie_lookup4() for `count` addresses in host order, each in the trie of the root beside it. */
static inline void sp_trie_lookup4_bulk(sp_tables tables, const sp_u64 *roots, const sp_u32 *addresses, sp_u32 *leaves,
                                        sp_u32 count)
{
    struct sp_trie_going going;

    for (; count > 0; roots += SP_TRIE_TOGETHER, addresses += SP_TRIE_TOGETHER, leaves += SP_TRIE_TOGETHER) {
        sp_u32 some = count < SP_TRIE_TOGETHER ? count : SP_TRIE_TOGETHER;

        count -= some;
        going.count = 0;
        for (sp_u32 at = 0; at < some; at++) {
            __builtin_prefetch(sp_trie_root_word(tables, roots[at], (sp_u64)addresses[at] << 32));
        }
        for (sp_u32 at = 0; at < some; at++) {
            leaves[at] = sp_load_word(sp_trie_root_word(tables, roots[at], (sp_u64)addresses[at] << 32));
            sp_trie_go_on(tables, &going, leaves[at], at, sp_trie_root_bits(roots[at]));
        }
        while (going.count > 0) {
            sp_u32 now = going.count;

            going.count = 0;
            for (sp_u32 each = 0; each < now; each++) {
                sp_u32 at = going.number[each], taken = going.taken[each];

                leaves[at] = sp_trie_step(tables, leaves[at], (sp_u64)addresses[at] << 32 << taken, &taken);
                sp_trie_go_on(tables, &going, leaves[at], at, taken);
            }
        }
    }
}

/* The bits of an IPv6 address from the `taken`th on. */
static inline sp_u64 sp_trie_rest(const sp_u64 *address, sp_u32 taken)
{
    return taken < 64 ? address[0] << taken | address[1] >> 1 >> (63 - taken) : address[1] << (taken - 64);
}

/* sp_trie_lookup6() for `count` addresses: the first and the last eight octets of each as numbers. */
static inline void sp_trie_lookup6_bulk(sp_tables tables, const sp_u64 *roots, const sp_u64 (*addresses)[2],
                                        sp_u32 *leaves, sp_u32 count)
{
    struct sp_trie_going going;

    for (; count > 0; roots += SP_TRIE_TOGETHER, addresses += SP_TRIE_TOGETHER, leaves += SP_TRIE_TOGETHER) {
        sp_u32 some = count < SP_TRIE_TOGETHER ? count : SP_TRIE_TOGETHER;

        count -= some;
        going.count = 0;
        for (sp_u32 at = 0; at < some; at++) {
            __builtin_prefetch(sp_trie_root_word(tables, roots[at], addresses[at][0]));
        }
        for (sp_u32 at = 0; at < some; at++) {
            leaves[at] = sp_load_word(sp_trie_root_word(tables, roots[at], addresses[at][0]));
            sp_trie_go_on(tables, &going, leaves[at], at, sp_trie_root_bits(roots[at]));
        }
        while (going.count > 0) {
            sp_u32 now = going.count;

            going.count = 0;
            for (sp_u32 each = 0; each < now; each++) {
                sp_u32 at = going.number[each], taken = going.taken[each];

                leaves[at] = sp_trie_step(tables, leaves[at], sp_trie_rest(addresses[at], taken), &taken);
                sp_trie_go_on(tables, &going, leaves[at], at, taken);
            }
        }
    }
}

#endif
