// What is no transit packet: link-scope protocols go to the guest, what no router may forward ends here.

control Punt(inout headers_t hdr, inout metadata_t meta) {
    @name(".punt_control") @id(PUNT_CONTROL_ACTION)
    action punt_control() {
        meta.reason = PUNT_CONTROL;
    }

    @name(".drop") @id(DROP_ACTION)
    action drop(@id(1) reason_t drop_reason) {
        meta.reason = drop_reason;
    }

    // RFC 4861 section 7.2: it may reach the router's own addresses, but RFC 4291 section 2.5.6 forbids to forward it.
    @name(".mark_link_local_source") @id(MARK_LINK_LOCAL_SOURCE_ACTION)
    action mark_link_local_source() {
        meta.link_local_source = 1;
    }

    @name(".go_on") @id(GO_ON_ACTION)
    action go_on() {}

    // Programmed by: nobody; the entries are the contract's own, the first that matches counts. A miss drops
    // `ethertype`. Martian addresses: RFC 1812 section 5.3.7, RFC 6890, RFC 4291 section 2.5; IS-IS: ISO/IEC 10589
    // section 8.4.8.
    @name(".punt") @id(PUNT_TABLE)
    table punt {
        key = {
            meta.ether_type : ternary @name("ether_type") @id(1);
            hdr.ethernet.dst_mac : ternary @name("dst_mac") @id(2);
            meta.ip_source : ternary @name("ip_source") @id(3);
            meta.ip_destination : ternary @name("ip_destination") @id(4);
        }
        actions = {
            punt_control;
            drop;
            mark_link_local_source;
            go_on;
        }
        const default_action = drop(DROP_ETHERTYPE);
        const entries = {
            (ETHERTYPE_ARP, _, _, _) : punt_control();
            // A length instead of an EtherType, that is at most 0x05ff: 802.3 with LLC
            (0x0000 &&& 0xfc00, 0x0180c2000014, _, _) : punt_control();
            (0x0000 &&& 0xfc00, 0x0180c2000015, _, _) : punt_control();
            (0x0000 &&& 0xfc00, 0x09002b000005, _, _) : punt_control();
            (0x0400 &&& 0xfe00, 0x0180c2000014, _, _) : punt_control();
            (0x0400 &&& 0xfe00, 0x0180c2000015, _, _) : punt_control();
            (0x0400 &&& 0xfe00, 0x09002b000005, _, _) : punt_control();
            (ETHERTYPE_LONG_LLC, 0x0180c2000014, _, _) : punt_control();
            (ETHERTYPE_LONG_LLC, 0x0180c2000015, _, _) : punt_control();
            (ETHERTYPE_LONG_LLC, 0x09002b000005, _, _) : punt_control();
            // Link scope
            (ETHERTYPE_IPV4, _, _, 0xe0000000 &&& 0xffffff00) : punt_control();
            (ETHERTYPE_IPV4, _, _, 0xffffffff &&& 0xffffffff) : punt_control();
            (ETHERTYPE_IPV6, _, _, 0xff02 << 112 &&& 0xffff << 112) : punt_control();
            (ETHERTYPE_IPV6, _, _, 0xfe80 << 112 &&& 0xffc0 << 112) : punt_control();
            // Other multicast
            (ETHERTYPE_IPV4, _, _, 0xe0000000 &&& 0xf0000000) : drop(DROP_MULTICAST);
            (ETHERTYPE_IPV6, _, _, 0xff << 120 &&& 0xff << 120) : drop(DROP_MULTICAST);
            // RFC 1812 section 5.3.4
            (ETHERTYPE_IPV4, 1 << 40 &&& 1 << 40, _, _) : drop(DROP_L2_MULTICAST);
            (ETHERTYPE_IPV6, 1 << 40 &&& 1 << 40, _, _) : drop(DROP_L2_MULTICAST);
            // Martian sources
            (ETHERTYPE_IPV4, _, 0x7f000000 &&& 0xff000000, _) : drop(DROP_MARTIAN);
            (ETHERTYPE_IPV4, _, 0x00000000 &&& 0xff000000, _) : drop(DROP_MARTIAN);
            (ETHERTYPE_IPV4, _, 0xe0000000 &&& 0xf0000000, _) : drop(DROP_MARTIAN);
            (ETHERTYPE_IPV4, _, 0xf0000000 &&& 0xf0000000, _) : drop(DROP_MARTIAN);
            (ETHERTYPE_IPV6, _, 0 &&& 0xffffffffffffffffffffffffffffffff, _) : drop(DROP_MARTIAN);
            (ETHERTYPE_IPV6, _, 1 &&& 0xffffffffffffffffffffffffffffffff, _) : drop(DROP_MARTIAN);
            (ETHERTYPE_IPV6, _, 0xff << 120 &&& 0xff << 120, _) : drop(DROP_MARTIAN);
            // Martian destinations
            (ETHERTYPE_IPV4, _, _, 0x7f000000 &&& 0xff000000) : drop(DROP_MARTIAN);
            (ETHERTYPE_IPV4, _, _, 0x00000000 &&& 0xff000000) : drop(DROP_MARTIAN);
            (ETHERTYPE_IPV4, _, _, 0xf0000000 &&& 0xf0000000) : drop(DROP_MARTIAN);
            (ETHERTYPE_IPV6, _, _, 0 &&& 0xffffffffffffffffffffffffffffffff) : drop(DROP_MARTIAN);
            (ETHERTYPE_IPV6, _, _, 1 &&& 0xffffffffffffffffffffffffffffffff) : drop(DROP_MARTIAN);
            // Unicast
            (ETHERTYPE_IPV6, _, 0xfe80 << 112 &&& 0xffc0 << 112, _) : mark_link_local_source();
            (ETHERTYPE_IPV4, _, _, _) : go_on();
            (ETHERTYPE_IPV6, _, _, _) : go_on();
        }
    }

    apply {
        // What calls itself IP has to be it: RFC 1812 section 5.2.2, RFC 8200 section 3.
        bool malformed = false;
        if (meta.ether_type == ETHERTYPE_IPV4) {
            if (!hdr.ipv4.isValid()) {
                malformed = true;
            } else {
                bit<16> header_length = (bit<16>)(hdr.ipv4.ihl ++ 2w0);
                malformed = hdr.ipv4.version != 4 || hdr.ipv4.ihl < 5 || hdr.ipv4.total_length < header_length
                    || hdr.ipv4.total_length > meta.l3_room || (meta.checksum_error == 1 && hdr.ipv4.ihl == 5);
                meta.ip_source = (bit<128>)hdr.ipv4.src;
                meta.ip_destination = (bit<128>)hdr.ipv4.dst;
                meta.ip_protocol = hdr.ipv4.protocol;
                meta.l3_length = hdr.ipv4.total_length;
            }
        } else if (meta.ether_type == ETHERTYPE_IPV6) {
            if (!hdr.ipv6.isValid()) {
                malformed = true;
            } else {
                bit<17> length = (bit<17>)hdr.ipv6.payload_length + 40;
                malformed = hdr.ipv6.version != 6 || length > (bit<17>)meta.l3_room;
                meta.ip_source = hdr.ipv6.src;
                meta.ip_destination = hdr.ipv6.dst;
                meta.ip_protocol = hdr.ipv6.next_header;
                meta.l3_length = (bit<16>)length;
            }
        }
        if (hdr.l4_ports.isValid()) {
            meta.l4_source = hdr.l4_ports.src;
            meta.l4_destination = hdr.l4_ports.dst;
        }
        if (malformed) {
            meta.reason = DROP_MALFORMED;
        } else {
            punt.apply();
        }
    }
}
