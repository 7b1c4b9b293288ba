/* SPDX-License-Identifier: Apache-2.0
 *
 * The XDP program as the BPF build has it, compiled for the host: the same lines, so that sanitizers and fuzzing see
 * what no verifier looks for.
 */
#define __bpf__ 1

/* BPF loads a number at any address (octets.h). */
#pragma clang attribute push(__attribute__((no_sanitize("alignment"))), apply_to = function)
#include "engine/xdp/program.bpf.c"
#pragma clang attribute pop

#include "tests/engine/user_space/kernel.h"

static struct sp_arrays arrays;

int sp_user_forward(struct xdp_md *context) { return forward(context); }

void sp_user_arrays(struct sp_arrays *shared)
{
    shared->macs = fixed.macs;
    shared->egresses = fixed.egresses;
    shared->interfaces = fixed.interfaces;
    for (int family = 0; family < SP_FAMILIES; family++) {
        shared->roots[family] = fixed.roots[family];
    }
    shared->vrfs = fixed.vrfs;
    shared->groups = fixed.groups;
    shared->nexthops = fixed.nexthops;
    shared->router_shares = fixed.router_shares;
    shared->slice_shares = fixed.slice_shares;
    shared->link_modes = fixed.link_modes;
    shared->link_slots = fixed.link_slots;
    shared->sampling = &fixed.sampling;
    shared->hash_seed = &fixed.hash_seed;
    arrays = *shared;
}

void sp_user_port(__u32 ifindex, __u32 port)
{
    fixed.port_of_ifindex[ifindex & (SP_PORT_SLOTS - 1)] = (sp_u64)ifindex << 32 | port;
}

/* An element of an array map: NULL beyond its end. */
static void *element(void *first, sp_u32 octets, sp_u32 index, sp_u32 count)
{
    return index < count ? (char *)first + (sp_u64)octets * index : 0;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
    sp_u32 index = *(const sp_u32 *)key;

    if (map == &map_classifier) {
        return element(arrays.classifier, SP_VLANS * sizeof *arrays.classifier, index, SP_PORTS);
    }
    if (map == &map_policers) {
        return element(arrays.policers, SP_CLASS_SLOTS * sizeof *arrays.policers, index, SP_VRFS);
    }
    if (map == &map_shares) {
        return element(arrays.share_dues, SP_CLASS_SLOTS * sizeof *arrays.share_dues, index, SP_INTERFACES);
    }
    if (map == &map_punt_drops) {
        return element(arrays.punt_drops, SP_PLACES * SP_CLASS_SLOTS * sizeof *arrays.punt_drops, index,
                       SP_INTERFACES);
    }
    if (map == &map_words) {
        return element(arrays.words, SP_WORDS_CHUNK * sizeof *arrays.words, index,
                       (arrays.word_count + SP_WORDS_CHUNK - 1) / SP_WORDS_CHUNK);
    }
    if (map == &map_members) {
        return element(arrays.members, SP_MEMBERS_OCTETS, index, arrays.member_count / SP_MEMBERS_TOGETHER);
    }
    if (map == &map_rx) {
        return element(arrays.rx, SP_INTERFACES * sizeof *arrays.rx, index, arrays.cpus);
    }
    if (map == &map_tx) {
        return element(arrays.tx, SP_INTERFACES * sizeof *arrays.tx, index, arrays.cpus);
    }
    if (map == &map_reasons) {
        return element(arrays.reasons, SP_VRFS * SP_REASONS * sizeof *arrays.reasons, index, arrays.cpus);
    }
    if (map == &map_engine) {
        return element(arrays.engine_counters, SP_ENGINE_COUNTERS * sizeof *arrays.engine_counters, index,
                       arrays.cpus);
    }
    if (map == &map_cores) {
        return element(arrays.cores, sizeof *arrays.cores, index, arrays.cpus);
    }
    if (map == &map_core_routers) {
        return element(arrays.core_routers, SP_VRFS * sizeof *arrays.core_routers, index, arrays.cpus);
    }
    if (map == &map_core_slices) {
        return element(arrays.core_slices, SP_SLICES * sizeof *arrays.core_slices, index, arrays.cpus);
    }
    if (map == &map_links) {
        return element(arrays.links, sizeof *arrays.links, index, SP_PORTS);
    }
    if (map == &map_link_slices) {
        return element(arrays.link_slices, sizeof *arrays.link_slices, index, SP_LINK_SLICES);
    }
    if (map == &map_link_routers) {
        return element(arrays.link_routers, sizeof *arrays.link_routers, index, SP_LINK_ROUTERS);
    }
    if (map == &map_link_credits) {
        return element(arrays.link_credits, SP_PORTS * sizeof *arrays.link_credits, index, arrays.cpus);
    }
    __builtin_trap(); /* a map that is new: say here where it is */
}
