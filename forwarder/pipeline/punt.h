/* SPDX-License-Identifier: Apache-2.0
 *
 * What is no transit packet: link-scope protocols go to the guest, what no router may forward ends here.
 *
 * The table `punt` is constant and its first entry that matches counts. Most packets match none: one comparison of the
 * leading octets of both addresses says so, and only the others are held against the entries in their order.
 */
#ifndef SPLITPLANE_PUNT_H
#define SPLITPLANE_PUNT_H

#include "pipeline/l3_admit.h"
#include "pipeline/packet.h"

/* IS-IS: ISO/IEC 10589 section 8.4.8. */
static inline int sp_to_isis(sp_u64 mac)
{
    return mac == 0x0180c2000014 || mac == 0x0180c2000015 || mac == 0x09002b000005;
}

static inline int sp_is_llc(sp_u32 ether_type)
{
    return ether_type < SP_FIRST_ETHERTYPE || ether_type == SP_ETHERTYPE_LONG_LLC;
}

SP_INLINE sp_u32 sp_punt_others(const struct sp_meta *meta)
{
    if (meta->ether_type == SP_ETHERTYPE_ARP || (sp_is_llc(meta->ether_type) && sp_to_isis(meta->dst_mac))) {
        return SP_PUNT_CONTROL;
    }
    return SP_DROP_ETHERTYPE;
}

/* 0/8, 127/8, multicast and 240/4: the first octet alone says that there is nothing to look at. */
static inline int sp_is_plain_ipv4(sp_u32 address)
{
    return address - 0x01000000u < 0xdf000000u && address >> 24 != 127;
}

SP_INLINE sp_u32 sp_punt_special_ipv4(const struct sp_meta *meta, sp_u32 destination)
{
    if (destination >> 8 == 0xe00000 || destination == 0xffffffff) {
        return SP_PUNT_CONTROL;
    }
    if (destination >> 28 == 0xe) {
        return SP_DROP_MULTICAST;
    }
    if (sp_to_group(meta->dst_mac)) {
        return SP_DROP_L2_MULTICAST; /* RFC 1812 section 5.3.4 */
    }
    return SP_DROP_MARTIAN; /* RFC 1812 section 5.3.7, RFC 6890: nothing else is special in source or destination */
}

/* Reads an IPv4 header; returns a reason. Malformed: RFC 1812 section 5.2.2. */
SP_INLINE sp_u32 sp_punt_ipv4(const struct sp_packet *packet, struct sp_meta *meta)
{
    const sp_u8 *header = packet->data + meta->l2_octets;

    if (sp_unlikely(header + SP_IPV4_OCTETS > packet->end)) {
        return SP_DROP_MALFORMED;
    }
    sp_u32 raw0 = sp_raw32(header), raw1 = sp_raw32(header + 4), raw2 = sp_raw32(header + 8);
    sp_u32 raw3 = sp_raw32(header + 12), raw4 = sp_raw32(header + 16);
    sp_u32 first = sp_swap32(raw0), third = sp_swap32(raw2);
    sp_u32 source = sp_swap32(raw3), destination = sp_swap32(raw4);
    sp_u32 words = first >> 24 & 0xf;

    meta->l3_length = first & 0xffff;
    meta->ttl = third >> 24;
    meta->protocol = third >> 16 & 0xff;
    meta->destination[0] = destination;
    if (sp_likely(first >> 24 == 0x45)) {
        /* The checksum of all words is 0xffff in either byte order (RFC 1071). 0xffff in its own place would add
         * nothing; no sender writes it. */
        sp_u64 sum = (sp_u64)raw0 + raw1 + raw2 + raw3 + raw4;
        sum = (sum & 0xffffffff) + (sum >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        if (sp_unlikely(sum != 0xffff || (third & 0xffff) == 0xffff)) {
            return SP_DROP_MALFORMED;
        }
    } else if (first >> 28 != 4 || words < 5) {
        return SP_DROP_MALFORMED;
    } else {
        meta->exception = SP_PUNT_IP_OPTIONS;
    }
    if (sp_unlikely(meta->l3_length < words * 4 || meta->l3_length > packet->length - meta->l2_octets)) {
        return SP_DROP_MALFORMED;
    }
    if (sp_unlikely(!sp_is_plain_ipv4(source) || !sp_is_plain_ipv4(destination) || sp_to_group(meta->dst_mac))) {
        return sp_punt_special_ipv4(meta, destination);
    }
    return SP_NO_REASON;
}

/* ::/64 with ::1 in it, fe80::/10 and ff00::/8; what is left of ::/64 turns out to be plain. */
static inline int sp_is_plain_ipv6(sp_u64 high)
{
    return high - 1 < 0xfe7fffffffffffffull || (high >= 0xfec0000000000000ull && high < 0xff00000000000000ull);
}

SP_INLINE sp_u32 sp_punt_special_ipv6(struct sp_meta *meta, sp_u64 source_high, sp_u64 source_low)
{
    sp_u64 high = sp_compared(meta->destination[0]), low = sp_compared(meta->destination[1]);

    if (high >> 48 == 0xff02 || high >> 54 == 0xfe80 >> 6) {
        return SP_PUNT_CONTROL;
    }
    if (high >> 56 == 0xff) {
        return SP_DROP_MULTICAST;
    }
    if (sp_to_group(meta->dst_mac)) {
        return SP_DROP_L2_MULTICAST;
    }
    /* RFC 4291 section 2.5 */
    if (source_high >> 56 == 0xff || (source_high == 0 && source_low <= 1) || (high == 0 && low <= 1)) {
        return SP_DROP_MARTIAN;
    }
    /* RFC 4861 section 7.2: it may reach the router's own addresses, but RFC 4291 section 2.5.6 forbids to forward. */
    meta->link_local_source = sp_alike(source_high >> 54, 0xfe80 >> 6);
    return SP_NO_REASON;
}

/* Reads an IPv6 header; returns a reason. Malformed: RFC 8200 section 3. */
SP_INLINE sp_u32 sp_punt_ipv6(const struct sp_packet *packet, struct sp_meta *meta)
{
    const sp_u8 *header = packet->data + meta->l2_octets;

    if (sp_unlikely(header + SP_IPV6_OCTETS > packet->end)) {
        return SP_DROP_MALFORMED;
    }
    sp_u64 first = sp_get64(header);
    sp_u32 payload = first >> 16 & 0xffff;

    meta->is_ipv6 = 1;
    meta->l3_length = payload + SP_IPV6_OCTETS;
    meta->protocol = first >> 8 & 0xff;
    meta->ttl = first & 0xff;
    meta->destination[0] = sp_get64(header + 24);
    meta->destination[1] = sp_get64(header + 32);
    meta->exception = sp_alike(meta->protocol, SP_PROTOCOL_HOP_BY_HOP) * SP_PUNT_HOP_BY_HOP;
    if (sp_unlikely(first >> 60 != 6 || meta->l3_length > packet->length - meta->l2_octets)) {
        return SP_DROP_MALFORMED;
    }
    sp_u64 source_high = sp_get64(header + 8);
    if (!sp_is_plain_ipv6(source_high) || !sp_is_plain_ipv6(sp_compared(meta->destination[0])) || sp_to_group(meta->dst_mac)) {
        return sp_punt_special_ipv6(meta, source_high, sp_get64(header + 16));
    }
    return SP_NO_REASON;
}

#endif
