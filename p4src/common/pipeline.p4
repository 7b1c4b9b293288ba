// The pipeline contract, in its order. Every plane has these tables under these names.
//
//     interface_classifier ─► l3_admit ─► punt ─► ipv4_route │ ipv6_route ─► ttl
//                                                                             │ fallback_link
//                                                                             ▼
//       reason, policer ◄─ whatever is punted or dropped ◄── nexthop_group ─► nexthop ─► router_interface
//               ▲ punt_class
//
// Each control leaves NO_REASON for a packet that goes on. A fallback link's packets go from the classifier straight to
// router_interface, as do the controller's own.
//
// An architecture includes this file after its own and defines before:
//     DIRECT_COUNTER(name, id), COUNT(name)             a table's counter, and its call in an action where that is needed
//     ROUTE_COUNTER(name, id), ROUTE_COUNTERS(name)     the same for routes, whose actions belong to two tables
//     DIRECT_METER(name, id), METER(name, color), RED   a table's meter, its call, the color that is dropped
//     NEXTHOP_SELECTOR(name, id)                        an action selector over the keys of kind `selector`
//     PARSER_CHECKSUM(name), PARSER_VERIFY(name, …)     the IPv4 checksum, where it is the parser that verifies it

#ifndef SPLITPLANE_PIPELINE
#define SPLITPLANE_PIPELINE

#include "ids.p4"
#include "headers.p4"
#include "parser.p4"
#include "interface_classifier.p4"
#include "l3_admit.p4"
#include "punt.p4"
#include "route.p4"
#include "ttl.p4"
#include "nexthop.p4"
#include "router_interface.p4"
#include "fallback.p4"
#include "punt_class.p4"
#include "verdict.p4"

control RouterPipeline(inout headers_t hdr, inout metadata_t meta) {
    InterfaceClassifier() interface_classifier;
    L3Admit() l3_admit;
    Punt() punt;
    Route() route;
    Ttl() ttl;
    Fallback() fallback;
    Nexthop() nexthop;
    RouterInterface() router_interface;
    Verdict() verdict;

    apply {
        if (hdr.packet_out.isValid()) {
            meta.egress_router_interface_id = hdr.packet_out.router_interface_id;
        } else {
            interface_classifier.apply(hdr, meta);
            if (meta.reason == NO_REASON && meta.keep_ttl == 0) {
                l3_admit.apply(hdr, meta);
                if (meta.reason == NO_REASON) {
                    punt.apply(hdr, meta);
                }
                if (meta.reason == NO_REASON) {
                    route.apply(hdr, meta);
                    ttl.apply(hdr, meta);
                }
                if (meta.reason == NO_REASON) {
                    if (meta.path == path_t.FALLBACK) {
                        fallback.apply(hdr, meta);
                    } else {
                        nexthop.apply(hdr, meta);
                    }
                }
            }
        }
        if (meta.reason == NO_REASON && meta.path != path_t.FALLBACK) {
            router_interface.apply(hdr, meta);
        }
        if (meta.reason != NO_REASON) {
            meta.transmit = 0;
            verdict.apply(hdr, meta);
        }
        if (meta.transmit == 1 && meta.egress_vlan_id != 0) {
            hdr.vlan.setValid();
            hdr.vlan.priority = 0;
            hdr.vlan.drop_eligible = 0;
            hdr.vlan.vlan_id = meta.egress_vlan_id;
            hdr.vlan.ether_type = hdr.ethernet.ether_type;
            hdr.ethernet.ether_type = ETHERTYPE_VLAN;
        }
    }
}

#endif
