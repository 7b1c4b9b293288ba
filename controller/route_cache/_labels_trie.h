/* The trie under the labels: its nodes, what lies around them, and what their sets are. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "_labels_sets.h"

enum {
    NOBODY = 0, /* the node above the root: its one side is the root itself */
    ROOT = 1,
    DEEPEST = 130, /* nodes on a way up, and more */
};

enum {
    ROUTE = 1 << 0,   /* the table has this prefix */
    KEPT = 1 << 1,    /* its entry is kept as it is */
    LARGE = 1 << 2,   /* too many prefixes are directly inside it */
    PLAIN = 1 << 3,   /* no label was left for its action */
    OPEN = 1 << 4,    /* the entries of its sides are taken away */
    LIVE = 1 << 5,
    QUEUED = 1 << 6,  /* in the queue of improve, once; a node that takes the place of a freed one is so too */
};

#define NO_ACTION (-1)

typedef unsigned __int128 address_t; /* left-aligned in both families */

struct node {
    uint64_t high, low;
    uint32_t parent, child[2];
    uint32_t action;
    uint16_t label, top;  /* of the node; of the first bit of an edge of two bits to it */
    uint16_t colour;      /* the label of its action, BASE where it has none */
    uint8_t length, flags;
};

struct list {
    uint32_t *items;
    uint32_t count, room;
};

/* What one entry was before and is now; NO_ACTION: not there. */
struct change {
    uint64_t high, low;
    int64_t before, now;
    uint8_t length;
    bool used;
};

struct changes {
    struct change *slots; /* open addressing */
    uint32_t count, room, writes;
};

struct labels {
    struct node *nodes;
    uint64_t *sets;
    uint32_t count, room, unused; /* unused: a list by child[0] */
    unsigned words, width, limit;
    struct list open, queue;
    struct changes changes;
    uint32_t action_of[COLOURS];
    uint32_t routes_of[COLOURS];
    uint64_t entries, routes;
};

/* Memory. There is no way on without it, and what is installed stays while the controller starts again. */

static void *grown(void *old, size_t size)
{
    void *memory = realloc(old, size);
    if (!memory) {
        fprintf(stderr, "no memory for %zu octets of an aggregated table\n", size);
        abort();
    }
    return memory;
}

static void append(struct list *list, uint32_t item)
{
    if (list->count == list->room) {
        list->room = list->room ? list->room + list->room / 2 : 64;
        list->items = grown(list->items, list->room * sizeof *list->items);
    }
    list->items[list->count++] = item;
}

/* The sets of nodes */

static struct set set_of(const struct labels *labels, uint32_t n)
{
    struct set set = {{0}};
    memcpy(set.words, labels->sets + (size_t)n * labels->words, labels->words * sizeof *set.words);
    return is_all(&set) ? all() : set;
}

static bool fits_all(const struct labels *labels, uint32_t n)
{
    return labels->sets[(size_t)n * labels->words] == UINT64_MAX;
}

static void put_set(struct labels *labels, uint32_t n, const struct set *set)
{
    memcpy(labels->sets + (size_t)n * labels->words, set->words, labels->words * sizeof *set->words);
}

static void widen_sets(struct labels *labels)
{
    unsigned before = labels->words, words = before * 2;
    uint64_t *sets = grown(NULL, (size_t)labels->room * words * sizeof *sets);
    for (uint32_t n = 0; n < labels->count; n++) {
        const uint64_t *old = labels->sets + (size_t)n * before;
        memcpy(sets + (size_t)n * words, old, before * sizeof *old);
        memset(sets + (size_t)n * words + before, *old == UINT64_MAX ? 0xff : 0, before * sizeof *old);
    }
    free(labels->sets);
    labels->sets = sets;
    labels->words = words;
}

/* Labels of actions */

/* Return the label of an action, with one more route; BASE where all are taken. */
static unsigned take_colour(struct labels *labels, uint32_t action)
{
    unsigned unused = BASE;
    for (unsigned label = COLOURS - 1; label > BASE; label--) {
        if (!labels->routes_of[label]) {
            unused = label;
        } else if (labels->action_of[label] == action) {
            labels->routes_of[label]++;
            return label;
        }
    }
    if (unused) {
        labels->action_of[unused] = action;
        labels->routes_of[unused] = 1;
        while (unused >= labels->words * 64)
            widen_sets(labels);
    }
    return unused;
}

/* Addresses */

static address_t address_of(const struct node *node)
{
    return (address_t)node->high << 64 | node->low;
}

static unsigned bit_at(address_t address, unsigned position)
{
    return address >> (127 - position) & 1;
}

static address_t bit(unsigned position)
{
    return (address_t)1 << (127 - position);
}

static unsigned common_bits(address_t one, address_t other)
{
    address_t differ = one ^ other;
    uint64_t high = (uint64_t)(differ >> 64), low = (uint64_t)differ;
    return high ? (unsigned)__builtin_clzll(high) : low ? 64 + (unsigned)__builtin_clzll(low) : 128;
}

/* Nodes */

static bool stands_alone(const struct node *node)
{
    return node->flags & ROUTE && node->flags & (KEPT | LARGE | PLAIN);
}

static uint32_t owner_of(const struct labels *labels, uint32_t n)
{
    while (n && !(labels->nodes[n].flags & ROUTE))
        n = labels->nodes[n].parent;
    return n;
}

static unsigned hole_of_owner(const struct labels *labels, uint32_t owner)
{
    const struct node *node = &labels->nodes[owner];
    return !owner || stands_alone(node) ? BASE : node->colour;
}

/* The label of what is directly inside a node and in no node below. */
static unsigned hole(const struct labels *labels, uint32_t n)
{
    return hole_of_owner(labels, owner_of(labels, n));
}

/* The label that the sides of a node have above them. */
static unsigned inner(const struct labels *labels, uint32_t n)
{
    return stands_alone(&labels->nodes[n]) ? BASE : labels->nodes[n].label;
}

/* Bits on the edge to a node. */
static unsigned span(const struct labels *labels, uint32_t n)
{
    const struct node *node = &labels->nodes[n];
    return n == ROOT ? 1 : node->length - labels->nodes[node->parent].length;
}

/* The set of the first bit of the edge to a node, whose holes have the label h. */
static struct set set_of_edge(const struct labels *labels, uint32_t n, unsigned h)
{
    unsigned bits = span(labels, n);
    struct set below = set_of(labels, n), around = only(h);
    return bits == 1 ? below : bits == 2 ? merged(&around, &below) : around;
}

static struct set fresh_set(const struct labels *labels, uint32_t n)
{
    const struct node *node = &labels->nodes[n];
    if (stands_alone(node))
        return all();
    unsigned h = hole(labels, n);
    struct set sides[2];
    if (node->length == labels->width)
        return only(h);
    for (unsigned i = 0; i < 2; i++)
        sides[i] = node->child[i] ? set_of_edge(labels, node->child[i], h) : only(h);
    return merged(&sides[0], &sides[1]);
}
