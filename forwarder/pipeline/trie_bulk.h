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

    if (word & ~SP_TRIE_UNIT) {
        __builtin_prefetch(words);
        __builtin_prefetch(words + 12);
        going->number[going->count] = (sp_u8)number;
        going->taken[going->count] = (sp_u8)taken;
        going->count++;
    }
}

/* Four words beside each other. */
typedef sp_u32 sp_lanes __attribute__((vector_size(16)));
typedef sp_i32 sp_signed_lanes __attribute__((vector_size(16)));
typedef sp_u64 sp_long_lanes __attribute__((vector_size(16)));
typedef sp_u32 sp_packed_lanes __attribute__((vector_size(16), aligned(4), may_alias));

/* sp_trie_begins() of four routes: all bits or none. */
static inline sp_lanes sp_trie_begin_lanes(const sp_u32 *routes, sp_u32 bits)
{
    sp_lanes key = *(const sp_packed_lanes *)routes >> SP_TRIE_CODE_BITS;

    return (sp_lanes)((sp_signed_lanes)(key ^ bits) < (sp_signed_lanes)((key & -key) << 1));
}

/* sp_trie_list() without branches that depend on the address: which route is the first is as good as random. It looks
 * at as many as the longest list has; something always lies behind (SP_WORDS_SPAN). */
static inline __attribute__((always_inline)) sp_u32 sp_trie_list_whole(sp_tables tables, sp_u32 word, sp_u64 high)
{
    const sp_u32 *words = tables->words + (sp_u64)(word & SP_TRIE_UNIT) * 2;
    const sp_lanes first_four = {1, 2, 4, 8}, last_four = {16, 32, 64, 128};
    sp_u32 bits = sp_trie_list_bits(high), head = sp_load_word(words), count = sp_trie_head_count(head), first;
    sp_lanes begins = (sp_trie_begin_lanes(words + 1, bits) & first_four) |
                      (sp_trie_begin_lanes(words + 5, bits) & last_four);
    sp_long_lanes half = (sp_long_lanes)begins;
    sp_u64 both = half[0] | half[1];

    first = (sp_u32)__builtin_ctz((sp_u32)(both | both >> 32) | 1u << count);
    words += first < count ? first + 1 : 0;
    return sp_trie_code_leaf(sp_trie_head_base(head), sp_trie_code(sp_load_word(words)));
}

/* The same for sp_trie_wide_list(): from the last to the first, so that what lies behind a list's end comes before that
 * end, which always matches. */
static inline __attribute__((always_inline)) sp_u32 sp_trie_wide_list_whole(sp_tables tables, sp_u32 word, sp_u64 high)
{
    const sp_u32 *words = tables->words + (sp_u64)(word & SP_TRIE_UNIT) * 2;
    sp_u32 leaf = 0;

    for (sp_u32 at = SP_TRIE_LIST + 1; at-- > 0;) {
        sp_u64 entry = sp_trie_load_bits(words + 2 * at);

        leaf = (high ^ entry) >> 1 >> (entry >> 32 & 63) ? leaf : (sp_u32)entry;
    }
    return leaf;
}

/* Look-ups of one family: `ipv4` or `ipv6` is what there is. */
struct sp_trie_burst {
    const sp_u64 *roots;
    const sp_u32 *ipv4;
    const sp_u64 (*ipv6)[2];
    sp_u32 is_ipv6;
};

/* The bits of an address from the `taken`th on. */
static inline __attribute__((always_inline)) sp_u64 sp_trie_rest(const struct sp_trie_burst *burst, sp_u32 at,
                                                                 sp_u32 taken)
{
    const sp_u64 *address;

    if (!burst->is_ipv6) {
        return (sp_u64)burst->ipv4[at] << 32 << taken;
    }
    address = burst->ipv6[at];
    return taken < 64 ? address[0] << taken | address[1] >> 1 >> (63 - taken) : address[1] << (taken - 64);
}

/* SP_TRIE_TOGETHER look-ups at most. */
static inline __attribute__((always_inline)) void sp_trie_look_up(sp_tables tables, const struct sp_trie_burst *burst,
                                                                  sp_u32 *leaves, sp_u32 count)
{
    struct sp_trie_going going;

    going.count = 0;
    for (sp_u32 at = 0; at < count; at++) {
        __builtin_prefetch(sp_trie_root_word(tables, burst->roots[at], sp_trie_rest(burst, at, 0)));
    }
    for (sp_u32 at = 0; at < count; at++) {
        leaves[at] = sp_load_word(sp_trie_root_word(tables, burst->roots[at], sp_trie_rest(burst, at, 0)));
        sp_trie_go_on(tables, &going, leaves[at], at, sp_trie_root_taken(burst->roots[at]));
    }
    while (going.count > 0) {
        sp_u32 now = going.count;

        going.count = 0;
        for (sp_u32 each = 0; each < now; each++) {
            sp_u32 at = going.number[each], taken = going.taken[each], more;
            sp_u64 rest = sp_trie_rest(burst, at, taken);

            if (leaves[at] & SP_TRIE_BLOCK) {
                leaves[at] = sp_trie_step(tables, leaves[at], rest, &more);
                sp_trie_go_on(tables, &going, leaves[at], at, taken + more);
            } else {
                leaves[at] = leaves[at] & SP_TRIE_WIDE ? sp_trie_wide_list_whole(tables, leaves[at], rest)
                                                       : sp_trie_list_whole(tables, leaves[at], rest);
            }
        }
    }
}

/* sp_trie_lookup4() for `count` addresses in host order, each in the trie of the root beside it. */
static inline void sp_trie_lookup4_bulk(sp_tables tables, const sp_u64 *roots, const sp_u32 *addresses, sp_u32 *leaves,
                                        sp_u32 count)
{
    for (sp_u32 from = 0; from < count; from += SP_TRIE_TOGETHER) {
        struct sp_trie_burst burst = {roots + from, addresses + from, 0, 0};

        sp_u32 left = count - from;

        sp_trie_look_up(tables, &burst, leaves + from, left < SP_TRIE_TOGETHER ? left : SP_TRIE_TOGETHER);
    }
}

/* sp_trie_lookup6() for `count` addresses: the first and the last eight octets of each as numbers. */
static inline void sp_trie_lookup6_bulk(sp_tables tables, const sp_u64 *roots, const sp_u64 (*addresses)[2],
                                        sp_u32 *leaves, sp_u32 count)
{
    for (sp_u32 from = 0; from < count; from += SP_TRIE_TOGETHER) {
        struct sp_trie_burst burst = {roots + from, 0, addresses + from, 1};

        sp_u32 left = count - from;

        sp_trie_look_up(tables, &burst, leaves + from, left < SP_TRIE_TOGETHER ? left : SP_TRIE_TOGETHER);
    }
}

#endif
