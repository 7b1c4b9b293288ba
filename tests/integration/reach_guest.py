"""Tries everything on a machine's only link, as root of the machine: run inside with nothing but the image's Python.

    python3 - ADDRESS... < reach_guest.py         addresses outside to be tried besides; JSON on the last line

For each kind of probe it tells what came back, and from whom, as one word each; an empty list is silence.
"""

import json
import socket
import struct
import sys
import time

LINK, OWN = "eth0", "10.0.2.15"
NEAR = [f"10.0.2.{last}" for last in range(256) if last != 15]
SERVERS = ["10.0.2.2", "10.0.2.3", "10.0.2.4", "10.0.2.100"]
TCP_PORTS = [*range(1, 1025), 2375, 3128, 3306, 5000, 5432, 6379, 6640, 6653, 6654, 8080, 8443, 9090, 9559, 50051]
UDP_PORTS = [7, 53, 68, 69, 111, 123, 137, 138, 161, 389, 500, 514, 520, 546, 623, 1194, 1812, 1900, 4789, 5353, 6081]
OUTSIDE_PORTS = [22, 53, 80, 179, 443, 2601, 6653, 6654, 9559]
SESSION = ("10.0.2.100", 6654)
TFTP = 69
SOURCE_PORT = 40_000
QUIET_S, LONGEST_S = 0.7, 5.0
BROADCAST, GATEWAY = b"\xff" * 6, b"\x52\x55\x0a\x00\x02\x02"
ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD
ICMP, TCP, UDP = 1, 6, 17


def checksum(octets):
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Link:
    """The link, frame by frame."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((LINK, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.mac = self.socket.getsockname()[4]

    def frame(self, kind, payload, to=BROADCAST):
        return to + self.mac + struct.pack("!H", kind) + payload

    def arp(self, address, source=OWN):
        addresses = self.mac + socket.inet_aton(source) + bytes(6) + socket.inet_aton(address)
        return self.frame(ARP, struct.pack("!HHBBH", 1, IPV4, 6, 4, 1) + addresses)

    def ipv4(self, address, protocol, payload, ttl=64, source=OWN, fragment=0, options=b"", to=GATEWAY):
        size = 20 + len(options)
        head = struct.pack(
            *("!BBHHHBBH4s4s", 0x40 | size // 4, 0, size + len(payload), 1, fragment, ttl, protocol, 0),
            *(socket.inet_aton(source), socket.inet_aton(address)),
        )
        head += options
        return self.frame(IPV4, head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload, to)

    def ping(self, address, kind=8, **more):
        body = struct.pack("!BBHHH", kind, 0, 0, 7, 7) + bytes(12)
        return self.ipv4(address, ICMP, body[:2] + struct.pack("!H", checksum(body)) + body[4:], **more)

    def udp(self, address, port, payload=b"?", source_port=SOURCE_PORT, **more):
        return self.ipv4(address, UDP, struct.pack("!HHHH", source_port, port, 8 + len(payload), 0) + payload, **more)

    def syn(self, address, port):
        head = struct.pack("!HHIIBBHHH", SOURCE_PORT, port, 1, 0, 0x50, 2, 65535, 0, 0)
        pseudo = socket.inet_aton(OWN) + socket.inet_aton(address) + struct.pack("!HH", TCP, len(head))
        return self.ipv4(address, TCP, head[:16] + struct.pack("!H", checksum(pseudo + head)) + head[18:])

    def ipv6(self, address, following, payload, source="fe80::15"):
        ends = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, address)
        if following == 58:
            pseudo = ends + struct.pack("!II", len(payload), 58)
            payload = payload[:2] + struct.pack("!H", checksum(pseudo + payload)) + payload[4:]
        group = b"\x33\x33" + socket.inet_pton(socket.AF_INET6, address)[12:]
        return self.frame(IPV6, struct.pack("!IHBB", 6 << 28, len(payload), following, 255) + ends + payload, group)

    def answers(self, frames):
        """Send frames and return what comes back until it is quiet, except ARP that the kernel asked for."""
        found, began = set(), time.monotonic()
        asked = {f"arp {socket.inet_ntoa(frame[38:42])}" for frame in frames if frame[12:14] == b"\x08\x06"}
        for number, frame in enumerate(frames):
            self.socket.settimeout(LONGEST_S)
            self.socket.send(frame)
            if number % 64 == 63:
                found |= self._received(0.0)
        found |= self._received(QUIET_S, began + LONGEST_S)
        return sorted(said for said in found if not said.startswith("arp ") or said in asked)

    def _received(self, quiet_s, until=0.0):
        found, quiet_at = set(), time.monotonic() + quiet_s
        while True:
            self.socket.settimeout(max(0.001, quiet_at - time.monotonic()))
            try:
                octets, where = self.socket.recvfrom(65535)
            except (TimeoutError, BlockingIOError):
                return found
            if where[2] != socket.PACKET_OUTGOING and (said := words(octets)):
                found.add(said)
            if time.monotonic() > max(quiet_at, until):
                return found


def words(octets):
    """Say what a frame is; nothing for what is no answer to us."""
    kind, payload = struct.unpack_from("!H", octets, 12)[0], octets[14:]
    if kind == ARP:
        operation, sender = struct.unpack_from("!H", payload, 6)[0], socket.inet_ntoa(payload[14:18])
        return f"arp {sender}" if operation == 2 else ""
    if kind != IPV4:
        return f"ethertype {kind:04x}"
    size, protocol, sender = (payload[0] & 15) * 4, payload[9], socket.inet_ntoa(payload[12:16])
    body = payload[size:]
    if protocol == ICMP:
        return f"icmp {body[0]} {sender}"
    source, to = struct.unpack_from("!HH", body)
    if protocol == UDP:
        return f"udp {sender}:{source}" if source != TFTP else f"tftp {body[9]} {sender}"
    if protocol != TCP:
        return f"protocol {protocol} {sender}"
    if to != SOURCE_PORT:
        return ""
    return f"tcp open {sender}:{source}" if body[13] & 0x12 == 0x12 else "tcp reset"


def dhcp(link):
    body = struct.pack("!BBBBIHH16x6s202x", 1, 1, 6, 0, 7, 0, 0, link.mac)
    discover = b"\x63\x82\x53\x63\x35\x01\x01\xff"
    return link.udp("255.255.255.255", 67, body + discover, 68, source="0.0.0.0", to=BROADCAST)


def probes(link, outside):
    dns = b"\0\7\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1"
    lifeless, everywhere = bytes(8), [*SERVERS, *outside]
    echo6 = b"\x80\0\0\0\0\7\0\7"
    return {
        "arp": [link.arp(address) for address in NEAR],
        "arp outside": [link.arp(address) for address in outside],
        "arp as another": [link.arp(address, source="10.0.2.77") for address in NEAR],
        "ping": [link.ping(address) for address in NEAR],
        "ping outside": [link.ping(address) for address in outside],
        "ping of groups": [link.ping(a, to=BROADCAST) for a in ("255.255.255.255", "224.0.0.1", "224.0.0.251")],
        "other icmp": [link.ping(address, kind) for address in SERVERS for kind in (10, 13, 15, 17)],
        "dhcp": [dhcp(link)],
        "dns": [link.udp(address, 53, dns) for address in SERVERS] + [link.syn(a, 53) for a in SERVERS],
        "tftp": [link.udp(address, TFTP, b"\0\1vmlinuz\0octet\0") for address in SERVERS],
        "smb": [link.syn(address, port) for address in SERVERS for port in (139, 445)],
        "tcp": [link.syn(a, port) for a in SERVERS for port in TCP_PORTS if (a, port) != SESSION],
        "tcp near": [link.syn(address, port) for address in NEAR for port in (22, 6654) if address != SESSION[0]],
        "tcp outside": [link.syn(address, port) for address in outside for port in OUTSIDE_PORTS],
        "udp": [link.udp(address, port) for address in SERVERS for port in UDP_PORTS],
        "udp outside": [link.udp(address, port) for address in outside for port in UDP_PORTS],
        "last hop": [link.udp(a, 33434, ttl=1) for a in everywhere] + [link.ping(a, ttl=1) for a in outside],
        "options": [link.ipv4(a, UDP, lifeless, options=b"\x07\x07\x04\0\0\0\0\0") for a in everywhere],
        "fragments": [link.ipv4(a, UDP, lifeless, fragment=0x2000) for a in everywhere],
        "other protocols": [link.ipv4(a, number, lifeless) for a in SERVERS for number in (2, 4, 47, 50, 89, 132)],
        "as another": [link.ping(a, source="10.1.0.2") for a in everywhere],
        "ipv6": [
            link.ipv6("ff02::2", 58, b"\x85\0\0\0\0\0\0\0"),
            *(link.ipv6(to, 58, echo6) for to in ("ff02::1", "fe80::2", "fec0::2", "fec0::3", "::1")),
            *(
                link.ipv6(f"ff02::1:ff00:{last}", 58, b"\x87\0\0\0\0\0\0\0" + socket.inet_pton(socket.AF_INET6, of))
                for last, of in ((2, "fe80::2"), (3, "fec0::3"))
            ),
            link.ipv6("ff02::1:2", 17, struct.pack("!HHHH", 546, 547, 12, 0) + b"\x01\0\0\7"),
            link.ipv6("ff02::fb", 17, struct.pack("!HHHH", 5353, 5353, 8, 0)),
        ],
        "other ethertypes": [
            link.frame(kind, bytes(46), to)
            for kind in (0x0842, 0x22F3, 0x8100, 0x8137, 0x8847, 0x8863, 0x888E, 0x88A8, 0x88B5, 0x88CC, 0x88F7)
            for to in (BROADCAST, GATEWAY, b"\x01\x80\xc2\x00\x00\x0e")
        ],
        "ncsi": [link.frame(0x88F8, bytes((0, 1, 0, 1, command, 0, 0, 0)) + bytes(38)) for command in range(0x30)],
    }


def main():
    link = Link()
    print(json.dumps({name: link.answers(frames) for name, frames in probes(link, sys.argv[1:]).items()}))


if __name__ == "__main__":
    main()
