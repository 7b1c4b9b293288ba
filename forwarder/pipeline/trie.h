/* SPDX-License-Identifier: Apache-2.0
 *
 * Longest prefix match: the reader's side of the route tries. The writer is fib/, which also has the whole picture.
 *
 *     sp_arrays.roots ─► root: 2^s words, or buckets ─► block ─► block ─► leaf
 *
 * Everything lives in the array `words`, in units of two words (8 octets). A word is a leaf (sp_leaf(), 0: no route),
 * or says in which unit a block of which kind begins:
 *
 *     node    vector (64 bits), words...       one for each of the vector's bits: the next 6 bits of the address choose
 *                                              a slot, the vector's bits mark where a run of equal slots begins
 *     path    bits (64 bits), miss, hit        the next bits of the address are these: go on at `hit` behind them, else
 *                                              at `miss` with the same bits
 *     list    head, route, route, ...          the longest first: the first whose key the next bits of the address
 *                                              begin with, else the head; keys are short, leaves near each other
 *     wide    leaf, key, leaf, key, ...        the same where a key or leaf asks for more room; the last key has no
 *     list                                     bits, and so always matches
 *
 * A bucket of a root is one cache line: a list of up to 15 routes, of which some may be 0 and match nothing; or a word
 * as above, where there are more routes or they do not fit.
 *
 * This is a poptrie (Asai and Ohara, SIGCOMM 2015) with one vector in place of two, its leaves and children beside it
 * in one cache line most times, paths of any length in one block, and lists where there are only a few routes.
 *
 * A root has a size after its table: s = 6 to 18 with words, 5 to 17 with buckets. It takes as many bits of the address as make whole strides; what lies
 * below asks for the others again, but not the list of a bucket. So does a list for the 6 bits of the node that leads to
 * it: neighboring slots may share one.
 */
#ifndef SPLITPLANE_TRIE_H
#define SPLITPLANE_TRIE_H

#include "pipeline/access.h"

/* The three highest bits of a word: all 0 in a leaf. */
#define SP_TRIE_BLOCK 0x80000000u /* a node, or with SP_TRIE_OTHER a path */
#define SP_TRIE_OTHER 0x40000000u /* without SP_TRIE_BLOCK: a list */
#define SP_TRIE_WIDE 0x20000000u  /* of a list */
#define SP_TRIE_HERE 0x20000000u  /* alone: the head of a list, as a bucket begins with it */
#define SP_TRIE_FORM 0xe0000000u
#define SP_TRIE_UNIT 0x1fffffffu
#define SP_TRIE_STRIDE 6
#define SP_TRIE_PATH_BITS 58u /* at most, from the top of a path's 64 bits; the lowest 6 say how many */
#define SP_TRIE_PATH_MISS 2u  /* words from the beginning of a path block */
#define SP_TRIE_PATH_HIT 3u
#define SP_TRIE_NODE_WORDS 2u /* words from the beginning of a node block */
#define SP_TRIE_LIST 8u       /* routes in a list, at most, */
#define SP_TRIE_BUCKET 15u    /* and in a bucket or a list in its place */
#define SP_TRIE_WIDE_BITS 26u /* of a wide list's key, at most, from its top; the lowest 6 are 63 less how many */
#define SP_TRIE_WIDE_END 63u  /* so the lowest 6 bits of the last key */
#define SP_TRIE_LIST_BITS 19u /* of a list's key, at most, from the top of its 20; behind them a 1, then zeros */

/* Nodes and paths on the way to a leaf or a list, at most: each takes 6 bits or more, but perhaps for the last. */
#define SP_TRIE_BLOCKS4 5
#define SP_TRIE_BLOCKS6 21

/* A word of sp_arrays.roots: in which word of the array, or in which bucket of it, the root begins, and s. */
static inline sp_u64 sp_trie_root(sp_u32 base, sp_u32 s, sp_u32 has_buckets)
{
    return (sp_u64)has_buckets << 48 | (sp_u64)(s - s % SP_TRIE_STRIDE) << 40 | (sp_u64)s << 32 | base;
}
static inline sp_u32 sp_trie_root_base(sp_u64 root) { return (sp_u32)root; }
static inline sp_u32 sp_trie_root_bits(sp_u64 root) { return root >> 32 & 31; }
static inline sp_u32 sp_trie_root_taken(sp_u64 root) { return root >> 40 & 31; }
static inline sp_u32 sp_trie_root_has_buckets(sp_u64 root) { return root >> 48 & 1; }
/* Which of the root's words or buckets is that of an address. */
static inline sp_u32 sp_trie_root_slot(sp_u64 root, sp_u64 high)
{
    return (sp_u32)(high >> 1 >> (63 - sp_trie_root_bits(root)));
}

static inline sp_u32 sp_trie_count(sp_u64 bits)
{
#if defined(__POPCNT__)
    return (sp_u32)__builtin_popcountll(bits);
#else /* neither BPF nor plain x86-64 has the instruction; calling a library for it costs more */
    bits = bits - (bits >> 1 & 0x5555555555555555ull);
    bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return (sp_u32)(bits * 0x0101010101010101ull >> 56);
#endif
}

static inline int sp_trie_is_here(sp_u32 word) { return (word & SP_TRIE_FORM) == SP_TRIE_HERE; }

/* A list's words: 12 bits say of a leaf what the list's base does not, the others are the key or, in the head, the base
 * in eighths and how many routes follow. */
#define SP_TRIE_CODE_BITS 12u
#define SP_TRIE_GROUPS 8u      /* codes below are kinds of leaves without a slot, */
#define SP_TRIE_NEXTHOPS 1024u /* from here on nexthops, between them groups: how far their slot is from the base */
#define SP_TRIE_BASES 8u       /* a base is a multiple of it */
static inline sp_u32 sp_trie_head(sp_u32 base, sp_u32 count, sp_u32 code)
{
    return SP_TRIE_HERE | base / SP_TRIE_BASES << 16 | count << SP_TRIE_CODE_BITS | code;
}
static inline sp_u32 sp_trie_head_base(sp_u32 head) { return (head >> 16 & 0x1fff) * SP_TRIE_BASES; }
static inline sp_u32 sp_trie_head_count(sp_u32 head) { return head >> SP_TRIE_CODE_BITS & SP_TRIE_BUCKET; }
static inline sp_u32 sp_trie_code(sp_u32 word) { return word & ((1u << SP_TRIE_CODE_BITS) - 1); }
static inline sp_u32 sp_trie_code_leaf(sp_u32 base, sp_u32 code)
{
    if (code >= SP_TRIE_NEXTHOPS) {
        return sp_leaf(SP_ROUTE_NEXTHOP, base + code - SP_TRIE_NEXTHOPS);
    }
    return code >= SP_TRIE_GROUPS ? sp_leaf(SP_ROUTE_GROUP, base + code - SP_TRIE_GROUPS) : sp_leaf(code, 0);
}

/* Whether `bits`, the next 20 of an address, begin with the key of a list's route: nothing differs above its last 1. A
 * route that is 0 matches nothing. */
static inline int sp_trie_begins(sp_u32 route, sp_u32 bits)
{
    sp_u32 key = route >> SP_TRIE_CODE_BITS;
    return (sp_i32)(bits ^ key) < (sp_i32)((key & -key) << 1);
}
static inline sp_u32 sp_trie_list_bits(sp_u64 high) { return (sp_u32)(high >> (63 - SP_TRIE_LIST_BITS)); }

/* A node's vector, a path's bits and a list's keys never change while a reader can reach the block; all other words
 * may. A route of a list is loaded whole: its leaf is the old or the new one, its key is constant. In a bucket one route
 * comes or goes between two grace periods, and others move towards the end for it: readers load them in order, on
 * processors that do not reorder loads, and the head again behind them. */
typedef sp_u64 __attribute__((may_alias)) sp_trie_bits;
static inline sp_u64 sp_trie_load_bits(const sp_u32 *words) { return *(const volatile sp_trie_bits *)words; }

/* The address' next bits are at the top of `high`. Returns the word that the node or path of `word` leads to, and how
 * many bits that took. */
SP_INLINE sp_u32 sp_trie_step(sp_tables tables, sp_u32 word, sp_u64 high, sp_u32 *taken)
{
    const sp_u32 *words = sp_words_at(tables, (word & SP_TRIE_UNIT) * 2);
    sp_u64 bits;

    *taken = 0;
    if (!words) {
        return 0;
    }
    bits = sp_trie_load_bits(words);
    if (!(word & SP_TRIE_OTHER)) {
        /* Slot 0 is the highest bit, which is always set. */
        word = sp_load_word(words + SP_TRIE_NODE_WORDS - 1 + sp_bounded(sp_trie_count(bits >> (~high >> 58)), 127));
        *taken = -sp_hidden(word >> 31) & SP_TRIE_STRIDE; /* a list asks for them again */
        return word;
    }
    if ((high ^ bits) >> ((64 - (bits & 63)) & 63)) {
        return sp_load_word(words + SP_TRIE_PATH_MISS);
    }
    *taken = bits & 63;
    return sp_load_word(words + SP_TRIE_PATH_HIT);
}

/* The first of `count` routes of a list for an address whose next bits are `bits`; 0: none. */
SP_INLINE sp_u32 sp_trie_scan(const sp_u32 *words, sp_u32 count, sp_u32 bits)
{
    SP_UNROLL
    for (sp_u32 at = 1; at <= SP_TRIE_BUCKET; at++) {
        sp_u32 route = sp_load_word(words + at);

        if (at > count) {
            break;
        }
        if (sp_trie_begins(route, bits)) {
            return route;
        }
    }
    return 0;
}
static inline sp_u32 sp_trie_coded(sp_u32 head, sp_u32 word)
{
    return sp_trie_code_leaf(sp_trie_head_base(head), sp_trie_code(word));
}

/* The leaf that the list of `word` has for an address whose next bits are at the top of `high`. */
SP_INLINE sp_u32 sp_trie_list(sp_tables tables, sp_u32 word, sp_u64 high)
{
    const sp_u32 *words = sp_words_at(tables, (word & SP_TRIE_UNIT) * 2);
    sp_u32 head, route;

    if (!words) {
        return 0;
    }
    head = sp_load_word(words);
    route = sp_trie_scan(words, sp_trie_head_count(head), sp_trie_list_bits(high));
    return sp_trie_coded(head, route ? route : head);
}

/* The same for a wide list. */
SP_INLINE sp_u32 sp_trie_wide_list(sp_tables tables, sp_u32 word, sp_u64 high)
{
    const sp_u32 *words = sp_words_at(tables, (word & SP_TRIE_UNIT) * 2);

    for (sp_u32 at = 0; words && at <= SP_TRIE_BUCKET; at++) {
        sp_u64 entry = sp_trie_load_bits(words + 2 * at);

        if (!((high ^ entry) >> 1 >> (entry >> 32 & 63))) {
            return (sp_u32)entry;
        }
    }
    return 0;
}

/* Go on from `word` with the bits of the address that are left, from the top of `high` on. Returns a leaf. */
SP_INLINE sp_u32 sp_trie_walk(sp_tables tables, sp_u32 word, sp_u64 high, sp_u64 low, sp_u32 blocks)
{
    for (sp_u32 block = 0; block < blocks && word & SP_TRIE_BLOCK; block++) {
        sp_u32 taken;

        word = sp_trie_step(tables, word, high, &taken);
        high = high << taken | low >> 1 >> (63 - taken);
        low <<= taken;
    }
    if (!(word & SP_TRIE_OTHER)) {
        return word;
    }
    return word & SP_TRIE_WIDE ? sp_trie_wide_list(tables, word, high) : sp_trie_list(tables, word, high);
}

/* The word for the first bits of an address in a root of words. */
static inline sp_u32 sp_trie_first(sp_tables tables, sp_u64 root, sp_u64 high)
{
    const sp_u32 *words = sp_words_at(tables, sp_trie_root_base(root) + sp_trie_root_slot(root, high));

    return words ? sp_load_word(words) : 0;
}

/* The leaf of the longest route for an IPv4 address in host order; 0: none but the default route, which is not in the
 * trie. `root` is a word of sp_arrays.roots, loaded once. */
static inline sp_u32 sp_trie_lookup4(sp_tables tables, sp_u64 root, sp_u32 address)
{
    sp_u64 high = (sp_u64)address << 32;
    const sp_u32 *bucket;
    sp_u32 word, route;

    if (!root) {
        return 0;
    }
    if (sp_trie_root_has_buckets(root)) {
        bucket = sp_bucket_at(tables, sp_trie_root_base(root) + sp_trie_root_slot(root, high));
        if (!bucket) {
            return 0;
        }
        word = sp_load_word(bucket);
        if (sp_likely(sp_trie_is_here(word))) {
            route = sp_trie_scan(bucket, SP_TRIE_BUCKET, sp_trie_list_bits(high << sp_trie_root_bits(root)));
            if (sp_likely(route)) {
                return sp_trie_coded(word, route);
            }
            word = sp_load_word(bucket); /* of one moment with what was behind it */
            if (sp_trie_is_here(word)) {
                return sp_trie_coded(word, word);
            }
        }
    } else {
        word = sp_trie_first(tables, root, high);
    }
    return sp_trie_walk(tables, word, high << sp_trie_root_taken(root), 0, SP_TRIE_BLOCKS4);
}

/* The same for an IPv6 address: its first and last eight octets as numbers; `root` as above, of words. */
static inline sp_u32 sp_trie_lookup6(sp_tables tables, sp_u64 root, sp_u64 high, sp_u64 low)
{
    sp_u32 taken = sp_trie_root_taken(root);
    if (!root) {
        return 0;
    }
    return sp_trie_walk(tables, sp_trie_first(tables, root, high), high << taken | low >> 1 >> (63 - taken),
                        low << taken, SP_TRIE_BLOCKS6);
}

#endif
