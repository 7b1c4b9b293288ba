"""vrctl capture: a pcap stream to a file or a pipe, or one line per frame on a terminal."""

import struct
from collections.abc import Iterable, Iterator
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address
from itertools import islice

_HEADER_BYTES = 24
_RECORD = struct.Struct("<IIII")
_ETHERTYPES = {0x0806: "ARP", 0x8100: "VLAN"}
_PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 89: "OSPF", 2: "IGMP", 112: "VRRP", 103: "PIM"}


def head_and_records(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Walk over the head of a pcap stream and then its records, as they are there."""
    held = bytearray()
    wanted, records_begin = _HEADER_BYTES, False
    for piece in pieces:
        held += piece
        while len(held) >= wanted:
            if records_begin and wanted == _RECORD.size and (length := _RECORD.unpack_from(held)[2]):
                wanted += length
                continue
            yield bytes(held[:wanted])
            del held[:wanted]
            wanted, records_begin = _RECORD.size, True


def records(pieces: Iterable[bytes]) -> Iterator[tuple[float, bytes]]:
    """Walk over the frames of a pcap stream with their times."""
    for record in islice(head_and_records(pieces), 1, None):
        seconds, microseconds, _, _ = _RECORD.unpack_from(record)
        yield seconds + microseconds / 1_000_000, record[_RECORD.size :]


def summary(time: float, frame: bytes) -> str:
    """Return one line about a frame; whatever octets it has."""
    stamp = datetime.fromtimestamp(time).strftime("%H:%M:%S.%f")
    return f"{stamp}  {frame[6:12].hex(':')} > {frame[0:6].hex(':')}  {_payload(frame)}  {len(frame)} octets"


def _payload(frame: bytes) -> str:
    kind = int.from_bytes(frame[12:14], "big")
    packet = frame[14:]
    if kind == 0x0800 and len(packet) >= 20:
        source, destination = IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
        return f"{source} > {destination} {_protocol(packet[9])} ttl {packet[8]}"
    if kind == 0x86DD and len(packet) >= 40:
        source6, destination6 = IPv6Address(packet[8:24]), IPv6Address(packet[24:40])
        return f"{source6} > {destination6} {_protocol(packet[6])} hop limit {packet[7]}"
    if kind == 0x0806 and len(packet) >= 28:
        what = "who has" if packet[7] == 1 else "reply"
        return f"ARP {what} {IPv4Address(packet[24:28])} from {IPv4Address(packet[14:18])}"
    return _ETHERTYPES.get(kind, f"ethertype 0x{kind:04x}" if kind >= 0x600 else "LLC")


def _protocol(number: int) -> str:
    return _PROTOCOLS.get(number, f"protocol {number}")
