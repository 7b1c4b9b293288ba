// What the pipeline needs of v1model (BMv2's simple_switch): counters and meters belong to tables and act by themselves.

#ifndef SPLITPLANE_V1MODEL
#define SPLITPLANE_V1MODEL

#include <core.p4>
#include <v1model.p4>

#include "../common/ids.p4"

#define DIRECT_COUNTER(object, number) NAMED(object, number) direct_counter(CounterType.packets_and_bytes) object
#define COUNT(object)
#define ROUTE_COUNTER(object, number) DIRECT_COUNTER(object, number);
#define ROUTE_COUNTERS(object) counters = object;
#define DIRECT_METER(object, number) NAMED(object, number) direct_meter<bit<2>>(MeterType.packets) object
#define METER(object, color) object.read(color)
#define RED 2
#define NEXTHOP_SELECTOR(object, number) \
    NAMED(object, number) @max_group_size(GROUP_WEIGHT) action_selector(HashAlgorithm.crc32, GROUP_MEMBERS, 32) object
#define PARSER_CHECKSUM(object)
#define PARSER_VERIFY(object, header, error)

// BMv2's port to the controller: `simple_switch_grpc … -- --cpu-port 510`.
#define CPU_PORT 510

#endif
