/* SPDX-License-Identifier: Apache-2.0
 *
 * Longest prefix match: the reader's side of the route tries. The writer is fib/, which also has the whole picture.
 *
 *     sp_vrf.root ─► root: 2^s words ─► block ─► block ─► leaf
 *
 * Everything lives in the array `words`, in units of two words (8 octets). A word is a leaf (sp_leaf(), 0: no route),
 * or says in which unit a block begins:
 *
 *     node    vector (64 bits), words...       one for each of the vector's bits: the next 6 bits of the address choose
 *                                              a slot, the vector's bits mark where a run of equal slots begins
 *     path    bits (64 bits), miss, hit        the next bits of the address are these: go on at `hit` behind them, else
 *                                              at `miss` with the same bits
 *
 * This is a poptrie (Asai and Ohara, SIGCOMM 2015) with one vector in place of two, its leaves and children beside it
 * in one cache line most times, paths of any length in one block, and a list of paths, each the other's `miss`, where
 * there are only a few routes. A root has a size after its table: s is 0, 6, 12 or 18.
 */
#ifndef SPLITPLANE_TRIE_H
#define SPLITPLANE_TRIE_H

#include "pipeline/access.h"

#define SP_TRIE_BLOCK 0x80000000u /* in a word: not a leaf */
#define SP_TRIE_PATH 0x40000000u  /* in a word with SP_TRIE_BLOCK: a path, not a node */
#define SP_TRIE_UNIT 0x3fffffffu
#define SP_TRIE_STRIDE 6
#define SP_TRIE_PATH_BITS 58u /* at most, from the top of a path's 64 bits; the lowest 6 say how many */
#define SP_TRIE_PATH_MISS 2u  /* words from the beginning of a path block */
#define SP_TRIE_PATH_HIT 3u
#define SP_TRIE_NODE_WORDS 2u /* words from the beginning of a node block */

#define SP_TRIE_LIST 3u /* routes in a list, at most */

/* Blocks on the way to a leaf, at most: each takes 6 bits or more, but for those of the list at the end. */
#define SP_TRIE_BLOCKS4 (6 + SP_TRIE_LIST - 1)
#define SP_TRIE_BLOCKS6 (22 + SP_TRIE_LIST - 1)

/* The word sp_vrf.root: where the root's words begin, and s. */
static inline sp_u64 sp_trie_root(sp_u32 base, sp_u32 s) { return (sp_u64)s << 32 | base; }
static inline sp_u32 sp_trie_root_base(sp_u64 root) { return (sp_u32)root; }
static inline sp_u32 sp_trie_root_bits(sp_u64 root) { return root >> 32 & 31; }

static inline sp_u32 sp_trie_count(sp_u64 bits)
{
#if defined(__bpf__) /* which has no such instruction, nor a library */
    bits = bits - (bits >> 1 & 0x5555555555555555ull);
    bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return (sp_u32)(bits * 0x0101010101010101ull >> 56);
#else
    return (sp_u32)__builtin_popcountll(bits);
#endif
}

/* A block's first 64 bits never change while a reader can reach it, the words behind them may. */
typedef sp_u64 __attribute__((may_alias)) sp_trie_bits;
static inline sp_u64 sp_trie_load_bits(const sp_u32 *words) { return *(const volatile sp_trie_bits *)words; }

/* Go on from `word` with the bits of the address that are left, from the top of `high` on. Returns a leaf. */
static inline sp_u32 sp_trie_walk(sp_tables tables, sp_u32 word, sp_u64 high, sp_u64 low, sp_u32 blocks)
{
    for (sp_u32 block = 0; block < blocks && word & SP_TRIE_BLOCK; block++) {
        sp_u32 index = (word & SP_TRIE_UNIT) * 2;
        sp_u32 taken = SP_TRIE_STRIDE;
        const sp_u32 *words = sp_word_at(tables, index);
        if (!words) {
            return 0;
        }
        sp_u64 bits = sp_trie_load_bits(words);
        if (word & SP_TRIE_PATH) {
            taken = bits & 63;
            index += SP_TRIE_PATH_HIT;
            if ((high ^ bits) >> ((64 - taken) & 63)) {
                taken = 0;
                index += SP_TRIE_PATH_MISS - SP_TRIE_PATH_HIT;
            }
        } else {
            /* Slot 0 is the highest bit, which is always set. */
            index += SP_TRIE_NODE_WORDS - 1 + sp_trie_count(bits >> (~high >> 58));
        }
        words = sp_word_at(tables, index);
        if (!words) {
            return 0;
        }
        word = sp_load_word(words);
        high = high << taken | low >> 1 >> (63 - taken);
        low <<= taken;
    }
    return word;
}

/* The root's word for the first bits of an address. */
static inline sp_u32 sp_trie_first(sp_tables tables, sp_u64 root, sp_u64 high)
{
    sp_u32 slot = (sp_u32)(high >> 1 >> (63 - sp_trie_root_bits(root)));
    const sp_u32 *word = sp_word_at(tables, sp_trie_root_base(root) + slot);
    return word ? sp_load_word(word) : 0;
}

/* The leaf of the longest route for an IPv4 address in host order; 0: none but the default route, which is not in the
 * trie. `root` is sp_vrf.root[0], loaded once. */
static inline sp_u32 sp_trie_lookup4(sp_tables tables, sp_u64 root, sp_u32 address)
{
    sp_u64 high = (sp_u64)address << 32;
    if (!root) {
        return 0;
    }
    return sp_trie_walk(tables, sp_trie_first(tables, root, high), high << sp_trie_root_bits(root), 0, SP_TRIE_BLOCKS4);
}

/* The same for an IPv6 address: its first and last eight octets as numbers; `root` is sp_vrf.root[1]. */
static inline sp_u32 sp_trie_lookup6(sp_tables tables, sp_u64 root, sp_u64 high, sp_u64 low)
{
    sp_u32 s = sp_trie_root_bits(root);
    if (!root) {
        return 0;
    }
    return sp_trie_walk(tables, sp_trie_first(tables, root, high), high << s | low >> 1 >> (63 - s), low << s,
                        SP_TRIE_BLOCKS6);
}

#endif
