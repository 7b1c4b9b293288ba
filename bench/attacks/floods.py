"""What a host floods its router with: the frames of each flood, which the lab's generator repeats.

host x: HOST ── x [ hostile/r ] y, MTU of SMALL_MTU ── BEYOND, behind host y
                                y, SWEPT: nobody is there
"""

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from bench import arping
from bench.modest_probes import FAR_ROUTER, NEAR_HOST, NEAR_ROUTER
from controller.planes.packet import internet_checksum
from lab.generator import HEAD_BYTES

HOST, ROUTER = "10.9.0.2", "10.9.0.1"
HOST_6, ROUTER_6 = "2001:db8:9::2", "2001:db8:9::1"
BEYOND, SWEPT = "198.51.100.0/24", "30.0.0.0/8"
SMALL_MTU = 1280
COUNT = 4096
"""Frames of a flood that differ: of more than a router has neighbors or a policer lets through in a quarter of a
minute, and of fewer than would take the caches from others."""

_SHORTEST, _LONGEST = 60, 1514  # octets of a frame without its check sequence
_IPV4, _IPV6 = b"\x08\x00", b"\x86\xdd"
_ICMP, _UDP, _ICMPV6 = 1, 17, 58
_ECHO, _SOLICITATION = 8, 135
_DONT_FRAGMENT = 0x4000
_DISCARD = 9  # RFC 863
_REACHED, _WHOLE = 0.98, 0.95  # of a rate; of a core


@dataclass(frozen=True, slots=True)
class Link:
    """The two ends of the host's link: their MACs."""

    host: bytes
    router: bytes


@dataclass(frozen=True, slots=True)
class Flood:
    """Frames of one length, octets without the check sequence; ``frame`` makes the head of the n-th."""

    length: int
    frame: Callable[[Link, int], bytes]

    def heads(self, link: Link) -> bytes:
        """Return all frames as the generator takes them."""
        return b"".join(self.frame(link, number)[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0") for number in range(COUNT))


@dataclass(frozen=True, slots=True)
class CameOf:
    """What came of a flood: frames that were sent, how long that took, the CPU time that the generator had meanwhile,
    and frames that the switch's end of the cable had no room for."""

    frames: int
    took_s: float
    busy_s: float
    refused: int

    def told(self, wanted_pps: float) -> str:
        """Say what was sent of what was wanted, in frames/s, and what was in the way of more."""
        rate = self.frames / self.took_s
        said = f"{self.frames} frames in {self.took_s:.1f} s, {rate:,.0f} of {wanted_pps:,.0f} a second"
        if rate < wanted_pps * _REACHED:
            had = min(1.0, self.busy_s / self.took_s)
            limit = "one core makes no more" if had > _WHOLE else "others had its core meanwhile"
            said += f" (the generator had {had:.0%} of a core: {limit})"
        return f"{said}, {self.refused / max(1, self.frames):.0%} of them refused by the full ring of the port"


def arp(_link: Link, number: int) -> bytes:
    """Ask for the router, each time as another host of the link (RFC 826)."""
    return arping.request(_mac(number), bytes((10, 9, 16 + (number >> 8), number & 255)), _ipv4(ROUTER))


def neighbor_solicitation(link: Link, number: int) -> bytes:
    """Ask for the router, each time as another host of the link (RFC 4861, section 4.3)."""
    router = socket.inet_pton(socket.AF_INET6, ROUTER_6)
    own = router[:12] + (0x10000 + number).to_bytes(4, "big")
    group = bytes.fromhex("ff0200000000000000000001ff") + router[13:]
    head = struct.pack("!BBHI", _SOLICITATION, 0, 0, 0)
    rest = router + b"\x01\x01" + _mac(number)
    pseudo = own + group + struct.pack("!II", len(head + rest), _ICMPV6)  # RFC 8200, section 8.1
    sum_ = internet_checksum(pseudo + head + rest)
    ip = struct.pack("!IHBB", 6 << 28, len(head + rest), _ICMPV6, 255) + own + group
    return b"\x33\x33" + group[12:] + _mac(number) + _IPV6 + ip + head[:2] + sum_.to_bytes(2, "big") + head[4:] + rest


def ping(link: Link, number: int, destination: bytes) -> bytes:
    """Ask for an echo (RFC 792), as ping does with its 56 octets."""
    message = struct.pack("!BBHHH", _ECHO, 0, 0, 1, number) + bytes(56)
    message = message[:2] + internet_checksum(message).to_bytes(2, "big") + message[4:]
    return link.router + link.host + _IPV4 + _header(destination, _ICMP, len(message)) + message


def ping_others(link: Link, number: int) -> bytes:
    """Ask the modest routers and their hosts, whose addresses mean nothing to the hostile router."""
    others = (NEAR_ROUTER, NEAR_HOST, FAR_ROUTER)
    return ping(link, number, _ipv4(others[number % len(others)]))


def packet(link: Link, destination: bytes, length: int, ttl: int = 64) -> bytes:
    """Return the head of a UDP datagram in a frame of so many octets; what is beyond is left to the generator."""
    payload = length - 14 - 20
    udp = struct.pack("!HHHH", _DISCARD, _DISCARD, payload, 0)
    return link.router + link.host + _IPV4 + _header(destination, _UDP, payload, ttl) + udp


def _beyond(number: int) -> bytes:
    return _ipv4(BEYOND.partition("/")[0])[:3] + bytes((1 + number % 254,))


def _swept(number: int) -> bytes:
    """Return an address of the /8: one after the other they are far from each other, and none comes twice."""
    return _ipv4(SWEPT.partition("/")[0])[:1] + (number * 0x9E3779B1 & 0xFFFFFF).to_bytes(3, "big")


def _header(destination: bytes, protocol: int, payload: int, ttl: int = 64) -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + payload, 0, _DONT_FRAGMENT, ttl, protocol, 0)
    sum_ = internet_checksum(head + _ipv4(HOST) + destination)
    return head[:10] + sum_.to_bytes(2, "big") + _ipv4(HOST) + destination


def _ipv4(text: str) -> bytes:
    return socket.inet_aton(text)


def _mac(number: int) -> bytes:
    return bytes((2, 9, 0, 0, number >> 8, number & 255))


OF_HOSTS = {
    "arp-flood": Flood(_SHORTEST, arp),
    "nd-flood": Flood(86, neighbor_solicitation),
    "ping-own": Flood(98, lambda link, number: ping(link, number, _ipv4(ROUTER))),
    "ping-others": Flood(98, ping_others),
    "ttl-1": Flood(_SHORTEST, lambda link, number: packet(link, _beyond(number), _SHORTEST, 1)),
    "too-big": Flood(_LONGEST, lambda link, number: packet(link, _beyond(number), _LONGEST)),
    "glean-sweep": Flood(_SHORTEST, lambda link, number: packet(link, _swept(number), _SHORTEST)),
}
