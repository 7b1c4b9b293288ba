/* SPDX-License-Identifier: Apache-2.0
 *
 * Many look-ups at once, for engines that take packets in bursts (native builds only): the loads of one hide behind
 * those of the others.
 *
 *     root words of all ─► first blocks of all ─► second blocks of those that have one ─► ...    each prefetched before
 */
#ifndef SPLITPLANE_TRIE_BULK_H
#define SPLITPLANE_TRIE_BULK_H

#include "pipeline/trie.h"

#define SP_TRIE_TOGETHER 32u

/* What is under way of one look-up: the block that comes next, and the bits of the address that are left. */
struct sp_trie_going {
    sp_u64 high;
    sp_u64 low;
    sp_u32 word;
    sp_u32 number;
};

/* For a leaf, which leads nowhere, the array's beginning. */
static inline void sp_trie_prefetch(sp_tables tables, sp_u32 word)
{
    __builtin_prefetch(tables->words + (sp_u64)(word >> 31 ? word & SP_TRIE_UNIT : 0) * 2);
}

/* One block for each; those that have come to a leaf go out. Node or path is a matter of chance where tables are
 * sparse, so both are computed and none is jumped to. Returns how many are left. */
static inline sp_u32 sp_trie_step(sp_tables tables, struct sp_trie_going *going, sp_u32 count, sp_u32 *leaves, int wide)
{
    sp_u32 left = 0;

    for (sp_u32 at = 0; at < count; at++) {
        struct sp_trie_going one = going[at];
        const sp_u32 *words = tables->words + (sp_u64)(one.word & SP_TRIE_UNIT) * 2;
        sp_u64 bits = sp_trie_load_bits(words);
        int path = (one.word & SP_TRIE_PATH) != 0;
        sp_u32 length = (sp_u32)(bits & 63);
        int hit = (one.high ^ bits) >> ((64 - length) & 63) == 0;
        sp_u32 next = hit ? SP_TRIE_PATH_HIT : SP_TRIE_PATH_MISS;
        sp_u32 run = SP_TRIE_NODE_WORDS - 1 + sp_trie_count(bits >> (~one.high >> 58));
        sp_u32 taken = path ? (hit ? length : 0) : SP_TRIE_STRIDE;
        sp_u32 word = sp_load_word(words + (path ? next : run));

        sp_trie_prefetch(tables, word);
        leaves[one.number] = word;
        going[left].word = word;
        going[left].number = one.number;
        going[left].high = one.high << taken | (wide ? one.low >> 1 >> (63 - taken) : 0);
        if (wide) {
            going[left].low = one.low << taken;
        }
        left += word >> 31;
    }
    return left;
}

static inline void sp_trie_finish(sp_tables tables, struct sp_trie_going *going, sp_u32 count, sp_u32 *leaves, int wide)
{
    while (count > 0) {
        count = sp_trie_step(tables, going, count, leaves, wide);
    }
}

/* sp_trie_lookup4() for `count` addresses in host order, each in the trie of the root beside it. */
static inline void sp_trie_lookup4_bulk(sp_tables tables, const sp_u64 *roots, const sp_u32 *addresses, sp_u32 *leaves,
                                        sp_u32 count)
{
    struct sp_trie_going going[SP_TRIE_TOGETHER];
    const sp_u32 *first[SP_TRIE_TOGETHER];

    for (sp_u32 from = 0; from < count; from += SP_TRIE_TOGETHER) {
        sp_u32 some = count - from < SP_TRIE_TOGETHER ? count - from : SP_TRIE_TOGETHER;
        sp_u32 left = 0;

        for (sp_u32 at = 0; at < some; at++) {
            sp_u64 root = roots[from + at];
            sp_u64 high = (sp_u64)addresses[from + at] << 32;

            /* Without a root: word 0, which is 0. */
            first[at] = tables->words + sp_trie_root_base(root) + (high >> 1 >> (63 - sp_trie_root_bits(root)));
            __builtin_prefetch(first[at]);
        }
        for (sp_u32 at = 0; at < some; at++) {
            sp_u32 word = sp_load_word(first[at]);

            sp_trie_prefetch(tables, word);
            leaves[from + at] = word;
            going[left].word = word;
            going[left].number = at;
            going[left].high = (sp_u64)addresses[from + at] << 32 << sp_trie_root_bits(roots[from + at]);
            left += word >> 31;
        }
        sp_trie_finish(tables, going, left, leaves + from, 0);
    }
}

/* sp_trie_lookup6() for `count` addresses: the first and the last eight octets of each as numbers. */
static inline void sp_trie_lookup6_bulk(sp_tables tables, const sp_u64 *roots, const sp_u64 (*addresses)[2],
                                        sp_u32 *leaves, sp_u32 count)
{
    struct sp_trie_going going[SP_TRIE_TOGETHER];
    const sp_u32 *first[SP_TRIE_TOGETHER];

    for (sp_u32 from = 0; from < count; from += SP_TRIE_TOGETHER) {
        sp_u32 some = count - from < SP_TRIE_TOGETHER ? count - from : SP_TRIE_TOGETHER;
        sp_u32 left = 0;

        for (sp_u32 at = 0; at < some; at++) {
            sp_u64 root = roots[from + at];

            first[at] = tables->words + sp_trie_root_base(root) +
                        (addresses[from + at][0] >> 1 >> (63 - sp_trie_root_bits(root)));
            __builtin_prefetch(first[at]);
        }
        for (sp_u32 at = 0; at < some; at++) {
            sp_u32 word = sp_load_word(first[at]);
            sp_u32 s = sp_trie_root_bits(roots[from + at]);
            sp_u64 high = addresses[from + at][0], low = addresses[from + at][1];

            sp_trie_prefetch(tables, word);
            leaves[from + at] = word;
            going[left].word = word;
            going[left].number = at;
            going[left].high = high << s | low >> 1 >> (63 - s);
            going[left].low = low << s;
            left += word >> 31;
        }
        sp_trie_finish(tables, going, left, leaves + from, 1);
    }
}

#endif
