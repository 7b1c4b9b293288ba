"""The contract between a VRC and the controller: protobuf messages, the codec of their columns, and frames."""

PROTOCOL_VERSION = 4
"""The newest version that both ends of this tree speak."""

OLDEST_PROTOCOL_VERSION = 3
"""The oldest that they speak: this one or the one before, so that guests outlive an upgrade of the controller.

Whatever the version, a Control stream begins with Hello, which says what the VRC speaks; the Declaration says what
both do from there on. Streams of each version that is spoken are kept (tests/streams), and read by the code of today.
Version 2 had frames on a gRPC stream and was in no release; in 3 a VRC did not tell which frames were lost with it.
"""

LOSSES_PROTOCOL_VERSION = 4
"""From which on a VRC tells of frames that were lost with it."""

MAX_MESSAGE_BYTES = 1 << 20
"""Largest gRPC message either side accepts."""

MAX_ROUTES_PER_MESSAGE = 4096
"""Most routes in one Routes message: 4096 IPv6 prefixes and their set ids are 84 KiB."""

MAX_ITEMS_PER_MESSAGE = 4096
"""Most interface states, neighbors, nexthop sets or released ids in one message."""

MAX_MEMBERS_PER_MESSAGE = 1 << 14
"""Most members of all nexthop sets in one message."""

MAX_ADDRESSES = 256
"""Most own addresses reported with one interface."""

MAX_FRAME_BYTES = 9216 + 18
"""Largest Ethernet frame relayed, with a VLAN tag."""
