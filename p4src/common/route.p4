// The longest prefix of the router decides. Own addresses and neighbors are routes of full length here.
//
// A route holds no MAC: it names a nexthop or a nexthop group, so that a link that fails is one write however many
// prefixes use it.

control Route(inout headers_t hdr, inout metadata_t meta) {
    ROUTE_COUNTER(ipv4_route_counter, IPV4_ROUTE_COUNTER)
    ROUTE_COUNTER(ipv6_route_counter, IPV6_ROUTE_COUNTER)

    @name(".set_nexthop") @id(SET_NEXTHOP_ACTION)
    action set_nexthop(@id(1) object_id_t nexthop_id) {
        meta.path = path_t.NEXTHOP;
        meta.nexthop_id = nexthop_id;
    }

    @name(".set_nexthop_group") @id(SET_NEXTHOP_GROUP_ACTION)
    action set_nexthop_group(@id(1) object_id_t nexthop_group_id) {
        meta.path = path_t.GROUP;
        meta.nexthop_group_id = nexthop_group_id;
    }

    @name(".punt_local") @id(PUNT_LOCAL_ACTION)
    action punt_local() {
        meta.reason = PUNT_LOCAL;
    }

    @name(".punt_glean") @id(PUNT_GLEAN_ACTION)
    action punt_glean() {
        meta.reason = PUNT_GLEAN;
    }

    @name(".punt_unreachable") @id(PUNT_UNREACHABLE_ACTION)
    action punt_unreachable() {
        meta.reason = PUNT_UNREACHABLE;
    }

    @name(".blackhole") @id(BLACKHOLE_ACTION)
    action blackhole() {
        meta.reason = DROP_BLACKHOLE;
    }

    // Not in this plane's tables: the forwarder, which holds all routes, decides.
    @name(".fallback") @id(FALLBACK_ACTION)
    action fallback() {
        meta.path = path_t.FALLBACK;
    }

    // Programmed by: the FIB. A miss punts `unreachable`.
    @name(".ipv4_route") @id(IPV4_ROUTE_TABLE)
    table ipv4_route {
        key = {
            meta.vrf_id : exact @name("vrf_id") @id(1);
            hdr.ipv4.dst : lpm @name("ipv4_dst") @id(2);
        }
        actions = {
            set_nexthop;
            set_nexthop_group;
            punt_local;
            punt_glean;
            punt_unreachable;
            blackhole;
            fallback;
        }
        const default_action = punt_unreachable;
        ROUTE_COUNTERS(ipv4_route_counter)
        size = IPV4_ROUTES;
    }

    // Programmed by: the FIB. A miss punts `unreachable`.
    @name(".ipv6_route") @id(IPV6_ROUTE_TABLE)
    table ipv6_route {
        key = {
            meta.vrf_id : exact @name("vrf_id") @id(1);
            hdr.ipv6.dst : lpm @name("ipv6_dst") @id(2);
        }
        actions = {
            set_nexthop;
            set_nexthop_group;
            punt_local;
            punt_glean;
            punt_unreachable;
            blackhole;
            fallback;
        }
        const default_action = punt_unreachable;
        ROUTE_COUNTERS(ipv6_route_counter)
        size = IPV6_ROUTES;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            ipv4_route.apply();
        } else {
            ipv6_route.apply();
        }
    }
}
