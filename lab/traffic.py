"""UDP flows through a router, sent and received as raw frames; a program of its own for each end.

    traffic.py send RATE INTERFACE ROUTER_MAC OUT CAME PREFIX_FILE FLOWS    packets a second; until SIGTERM
    traffic.py receive RATE OUT CAME INTERFACE…                             until SIGTERM

Packet n belongs to flow n modulo FLOWS, of IPv4 or IPv6 as its prefix is. The sender writes the CLOCK_MONOTONIC
nanoseconds of each packet; the receiver n, the time at which the kernel had it, and the position of the interface it
came by. All are arrays of signed 64-bit integers. The kernel passes nothing else to the receiver.

Both run at real-time priority. Not with a RATE of 0: then as many are sent as get through, a window of packets is
under way and whatever comes lets the next go, as with TCP; late is only slow, and who else needs the CPU gets some.
CAME is a file of 8 octets, in which the receiver counts.
"""

import contextlib
import ctypes
import mmap
import os
import random
import signal
import socket
import struct
import sys
import time
from array import array
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path
from typing import Self

Address = IPv4Address | IPv6Address

PORT = 4000
_MAGIC = b"splitplane-bench"
_NUMBER = struct.Struct("!Q")
_NO_CHECKSUM = bytes(2)
_UDP = 17
_ETH_P_ALL = 0x0003
_ETH_IPV4, _ETH_IPV6 = b"\x08\x00", b"\x86\xdd"
_SOURCE_4, _SOURCE_6 = IPv4Address("10.1.0.2"), IPv6Address("2001:db8:1::2")
_TICK_S = 0.001
_BUFFER_BYTES = 32 << 20
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE, SO_TIMESTAMPNS = 26, 33, 35
_STAMP = struct.Struct("@qq")  # struct timespec
_STAMP_BYTES = socket.CMSG_SPACE(_STAMP.size)
_WINDOW = 128  # packets: the socket of a switch's port has room for some 270
_YIELD_S = 50e-6  # for as long as a full window is left alone
_LOST_S = 1.0  # what has not come while nothing came for so long is taken for lost
_COUNT = struct.Struct("=Q")

_LOAD_32, _LOAD_16, _LOAD_8, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x28, 0x30, 0x15, 0x06  # classic BPF
_ETHERNET = 14


def _filter(port: int) -> bytes:
    """Return a BPF program that takes what `Flow.frame` makes for a port, of either family, and nothing else."""
    magic = int.from_bytes(_MAGIC[:4], "big")
    program = []
    for kind, protocol_at, ip_octets in ((_ETH_IPV4, 9, 20), (_ETH_IPV6, 6, 40)):
        udp = _ETHERNET + ip_octets
        checks = [
            (_LOAD_16, 12, int.from_bytes(kind, "big")),
            (_LOAD_8, _ETHERNET + protocol_at, _UDP),
            (_LOAD_16, udp + 2, port),
            (_LOAD_32, udp + 8, magic),
        ]
        for left, (load, offset, wanted) in zip(range(len(checks) - 1, -1, -1), checks, strict=True):
            to_the_next_family = 2 * left + 1
            program += [(load, 0, 0, offset), (_JUMP_IF_EQUAL, 0, to_the_next_family, wanted)]
        program.append((_RETURN, 0, 0, 0xFFFF))
    program.append((_RETURN, 0, 0, 0))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


class Running:
    """True until SIGTERM."""

    def __init__(self) -> None:
        self._running = True
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_running", False))

    def __bool__(self) -> bool:
        return self._running


@dataclass(frozen=True, slots=True)
class Flow:
    """A UDP flow: its frames differ in the number that they carry, and in IPv6 in the checksum, which is needed."""

    head: bytes  # up to the UDP checksum
    checksum: int | None  # the sum, not folded, of what is fixed; None: the sender leaves it out (RFC 768)

    @classmethod
    def towards(
        cls,
        destination: IPv4Address | IPv6Address,
        number: int,
        source_mac: bytes,
        router_mac: bytes,
        port: int = PORT,
    ) -> Self:
        """Return the flow to an address and a UDP port; ``number`` makes its source port."""
        size = 8 + len(_MAGIC) + _NUMBER.size
        ports = struct.pack("!HHH", 10_000 + number % 50_000, port, size)
        if isinstance(destination, IPv4Address):
            fields = (0x45, 0, 20 + size, 0, 0x4000, 64, _UDP)
            addresses = _SOURCE_4.packed + destination.packed
            sum_ = 0xFFFF & ~_folded(_words(struct.pack("!BBHHHBBH", *fields, 0) + addresses))
            ip = struct.pack("!BBHHHBBH", *fields, sum_) + addresses
            return cls(router_mac + source_mac + _ETH_IPV4 + ip + ports, None)
        addresses = _SOURCE_6.packed + destination.packed
        ip = struct.pack("!IHBB", 6 << 28, size, _UDP, 64) + addresses
        pseudo = addresses + struct.pack("!II", size, _UDP)  # RFC 8200, section 8.1
        return cls(router_mac + source_mac + _ETH_IPV6 + ip + ports, _words(pseudo + ports + _MAGIC))

    def frame(self, number: int) -> bytes:
        """Return the frame that carries a number."""
        payload = _NUMBER.pack(number)
        if self.checksum is None:
            return self.head + _NO_CHECKSUM + _MAGIC + payload
        sum_ = 0xFFFF & ~_folded(self.checksum + _words(payload))
        return self.head + (sum_ or 0xFFFF).to_bytes(2, "big") + _MAGIC + payload


def _words(octets: bytes) -> int:
    """Return the sum of 16-bit words."""
    return sum(struct.unpack(f"!{len(octets) // 2}H", octets))


def _folded(total: int) -> int:
    """Return a ones' complement sum in 16 bits (RFC 1071)."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def destinations(prefixes: Path, flows: int) -> list[Address]:
    """Return an address inside one of the prefixes of a file ("network/length" a line) for each flow."""
    chance = random.Random(flows)
    found = []
    for line in chance.choices(prefixes.read_text().split(), k=flows):
        network = ip_network(line)
        found.append(network[chance.randrange(network.num_addresses)])
    return found


class Paced:
    """So many packets a second, a few every millisecond."""

    wait_s = _TICK_S

    def __init__(self, rate: int) -> None:
        self._begun, self._each = time.monotonic(), rate * _TICK_S

    def due(self, _sent: int) -> int:
        """Return how many packets have to be sent by now."""
        return int((time.monotonic() - self._begun) / _TICK_S * self._each)


class Windowed:
    """As many packets as get through, a window of them under way."""

    wait_s = _YIELD_S

    def __init__(self, came: mmap.mmap) -> None:
        self._came, self._last, self._since, self._lost = came, 0, time.monotonic(), 0

    def due(self, sent: int) -> int:
        """Return how many packets may be sent by now, of which so many are."""
        came: int = _COUNT.unpack_from(self._came)[0]
        now = time.monotonic()
        if came != self._last or sent == came + self._lost:
            self._last, self._since = came, now
        elif now - self._since > _LOST_S:
            self._lost, self._since = sent - came, now
        return came + self._lost + _WINDOW


def counter(path: str) -> mmap.mmap:
    """Map a file of one count, which two programs share."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), _COUNT.size)


def send(rate: int, interface: str, router_mac: str, out: str, came: str, prefixes: str, flows: str) -> None:
    """Send until told to stop."""
    running, times = Running(), array("q")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as link, counter(came) as count_of_came:
        link.bind((interface, 0))
        mac, router = link.getsockname()[4], bytes.fromhex(router_mac.replace(":", ""))
        towards = enumerate(destinations(Path(prefixes), int(flows)))
        made = [Flow.towards(address, flow, mac, router) for flow, address in towards]
        count, number = len(made), 0
        pace = Paced(rate) if rate else Windowed(count_of_came)
        while running:
            due = pace.due(number)
            while number < due:
                times.append(time.monotonic_ns())
                with contextlib.suppress(BlockingIOError):
                    link.send(made[number % count].frame(number))
                number += 1
            time.sleep(pace.wait_s)
    Path(out).write_bytes(times.tobytes())


def listener(port: int = PORT) -> socket.socket:
    """Return a socket that receives the packets of flows to a port, each with the time of its arrival."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    instructions = _filter(port)
    code = ctypes.create_string_buffer(instructions)
    program = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(code))
    link.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    link.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    with contextlib.suppress(BlockingIOError):
        while link.recv(1, socket.MSG_DONTWAIT):  # what came before the filter
            pass
    return link


def receive(out: str, came: str, *interfaces: str) -> None:
    """Receive until told to stop."""
    running, seen = Running(), array("q")
    positions = {name: position for position, name in enumerate(interfaces)}
    wall_ns = time.time_ns() - time.monotonic_ns()  # the kernel's stamps are of the wall clock
    with listener() as link, counter(came) as count_of_came:
        link.settimeout(0.2)
        while running:
            try:
                frame, ancillary, _, (name, _, kind, *_) = link.recvmsg(256, _STAMP_BYTES)
            except (TimeoutError, InterruptedError):
                continue
            except OSError:  # an interface went down
                continue
            if kind == socket.PACKET_OUTGOING or name not in positions:
                continue
            seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])
            (number,) = _NUMBER.unpack(frame[-_NUMBER.size :])
            seen.extend((number, seconds * 1_000_000_000 + nanoseconds - wall_ns, positions[name]))
            _COUNT.pack_into(count_of_came, 0, len(seen) // 3)
    Path(out).write_bytes(seen.tobytes())


def main() -> None:
    """Do what the command line says, at real-time priority where that is allowed."""
    what, rate, *arguments = sys.argv[1:]
    if int(rate):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    if what == "send":
        send(int(rate), *arguments)
    else:
        receive(*arguments)


if __name__ == "__main__":
    main()
