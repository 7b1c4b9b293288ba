/* SPDX-License-Identifier: Apache-2.0
 *
 * Out of a router interface: its port, VLAN, MAC and MTU. Nothing of the packet is changed before here.
 */
#ifndef SPLITPLANE_ROUTER_INTERFACE_H
#define SPLITPLANE_ROUTER_INTERFACE_H

#include "pipeline/interface_classifier.h"
#include "pipeline/link_share.h"
#include "pipeline/packet.h"

/* One hop on: the TTL one lower. The checksum is updated, not computed, so that a wrong one stays wrong (RFC 1624):
 * one less in the upper octet of a word adds 0x0100 to its checksum, the carry comes round, and 0xffff, which is zero
 * too, is not written. */
SP_INLINE void sp_decrement_ttl(const struct sp_packet *packet, const struct sp_meta *meta)
{
    sp_u8 *header = packet->data + meta->l2_octets;

    if (meta->is_ipv6) {
        if (header + SP_IPV6_OCTETS <= packet->end) {
            header[7] = (sp_u8)(meta->ttl - 1);
        }
    } else if (header + SP_IPV4_OCTETS <= packet->end) {
        sp_u32 checksum = sp_get16(header + 10);
        header[8] = (sp_u8)(meta->ttl - 1);
        sp_put16(header + 10, (sp_u16)(checksum + (checksum >= 0xfeff ? 0x0101 : 0x0100)));
    }
}

/* Replaces Ethernet header and tag; 0 where there is no room for a tag. */
SP_INLINE int sp_put_ethernet(struct sp_packet *packet, const struct sp_meta *meta, sp_u64 dst, sp_u64 src,
                              sp_u32 vlan)
{
    sp_u32 l2_octets = vlan ? SP_ETHERNET_OCTETS + SP_TAG_OCTETS : SP_ETHERNET_OCTETS;

    if (l2_octets != meta->l2_octets && !sp_move_head(packet, (int)meta->l2_octets - (int)l2_octets)) {
        return 0;
    }
    sp_u8 *data = packet->data;
    if (data + SP_ETHERNET_OCTETS > packet->end) {
        return 0;
    }
    sp_put64(data, dst << 16 | src >> 32);
    sp_put32(data + 8, (sp_u32)src);
    if (!vlan) {
        sp_put16(data + 12, (sp_u16)meta->ether_type);
        return 1;
    }
    if (data + SP_ETHERNET_OCTETS + SP_TAG_OCTETS > packet->end) {
        return 0;
    }
    sp_put32(data + 12, SP_ETHERTYPE_VLAN << 16 | vlan); /* priority 0, not drop eligible */
    sp_put16(data + 16, (sp_u16)meta->ether_type);
    return 1;
}

/* The tables router_interface and router_interface_egress; returns a reason, and `*sent` is 0 where there was no room
 * for a tag. Counts what leaves, octets of the frame with its tag. Between the two, and still before the frame is
 * changed, the link has its say. */
SP_INLINE sp_u32 sp_router_interface(sp_tables tables, struct sp_packet *packet, struct sp_meta *meta, int *sent)
{
    const struct sp_egress *egress = sp_egress_at(tables, meta->egress);
    sp_u64 port = sp_load_long(&egress->port), rewrite = sp_load_long(&egress->rewrite);

    if (sp_unlikely(!(port & SP_PRESENT))) {
        return SP_PUNT_UNREACHABLE;
    }
    if (sp_unlikely(meta->l3_length > sp_port_mtu(port))) {
        return SP_PUNT_MTU_EXCEEDED;
    }
    sp_u32 vlan = sp_port_vlan(port);
    meta->egress_l2_octets = SP_ETHERNET_OCTETS + (vlan ? SP_TAG_OCTETS : 0);
    sp_u32 octets = packet->length - meta->l2_octets + meta->egress_l2_octets;
    if (sp_unlikely(sp_over_link_share(tables, packet, meta, sp_port_number(port), octets))) {
        return SP_DROP_OVER_SHARE;
    }
    if (sp_likely(!meta->keep_ttl)) {
        sp_decrement_ttl(packet, meta);
    }
    if (sp_unlikely(!(rewrite & SP_PRESENT))) {
        return SP_PUNT_UNREACHABLE;
    }
    *sent = sp_put_ethernet(packet, meta, meta->neighbor_mac, rewrite & SP_MAC_MASK, vlan);
    if (sp_likely(*sent)) {
        meta->egress_port = sp_port_number(port);
        meta->sampled = (port & SP_SAMPLED) != 0;
        sp_count(sp_tx_at(tables, meta->cpu, meta->egress), octets);
    }
    return SP_NO_REASON;
}

#endif
