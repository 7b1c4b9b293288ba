/* Sets of labels. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    BASE = 0,      /* the label without an entry */
    COLOURS = 256, /* labels, base included; a prefix whose action finds none stands alone */
    WORDS = COLOURS / 64,
};

struct set {
    uint64_t words[WORDS];
};

static struct set only(unsigned label)
{
    struct set set = {{0}};
    set.words[label / 64] = UINT64_C(1) << label % 64;
    return set;
}

static struct set all(void)
{
    struct set set;
    memset(&set, 0xff, sizeof set);
    return set;
}

static bool has(const struct set *set, unsigned label)
{
    return set->words[label / 64] >> label % 64 & 1;
}

static bool is_all(const struct set *set)
{
    return set->words[0] == UINT64_MAX; /* base with others: no other set has it */
}

static unsigned lowest(const struct set *set)
{
    unsigned word = 0;
    while (!set->words[word])
        word++;
    return word * 64 + (unsigned)__builtin_ctzll(set->words[word]);
}

static struct set merged(const struct set *one, const struct set *other)
{
    struct set both, either;
    uint64_t common = 0;
    for (unsigned i = 0; i < WORDS; i++) {
        common |= both.words[i] = one->words[i] & other->words[i];
        either.words[i] = one->words[i] | other->words[i];
    }
    if (common)
        return both;
    return has(&either, BASE) ? only(BASE) : either;
}
