// What the pipeline needs of TNA, the architecture of Tofino 1: counters and meters are called in actions.

#ifndef SPLITPLANE_TNA
#define SPLITPLANE_TNA

#include <core.p4>
#include <tna.p4>

#include "../common/ids.p4"

#define DIRECT_COUNTER(object, number) \
    NAMED(object, number) DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES) object
#define COUNT(object) object.count()
// An action of two tables cannot call the counter of each: routes are not counted.
#define ROUTE_COUNTER(object, number)
#define ROUTE_COUNTERS(object)
#define DIRECT_METER(object, number) NAMED(object, number) DirectMeter(MeterType_t.PACKETS) object
#define METER(object, color) color = (bit<2>)object.execute()
#define RED 3
#define NEXTHOP_SELECTOR(object, number) \
    ActionProfile(GROUP_MEMBERS) object##_members; \
    Hash<bit<14>>(HashAlgorithm_t.CRC32) object##_hash; \
    NAMED(object, number) \
    ActionSelector(object##_members, object##_hash, SelectorMode_t.FAIR, GROUP_WEIGHT, NEXTHOP_GROUPS) object
#define PARSER_CHECKSUM(object) Checksum() object;
#define PARSER_VERIFY(object, header, error) object.add(header); error = (bit<1>)object.verify();

// The port to the CPU over PCIe.
#define CPU_PORT 192

#endif
