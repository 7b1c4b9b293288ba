"""Random tables and packets for them, by seed, near the edges: first and last addresses, TTL 1, one octet too long.

What docs/planes.md names as a plane's difference is not drawn here: that would be found again and again.
"""

import ipaddress
from dataclasses import dataclass, replace
from random import Random

from cables import PORTS
from case import FAST, arrives
from entries import installed
from frames import ARP, MORE_FRAGMENTS, ethernet, extension, fragment_header, ipv4, ipv6, mac, tagged, udp

from controller.planes.base import (
    BLACKHOLE,
    FALLBACK,
    GLEAN,
    LOCAL,
    MAX_OBJECT_ID,
    UNREACHABLE,
    FallbackLink,
    GroupMember,
    Installed,
    Nexthop,
    NexthopGroup,
    NexthopState,
    Policer,
    RouteKind,
    RouterInterface,
    route_action,
)
from wire.columns import prefix_text

VLANS = (0, 0, 1, 10, 100, 4000, 4093)
LINK_VLANS = (2, 11, 3000, 4092)  # of fallback links
MTUS = (68, 576, 1280, 1400, 1500, 1500, 9000)
MACS = [mac(text) for text in ("0200000000aa", "0200000000ab", "00005e000101", "00005e000201")]
GROUP_MACS = [mac(text) for text in ("ffffffffffff", "01005e000005", "333300000001", "0180c2000014", "0180c2000000")]
LENGTHS = {4: (0, 1, 8, 9, 16, 23, 24, 30, 31, 32, 32), 6: (0, 3, 32, 48, 63, 64, 65, 127, 128, 128)}
BASES = {
    4: ("10.0.0.0", "10.1.2.3", "10.255.255.255", "126.255.255.255", "128.0.0.1", "192.0.2.129", "223.255.255.255"),
    6: ("2001:db8::", "2001:db8::1", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "::2", "fec0::1", "3fff::8000:0:0:0"),
}
SPECIAL = {
    4: (
        "224.0.0.5",
        "224.0.1.0",
        "239.1.2.3",
        "255.255.255.255",
        "255.255.255.254",
        "127.0.0.1",
        "0.0.0.0",
        "240.0.0.1",
    ),
    6: ("ff02::5", "ff05::1", "fe80::1", "febf::1", "fec0::1", "::", "::1", "ffff::"),
}
PROTOCOLS = (6, 17, 17, 17, 132, 1, 50, 89, 255)
SHORTEST = 20  # octets: Linux itself drops a tagged frame with less
TTLS = (0, 1, 1, 2, 2, 64, 64, 64, 64, 255)


@dataclass(frozen=True)
class Trial:
    """A frame that comes in by a port of a plane with these entries."""

    entries: Installed
    port: int
    frame: bytes


# -- tables ----------------------------------------------------------------------------------------------------------
def random_table(draw: Random, most: int = 10) -> Installed:
    """Return one to three routers with interfaces, nexthops, groups and nested prefixes, ``most`` of a family."""
    routers = range(1, draw.randint(1, 3) + 1)
    free = [(port, vlan) for port in PORTS for vlan in sorted(set(VLANS))]
    links = [FallbackLink(port, vlan) for port in PORTS for vlan in LINK_VLANS]
    draw.shuffle(free)
    draw.shuffle(links)
    entries: list[object] = [Policer(vrf_id, FAST) for vrf_id in routers]
    routes = {}
    for vrf_id in routers:
        interfaces = [_interface(draw, vrf_id, free, links) for _ in range(draw.randint(1, 4))]
        nexthops = [_nexthop(draw, interfaces) for _ in range(draw.randint(1, 5))]
        groups = [_group(draw, nexthops, interfaces) for _ in range(draw.randint(0, 2))]
        entries += [*interfaces, *nexthops, *groups]
        actions = _actions(nexthops, groups)
        routes[vrf_id] = {
            prefix: draw.choice(actions)
            for family in (4, 6)
            for prefix in (random_prefix(draw, family) for _ in range(draw.randint(0, most)))
        }
    return installed(entries, routes)  # type: ignore[arg-type]


def _actions(nexthops: list[Nexthop], groups: list[NexthopGroup]) -> list[int]:
    actions = [LOCAL, GLEAN, UNREACHABLE, BLACKHOLE, *[FALLBACK] * 5]
    actions += [route_action(RouteKind.NEXTHOP, each.id) for each in nexthops] * 2
    return actions + [route_action(RouteKind.GROUP, each.id) for each in groups] * 3


def _interface(draw: Random, vrf_id: int, free: list[tuple[int, int]], links: list[FallbackLink]) -> RouterInterface:
    port, vlan = free.pop()
    own, *virtual = draw.sample(MACS, draw.choice((1, 1, 2, 3)))
    enabled = draw.random() < 0.9
    fallback = links.pop() if draw.random() < 0.7 else None
    return RouterInterface(_id(draw), vrf_id, port, vlan, own, draw.choice(MTUS), tuple(virtual), enabled, fallback)


def _id(draw: Random) -> int:
    return draw.randint(1, 15_999)


def _nexthop(draw: Random, interfaces: list[RouterInterface]) -> Nexthop:
    state = draw.choice([NexthopState.FORWARD] * 5 + [NexthopState.GLEAN, NexthopState.DROP])
    neighbor = bytes((2, 0, 0, 1, 0, draw.randrange(256))) if state is NexthopState.FORWARD else bytes(6)
    return Nexthop(draw.randint(1, MAX_OBJECT_ID), draw.choice(interfaces).id, neighbor, state)


def _group(draw: Random, nexthops: list[Nexthop], interfaces: list[RouterInterface]) -> NexthopGroup:
    ports = {each.id: each.port for each in interfaces}
    chosen = draw.sample(nexthops, draw.randint(1, min(4, len(nexthops))))
    members = (GroupMember(each.id, draw.randint(1, 10), ports[each.router_interface_id]) for each in chosen)
    return NexthopGroup(draw.randint(1, MAX_OBJECT_ID), tuple(members))


def random_prefix(draw: Random, family: int) -> str:
    return str(ipaddress.ip_network(f"{draw.choice(BASES[family])}/{draw.choice(LENGTHS[family])}", strict=False))


# -- packets ---------------------------------------------------------------------------------------------------------
def random_arrival(draw: Random, entries: Installed) -> tuple[int, bytes]:
    """Return a port and a frame that comes in by it, most of the time for one of the routers, or back from the
    fallback plane."""
    ingress = draw.choice(list(entries.router_interfaces.values()))
    if ingress.fallback is not None and draw.random() < 0.15:
        ingress = replace(ingress, port=ingress.fallback.port, vlan=ingress.fallback.vlan)
    to = ingress.mac
    if draw.random() < 0.15:
        to = draw.choice([*MACS, *GROUP_MACS, *ingress.virtual_macs])
    if draw.random() < 0.08:
        ether_type = draw.choice((ARP, ARP, 40, 0x05DC, 0x88CC, 0x8847, 0x0600))
        frame = ethernet(to, ether_type, draw.randbytes(40))
        frame = tagged(frame, ingress.vlan) if ingress.vlan else frame
    else:
        prefixes = list(entries.routes.get(ingress.vrf_id, {})) or [bytes(5)]
        packet = _packet(draw, entries, draw.choice(prefixes))
        frame = arrives(ingress, packet, to, 0x86DD if packet[0] >> 4 == 6 else 0x0800, draw.choice((0, 0, 7))).frame
    if draw.random() < 0.03:
        frame = tagged(frame, draw.choice((0, 1, 10, 77)), draw.randrange(8))
    port = ingress.port if draw.random() < 0.97 else draw.choice(PORTS)
    return port, frame.ljust(SHORTEST, b"\0")


def _packet(draw: Random, entries: Installed, key: bytes) -> bytes:
    family = 4 if len(key) == 5 else 6
    dst = draw.choice(SPECIAL[family]) if draw.random() < 0.12 else _address(draw, key)
    src = draw.choice(SPECIAL[family]) if draw.random() < 0.08 else draw.choice(BASES[family])
    header = 20 if family == 4 else 40
    size = draw.choice((0, 3, 8, 20, 60, 200))
    if draw.random() < 0.3:
        mtu = draw.choice([each.mtu for each in entries.router_interfaces.values()])
        size = max(0, min(mtu + draw.choice((-1, 0, 1)), 2000) - header)
    payload = udp(draw.randrange(65536), draw.randrange(65536), b"")[:size].ljust(size, b"\x55")
    packet = _ipv4(draw, dst, src, payload) if family == 4 else _ipv6(draw, dst, src, payload)
    if draw.random() < 0.05:
        packet += bytes(draw.randint(1, 20))  # a trailer
    elif draw.random() < 0.05:
        packet = packet[: draw.randrange(1, len(packet))]
    return packet


def _address(draw: Random, key: bytes) -> str:
    """Return an address at an edge of a prefix, inside or just outside."""
    network = ipaddress.ip_network(prefix_text(key))
    first, last = int(network.network_address), int(network.broadcast_address)
    drawn = draw.choice((first, first, last, first - 1, last + 1, draw.randint(first, last)))
    limit = (1 << network.max_prefixlen) - 1
    return str((ipaddress.IPv4Address if network.version == 4 else ipaddress.IPv6Address)(min(max(drawn, 0), limit)))


def _ipv4(draw: Random, dst: str, src: str, payload: bytes) -> bytes:
    odd = draw.random()
    return ipv4(
        dst,
        src,
        ttl=draw.choice(TTLS),
        protocol=draw.choice(PROTOCOLS),
        payload=payload,
        identification=draw.randrange(65536),
        tos=draw.choice((0, 0, 0xFF)),
        options=bytes([1] * draw.choice((4, 40))) if odd < 0.08 else b"",
        fragment=draw.choice((MORE_FRAGMENTS, 100, 0x1FFF, 0x4000)) if 0.08 < odd < 0.2 else 0,
        header_checksum=draw.randrange(65536) if 0.2 < odd < 0.26 else None,
        header_words=draw.choice((0, 4, 15)) if 0.26 < odd < 0.29 else None,
        length=draw.choice((0, 19, 20 + len(payload) + 1, 65535)) if 0.29 < odd < 0.33 else None,
    )


def _ipv6(draw: Random, dst: str, src: str, payload: bytes) -> bytes:
    odd = draw.random()
    next_header, length = draw.choice(PROTOCOLS), None
    if odd < 0.12:
        kind = draw.choice((0, 0, 60, 43))
        options = bytes(6) if kind == 43 else bytes.fromhex("010400000000")
        payload, next_header = extension(17, options) + payload, kind
    elif odd < 0.2:
        payload, next_header = fragment_header(draw.choice((0, 9)), draw.random() < 0.5) + payload, 44
    elif odd < 0.24:
        length = draw.choice((len(payload) + 1, 65535))
    return ipv6(
        dst,
        src,
        ttl=draw.choice(TTLS),
        next_header=next_header,
        payload=payload,
        length=length,
        traffic_class=draw.choice((0, 0xFF)),
        flow_label=draw.choice((0, 0xFFFFF)),
    )
