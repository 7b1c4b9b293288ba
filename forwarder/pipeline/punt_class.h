/* SPDX-License-Identifier: Apache-2.0
 *
 * What a punt is policed as: for what is on its way the reason says it, for the router itself the protocol does.
 *
 * The table `punt_class` is constant and its first entry that matches counts; here they are sorted by protocol.
 */
#ifndef SPLITPLANE_PUNT_CLASS_H
#define SPLITPLANE_PUNT_CLASS_H

#include "pipeline/nexthop_group.h"
#include "pipeline/packet.h"

#define SP_FROM_THE_LINK 255u /* the TTL that no forwarded packet has */

/* The type of an ICMPv6 message of neighbor discovery: RFC 4861 section 4. */
static inline int sp_is_neighbor_discovery(sp_u32 type) { return type - 133 < 5; }

static inline sp_u32 sp_class_of_udp(sp_u32 port, sp_u32 ttl)
{
    switch (port) {
    case SP_PORT_RIP:
    case SP_PORT_RIPNG:
    case SP_PORT_BABEL:
        return SP_CLASS_ROUTING;
    case SP_PORT_BFD: /* RFC 5881 section 5 */
        return ttl == SP_FROM_THE_LINK ? SP_CLASS_BFD : SP_CLASS_LOCAL;
    case SP_PORT_BFD_ECHO: /* the neighbor's plane has forwarded it */
        return ttl >= SP_FROM_THE_LINK - 1 ? SP_CLASS_BFD : SP_CLASS_LOCAL;
    case SP_PORT_BFD_MULTIHOP:
        return SP_CLASS_BFD;
    default:
        return SP_CLASS_LOCAL;
    }
}

/* Of a packet that sp_punt_ipv4() or sp_punt_ipv6() has read. Ports only where a group's hash would have them. */
SP_INLINE sp_u32 sp_class_of_ip(const struct sp_packet *packet, const struct sp_meta *meta)
{
    const sp_u8 *header = packet->data + meta->l2_octets;
    sp_u32 l3_octets = meta->is_ipv6 ? SP_IPV6_OCTETS : SP_IPV4_OCTETS;

    switch (meta->protocol) {
    case SP_PROTOCOL_OSPF:
    case SP_PROTOCOL_EIGRP:
        return SP_CLASS_ROUTING;
    case SP_PROTOCOL_VRRP: /* RFC 5798 section 5.1.1.3 */
        return meta->ttl == SP_FROM_THE_LINK ? SP_CLASS_ROUTING : SP_CLASS_LOCAL;
    case SP_PROTOCOL_ICMP:
        return meta->is_ipv6 ? SP_CLASS_LOCAL : SP_CLASS_ICMP;
    default:
        break;
    }
    if (header + l3_octets + SP_PORTS_OCTETS > packet->end) {
        return meta->is_ipv6 && meta->protocol == SP_PROTOCOL_ICMPV6 ? SP_CLASS_ICMP : SP_CLASS_LOCAL;
    }
    sp_u32 l4 = sp_get32(header + l3_octets);
    if (meta->is_ipv6 && meta->protocol == SP_PROTOCOL_ICMPV6) {
        int is_there = meta->l3_length >= SP_IPV6_OCTETS + SP_PORTS_OCTETS;
        return is_there && meta->ttl == SP_FROM_THE_LINK && sp_is_neighbor_discovery(l4 >> 24) ? SP_CLASS_ARP
                                                                                                : SP_CLASS_ICMP;
    }
    if (meta->exception == SP_PUNT_IP_OPTIONS || !sp_has_ports(meta, header, l3_octets)) {
        return SP_CLASS_LOCAL;
    }
    if (meta->protocol == SP_PROTOCOL_UDP) {
        return sp_class_of_udp(l4 & 0xffff, meta->ttl);
    }
    int is_bgp = meta->protocol == SP_PROTOCOL_TCP && (l4 >> 16 == SP_PORT_BGP || (l4 & 0xffff) == SP_PORT_BGP);
    return is_bgp ? SP_CLASS_BGP : SP_CLASS_LOCAL;
}

/* Nothing else that is neither IP nor ARP is punted: IS-IS. */
SP_INLINE sp_u32 sp_punt_class(const struct sp_packet *packet, const struct sp_meta *meta, sp_u32 reason)
{
    switch (reason) {
    case SP_PUNT_CONTROL:
    case SP_PUNT_LOCAL:
        if (meta->ether_type == SP_ETHERTYPE_IPV4 || meta->ether_type == SP_ETHERTYPE_IPV6) {
            return sp_class_of_ip(packet, meta);
        }
        return meta->ether_type == SP_ETHERTYPE_ARP ? SP_CLASS_ARP : SP_CLASS_ROUTING;
    case SP_PUNT_GLEAN:
        return SP_CLASS_GLEAN;
    case SP_PUNT_TTL_EXPIRED:
        return SP_CLASS_TTL;
    case SP_PUNT_MTU_EXCEEDED:
        return SP_CLASS_MTU;
    case SP_PUNT_UNREACHABLE:
        return SP_CLASS_UNREACHABLE;
    default:
        return SP_CLASS_OPTIONS;
    }
}

#endif
