// Whether the frame is for the router: to a MAC of the router interface, or to a group address.

control L3Admit(inout headers_t hdr, inout metadata_t meta) {
    @name(".admit") @id(ADMIT_ACTION)
    action admit() {}

    @name(".not_for_us") @id(NOT_FOR_US_ACTION)
    action not_for_us() {
        meta.reason = DROP_NOT_FOR_US;
    }

    // Programmed by: a router interface, an entry for its own MAC and for each virtual one (VRRP). A miss drops
    // `not_for_us`.
    @name(".l3_admit") @id(L3_ADMIT_TABLE)
    table l3_admit {
        key = {
            meta.router_interface_id : exact @name("router_interface_id") @id(1);
            hdr.ethernet.dst_mac : exact @name("dst_mac") @id(2);
        }
        actions = {
            @tableonly admit;
            @defaultonly not_for_us;
        }
        const default_action = not_for_us;
        size = ROUTER_INTERFACES * (1 + VIRTUAL_MACS);
    }

    apply {
        if (hdr.ethernet.dst_mac[40:40] == 0) {
            l3_admit.apply();
        }
    }
}
