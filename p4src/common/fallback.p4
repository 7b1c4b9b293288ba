// The way to the plane that holds all routes: a link to it and a tag that names the ingress router interface.

control Fallback(inout headers_t hdr, inout metadata_t meta) {
    @name(".send_to_fallback") @id(SEND_TO_FALLBACK_ACTION)
    action send_to_fallback(@id(1) port_t port, @id(2) vlan_id_t vlan_id) {
        meta.egress_port = port;
        meta.egress_vlan_id = vlan_id;
        meta.transmit = 1;
    }

    @name(".no_fallback") @id(NO_FALLBACK_ACTION)
    action no_fallback() {
        meta.reason = PUNT_UNREACHABLE;
    }

    // Programmed by: a plane's fallback link, an entry for each router interface. The frame keeps its addresses and its
    // TTL: the fallback plane runs the whole pipeline on it. A miss punts `unreachable`.
    @name(".fallback_link") @id(FALLBACK_TABLE)
    table fallback_link {
        key = {
            meta.router_interface_id : exact @name("router_interface_id") @id(1);
        }
        actions = {
            @tableonly send_to_fallback;
            @defaultonly no_fallback;
        }
        const default_action = no_fallback;
        size = ROUTER_INTERFACES;
    }

    apply {
        fallback_link.apply();
    }
}
