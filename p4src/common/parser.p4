// Reads a frame as far as a router needs it. The architecture's parser comes before it, for what is its own.
//
// Nothing is refused here: a header that the frame is too short for stays invalid, and the pipeline, which knows whose
// packet it is, drops it by name.

#ifndef SPLITPLANE_PARSER
#define SPLITPLANE_PARSER

#include "headers.p4"

parser FrameParser(packet_in packet, out headers_t hdr, inout metadata_t meta) {
    PARSER_CHECKSUM(ipv4_checksum)

    state start {
        packet.extract(hdr.ethernet);
        meta.ether_type = hdr.ethernet.ether_type;
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_VLAN: vlan;
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    // One tag only: a second one is an EtherType that no router takes.
    state vlan {
        packet.extract(hdr.vlan);
        meta.ether_type = hdr.vlan.ether_type;
        meta.vlan_id = hdr.vlan.vlan_id;
        transition select(hdr.vlan.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    // Options stay in the payload: a packet that has some is punted as it is.
    state ipv4 {
        packet.extract(hdr.ipv4);
        PARSER_VERIFY(ipv4_checksum, hdr.ipv4, meta.checksum_error)
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragment_offset, hdr.ipv4.flags, hdr.ipv4.protocol) {
            (5, 0, 0 &&& 1, PROTOCOL_TCP): ipv4_ports;
            (5, 0, 0 &&& 1, PROTOCOL_UDP): ipv4_ports;
            (5, 0, 0 &&& 1, PROTOCOL_SCTP): ipv4_ports;
            default: accept;
        }
    }

    // Ports only where the packet's length says that they are there: 24 octets and more.
    state ipv4_ports {
        transition select(hdr.ipv4.total_length) {
            0x0018 &&& 0xfff8: l4_ports;
            0x0000 &&& 0xffe0: accept;
            default: l4_ports;
        }
    }

    state ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.payload_length, hdr.ipv6.next_header) {
            (0x0000 &&& 0xfffc, _): accept;
            (_, PROTOCOL_TCP): l4_ports;
            (_, PROTOCOL_UDP): l4_ports;
            (_, PROTOCOL_SCTP): l4_ports;
            (_, PROTOCOL_ICMPV6): icmpv6;
            default: accept;
        }
    }

    state l4_ports {
        packet.extract(hdr.l4_ports);
        transition accept;
    }

    state icmpv6 {
        packet.extract(hdr.icmpv6);
        transition accept;
    }
}

control FrameDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.l4_ports);
        packet.emit(hdr.icmpv6);
    }
}

#endif
