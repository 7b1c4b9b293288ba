"""The pipeline contract as one plain function: what becomes of a frame, given the entries that a plane holds.

It is as slow as it is simple. The fake plane forwards by it, and the conformance suite compares every other plane
with it; p4src/ says the same in P4. What a plane may leave out is a capability, and the model leaves it out too.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from ipaddress import ip_network

from controller.planes.base import (
    Capability,
    DropReason,
    FallbackLink,
    Installed,
    NexthopState,
    PuntReason,
    RouteKind,
    RouterInterface,
    action_kind,
    action_value,
)
from controller.planes.packet import Frame, IpPacket, with_tag


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The frame leaves by a router interface, or by a fallback link."""

    router_interface_id: int | None  # None: by a fallback link, where no interface counts it
    port: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class Punted:
    """The frame goes to the guest as it came, without its tag; the policer comes after this."""

    reason: PuntReason
    frame: bytes


@dataclass(frozen=True, slots=True)
class Dropped:
    """The frame ends here, counted under its reason."""

    reason: DropReason


Outcome = Forwarded | Punted | Dropped


@dataclass(frozen=True, slots=True)
class Way:
    """One thing that may become of a frame, and its weight among them."""

    outcome: Outcome
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a frame: one way, or one for each member of the nexthop group that it meets."""

    ingress: RouterInterface | None  # None: nobody's, or back from the fallback plane
    ways: tuple[Way, ...]
    route: bytes | None = None  # the prefix that it met, where it came as far as the routes


Choose = Callable[[int, dict[int, int], bytes], int]
"""Given a group's id, its members' weights by nexthop id and what is hashed (the 5-tuple, with HASH_BY_ROUTER behind
the router's `vrf_id`), returns one member's nexthop id."""


def forward(
    entries: Installed,
    capabilities: Collection[Capability],
    live: Collection[int],
    port: int,
    frame: bytes,
    choose: Choose | None = None,
) -> Verdict:
    """Return what becomes of a frame that comes in by a port; ``live`` are the ports that are up, and without
    ``choose`` every member of a group counts.

    ValueError for a frame of less than 14 octets, which no port delivers.
    """
    read = Frame.read(frame)
    if read.vlan == 0:
        read = replace(read, vlan=None)
    egress = way_back(entries, port, read)
    if egress is not None:
        return Verdict(None, (Way(router_interface(egress, read.dst_mac, read, read.payload)),))
    ingress = interface_classifier(entries, port, read)
    if ingress is None:
        return Verdict(None, (Way(Dropped(DropReason.UNKNOWN_INTERFACE)),))
    decided: Outcome | None = None
    if not read.group_addressed and read.dst_mac not in (ingress.mac, *ingress.virtual_macs):
        decided = Dropped(DropReason.NOT_FOR_US)
    packet = IpPacket.find(read)
    decided = decided or punt(read, packet, Capability.IPV4_CHECKSUM in capabilities)
    if decided is not None or packet is None:
        return Verdict(ingress, (Way(decided or Dropped(DropReason.ETHERTYPE)),))
    routes = entries.routes.get(ingress.vrf_id, {})
    route = longest_prefix(routes, packet.dst)
    action = None if route is None else routes[route]
    return Verdict(ingress, _route(entries, capabilities, live, ingress, read, packet, action, choose), route)


# -- before the routes -----------------------------------------------------------------------------------------------
def interface_classifier(entries: Installed, port: int, frame: Frame) -> RouterInterface | None:
    """Return the enabled router interface of the port and the frame's VLAN."""
    for interface in entries.router_interfaces.values():
        if interface.enabled and _came_in_by(interface, port, frame):
            return interface
    return None


def way_back(entries: Installed, port: int, frame: Frame) -> RouterInterface | None:
    """Return the router interface that the fallback plane has chosen for a frame, None for one that is not from
    there."""
    for interface in entries.router_interfaces.values():
        if interface.fallback is not None and _came_in_by(interface.fallback, port, frame):
            return interface
    return None


def _came_in_by(way_in: RouterInterface | FallbackLink, port: int, frame: Frame) -> bool:
    return frame.vlan != 0 and (way_in.port, way_in.vlan) == (port, frame.vlan or 0)


_ISIS = tuple(bytes.fromhex(mac) for mac in ("0180c2000014", "0180c2000015", "09002b000005"))
_ARP = 0x0806
_LONG_LLC = 0x8870  # IEEE 802.1AC: LLC behind an EtherType, as a length above 1,500 would be one
_FIRST_ETHER_TYPE = 0x0600  # below are lengths: IEEE 802.3


def _ranges(*prefixes: str) -> tuple[tuple[bytes, bytes], ...]:
    networks = [ip_network(prefix) for prefix in prefixes]
    return tuple((each.network_address.packed, each.broadcast_address.packed) for each in networks)


_LINK_SCOPE = _ranges("224.0.0.0/24", "255.255.255.255/32", "ff02::/16", "fe80::/10")
_MULTICAST = _ranges("224.0.0.0/4", "ff00::/8")
_LINK_LOCAL = _ranges("fe80::/10")
# RFC 1812 section 5.3.7 and RFC 6890 for IPv4; RFC 4291 section 2.5 for IPv6.
_MARTIAN = _ranges("127.0.0.0/8", "0.0.0.0/8", "240.0.0.0/4", "::/128", "::1/128")


def _within(address: bytes, ranges: tuple[tuple[bytes, bytes], ...]) -> bool:
    return any(len(first) == len(address) and first <= address <= last for first, last in ranges)


def punt(frame: Frame, packet: IpPacket | None, verifies_checksum: bool) -> Outcome | None:
    """Return what becomes of a frame that is no transit packet, None for one that is."""
    if packet is None:
        if frame.is_ip:
            return Dropped(DropReason.MALFORMED)
        is_llc = frame.ether_type < _FIRST_ETHER_TYPE or frame.ether_type == _LONG_LLC
        isis = is_llc and frame.dst_mac in _ISIS
        return _punted(PuntReason.CONTROL, frame) if isis or frame.ether_type == _ARP else None
    if verifies_checksum and not packet.checksum_holds:
        return Dropped(DropReason.MALFORMED)
    decided = by_destination(packet.dst)
    if decided is PuntReason.CONTROL:
        return _punted(PuntReason.CONTROL, frame)
    if decided is DropReason.MULTICAST:
        return Dropped(DropReason.MULTICAST)
    if frame.group_addressed:
        return Dropped(DropReason.L2_MULTICAST)
    if decided is DropReason.MARTIAN or any(_within(packet.src, martian) for martian in (_MARTIAN, _MULTICAST)):
        return Dropped(DropReason.MARTIAN)
    return None


def by_destination(address: bytes) -> PuntReason | DropReason | None:
    """Return why a packet to an address ends before the routes whatever else it is, None where they are asked."""
    if _within(address, _LINK_SCOPE):
        return PuntReason.CONTROL
    if _within(address, _MULTICAST):
        return DropReason.MULTICAST
    return DropReason.MARTIAN if _within(address, _MARTIAN) else None


def _punted(reason: PuntReason, frame: Frame) -> Punted:
    return Punted(reason, frame.untagged)


# -- routes ----------------------------------------------------------------------------------------------------------
def longest_prefix(routes: dict[bytes, int], address: bytes) -> bytes | None:
    """Return the longest prefix that holds an address, None where there is none."""
    octets, number = len(address), int.from_bytes(address, "big")
    for length in range(octets * 8, -1, -1):
        host_bits = octets * 8 - length
        key = (number >> host_bits << host_bits).to_bytes(octets, "big") + bytes((length,))
        if key in routes:
            return key
    return None


_ROUTE_PUNTS = {int(reason): reason for reason in PuntReason}


def _route(
    entries: Installed,
    capabilities: Collection[Capability],
    live: Collection[int],
    ingress: RouterInterface,
    frame: Frame,
    packet: IpPacket,
    action: int | None,
    choose: Choose | None,
) -> tuple[Way, ...]:
    kind = RouteKind.UNKNOWN if action is None else action_kind(action)
    value = 0 if action is None else action_value(action)
    if kind is RouteKind.DROP:
        return (Way(Dropped(DropReason.BLACKHOLE)),)
    reason = None
    if kind not in (RouteKind.NEXTHOP, RouteKind.GROUP, RouteKind.FALLBACK):
        reason = _ROUTE_PUNTS.get(value, PuntReason.UNREACHABLE)
    reason = reason if reason is PuntReason.LOCAL else ttl(packet, reason)
    if kind is RouteKind.FALLBACK:
        return (Way(_punted(reason, frame) if reason else fallback_link(ingress, frame)),)
    reason = reason or exception(packet, capabilities)
    if reason is not None:
        return (Way(_punted(reason, frame)),)
    weights = {value: 1}
    if kind is RouteKind.GROUP:
        weights = members(entries, capabilities, live, value)
        if choose is not None and weights:
            weights = {choose(value, weights, hashed(capabilities, ingress, packet)): 1}
    ways = (
        Way(_by_nexthop(entries, capabilities, nexthop_id, frame, packet), weight)
        for nexthop_id, weight in weights.items()
    )
    return tuple(ways) or (Way(_punted(PuntReason.UNREACHABLE, frame)),)


def hashed(capabilities: Collection[Capability], ingress: RouterInterface, packet: IpPacket) -> bytes:
    """Return what a group's member is chosen by."""
    by_router = Capability.HASH_BY_ROUTER in capabilities
    return (ingress.vrf_id.to_bytes(4, "big") if by_router else b"") + packet.flow


def ttl(packet: IpPacket, reason: PuntReason | None) -> PuntReason | None:
    """Return why a packet is punted now that its route is known, which punts it for ``reason`` or does not."""
    if packet.ttl <= 1:
        return PuntReason.TTL_EXPIRED
    if _within(packet.src, _LINK_LOCAL):
        return PuntReason.UNREACHABLE  # RFC 4291 section 2.5.6
    return reason


def exception(packet: IpPacket, capabilities: Collection[Capability]) -> PuntReason | None:
    """Return why a packet that would be forwarded by this plane is not a switch's work."""
    if packet.has_options and Capability.IP_OPTIONS in capabilities:
        return PuntReason.IP_OPTIONS
    if packet.has_hop_by_hop and Capability.HOP_BY_HOP in capabilities:
        return PuntReason.HOP_BY_HOP
    return None


def fallback_link(ingress: RouterInterface, frame: Frame) -> Outcome:
    """Return the frame with the link's tag in place of its own, on its way to the plane that holds all routes."""
    link = ingress.fallback
    if link is None:
        return _punted(PuntReason.UNREACHABLE, frame)
    return Forwarded(None, link.port, with_tag(link.vlan, frame.untagged))


# -- nexthops --------------------------------------------------------------------------------------------------------
def members(
    entries: Installed, capabilities: Collection[Capability], live: Collection[int], group_id: int
) -> dict[int, int]:
    """Return the weights, by nexthop id, of a group's members whose port is up; of all where none is."""
    group = entries.groups.get(group_id)
    every = group.members if group is not None else ()
    if Capability.LOCAL_FAILOVER in capabilities:
        every = tuple(each for each in every if each.watch_port in live) or every
    weights: dict[int, int] = {}
    for each in every:
        weights[each.nexthop_id] = weights.get(each.nexthop_id, 0) + each.weight
    return weights


def _by_nexthop(
    entries: Installed, capabilities: Collection[Capability], nexthop_id: int, frame: Frame, packet: IpPacket
) -> Outcome:
    nexthop = entries.nexthops.get(nexthop_id)
    egress = entries.router_interfaces.get(nexthop.router_interface_id) if nexthop is not None else None
    if nexthop is None or (egress is None and nexthop.state is NexthopState.FORWARD):
        return _punted(PuntReason.UNREACHABLE, frame)
    if nexthop.state is NexthopState.GLEAN:
        return _punted(PuntReason.GLEAN, frame)
    if egress is None or nexthop.state is NexthopState.DROP:
        return Dropped(DropReason.NEIGHBOR_FAILED)
    if packet.length > egress.mtu and Capability.MTU in capabilities:
        return _punted(PuntReason.MTU_EXCEEDED, frame)
    return router_interface(egress, nexthop.mac, frame, packet.one_hop_on())


def router_interface(egress: RouterInterface, neighbor: bytes, frame: Frame, payload: bytes) -> Forwarded:
    """Return the frame as it leaves: MACs, payload, tag."""
    routed = neighbor + egress.mac + frame.untagged[12:14] + payload
    return Forwarded(egress.id, egress.port, with_tag(egress.vlan, routed))
