"""Builds rtnetlink messages as the kernel and zebra send them."""

import ipaddress
import struct

from vrc.netlink.route_messages import RTM_NEWNEXTHOP, RTM_NEWROUTE


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def u32(value: int) -> bytes:
    return struct.pack("=I", value)


def address(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


def message(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body


def route(
    prefix: str,
    *attributes: bytes,
    kind: int = RTM_NEWROUTE,
    table: int = 254,
    route_type: int = 1,
    flags: int = 0,
    kernel: bool = False,
    protocol: int = 186,
) -> bytes:
    """A route in zebra's order of attributes, or in the kernel's, which says the table first."""
    network = ipaddress.ip_network(prefix)
    family = 2 if network.version == 4 else 10
    head = struct.pack("=BBBBBBBBI", family, network.prefixlen, 0, 0, table, protocol, 0, route_type, 0)
    destination = attribute(1, network.network_address.packed)
    if kernel:
        destination = attribute(15, u32(table)) + (destination if network.prefixlen else b"")
    return message(kind, head + destination + b"".join(attributes), flags)


def by_nexthop(nexthop_id: int, metric: int = 20) -> bytes:
    return attribute(6, u32(metric)) + attribute(30, u32(nexthop_id))


def by_gateway(gateway: str, ifindex: int, metric: int = 20) -> bytes:
    return attribute(6, u32(metric)) + attribute(5, address(gateway)) + attribute(4, u32(ifindex))


def multipath(*ways: tuple[str, int], metric: int = 20, dead: tuple[str, int] | None = None) -> bytes:
    """Ways by (gateway, ifindex), each of weight 1; the kernel has set one of them aside."""
    hops = b""
    for gateway, ifindex in ways:
        inner = attribute(5, address(gateway))
        hops += struct.pack("=HBBi", 8 + len(inner), (gateway, ifindex) == dead, 0, ifindex) + inner
    return attribute(6, u32(metric)) + attribute(9, hops)


def nexthop(nexthop_id: int, ifindex: int = 0, gateway: str = "", *more: bytes, blackhole: bool = False) -> bytes:
    body = struct.pack("=BBBBI", 2, 0, 11, 0, 0) + attribute(1, u32(nexthop_id)) + b"".join(more)
    if blackhole:
        body += attribute(4, b"")
    if gateway:
        body += attribute(6, address(gateway))
    if ifindex:
        body += attribute(5, u32(ifindex))
    return message(RTM_NEWNEXTHOP, body)


def group(nexthop_id: int, *members: tuple[int, int]) -> bytes:
    body = struct.pack("=BBBBI", 0, 0, 11, 0, 0) + attribute(1, u32(nexthop_id))
    body += attribute(2, b"".join(struct.pack("=IHH", member, weight - 1, 0) for member, weight in members))
    return message(RTM_NEWNEXTHOP, body)


def frame(*messages: bytes) -> bytes:
    payload = b"".join(messages)
    return struct.pack(">BBH", 1, 1, len(payload) + 4) + payload
