/* The entries that labels make, what of them changes, and which one an address meets.
 *
 * A node is opened before anything changes that the entries of its two sides depend on, which takes these entries away
 * in `changes`; when all is done they are put in as they are then. What was taken away and put back is no write.
 */
#pragma once

#include "_labels_trie.h"

enum { MOST_SLOTS_KEPT = 4096 };

static void widen_changes(struct changes *changes);

static struct change *change_of(struct changes *changes, address_t address, unsigned length)
{
    if (changes->count >= changes->room / 2)
        widen_changes(changes);
    uint64_t high = (uint64_t)(address >> 64), low = (uint64_t)address;
    uint64_t hash = (high ^ low * UINT64_C(0x9e3779b97f4a7c15) ^ length) * UINT64_C(0xff51afd7ed558ccd);
    uint32_t slot = (uint32_t)(hash >> 32) & (changes->room - 1);
    for (;; slot = (slot + 1) & (changes->room - 1)) {
        struct change *one = &changes->slots[slot];
        if (!one->used || (one->high == high && one->low == low && one->length == length)) {
            one->high = high;
            one->low = low;
            one->length = (uint8_t)length;
            return one;
        }
    }
}

static void widen_changes(struct changes *changes)
{
    struct change *before = changes->slots;
    uint32_t room = changes->room;
    changes->room = room ? room * 2 : 256;
    changes->slots = grown(NULL, changes->room * sizeof *changes->slots);
    for (uint32_t i = 0; i < changes->room; i++)
        changes->slots[i].used = false;
    changes->count = 0;
    for (uint32_t i = 0; i < room; i++)
        if (before[i].used) {
            struct change *one = change_of(changes, (address_t)before[i].high << 64 | before[i].low, before[i].length);
            *one = before[i];
            changes->count++;
        }
    free(before);
}

/* Take an entry away, or put it in. */
static void note(struct labels *labels, address_t address, unsigned length, uint32_t action, bool there)
{
    struct changes *changes = &labels->changes;
    struct change *one = change_of(changes, address, length);
    if (!one->used) {
        one->used = true;
        one->before = one->now = there ? NO_ACTION : (int64_t)action;
        changes->count++;
    }
    changes->writes -= one->before != one->now;
    one->now = there ? (int64_t)action : NO_ACTION;
    changes->writes += one->before != one->now;
    labels->entries += there ? 1 : -UINT64_C(1);
}

static void note_label(struct labels *labels, address_t address, unsigned length, unsigned label, bool there)
{
    note(labels, address, length, labels->action_of[label], there);
}

/* The entry of a node itself, under a label. */
static void note_node(struct labels *labels, uint32_t n, unsigned above, bool there)
{
    const struct node *node = &labels->nodes[n];
    if (stands_alone(node))
        note(labels, address_of(node), node->length, node->action, there);
    else if (!fits_all(labels, n) && node->label != above)
        note_label(labels, address_of(node), node->length, node->label, there);
}

/* The entries of one side of a node, the top first. */
static void note_side(struct labels *labels, uint32_t n, unsigned i, bool there)
{
    const struct node *node = &labels->nodes[n];
    unsigned above = inner(labels, n), h = hole(labels, n), length = node->length + 1u;
    address_t side = address_of(node) | (i ? bit(node->length) : 0);
    uint32_t child = node->child[i];
    unsigned bits = child ? span(labels, child) : 0;
    if (bits != 1) {
        unsigned top = bits == 2 ? labels->nodes[child].top : h;
        if (top != above)
            note_label(labels, side, length, top, there);
        above = top;
    }
    if (bits == 2 && h != above)
        note_label(labels, address_of(&labels->nodes[child]) ^ bit(length), length + 1, h, there);
    if (child)
        note_node(labels, child, above, there);
}

static void note_sides(struct labels *labels, uint32_t n, bool there)
{
    if (n == NOBODY) {
        note_node(labels, ROOT, BASE, there);
    } else if (labels->nodes[n].length < labels->width) {
        note_side(labels, n, 0, there);
        note_side(labels, n, 1, there);
    }
}

/* Take away the entries of a node's sides, before what they depend on changes. */
static void open_node(struct labels *labels, uint32_t n)
{
    if (labels->nodes[n].flags & OPEN)
        return;
    labels->nodes[n].flags |= OPEN;
    append(&labels->open, n);
    note_sides(labels, n, false);
}

/* The aggregated table's longest prefix of an address. */
struct match {
    address_t address;
    unsigned length;
    int64_t action;
};

static void meet(struct match *match, address_t at, unsigned length, uint32_t action)
{
    address_t mask = length ? ~(address_t)0 << (128 - length) : 0;
    match->address = at & mask;
    match->length = length;
    match->action = action;
}

/* Go by the entries of the side of a node where an address is; returns the child that has it, NOBODY at the end. */
static uint32_t meet_side(const struct labels *labels, uint32_t n, address_t at, struct match *match)
{
    const struct node *node = &labels->nodes[n], *child;
    uint32_t next = n ? node->child[bit_at(at, node->length)] : ROOT;
    unsigned above = inner(labels, n), h = hole(labels, n), length = node->length + 1u;
    unsigned bits = next ? span(labels, next) : 0;
    child = &labels->nodes[next];
    if (bits != 1) {
        unsigned top = bits == 2 ? child->top : h;
        if (top != above)
            meet(match, at, length, labels->action_of[top]);
        above = top;
    }
    if (!next || common_bits(at, address_of(child)) < child->length) {
        if (next && bits == 2 && h != above)
            meet(match, at, length + 1, labels->action_of[h]);
        return NOBODY;
    }
    if (stands_alone(child))
        meet(match, at, child->length, child->action);
    else if (!fits_all(labels, next) && child->label != above)
        meet(match, at, child->length, labels->action_of[child->label]);
    return next;
}

static struct match longest_match(const struct labels *labels, address_t at)
{
    struct match match = {.action = NO_ACTION};
    uint32_t n = meet_side(labels, NOBODY, at, &match);
    while (n && labels->nodes[n].length < labels->width)
        n = meet_side(labels, n, at, &match);
    return match;
}

/* Note all entries as if they were new. */
static void note_all(struct labels *labels)
{
    uint32_t stack[DEEPEST], count = 0;
    note_sides(labels, NOBODY, true);
    for (stack[count++] = ROOT; count;) {
        uint32_t n = stack[--count];
        note_sides(labels, n, true);
        for (unsigned i = 0; i < 2; i++)
            if (labels->nodes[n].child[i])
                stack[count++] = labels->nodes[n].child[i];
    }
}

/* Forget the writes, which were read. */
static void end_changes(struct labels *labels)
{
    struct changes *changes = &labels->changes;
    if (changes->room > MOST_SLOTS_KEPT) {
        free(changes->slots);
        *changes = (struct changes){0};
    }
    for (uint32_t i = 0; i < changes->room; i++)
        changes->slots[i].used = false;
    changes->count = changes->writes = 0;
}
