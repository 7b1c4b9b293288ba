// Sizes of the tables, codes of the reasons, and P4Runtime ids: all of them, in this one place.
//
// An id once given is never given to something else. Its first octet is P4Runtime's object type (P4Runtime 1.4,
// section 6.3).

#ifndef SPLITPLANE_IDS
#define SPLITPLANE_IDS

// What an architecture's own objects are called in P4Info: by a plain name, not by that of their control.
#define STRING(text) #text
#define NAMED(object, number) @name(STRING(.object)) @id(number)

// -- sizes, in entries -------------------------------------------------------------------------------------------------
#define ROUTERS 8192
#define ROUTER_INTERFACES 16384
#define VIRTUAL_MACS 4
#define IPV4_ROUTES 1048576
#define IPV6_ROUTES 262144
#define NEXTHOPS 65536
#define NEXTHOP_GROUPS 16384
#define GROUP_WEIGHT 256
#define GROUP_MEMBERS 262144
#define PUNT_CLASSES 11
#define REASONS 18

// -- samples: of how many packets that are routed one is told -----------------------------------------------------------
#define SAMPLE_ONE_IN 25

// -- reasons: why a packet is punted (PuntReason), or dropped (0x80 and up, DropReason) ----------------------------------
#define NO_REASON 0
#define PUNT_CONTROL 1
#define PUNT_LOCAL 2
#define PUNT_GLEAN 3
#define PUNT_TTL_EXPIRED 4
#define PUNT_MTU_EXCEEDED 5
#define PUNT_UNREACHABLE 6
#define PUNT_IP_OPTIONS 7
#define PUNT_HOP_BY_HOP 8
#define FIRST_DROP 0x80
#define DROP_UNKNOWN_INTERFACE 0x80
#define DROP_NOT_FOR_US 0x81
#define DROP_BLACKHOLE 0x82
#define DROP_NEIGHBOR_FAILED 0x83
#define DROP_MULTICAST 0x84
#define DROP_L2_MULTICAST 0x85
#define DROP_MARTIAN 0x86
#define DROP_ETHERTYPE 0x87
#define DROP_MALFORMED 0x88
// Of a device that has shares (docs/planes.md) alone: this program never drops for it.
#define DROP_OVER_SHARE 0x89

// -- punt classes: what a punt is policed as, the most urgent first (PuntClass) -------------------------------------------
#define CLASS_BFD 0
#define CLASS_ROUTING 1
#define CLASS_BGP 2
#define CLASS_ARP 3
#define CLASS_ICMP 4
#define CLASS_LOCAL 5
#define CLASS_GLEAN 6
#define CLASS_TTL 7
#define CLASS_MTU 8
#define CLASS_UNREACHABLE 9
#define CLASS_OPTIONS 10

// -- tables ------------------------------------------------------------------------------------------------------------
#define INTERFACE_CLASSIFIER_TABLE 0x02000001
#define L3_ADMIT_TABLE 0x02000002
#define PUNT_TABLE 0x02000003
#define IPV4_ROUTE_TABLE 0x02000004
#define IPV6_ROUTE_TABLE 0x02000005
#define NEXTHOP_GROUP_TABLE 0x02000006
#define NEXTHOP_TABLE 0x02000007
#define ROUTER_INTERFACE_TABLE 0x02000008
#define ROUTER_INTERFACE_EGRESS_TABLE 0x02000009
#define FALLBACK_TABLE 0x0200000a
#define REASON_TABLE 0x0200000b
#define POLICER_TABLE 0x0200000c
#define PUNT_CLASS_TABLE 0x0200000d

// -- actions -----------------------------------------------------------------------------------------------------------
#define SET_ROUTER_INTERFACE_ACTION 0x01000001
#define SET_EGRESS_ROUTER_INTERFACE_ACTION 0x01000002
#define UNKNOWN_INTERFACE_ACTION 0x01000003
#define ADMIT_ACTION 0x01000004
#define NOT_FOR_US_ACTION 0x01000005
#define PUNT_CONTROL_ACTION 0x01000006
#define DROP_ACTION 0x01000007
#define MARK_LINK_LOCAL_SOURCE_ACTION 0x01000008
#define GO_ON_ACTION 0x01000009
#define SET_NEXTHOP_ACTION 0x0100000a
#define SET_NEXTHOP_GROUP_ACTION 0x0100000b
#define PUNT_LOCAL_ACTION 0x0100000c
#define PUNT_GLEAN_ACTION 0x0100000d
#define PUNT_UNREACHABLE_ACTION 0x0100000e
#define BLACKHOLE_ACTION 0x0100000f
#define FALLBACK_ACTION 0x01000010
#define SET_MEMBER_NEXTHOP_ACTION 0x01000011
#define SET_NEIGHBOR_ACTION 0x01000012
#define GLEAN_NEIGHBOR_ACTION 0x01000013
#define NEIGHBOR_FAILED_ACTION 0x01000014
#define NO_NEXTHOP_ACTION 0x01000015
#define SET_PORT_ACTION 0x01000016
#define NO_ROUTER_INTERFACE_ACTION 0x01000017
#define REWRITE_ACTION 0x01000018
#define SEND_TO_FALLBACK_ACTION 0x01000019
#define NO_FALLBACK_ACTION 0x0100001a
#define COUNT_REASON_ACTION 0x0100001b
#define NOT_COUNTED_ACTION 0x0100001c
#define POLICE_ACTION 0x0100001d
#define NO_POLICER_ACTION 0x0100001e
#define SET_PUNT_CLASS_ACTION 0x0100001f

// -- controller headers ------------------------------------------------------------------------------------------------
#define PACKET_IN_HEADER 0x04000001
#define PACKET_OUT_HEADER 0x04000002

// -- action selectors, direct counters, direct meters ------------------------------------------------------------------
#define NEXTHOP_GROUP_SELECTOR 0x11000001

#define INTERFACE_CLASSIFIER_COUNTER 0x13000001
#define IPV4_ROUTE_COUNTER 0x13000002
#define IPV6_ROUTE_COUNTER 0x13000003
#define ROUTER_INTERFACE_EGRESS_COUNTER 0x13000004
#define REASON_COUNTER 0x13000005

#define POLICER_METER 0x15000001

#endif
