// Which of a group's nexthops, and where that is: an egress router interface and the neighbor's MAC.

control Nexthop(inout headers_t hdr, inout metadata_t meta) {
    NEXTHOP_SELECTOR(nexthop_group_selector, NEXTHOP_GROUP_SELECTOR);

    @name(".set_member_nexthop") @id(SET_MEMBER_NEXTHOP_ACTION)
    action set_member_nexthop(@id(1) object_id_t nexthop_id) {
        meta.nexthop_id = nexthop_id;
    }

    // Programmed by: a nexthop group, one-shot, so that a change is one write. The hash is that of the 5-tuple; a
    // fragment's is that of addresses and protocol. A miss punts `unreachable`; it does not happen, because a group is
    // written before its routes and deleted after them.
    @name(".nexthop_group") @id(NEXTHOP_GROUP_TABLE)
    table nexthop_group {
        key = {
            meta.nexthop_group_id : exact @name("nexthop_group_id") @id(1);
            meta.ip_source : selector;
            meta.ip_destination : selector;
            meta.ip_protocol : selector;
            meta.l4_source : selector;
            meta.l4_destination : selector;
        }
        actions = {
            @tableonly set_member_nexthop;
        }
        implementation = nexthop_group_selector;
        size = NEXTHOP_GROUPS;
    }

    @name(".set_neighbor") @id(SET_NEIGHBOR_ACTION)
    action set_neighbor(@id(1) router_interface_id_t router_interface_id, @id(2) mac_t neighbor_mac) {
        meta.egress_router_interface_id = router_interface_id;
        meta.neighbor_mac = neighbor_mac;
    }

    // The neighbor is not resolved: the guest's kernel forwards this packet and resolves it.
    @name(".glean_neighbor") @id(GLEAN_NEIGHBOR_ACTION)
    action glean_neighbor(@id(1) router_interface_id_t router_interface_id) {
        meta.egress_router_interface_id = router_interface_id;
        meta.reason = PUNT_GLEAN;
    }

    // The neighbor did not answer of late.
    @name(".neighbor_failed") @id(NEIGHBOR_FAILED_ACTION)
    action neighbor_failed(@id(1) router_interface_id_t router_interface_id) {
        meta.egress_router_interface_id = router_interface_id;
        meta.reason = DROP_NEIGHBOR_FAILED;
    }

    @name(".no_nexthop") @id(NO_NEXTHOP_ACTION)
    action no_nexthop() {
        meta.reason = PUNT_UNREACHABLE;
    }

    // Programmed by: a nexthop. A miss punts `unreachable`; as with groups, it does not happen.
    @name(".nexthop") @id(NEXTHOP_TABLE)
    table nexthop {
        key = {
            meta.nexthop_id : exact @name("nexthop_id") @id(1);
        }
        actions = {
            @tableonly set_neighbor;
            @tableonly glean_neighbor;
            @tableonly neighbor_failed;
            @defaultonly no_nexthop;
        }
        const default_action = no_nexthop;
        size = NEXTHOPS;
    }

    apply {
        if (meta.path == path_t.GROUP && !nexthop_group.apply().hit) {
            meta.reason = PUNT_UNREACHABLE;
        }
        if (meta.reason == NO_REASON) {
            nexthop.apply();
        }
    }
}
