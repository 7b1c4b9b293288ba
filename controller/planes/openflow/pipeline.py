"""The flows that every router shares: they are the pipeline itself and are there before any entry."""

import ipaddress
from collections.abc import Iterator

from controller.planes.base import DROP_CODE, DropReason, PuntClass, PuntReason
from controller.planes.openflow import codec
from controller.planes.openflow.codec import Flow, Oxm, flow, oxm
from controller.planes.openflow.program import (
    GROUP_ADDRESSED,
    KEEP_TTL,
    LINK_LOCAL_SOURCE,
    TO_FALLBACK,
    TOO_LONG,
    Kind,
    Table,
    cookie,
    to_reason,
)
from controller.planes.punt_class import RULES, TCP, Rule

_IPV4, _IPV6, _ARP, _LLC = (oxm(Oxm.ETH_TYPE, number) for number in (0x0800, 0x86DD, 0x0806, 0x05FF))
_LONG_LLC = oxm(Oxm.ETH_TYPE, 0x8870)  # IEEE 802.1AC: LLC behind an EtherType, as a length above 1,500 would be one
_ISIS = ("0180c2000014", "0180c2000015", "09002b000005")  # ISO/IEC 10589 section 8.4.8: all L1, all L2, all ES+IS
_MULTICAST_BIT = bytes.fromhex("010000000000")
_IN_GROUP_FRAME = oxm(Oxm.REG2, GROUP_ADDRESSED, GROUP_ADDRESSED)
_VLAN_PRESENT = oxm(Oxm.VLAN_VID, 0x1000, 0x1000)
_PRIORITY_TAG = oxm(Oxm.VLAN_VID, 0x1000)  # IEEE 802.1Q table 9-2: VLAN id 0 is none

# RFC 1812 section 5.3.7 and RFC 6890 for IPv4; RFC 4291 section 2.5 for IPv6.
_MARTIAN_SOURCES = ("127.0.0.0/8", "0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128", "ff00::/8")
_MARTIAN_DESTINATIONS = ("127.0.0.0/8", "0.0.0.0/8", "240.0.0.0/4", "::/128", "::1/128")


# Open vSwitch leaves all fields of an IP header zero that it cannot take for one: shorter than it says or than the
# smallest, longer than the frame. Behind addresses, protocol 0 and TTL 0 stand for extension headers that it cannot
# follow to their end.
_NO_PROTOCOL, _NO_TTL = oxm(Oxm.IP_PROTO, 0), oxm(Oxm.IP_TTL, 0)


def static_flows() -> list[Flow]:
    """Return every flow of the pipeline that belongs to no router."""
    return [*_ingress(), *_punt(), *_routes(), *_ttl(), *_egress(), *_fallback(), *_punt_class()]


def _drop(table: Table, priority: int, reason: DropReason, *match: bytes) -> Flow:
    return flow(table, priority, cookie(Kind.STATIC, 0, DROP_CODE[reason]), match, b"")


def _step(table: Table, priority: int, instructions: bytes, *match: bytes) -> Flow:
    return flow(table, priority, cookie(Kind.STATIC), match, instructions)


def _prefix(text: str, v4: Oxm, v6: Oxm) -> tuple[bytes, bytes]:
    network = ipaddress.ip_network(text)
    mask = None if network.prefixlen == network.max_prefixlen else network.netmask.packed
    is_v4 = network.version == 4
    return (_IPV4 if is_v4 else _IPV6), oxm(v4 if is_v4 else v6, network.network_address.packed, mask)


def _source(text: str) -> tuple[bytes, bytes]:
    return _prefix(text, Oxm.IPV4_SRC, Oxm.IPV6_SRC)


def _destination(text: str) -> tuple[bytes, bytes]:
    return _prefix(text, Oxm.IPV4_DST, Oxm.IPV6_DST)


def _ingress() -> Iterator[Flow]:
    yield _drop(Table.INTERFACE_CLASSIFIER, 0, DropReason.UNKNOWN_INTERFACE)
    untagged = codec.apply_actions(codec.POP_VLAN, codec.resubmit(Table.INTERFACE_CLASSIFIER))
    yield _step(Table.INTERFACE_CLASSIFIER, 200, untagged, _PRIORITY_TAG)
    mark = codec.apply_actions(codec.set_field(Oxm.REG2, GROUP_ADDRESSED)) + codec.goto(Table.PUNT)
    yield _step(Table.L3_ADMIT, 100, mark, oxm(Oxm.ETH_DST, _MULTICAST_BIT, _MULTICAST_BIT))
    yield _drop(Table.L3_ADMIT, 0, DropReason.NOT_FOR_US)


def _punt() -> Iterator[Flow]:
    table = Table.PUNT
    yield _drop(table, 100, DropReason.ETHERTYPE, _VLAN_PRESENT)  # a second tag
    for unspecified in ("0.0.0.0/32", "::/128"):
        nowhere = (*_source(unspecified), _destination(unspecified)[1])
        yield _drop(table, 95, DropReason.MALFORMED, *nowhere, _NO_TTL, _NO_PROTOCOL)
    control = to_reason(PuntReason.CONTROL, Table.PUNT_CLASS)
    yield _step(table, 90, control, _ARP)
    for address in _ISIS:
        for ether_type in (_LLC, _LONG_LLC):
            yield _step(table, 90, control, ether_type, oxm(Oxm.ETH_DST, bytes.fromhex(address)))
    for text in ("224.0.0.0/24", "255.255.255.255/32", "ff02::/16", "fe80::/10"):
        yield _step(table, 90, control, *_destination(text))
    for text in ("224.0.0.0/4", "ff00::/8"):
        yield _drop(table, 80, DropReason.MULTICAST, *_destination(text))
    for family in (_IPV4, _IPV6):
        yield _drop(table, 70, DropReason.L2_MULTICAST, family, _IN_GROUP_FRAME)
    for text in _MARTIAN_SOURCES:
        yield _drop(table, 60, DropReason.MARTIAN, *_source(text))
    for text in _MARTIAN_DESTINATIONS:
        yield _drop(table, 60, DropReason.MARTIAN, *_destination(text))
    # A link-local source may reach the router's own addresses (RFC 4861 section 7.2) but is never forwarded.
    link_local = codec.apply_actions(codec.set_field(Oxm.REG2, LINK_LOCAL_SOURCE)) + codec.goto(Table.IPV6_ROUTE)
    yield _step(table, 50, link_local, *_source("fe80::/10"))
    yield _step(table, 40, codec.goto(Table.IPV4_ROUTE), _IPV4)
    yield _step(table, 40, codec.goto(Table.IPV6_ROUTE), _IPV6)
    yield _drop(table, 0, DropReason.ETHERTYPE)


def _routes() -> Iterator[Flow]:
    for table in (Table.IPV4_ROUTE, Table.IPV6_ROUTE):
        yield _step(table, 0, to_reason(PuntReason.UNREACHABLE, Table.TTL))


def _ttl() -> Iterator[Flow]:
    malformed = cookie(Kind.STATIC, 0, DROP_CODE[DropReason.MALFORMED])
    yield flow(Table.TTL, 110, malformed, (_IPV6, _NO_TTL, _NO_PROTOCOL), codec.CLEAR_ACTIONS)
    expired = to_reason(PuntReason.TTL_EXPIRED, Table.PACKET_IN, clear=True)
    for family in (_IPV4, _IPV6):
        for ttl in (0, 1):
            yield _step(Table.TTL, 100, expired, family, oxm(Oxm.IP_TTL, ttl))
    beyond_scope = to_reason(PuntReason.UNREACHABLE, Table.PACKET_IN, clear=True)
    yield _step(Table.TTL, 90, beyond_scope, oxm(Oxm.REG2, LINK_LOCAL_SOURCE, LINK_LOCAL_SOURCE))
    for reason in (PuntReason.GLEAN, PuntReason.UNREACHABLE):
        yield _step(Table.TTL, 80, codec.goto(Table.PACKET_IN), oxm(Oxm.REG0, reason))
    yield _step(Table.TTL, 80, codec.goto(Table.FALLBACK_LINK), oxm(Oxm.REG0, TO_FALLBACK))
    yield _step(Table.TTL, 0, b"")  # the action set goes on with the group
    yield _step(Table.TTL_DECREMENT, 200, b"", oxm(Oxm.REG2, KEEP_TTL, KEEP_TTL))
    for family in (_IPV4, _IPV6):
        yield _step(Table.TTL_DECREMENT, 100, codec.apply_actions(codec.DEC_TTL), family)


def _egress() -> Iterator[Flow]:
    too_long = to_reason(PuntReason.MTU_EXCEEDED, Table.PACKET_IN)
    yield _step(Table.ROUTER_INTERFACE_EGRESS, 200, too_long, oxm(Oxm.REG2, TOO_LONG, TOO_LONG))
    # Open vSwitch counts down no TTL where the protocol is 0: such a packet could go round for ever.
    counted_down = oxm(Oxm.REG2, 0, KEEP_TTL)
    yield _drop(Table.ROUTER_INTERFACE_EGRESS, 150, DropReason.MALFORMED, _IPV4, _NO_PROTOCOL, counted_down)


def _fallback() -> Iterator[Flow]:
    noted = codec.set_field(Oxm.REG0, PuntReason.UNREACHABLE)
    nowhere = codec.apply_actions(noted, codec.resubmit(Table.PACKET_IN))
    yield _step(Table.FALLBACK_LINK, 0, nowhere)


def _punt_class() -> Iterator[Flow]:
    """Yield what notes the class of what is for the router itself. Fragments have ports of 0 here, as Open vSwitch's
    mode `normal` has them; it looks behind IPv4 options and extension headers all the same."""
    for priority, rule in enumerate(reversed(RULES), 100):
        yield _step(Table.PUNT_CLASS, priority, _noted(rule.punt_class), *_of_rule(rule))
    for family in (_IPV4, _IPV6):
        yield _step(Table.PUNT_CLASS, 10, _noted(PuntClass.LOCAL), family)
    yield _step(Table.PUNT_CLASS, 10, _noted(PuntClass.ARP), _ARP)
    yield _step(Table.PUNT_CLASS, 0, _noted(PuntClass.ROUTING))


def _noted(punt_class: PuntClass) -> bytes:
    return codec.apply_actions(codec.set_field(Oxm.REG3, punt_class), codec.resubmit(Table.PACKET_IN))


def _of_rule(rule: Rule) -> Iterator[bytes]:
    yield _IPV4 if rule.family == 4 else _IPV6
    yield oxm(Oxm.IP_PROTO, rule.protocol)
    if rule.source_port is not None:
        yield oxm(Oxm.TCP_SRC, rule.source_port)
    if rule.destination_port is not None:
        yield oxm(Oxm.TCP_DST if rule.protocol == TCP else Oxm.UDP_DST, rule.destination_port)
    if rule.icmp_type is not None:
        yield oxm(Oxm.ICMPV6_TYPE, rule.icmp_type)
    if rule.ttl is not None:
        yield oxm(Oxm.IP_TTL, rule.ttl)
