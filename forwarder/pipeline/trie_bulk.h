/* SPDX-License-Identifier: Apache-2.0
 *
 * Many look-ups at once, for engines that take packets in bursts (native builds only): the loads of one hide behind
 * those of the others.
 *
 *     root words of all ─► first blocks of all ─► second blocks of those that have one ─► ...    prefetched before
 */
#ifndef SPLITPLANE_TRIE_BULK_H
#define SPLITPLANE_TRIE_BULK_H

#include <emmintrin.h>

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
    sp_u64 at = (sp_u64)sp_trie_root_base(root) + sp_trie_root_slot(root, high);

    return tables->words + (sp_trie_root_has_buckets(root) ? at * SP_BUCKET_WORDS : at);
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
typedef sp_u32 sp_packed_lanes __attribute__((vector_size(16), aligned(4), may_alias));
typedef sp_u32 sp_bucket_lanes __attribute__((vector_size(16), may_alias)); /* processors with AVX load these at once */

/* sp_trie_begins() of four routes: all bits or none. */
static inline sp_lanes sp_trie_begin_lanes(sp_lanes routes, sp_u32 bits)
{
    sp_lanes key = routes >> SP_TRIE_CODE_BITS;

    return (sp_lanes)((sp_signed_lanes)(key ^ bits) < (sp_signed_lanes)((key & -key) << 1));
}

/* The numbers of those of sixteen routes that an address begins with, as bits. */
static inline sp_u32 sp_trie_begin_sixteen(sp_lanes first, sp_lanes second, sp_lanes third, sp_lanes last, sp_u32 bits)
{
    __m128i half = _mm_packs_epi32((__m128i)sp_trie_begin_lanes(first, bits), (__m128i)sp_trie_begin_lanes(second, bits));
    __m128i rest = _mm_packs_epi32((__m128i)sp_trie_begin_lanes(third, bits), (__m128i)sp_trie_begin_lanes(last, bits));

    return (sp_u32)_mm_movemask_epi8(_mm_packs_epi16(half, rest));
}

/* sp_trie_list() without branches that depend on the address: which route is the first is as good as random. It looks
 * at as many as the longest list has; something always lies behind (SP_WORDS_SPAN). */
static inline __attribute__((always_inline)) sp_u32 sp_trie_list_whole(sp_tables tables, sp_u32 word, sp_u64 high)
{
    const sp_u32 *words = tables->words + (sp_u64)(word & SP_TRIE_UNIT) * 2;
    const sp_packed_lanes *lanes = (const sp_packed_lanes *)(words + 1);
    const sp_lanes none = {0, 0, 0, 0};
    sp_u32 bits = sp_trie_list_bits(high), head = sp_load_word(words), count = sp_trie_head_count(head), first;

    if (sp_likely(count <= SP_TRIE_LIST)) {
        first = sp_trie_begin_sixteen(lanes[0], lanes[1], none, none, bits);
    } else { /* in the place of a bucket */
        first = sp_trie_begin_sixteen(lanes[0], lanes[1], lanes[2], lanes[3], bits);
    }
    first = (sp_u32)__builtin_ctz(first | 1u << count);
    words += first < count ? first + 1 : 0;
    return sp_trie_coded(head, sp_load_word(words));
}

/* The leaf that a bucket has, or the word that it leads to. Its words are loaded in order, and the route that is found
 * again; should another have taken its place meanwhile, they are gone through one by one. */
static inline __attribute__((always_inline)) sp_u32 sp_trie_bucket_whole(const sp_u32 *bucket, sp_u32 head, sp_u64 high)
{
    const volatile sp_bucket_lanes *lanes = (const volatile sp_bucket_lanes *)bucket;
    sp_lanes first = lanes[0], second = lanes[1], third = lanes[2], last = lanes[3];
    sp_u32 bits = sp_trie_list_bits(high), begin, route = 0;

    begin = sp_trie_begin_sixteen(first, second, third, last, bits) & ~1u; /* the head */
    if (sp_likely(begin)) {
        route = sp_load_word(bucket + __builtin_ctz(begin));
        if (sp_unlikely(!sp_trie_begins(route, bits))) {
            route = sp_trie_scan(bucket, SP_TRIE_BUCKET, bits);
        }
    }
    if (sp_likely(route)) {
        return sp_trie_coded(head, route);
    }
    head = sp_load_word(bucket);
    return sp_trie_is_here(head) ? sp_trie_coded(head, head) : head;
}

/* The same for sp_trie_wide_list(): from the last to the first, so that what lies behind a list's end comes before that
 * end, which always matches. */
static inline __attribute__((always_inline)) sp_u32 sp_trie_wide_list_whole(sp_tables tables, sp_u32 word, sp_u64 high)
{
    const sp_u32 *words = tables->words + (sp_u64)(word & SP_TRIE_UNIT) * 2;
    sp_u64 found = 0; /* no entry is 0: an end is not */

    for (sp_u32 at = SP_TRIE_LIST + 1; at-- > 0;) {
        sp_u64 entry = sp_trie_load_bits(words + 2 * at);

        found = (high ^ entry) >> 1 >> (entry >> 32 & 63) ? found : entry;
    }
    return sp_likely(found) ? (sp_u32)found : sp_trie_wide_list(tables, word, high); /* in the place of a bucket */
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
        const sp_u32 *words = sp_trie_root_word(tables, burst->roots[at], sp_trie_rest(burst, at, 0));

        leaves[at] = sp_load_word(words);
        if (!burst->is_ipv6 && sp_trie_is_here(leaves[at])) {
            sp_u64 rest = sp_trie_rest(burst, at, sp_trie_root_bits(burst->roots[at]));

            leaves[at] = sp_trie_bucket_whole(words, leaves[at], rest);
        }
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
