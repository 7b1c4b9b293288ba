// Out of a router interface: its port, VLAN, MAC and MTU. Nothing of the packet but its tag is changed before here.

control RouterInterface(inout headers_t hdr, inout metadata_t meta) {
    DIRECT_COUNTER(router_interface_egress_counter, ROUTER_INTERFACE_EGRESS_COUNTER);

    @name(".set_port") @id(SET_PORT_ACTION)
    action set_port(@id(1) port_t port, @id(2) vlan_id_t vlan_id, @id(3) bit<16> mtu) {
        meta.egress_port = port;
        meta.egress_vlan_id = vlan_id;
        meta.mtu = mtu;
        meta.transmit = 1;
    }

    @name(".no_router_interface") @id(NO_ROUTER_INTERFACE_ACTION)
    action no_router_interface() {
        meta.reason = PUNT_UNREACHABLE;
    }

    // Programmed by: a router interface, as its first entry; VLAN 0 is untagged. A miss punts `unreachable`; it does
    // not happen, because nexthops are written after it and deleted before it.
    @name(".router_interface") @id(ROUTER_INTERFACE_TABLE)
    table router_interface {
        key = {
            meta.egress_router_interface_id : exact @name("router_interface_id") @id(1);
        }
        actions = {
            @tableonly set_port;
            @defaultonly no_router_interface;
        }
        const default_action = no_router_interface;
        size = ROUTER_INTERFACES;
    }

    @name(".rewrite") @id(REWRITE_ACTION)
    action rewrite(@id(1) mac_t src_mac) {
        hdr.ethernet.src_mac = src_mac;
        hdr.ethernet.dst_mac = meta.neighbor_mac;
        COUNT(router_interface_egress_counter);
    }

    // Programmed by: a router interface, together with the entry above. Only what is really forwarded comes here, and
    // is counted. A miss does not happen.
    @name(".router_interface_egress") @id(ROUTER_INTERFACE_EGRESS_TABLE)
    table router_interface_egress {
        key = {
            meta.egress_router_interface_id : exact @name("router_interface_id") @id(1);
        }
        actions = {
            @tableonly rewrite;
            @defaultonly no_router_interface;
        }
        const default_action = no_router_interface;
        counters = router_interface_egress_counter;
        size = ROUTER_INTERFACES;
    }

    apply {
        router_interface.apply();
        if (hdr.packet_out.isValid()) {
            // From the guest: its kernel has made the frame, and the VRC's word is checked in the controller.
            hdr.packet_out.setInvalid();
        } else if (meta.reason == NO_REASON && meta.l3_length > meta.mtu) {
            meta.reason = PUNT_MTU_EXCEEDED;
        } else if (meta.reason == NO_REASON) {
            router_interface_egress.apply();
            if (meta.keep_ttl == 0) {
                if (hdr.ipv4.isValid()) {
                    // RFC 1624: one less in the upper octet of a word adds 0x0100 to its checksum, the carry comes
                    // round, and 0xffff, which is zero too, is not written.
                    if (hdr.ipv4.header_checksum >= 0xfeff) {
                        hdr.ipv4.header_checksum = hdr.ipv4.header_checksum + 0x0101;
                    } else {
                        hdr.ipv4.header_checksum = hdr.ipv4.header_checksum + 0x0100;
                    }
                    hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                } else {
                    hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
                }
            }
        }
    }
}
