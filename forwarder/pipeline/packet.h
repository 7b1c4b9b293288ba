/* SPDX-License-Identifier: Apache-2.0
 *
 * A frame as an engine hands it over, and what the pipeline remembers of it (p4src/common: headers.p4, parser.p4).
 *
 * Every access to the frame stands behind a comparison with `end`: the BPF verifier asks for it, and so does anything
 * that comes from a wire.
 */
#ifndef SPLITPLANE_PACKET_H
#define SPLITPLANE_PACKET_H

#include "pipeline/access.h"
#include "pipeline/octets.h"

#define SP_ETHERNET_OCTETS 14u
#define SP_TAG_OCTETS 4u
#define SP_IPV4_OCTETS 20u
#define SP_IPV6_OCTETS 40u
#define SP_PORTS_OCTETS 4u

#define SP_ETHERTYPE_VLAN 0x8100u
#define SP_ETHERTYPE_IPV4 0x0800u
#define SP_ETHERTYPE_IPV6 0x86ddu
#define SP_ETHERTYPE_ARP 0x0806u
#define SP_ETHERTYPE_SLOW 0x8809u /* IEEE 802.3, annex 57A: LACP */
#define SP_ETHERTYPE_LONG_LLC 0x8870u /* IEEE 802.1AC: LLC in a frame too long for a length */
#define SP_FIRST_ETHERTYPE 0x0600u /* below are lengths: IEEE 802.3 */

#define SP_PROTOCOL_HOP_BY_HOP 0u
#define SP_PROTOCOL_ICMP 1u
#define SP_PROTOCOL_TCP 6u
#define SP_PROTOCOL_UDP 17u
#define SP_PROTOCOL_ICMPV6 58u
#define SP_PROTOCOL_EIGRP 88u
#define SP_PROTOCOL_OSPF 89u
#define SP_PROTOCOL_VRRP 112u
#define SP_PROTOCOL_SCTP 132u

#define SP_PORT_BGP 179u
#define SP_PORT_RIP 520u
#define SP_PORT_RIPNG 521u
#define SP_PORT_BFD 3784u
#define SP_PORT_BFD_ECHO 3785u
#define SP_PORT_BFD_MULTIHOP 4784u
#define SP_PORT_BABEL 6696u

struct sp_packet {
    sp_u8 *data;   /* the Ethernet header */
    sp_u8 *end;    /* behind the last octet that may be read */
    sp_u32 length; /* of the frame as it came in, octets */
    sp_u32 cpu;    /* whose counters to use */
    void *engine;  /* the engine's own */
};

/* What a build provides beside access.h, so that no stage calls a kernel:
 *   int sp_move_head(struct sp_packet *, int by)  take octets off the front (by > 0) or add room there; 0 where there
 *                                                 is none. `data` and `end` are new after it, nothing else changes.
 *   sp_u64 sp_now_ns(const struct sp_packet *)    a monotonic clock
 *   sp_u32 sp_random(const struct sp_packet *)    32 random bits
 */
#if defined(__bpf__)
#include "engine/xdp/calls.h"
#else
#include "engine/native/calls.h"
#endif

/* BPF's verifier has to know l2_octets, which leads to an address in the frame. Of a number of four octets it does only
 * where that lies at eight, and the one behind it is not stored later. */
struct sp_meta {
    /* What it came as */
    sp_u32 l2_octets;  /* Ethernet header and tag */
    sp_u32 vlan;       /* its tag's VLAN id, 0 without one */
    sp_u32 port;
    sp_u32 ether_type; /* behind the tag */
    sp_u64 dst_mac;
    /* Whose it is */
    sp_u32 cpu;
    sp_u32 vrf;       /* slots; 0 where it is nobody's */
    sp_u32 interface; /* by which it came in; of a fallback link's packet, by which it leaves */
    sp_u32 spared;    /* over its router's share of the core, and goes on if it is for a routing protocol; sp_shared */
    sp_u32 keep_ttl;  /* it comes from a fallback link: another plane has routed it */
    /* The packet in the frame; all zero of a fallback link's */
    sp_u32 is_ipv6;
    sp_u32 l3_length; /* by its own word, octets */
    sp_u32 ttl;
    sp_u32 protocol; /* IPv6: the next header */
    sp_u32 exception; /* why it may not be forwarded as it is: SP_PUNT_IP_OPTIONS, SP_PUNT_HOP_BY_HOP */
    sp_u32 link_local_source;
    sp_u64 destination[2]; /* IPv4: the address in the first, in the host's order */
    /* What becomes of it */
    sp_u64 neighbor_mac;
    sp_u32 egress; /* interface slot */
    sp_u32 egress_port;
    sp_u32 egress_l2_octets; /* of the frame as it leaves by a router interface */
    sp_u32 sampled;          /* whether that interface has it looked at for samples */
};

/* One tag only: a second one is an EtherType that no router takes. A tag with VLAN id 0 only carries a priority: the
 * frame is an untagged one (IEEE 802.1Q table 9-2), and its tag goes. 0 for a frame of less than 14 octets. */
SP_INLINE int sp_parse_ethernet(const struct sp_packet *packet, struct sp_meta *meta)
{
    const sp_u8 *data = packet->data;

    if (sp_unlikely(data + SP_ETHERNET_OCTETS > packet->end)) {
        return 0;
    }
    meta->dst_mac = sp_get64(data) >> 16;
    meta->ether_type = sp_get16(data + 12);
    meta->l2_octets = SP_ETHERNET_OCTETS;
    if (meta->ether_type == SP_ETHERTYPE_VLAN && data + SP_ETHERNET_OCTETS + SP_TAG_OCTETS <= packet->end) {
        meta->vlan = sp_get16(data + 14) & (SP_VLANS - 1);
        meta->ether_type = sp_get16(data + 16);
        meta->l2_octets += SP_TAG_OCTETS;
    }
    return 1;
}

#endif
