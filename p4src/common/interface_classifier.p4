// Whose packet it is: the port and VLAN that it came in by are a router's, or nobody's.

control InterfaceClassifier(inout headers_t hdr, inout metadata_t meta) {
    DIRECT_COUNTER(interface_classifier_counter, INTERFACE_CLASSIFIER_COUNTER);

    @name(".set_router_interface") @id(SET_ROUTER_INTERFACE_ACTION)
    action set_router_interface(@id(1) router_interface_id_t router_interface_id, @id(2) vrf_id_t vrf_id) {
        meta.router_interface_id = router_interface_id;
        meta.vrf_id = vrf_id;
        COUNT(interface_classifier_counter);
    }

    // A fallback link: the forwarder has routed the packet and names the router interface that it leaves by. Its
    // neighbor's MAC is in the frame and its TTL was counted.
    @name(".set_egress_router_interface") @id(SET_EGRESS_ROUTER_INTERFACE_ACTION)
    action set_egress_router_interface(@id(1) router_interface_id_t router_interface_id, @id(2) vrf_id_t vrf_id) {
        meta.router_interface_id = router_interface_id;
        meta.egress_router_interface_id = router_interface_id;
        meta.vrf_id = vrf_id;
        meta.keep_ttl = 1;
        meta.neighbor_mac = hdr.ethernet.dst_mac;
        COUNT(interface_classifier_counter);
    }

    @name(".unknown_interface") @id(UNKNOWN_INTERFACE_ACTION)
    action unknown_interface() {
        meta.reason = DROP_UNKNOWN_INTERFACE;
    }

    // Programmed by: a router interface that is enabled, as its last entry. A miss drops `unknown_interface`. A tag
    // with VLAN id 0 only carries a priority: such a frame is an untagged one (IEEE 802.1Q table 9-2).
    @name(".interface_classifier") @id(INTERFACE_CLASSIFIER_TABLE)
    table interface_classifier {
        key = {
            meta.ingress_port : exact @name("ingress_port") @id(1);
            meta.vlan_id : exact @name("vlan_id") @id(2);
        }
        actions = {
            @tableonly set_router_interface;
            @tableonly set_egress_router_interface;
            @defaultonly unknown_interface;
        }
        const default_action = unknown_interface;
        counters = interface_classifier_counter;
        size = ROUTER_INTERFACES;
    }

    apply {
        if (hdr.vlan.isValid()) {
            hdr.ethernet.ether_type = hdr.vlan.ether_type;
            hdr.vlan.setInvalid();
        }
        interface_classifier.apply();
    }
}
