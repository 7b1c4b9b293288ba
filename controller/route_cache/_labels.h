/* The labels of a route table: a trie in which every prefix has a label, so that few labels differ from the one above.
 *
 *     what the table says            labels                      entries: where a label differs from the one above
 *
 *          0/0  –                       –
 *         /   \                       /   \                          0/1 → a
 *      0/1     –                     a     –                         01/2 → b
 *     /   \                        /   \
 *   00 a   01                     a     b
 *         /  \                         / \
 *     010 b   011 b                   b   b
 *
 * An address has the label of its leaf. Any labels forward right whose leaves are what the table says, and an entry is
 * an edge where the label changes; so the smallest table is the labelling of a tree, its leaves given, with the fewest
 * changes: Fitch (1971) for the tree of species, Draves, King, Venkatachary and Zill (INFOCOM 1999) for routes (ORTC).
 * Upwards, a node's set is the intersection of its two sides' sets, or their union where that is empty; downwards, a
 * node takes the label above if its set has it, or else one of its set.
 *
 * The base label means: no entry here, as above the prefix that stands alone, or outside of all prefixes. No label but
 * base can be above base, because no entry takes another away; so base wins every merger. A prefix stands alone
 * where its entry is to be kept as it is, or where so many prefixes lie directly inside it that a change of its action
 * could cost too many writes: what is outside of them is base then, and the prefix has its own entry. Seen from above
 * it fits any label: its set is all.
 *
 * The sets are exact after each change. Labels follow where the change was, on the way up from it, and else
 * later: nodes that could do better are queued for `improve`. At all times a label is in its node's set; so there
 * is no entry of an action that no route has, and none where a route is missing.
 *
 * An edge may pass several bits with nothing beside it but its holes, which all have the label h of the prefix around:
 *
 *     1 bit    u ─ v                          v is the side
 *     2 bits   u ─ top ┬ v                    top has a label of its own, the hole beside v has h
 *                      └ hole
 *     more     u ─ top ┬ … ┬ v                top and what follows have h: their sets are {h}
 *                      └ h └ h
 */
#pragma once

#include "_labels_entries.h"

enum {
    FIX_WRITES = 5, /* most writes of one step of improve: three on the edge to the node, one on each of its sides */
};

static void enqueue(struct labels *labels, uint32_t n)
{
    if (labels->nodes[n].flags & QUEUED)
        return;
    labels->nodes[n].flags |= QUEUED;
    append(&labels->queue, n);
}

/* Labels */

static unsigned chosen(unsigned above, unsigned now, const struct set *set)
{
    return has(set, above) ? above : has(set, now) ? now : lowest(set);
}

/* Find the labels that a node and the top of its edge should have under what is above; whether they have them. */
static bool is_settled(const struct labels *labels, uint32_t n, unsigned *top, unsigned *label)
{
    const struct node *node = &labels->nodes[n];
    unsigned above = inner(labels, node->parent), bits = span(labels, n);
    struct set set = set_of(labels, n);
    *top = node->top;
    if (bits > 1) {
        unsigned h = hole(labels, node->parent);
        struct set edge = set_of_edge(labels, n, h);
        *top = above = chosen(above, node->top, &edge);
    }
    *label = is_all(&set) ? BASE : chosen(above, node->label, &set);
    return *top == node->top && *label == node->label;
}

static void relabel(struct labels *labels, uint32_t n)
{
    unsigned top, label;
    if (is_settled(labels, n, &top, &label))
        return;
    open_node(labels, labels->nodes[n].parent);
    if (label != labels->nodes[n].label)
        open_node(labels, n);
    labels->nodes[n].top = (uint16_t)top;
    labels->nodes[n].label = (uint16_t)label;
}

/* Bring a node's set up to date; whether it changed. */
static bool refresh(struct labels *labels, uint32_t n)
{
    struct set set = fresh_set(labels, n), before = set_of(labels, n);
    if (!memcmp(&set, &before, sizeof set))
        return false;
    if (is_all(&set) != is_all(&before)) {
        open_node(labels, labels->nodes[n].parent);
        open_node(labels, n);
    }
    put_set(labels, n, &set);
    enqueue(labels, n);
    return true;
}

/* Bring the sets from a node upwards up to date; returns how many changed, and which. */
static unsigned refresh_upwards(struct labels *labels, uint32_t n, uint32_t *path)
{
    unsigned count = 0;
    for (; n && refresh(labels, n); n = labels->nodes[n].parent)
        path[count++] = n;
    return count;
}

/* A region is a node with all below it down to the next routes: where it decides what a hole's label is. */

static void open_region(struct labels *labels, uint32_t n)
{
    open_node(labels, n);
    for (unsigned i = 0; i < 2; i++) {
        uint32_t child = labels->nodes[n].child[i];
        if (child && !(labels->nodes[child].flags & ROUTE))
            open_region(labels, child);
    }
}

static void refresh_region(struct labels *labels, uint32_t n)
{
    for (unsigned i = 0; i < 2; i++) {
        uint32_t child = labels->nodes[n].child[i];
        if (child && !(labels->nodes[child].flags & ROUTE))
            refresh_region(labels, child);
    }
    refresh(labels, n);
}

static void relabel_region(struct labels *labels, uint32_t n)
{
    relabel(labels, n);
    for (unsigned i = 0; i < 2; i++) {
        uint32_t child = labels->nodes[n].child[i];
        if (child && labels->nodes[child].flags & ROUTE)
            relabel(labels, child);
        else if (child)
            relabel_region(labels, child);
    }
}

/* Return how many routes are directly inside a node, no more than limit + 1. */
static unsigned routes_inside(const struct labels *labels, uint32_t n, unsigned limit)
{
    unsigned count = 0;
    for (unsigned i = 0; i < 2 && count <= limit; i++) {
        uint32_t child = labels->nodes[n].child[i];
        if (child)
            count += labels->nodes[child].flags & ROUTE ? 1 : routes_inside(labels, child, limit - count);
    }
    return count;
}

/* Whether a prefix is large; it stays large until it has half as many routes inside. */
static bool is_large(const struct labels *labels, uint32_t n)
{
    unsigned limit = labels->nodes[n].flags & LARGE ? labels->limit / 2 : labels->limit;
    return routes_inside(labels, n, limit) > limit;
}

/* Structure */

static void grow_nodes(struct labels *labels)
{
    labels->room = labels->room ? labels->room + labels->room / 2 : 64;
    labels->nodes = grown(labels->nodes, labels->room * sizeof *labels->nodes);
    labels->sets = grown(labels->sets, (size_t)labels->room * labels->words * sizeof *labels->sets);
}

/* Return a node without children, open and not linked to its parent yet. */
static uint32_t new_node(struct labels *labels, uint32_t parent, address_t address, unsigned length)
{
    uint32_t n = labels->unused;
    if (n)
        labels->unused = labels->nodes[n].child[0];
    else if (labels->count == labels->room)
        grow_nodes(labels);
    uint8_t queued = n ? labels->nodes[n].flags & QUEUED : 0;
    n = n ? n : labels->count++;
    address_t mask = length ? ~(address_t)0 << (128 - length) : 0;
    address &= mask;
    labels->nodes[n] = (struct node){
        .high = (uint64_t)(address >> 64),
        .low = (uint64_t)address,
        .parent = parent,
        .length = (uint8_t)length,
        .flags = LIVE | OPEN | queued,
    };
    append(&labels->open, n);
    return n;
}

static void free_node(struct labels *labels, uint32_t n)
{
    labels->nodes[n].flags &= QUEUED;
    labels->nodes[n].child[0] = labels->unused;
    labels->unused = n;
}

static uint32_t *link_to(struct labels *labels, uint32_t n)
{
    const struct node *node = &labels->nodes[n];
    struct node *parent = &labels->nodes[node->parent];
    return &parent->child[bit_at(address_of(node), parent->length)];
}

/* Put a node where there is a hole. */
static uint32_t add_leaf(struct labels *labels, uint32_t parent, address_t address, unsigned length)
{
    open_node(labels, parent);
    uint32_t n = new_node(labels, parent, address, length);
    unsigned h = hole(labels, parent);
    struct set set = only(h);
    put_set(labels, n, &set);
    labels->nodes[n].label = labels->nodes[n].top = (uint16_t)h;
    *link_to(labels, n) = n;
    return n;
}

/* Put a node into the edge above another. All labels stay. */
static uint32_t split_edge(struct labels *labels, uint32_t below, unsigned length)
{
    uint32_t parent = labels->nodes[below].parent;
    unsigned h = hole(labels, parent), bits = span(labels, below);
    open_node(labels, parent);
    uint32_t n = new_node(labels, parent, address_of(&labels->nodes[below]), length);
    labels->nodes[n].label = bits == 2 ? labels->nodes[below].top : (uint16_t)h;
    labels->nodes[n].top = (uint16_t)h;
    if (bits > 2)
        labels->nodes[below].top = (uint16_t)h;
    *link_to(labels, n) = n;
    labels->nodes[below].parent = n;
    *link_to(labels, below) = below;
    struct set set = fresh_set(labels, n);
    put_set(labels, n, &set);
    return n;
}

/* Return the node of a prefix, made where it is missing and `make` is set; NOBODY where it is missing. */
static uint32_t node_of(struct labels *labels, address_t address, unsigned length, bool make)
{
    uint32_t n = ROOT;
    while (labels->nodes[n].length < length) {
        uint32_t child = labels->nodes[n].child[bit_at(address, labels->nodes[n].length)];
        if (!child)
            return make ? add_leaf(labels, n, address, length) : NOBODY;
        unsigned bits = common_bits(address, address_of(&labels->nodes[child]));
        if (bits >= labels->nodes[child].length && labels->nodes[child].length <= length)
            n = child;
        else if (!make)
            return NOBODY;
        else if (bits >= length)
            return split_edge(labels, child, length);
        else
            return add_leaf(labels, split_edge(labels, child, bits), address, length);
    }
    return n;
}

/* Take out a node that the structure does not need, and what is not needed above it then. */
static void prune(struct labels *labels, uint32_t n)
{
    while (n != ROOT) {
        struct node *node = &labels->nodes[n];
        if (node->flags & ROUTE || (node->child[0] && node->child[1]))
            return;
        uint32_t parent = node->parent, child = node->child[0] ? node->child[0] : node->child[1];
        open_node(labels, parent);
        open_node(labels, n);
        node = &labels->nodes[n];
        *link_to(labels, n) = child;
        if (child) {
            labels->nodes[child].parent = parent;
            /* on an edge of two bits the node was the top; on a longer one the holes decide */
            labels->nodes[child].top = span(labels, child) == 2 ? node->label : (uint16_t)hole(labels, parent);
        }
        free_node(labels, n);
        n = parent;
    }
}

/* Changes of the table */

static void set_flag(struct node *node, unsigned flag, bool on)
{
    node->flags = (uint8_t)(on ? node->flags | flag : node->flags & ~flag);
}

/* What a change makes of the prefix itself and of the one around it; found before anything is touched. */
struct plan {
    uint32_t owner;
    unsigned colour;
    bool there, kept, large, owner_large;
};

static struct plan plan_of(struct labels *labels, uint32_t n, int64_t action, bool kept)
{
    struct node *node = &labels->nodes[n];
    bool there = action != NO_ACTION, was = node->flags & ROUTE;
    struct plan plan = {.there = there, .kept = there && kept, .owner = owner_of(labels, node->parent)};
    plan.colour = there && !kept ? take_colour(labels, (uint32_t)action) : BASE;
    node = &labels->nodes[n];
    plan.large = there && is_large(labels, n);
    const struct node *owner = &labels->nodes[plan.owner];
    plan.owner_large = plan.owner && owner->flags & LARGE;
    bool only_more = there && !node->child[0] && !node->child[1];
    if (plan.owner && was != there && !(plan.owner_large && only_more)) {
        set_flag(node, ROUTE, there);
        plan.owner_large = is_large(labels, plan.owner);
        set_flag(node, ROUTE, was);
    }
    return plan;
}

static void take_plan(struct labels *labels, uint32_t n, int64_t action, const struct plan *plan)
{
    struct node *node = &labels->nodes[n];
    labels->routes += plan->there - (node->flags & ROUTE ? UINT64_C(1) : 0);
    set_flag(node, ROUTE, plan->there);
    set_flag(node, KEPT, plan->kept);
    set_flag(node, LARGE, plan->large);
    set_flag(node, PLAIN, plan->there && !plan->kept && plan->colour == BASE);
    node->colour = (uint16_t)plan->colour;
    node->action = plan->there ? (uint32_t)action : 0;
    if (plan->owner)
        set_flag(&labels->nodes[plan->owner], LARGE, plan->owner_large);
}

/* Give a node a route, or none. */
static void assign(struct labels *labels, uint32_t n, int64_t action, bool kept)
{
    struct plan plan = plan_of(labels, n, action, kept);
    const struct node *owner = &labels->nodes[plan.owner];
    unsigned before = labels->nodes[n].colour, old_around = hole_of_owner(labels, plan.owner);
    bool owner_alone = !plan.owner || owner->flags & (KEPT | PLAIN) || plan.owner_large;
    unsigned around = owner_alone ? BASE : owner->colour;
    unsigned inside = !plan.there ? around : plan.kept || plan.large ? BASE : plan.colour;
    bool region = inside != hole(labels, n), wider = around != old_around;

    open_node(labels, labels->nodes[n].parent);
    if (region)
        open_region(labels, n);
    else
        open_node(labels, n);
    if (wider) {
        open_node(labels, labels->nodes[plan.owner].parent);
        open_region(labels, plan.owner);
    }
    take_plan(labels, n, action, &plan);

    uint32_t path[DEEPEST], wider_path[DEEPEST];
    if (region)
        refresh_region(labels, n);
    else
        refresh(labels, n);
    unsigned steps = refresh_upwards(labels, labels->nodes[n].parent, path), wider_steps = 0;
    if (wider) {
        refresh_region(labels, plan.owner);
        wider_steps = refresh_upwards(labels, labels->nodes[plan.owner].parent, wider_path);
    }
    while (wider_steps)
        relabel(labels, wider_path[--wider_steps]);
    while (steps)
        relabel(labels, path[--steps]);
    if (wider)
        relabel_region(labels, plan.owner);
    if (region)
        relabel_region(labels, n);
    else
        relabel(labels, n);
    if (before)
        labels->routes_of[before]--;
}

/* Change one prefix of the table. */
static void change_route(struct labels *labels, address_t address, unsigned length, int64_t action, bool kept)
{
    uint32_t n = node_of(labels, address, length, action != NO_ACTION);
    const struct node *node = &labels->nodes[n];
    bool was = n && node->flags & ROUTE, was_kept = node->flags & KEPT;
    if (was ? (int64_t)node->action == action && was_kept == kept : action == NO_ACTION)
        return;
    assign(labels, n, action, kept);
    prune(labels, n);
}

static void enqueue_unsettled(struct labels *labels, uint32_t n)
{
    unsigned top, label;
    if (n && !is_settled(labels, n, &top, &label))
        enqueue(labels, n);
}

/* Put in the entries of all open nodes. */
static void finish(struct labels *labels)
{
    while (labels->open.count) {
        uint32_t n = labels->open.items[--labels->open.count];
        struct node *node = &labels->nodes[n];
        if (!(node->flags & OPEN))
            continue;
        node->flags &= (uint8_t)~OPEN;
        note_sides(labels, n, true);
        enqueue_unsettled(labels, n);
        enqueue_unsettled(labels, node->child[0]);
        enqueue_unsettled(labels, node->child[1]);
    }
}

/* Settle queued nodes as long as there are `budget` writes and `looks` at nodes left; the deepest first. */
static void improve(struct labels *labels, uint64_t budget, uint64_t looks)
{
    while (labels->queue.count && labels->changes.writes + FIX_WRITES <= budget && looks--) {
        uint32_t n = labels->queue.items[--labels->queue.count];
        labels->nodes[n].flags &= (uint8_t)~QUEUED;
        if (!(labels->nodes[n].flags & LIVE))
            continue;
        relabel(labels, n);
        finish(labels);
    }
}

static void begin_labels(struct labels *labels, unsigned width, unsigned limit)
{
    *labels = (struct labels){.words = 1, .width = width, .limit = limit, .count = ROOT};
    grow_nodes(labels);
    labels->nodes[NOBODY] = (struct node){0};
    struct set base = only(BASE);
    put_set(labels, NOBODY, &base);
    uint32_t root = new_node(labels, NOBODY, 0, 0);
    put_set(labels, root, &base);
    labels->nodes[NOBODY].child[0] = root;
    finish(labels);
}

static void end_labels(struct labels *labels)
{
    free(labels->nodes);
    free(labels->sets);
    free(labels->open.items);
    free(labels->queue.items);
    free(labels->changes.slots);
}
