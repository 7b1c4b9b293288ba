// What is not forwarded: counted by router and reason, and if it is a punt, policed by router and class.

control Verdict(inout headers_t hdr, inout metadata_t meta) {
    DIRECT_COUNTER(reason_counter, REASON_COUNTER);
    DIRECT_METER(policer_meter, POLICER_METER);
    ClassOfPunt() class_of_punt;

    @name(".count_reason") @id(COUNT_REASON_ACTION)
    action count_reason() {
        COUNT(reason_counter);
    }

    @name(".not_counted") @id(NOT_COUNTED_ACTION)
    action not_counted() {}

    // Programmed by: a router's policer, an entry for each reason, and the plane itself for `vrf_id` 0: packets that
    // are no router's. A miss counts nothing.
    @name(".reason") @id(REASON_TABLE)
    table reason {
        key = {
            meta.vrf_id : exact @name("vrf_id") @id(1);
            meta.reason : exact @name("reason") @id(2);
        }
        actions = {
            @tableonly count_reason;
            @defaultonly not_counted;
        }
        const default_action = not_counted;
        counters = reason_counter;
        size = ROUTERS * REASONS;
    }

    @name(".police") @id(POLICE_ACTION)
    action police() {
        METER(policer_meter, meta.color);
    }

    @name(".no_policer") @id(NO_POLICER_ACTION)
    action no_policer() {
        meta.color = RED;
    }

    // Programmed by: a router's policer, an entry for each class that it punts. Red is dropped, and so is what has no
    // policer.
    @name(".policer") @id(POLICER_TABLE)
    table policer {
        key = {
            meta.vrf_id : exact @name("vrf_id") @id(1);
            meta.punt_class : exact @name("punt_class") @id(2);
        }
        actions = {
            @tableonly police;
            @defaultonly no_policer;
        }
        const default_action = no_policer;
        meters = policer_meter;
        size = ROUTERS * PUNT_CLASSES;
    }

    apply {
        reason.apply();
        if (meta.reason < FIRST_DROP) {
            class_of_punt.apply(hdr, meta);
            policer.apply();
            if (meta.color != RED) {
                hdr.packet_in.setValid();
                hdr.packet_in.router_interface_id = meta.router_interface_id;
                hdr.packet_in.punt_reason = meta.reason;
            }
        }
    }
}
