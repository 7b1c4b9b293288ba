// Headers on the wire and between switch and controller, and what the pipeline remembers of a packet.

#ifndef SPLITPLANE_HEADERS
#define SPLITPLANE_HEADERS

#include "ids.p4"

typedef bit<9> port_t;
typedef bit<12> vlan_id_t;
typedef bit<48> mac_t;
typedef bit<32> vrf_id_t;
typedef bit<32> router_interface_id_t;
typedef bit<24> object_id_t;
typedef bit<8> reason_t;
typedef bit<4> punt_class_t;

const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<16> ETHERTYPE_LONG_LLC = 0x8870; // IEEE 802.1AC: LLC in a frame too long for a length

const bit<8> PROTOCOL_HOP_BY_HOP = 0;
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_ICMPV6 = 58;
const bit<8> PROTOCOL_EIGRP = 88;
const bit<8> PROTOCOL_OSPF = 89;
const bit<8> PROTOCOL_VRRP = 112;
const bit<8> PROTOCOL_SCTP = 132;

const bit<16> PORT_BGP = 179;
const bit<16> PORT_RIP = 520;
const bit<16> PORT_RIPNG = 521;
const bit<16> PORT_BFD = 3784;
const bit<16> PORT_BFD_ECHO = 3785;
const bit<16> PORT_BFD_MULTIHOP = 4784;
const bit<16> PORT_BABEL = 6696;

// To the controller: which router interface a punted frame came in by, and why it is punted. The frame follows as it
// came in, without its tag.
@controller_header("packet_in")
@id(PACKET_IN_HEADER)
header packet_in_t {
    @id(1) router_interface_id_t router_interface_id;
    @id(2) reason_t punt_reason;
}

// From the controller: by which router interface the frame that follows is to leave. Its port and VLAN apply;
// addresses are the sender's.
@controller_header("packet_out")
@id(PACKET_OUT_HEADER)
header packet_out_t {
    @id(1) router_interface_id_t router_interface_id;
}

// What a controller that asks for digests is told of one of many packets that are routed. It is no punt: neither
// counted nor policed as one. The time makes no two of them alike, as those in one list have to be (P4Runtime 1.4,
// section 9.8). Its id in P4Info is what p4c makes of its name.
@name("sample")
struct sample_t {
    router_interface_id_t router_interface_id; // by which the packet came in
    bit<8> ip_version;
    bit<128> dst; // IPv4 in the low 32 bits
    bit<48> timestamp; // microseconds
}

header ethernet_t {
    mac_t dst_mac;
    mac_t src_mac;
    bit<16> ether_type;
}

header vlan_t {
    bit<3> priority;
    bit<1> drop_eligible;
    vlan_id_t vlan_id;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> dscp_ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> header_checksum;
    bit<32> src;
    bit<32> dst;
}

header ipv6_t {
    bit<4> version;
    bit<8> traffic_class;
    bit<20> flow_label;
    bit<16> payload_length;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<128> src;
    bit<128> dst;
}

header l4_ports_t {
    bit<16> src;
    bit<16> dst;
}

header icmpv6_t {
    bit<8> icmp_type;
    bit<8> code;
    bit<16> checksum;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    vlan_t vlan;
    ipv4_t ipv4;
    ipv6_t ipv6;
    l4_ports_t l4_ports;
    icmpv6_t icmpv6;
}

// What becomes of a route's packet.
enum bit<2> path_t {
    NONE = 0,
    NEXTHOP = 1,
    GROUP = 2,
    FALLBACK = 3
}

struct metadata_t {
    // What it came as
    port_t ingress_port;
    vlan_id_t vlan_id;
    bit<16> ether_type;             // behind the tag
    bit<16> l3_room;                // octets of the frame behind its Ethernet header and tag
    bit<1> checksum_error;          // of an IPv4 header; not told of one with options
    vrf_id_t vrf_id;
    router_interface_id_t router_interface_id;
    bit<1> link_local_source;
    bit<128> ip_source;             // IPv4: in the lower 32 bits
    bit<128> ip_destination;
    bit<8> ip_protocol;
    bit<16> l4_source;
    bit<16> l4_destination;
    bit<16> l3_length;              // by the packet's own word
    // What becomes of it
    reason_t reason;                // why it is punted or dropped, NO_REASON while it goes on
    punt_class_t punt_class;
    bit<2> color;
    path_t path;
    object_id_t nexthop_id;
    object_id_t nexthop_group_id;
    bit<1> keep_ttl;                // it comes from a fallback link: another plane has routed it
    router_interface_id_t egress_router_interface_id;
    mac_t neighbor_mac;
    port_t egress_port;
    vlan_id_t egress_vlan_id;
    bit<16> mtu;
    bit<1> transmit;
}

#endif
