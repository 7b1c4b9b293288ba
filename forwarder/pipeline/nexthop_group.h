/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of a group's nexthops: by the hash of the 5-tuple; of a fragment, by that of addresses and protocol.
 *
 * The hash is BMv2's: CRC-32 (IEEE 802.3) over the selector fields as it serialises them, an IPv4 address in the lower
 * 32 of 128 bits. A CRC is linear, so each octet contributes a word of its own that a table gives for its place, all of
 * them independent of each other, and the zeros before an IPv4 address contribute nothing.
 *
 *     ip_source | ip_destination | protocol | l4_source | l4_destination
 *     0         | 16             | 32       | 33        | 35 .. 36
 *
 * Where all routers choose by the same hash, one behind another has only flows of one remainder, and members that none
 * of them chooses. So each multiplies it by an odd number of its own, which keeps apart what was apart, and chooses by
 * the upper bits. (XOR, or another start of the CRC, would not do: it is linear, and what was one remainder stays one.)
 * The number comes of the router's slot and of a seed that the daemon draws: neither slots nor ids differ between two
 * forwarders. A seed of 0 leaves the choice to the hash's remainder, as BMv2 does: a flow takes the same member on
 * both.
 */
#ifndef SPLITPLANE_NEXTHOP_GROUP_H
#define SPLITPLANE_NEXTHOP_GROUP_H

#include "pipeline/packet.h"
#include "selector_hash.inc" /* sp_selector_hash[37][256], SP_SELECTOR_HASH_ZEROS: selector_hash.py */

/* What the octets of a word contribute, the first of which is at that place. (Hidden word by word: BPF's compiler would
 * load what all octets of IPv6 addresses contribute before it adds any of it, and has no registers for that.) */
static inline sp_u32 sp_selector_hash32(sp_u32 place, sp_u32 word)
{
    return sp_hidden(sp_selector_hash[place][word >> 24] ^ sp_selector_hash[place + 1][word >> 16 & 0xff] ^
                     sp_selector_hash[place + 2][word >> 8 & 0xff] ^ sp_selector_hash[place + 3][word & 0xff]);
}

static inline sp_u32 sp_selector_hash64(sp_u32 place, sp_u64 word)
{
    return sp_selector_hash32(place, (sp_u32)(word >> 32)) ^ sp_selector_hash32(place + 4, (sp_u32)word);
}

/* Whether the selector's l4 fields are valid: behind a header without options, of no fragment. `header` is that of IPv4
 * or IPv6, and may be read. */
SP_INLINE int sp_has_ports(const struct sp_meta *meta, const sp_u8 *header, sp_u32 l3_octets)
{
    if (meta->protocol != SP_PROTOCOL_TCP && meta->protocol != SP_PROTOCOL_UDP &&
        meta->protocol != SP_PROTOCOL_SCTP) {
        return 0;
    }
    return meta->l3_length >= l3_octets + SP_PORTS_OCTETS && (meta->is_ipv6 || !(sp_get16(header + 6) & 0x3fff));
}

/* The hash of a packet that sp_punt_ipv4() or sp_punt_ipv6() has read. */
SP_INLINE sp_u32 sp_selector_hash_of(const struct sp_packet *packet, const struct sp_meta *meta)
{
    const sp_u8 *header = packet->data + meta->l2_octets;
    sp_u32 l3_octets = meta->is_ipv6 ? SP_IPV6_OCTETS : SP_IPV4_OCTETS;
    sp_u32 hash = SP_SELECTOR_HASH_ZEROS ^ sp_selector_hash[32][meta->protocol & 0xff];

    if (header + l3_octets > packet->end) {
        return hash;
    }
    if (meta->is_ipv6) {
        hash ^= sp_selector_hash64(0, sp_get64(header + 8)) ^ sp_selector_hash64(8, sp_get64(header + 16));
        hash ^= sp_selector_hash64(16, meta->destination[0]) ^ sp_selector_hash64(24, meta->destination[1]);
    } else {
        hash ^= sp_selector_hash32(12, sp_get32(header + 12)) ^ sp_selector_hash32(28, (sp_u32)meta->destination[0]);
    }
    if (sp_has_ports(meta, header, l3_octets) && header + l3_octets + SP_PORTS_OCTETS <= packet->end) {
        hash ^= sp_selector_hash32(33, sp_get32(header + l3_octets));
    }
    return hash;
}

/* The odd number by which a router multiplies hashes. Between the two products the upper bits come down: else those of
 * two slots would be multiples of each other, and with them what is chosen. */
static inline sp_u32 sp_hash_factor(sp_u64 seed, sp_u32 vrf)
{
    sp_u64 mixed = (vrf + 1) * seed;

    mixed ^= mixed >> 32;
    return (sp_u32)(mixed * seed >> 32) | 1;
}

/* Which of `size` members a hash means to a router. */
static inline sp_u32 sp_chosen(sp_u64 seed, sp_u32 vrf, sp_u32 hash, sp_u32 size)
{
    if (sp_unlikely(!seed)) {
        return hash % size;
    }
    return (sp_u32)((sp_u64)(hash * sp_hash_factor(seed, vrf)) * size >> 32);
}

/* Whether what a nexthop sends would leave by a port without a link. */
SP_INLINE int sp_leads_nowhere(sp_tables tables, sp_u32 slot)
{
    sp_u64 nexthop = sp_load_long(sp_nexthop_at(tables, slot));
    sp_u32 port = sp_port_number(sp_load_long(&sp_egress_at(tables, sp_nexthop_interface(nexthop))->port));

    return sp_load_long(sp_ports_down_at(tables, port)) >> (port & 63) & 1;
}

/* The nexthop of a group whose port has its link; -1 where all are down. All places are looked at, in an order that the
 * flow's hash gives, so that its packets stay together: one of little weight may be all that is left, and nobody there
 * to write the group anew. (Of a power of two, 5 * place + an odd number comes by each once. Where there are fewer places
 * some are looked at twice: which, the flow's hash says as well.) */
SP_APART int sp_another_nexthop(sp_tables tables, sp_u64 group, sp_u32 hash)
{
    sp_u32 mixed = (hash ^ hash >> 15) * 0x9e3779b1u;
    sp_u32 place = mixed >> 24, step = mixed >> 8 | 1, size = sp_group_size(group);
    sp_u32 offset = (mixed & (SP_GROUP_WEIGHT - 1)) * size / SP_GROUP_WEIGHT;

    SP_APART_TABLES(tables);
    for (sp_u32 looked_at = 0; looked_at < SP_GROUP_WEIGHT; looked_at++, place = place * 5 + step) {
        sp_u32 at = ((place & (SP_GROUP_WEIGHT - 1)) * size + offset) / SP_GROUP_WEIGHT;
        const sp_u16 *member = sp_member_at(tables, sp_group_base(group) + at);
        if (!member) {
            return -1;
        }
        sp_u32 nexthop = *(const volatile sp_u16 *)member;
        if (!sp_leads_nowhere(tables, nexthop)) {
            return (int)nexthop;
        }
    }
    return -1;
}

/* Sets *nexthop to a slot; 0 where there is no such group, or it is empty. */
SP_INLINE int sp_nexthop_group(sp_tables tables, const struct sp_packet *packet, const struct sp_meta *meta,
                               sp_u32 slot, sp_u32 *nexthop)
{
    sp_u64 group = sp_load_long(sp_group_at(tables, slot));
    sp_u64 seed = sp_load_long(sp_hash_seed_at(tables));
    sp_u32 size = sp_group_size(group), hash;
    const sp_u16 *member;

    if (size == 0) {
        return 0;
    }
    hash = sp_selector_hash_of(packet, meta);
    member = sp_member_at(tables, sp_group_base(group) + sp_chosen(seed, meta->vrf, hash, size));
    if (!member) {
        return 0;
    }
    *nexthop = *(const volatile sp_u16 *)member;
    if (sp_likely(!sp_leads_nowhere(tables, *nexthop))) {
        return 1;
    }
    int another = sp_another_nexthop(tables, group, hash);
    if (another >= 0) {
        *nexthop = (sp_u32)another;
    }
    return 1; /* where all are down by the one whose flow it is: what is lost is counted there */
}

#endif
