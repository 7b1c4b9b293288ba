// What a punt is policed as. For what is on its way the reason says it; for the router itself the protocol does, to
// whatever destination: a group, an own address, a link-local one.

control ClassOfPunt(in headers_t hdr, inout metadata_t meta) {
    bit<8> ttl = 0;
    bit<8> icmp_type = 0;

    @name(".set_punt_class") @id(SET_PUNT_CLASS_ACTION)
    action set_punt_class(@id(1) punt_class_t punt_class) {
        meta.punt_class = punt_class;
    }

    // Programmed by: nobody; the entries are the contract's own, the first that matches counts. A miss is `local`.
    // Ports are 0 of a fragment and behind IPv4 options; behind an extension header of IPv6 nothing is looked at.
    // TTL 255 says that a packet comes from the link: VRRP, RFC 5798 section 5.1.1.3; BFD, RFC 5881 section 5;
    // neighbor discovery, RFC 4861 section 7.1. The neighbor's plane has forwarded an echo packet of BFD.
    @name(".punt_class") @id(PUNT_CLASS_TABLE)
    table punt_class {
        key = {
            meta.reason : ternary @name("reason") @id(1);
            meta.ether_type : ternary @name("ether_type") @id(2);
            meta.ip_protocol : ternary @name("ip_protocol") @id(3);
            ttl : ternary @name("ttl") @id(4);
            meta.l4_source : ternary @name("l4_source") @id(5);
            meta.l4_destination : ternary @name("l4_destination") @id(6);
            icmp_type : ternary @name("icmp_type") @id(7);
        }
        actions = {
            set_punt_class;
        }
        const default_action = set_punt_class(CLASS_LOCAL);
        const entries = {
            (PUNT_GLEAN, _, _, _, _, _, _) : set_punt_class(CLASS_GLEAN);
            (PUNT_TTL_EXPIRED, _, _, _, _, _, _) : set_punt_class(CLASS_TTL);
            (PUNT_MTU_EXCEEDED, _, _, _, _, _, _) : set_punt_class(CLASS_MTU);
            (PUNT_UNREACHABLE, _, _, _, _, _, _) : set_punt_class(CLASS_UNREACHABLE);
            (PUNT_IP_OPTIONS, _, _, _, _, _, _) : set_punt_class(CLASS_OPTIONS);
            (PUNT_HOP_BY_HOP, _, _, _, _, _, _) : set_punt_class(CLASS_OPTIONS);
            (_, ETHERTYPE_ARP, _, _, _, _, _) : set_punt_class(CLASS_ARP);
            (_, ETHERTYPE_IPV6, PROTOCOL_ICMPV6, 255, _, _, 133) : set_punt_class(CLASS_ARP);
            (_, ETHERTYPE_IPV6, PROTOCOL_ICMPV6, 255, _, _, 134 &&& 0xfe) : set_punt_class(CLASS_ARP);
            (_, ETHERTYPE_IPV6, PROTOCOL_ICMPV6, 255, _, _, 136 &&& 0xfe) : set_punt_class(CLASS_ARP);
            (_, ETHERTYPE_IPV6, PROTOCOL_ICMPV6, _, _, _, _) : set_punt_class(CLASS_ICMP);
            (_, ETHERTYPE_IPV4, PROTOCOL_ICMP, _, _, _, _) : set_punt_class(CLASS_ICMP);
            (_, _, PROTOCOL_OSPF, _, _, _, _) : set_punt_class(CLASS_ROUTING);
            (_, _, PROTOCOL_EIGRP, _, _, _, _) : set_punt_class(CLASS_ROUTING);
            (_, _, PROTOCOL_VRRP, 255, _, _, _) : set_punt_class(CLASS_ROUTING);
            (_, _, PROTOCOL_UDP, _, _, PORT_RIP, _) : set_punt_class(CLASS_ROUTING);
            (_, _, PROTOCOL_UDP, _, _, PORT_RIPNG, _) : set_punt_class(CLASS_ROUTING);
            (_, _, PROTOCOL_UDP, _, _, PORT_BABEL, _) : set_punt_class(CLASS_ROUTING);
            (_, _, PROTOCOL_TCP, _, PORT_BGP, _, _) : set_punt_class(CLASS_BGP);
            (_, _, PROTOCOL_TCP, _, _, PORT_BGP, _) : set_punt_class(CLASS_BGP);
            (_, _, PROTOCOL_UDP, 255, _, PORT_BFD, _) : set_punt_class(CLASS_BFD);
            (_, _, PROTOCOL_UDP, 254 &&& 0xfe, _, PORT_BFD_ECHO, _) : set_punt_class(CLASS_BFD);
            (_, _, PROTOCOL_UDP, _, _, PORT_BFD_MULTIHOP, _) : set_punt_class(CLASS_BFD);
            (_, ETHERTYPE_IPV4, _, _, _, _, _) : set_punt_class(CLASS_LOCAL);
            (_, ETHERTYPE_IPV6, _, _, _, _, _) : set_punt_class(CLASS_LOCAL);
            // Nothing else that is neither IP nor ARP is punted: IS-IS
            (PUNT_CONTROL, _, _, _, _, _, _) : set_punt_class(CLASS_ROUTING);
        }
    }

    apply {
        if (hdr.ipv4.isValid()) {
            ttl = hdr.ipv4.ttl;
        } else if (hdr.ipv6.isValid()) {
            ttl = hdr.ipv6.hop_limit;
        }
        if (hdr.icmpv6.isValid()) {
            icmp_type = hdr.icmpv6.icmp_type;
        }
        punt_class.apply();
    }
}
