"""UDP flows through a router, sent and received as raw frames; a program of its own for each end.

    traffic.py send INTERFACE ROUTER_MAC RATE OUT PREFIX_FILE FLOWS    packets a second; until SIGTERM
    traffic.py receive OUT INTERFACE…                                  until SIGTERM

Packet n belongs to flow n modulo FLOWS. The sender writes the CLOCK_MONOTONIC nanoseconds of each packet, the
receiver n, the time it came and the position of the interface it came by, as arrays of signed 64-bit integers.
"""

import contextlib
import os
import random
import signal
import socket
import struct
import sys
import time
from array import array
from ipaddress import IPv4Address
from pathlib import Path

_MAGIC = b"splitplane-bench"
_PORT = 4000
_TICK_S = 0.001
_IP_UDP = 42  # octets before the payload
_BUFFER_BYTES = 32 << 20


class Running:
    """True until SIGTERM."""

    def __init__(self) -> None:
        self._running = True
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_running", False))

    def __bool__(self) -> bool:
        return self._running


def headers(source_mac: bytes, router_mac: bytes, addresses: list[int]) -> list[bytes]:
    """Return Ethernet, IPv4 and UDP headers of one flow for each destination; source ports differ."""
    source = int(IPv4Address("10.1.0.2"))
    size = len(_MAGIC) + 8
    made = []
    for number, address in enumerate(addresses):
        fields = (0x45, 0, 28 + size, 0, 0x4000, 64, 17, 0, source, address)
        words = struct.unpack("!10H", struct.pack("!BBHHHBBHII", *fields))
        total = sum(words)
        total = (total & 0xFFFF) + (total >> 16)
        checksum = 0xFFFF & ~((total & 0xFFFF) + (total >> 16))
        ip = struct.pack("!BBHHHBBHII", *fields[:7], checksum, *fields[8:])
        udp = struct.pack("!HHHH", 10_000 + number % 50_000, _PORT, 8 + size, 0)
        made.append(router_mac + source_mac + b"\x08\x00" + ip + udp + _MAGIC)
    return made


def destinations(prefixes: Path, flows: int) -> list[int]:
    """Return an address inside one of the prefixes of a file ("network/length" a line) for each flow."""
    lines = prefixes.read_text().split()
    chance = random.Random(flows)
    found = []
    for line in chance.choices(lines, k=flows):
        network, _, length = line.partition("/")
        found.append(int(IPv4Address(network)) + chance.randrange(1 << (32 - int(length))))
    return found


def send(interface: str, router_mac: str, rate: str, out: str, prefixes: str, flows: str) -> None:
    """Send until told to stop, a few packets every millisecond."""
    running, times = Running(), array("q")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as link:
        link.bind((interface, 0))
        mac = link.getsockname()[4]
        frames = headers(mac, bytes.fromhex(router_mac.replace(":", "")), destinations(Path(prefixes), int(flows)))
        count, each = len(frames), int(rate) * _TICK_S
        begun, number = time.monotonic(), 0
        pack = struct.Struct("!Q").pack
        while running:
            due = int((time.monotonic() - begun) / _TICK_S * each)
            while number < due:
                times.append(time.monotonic_ns())
                with contextlib.suppress(BlockingIOError):
                    link.send(frames[number % count] + pack(number))
                number += 1
            time.sleep(_TICK_S)
    Path(out).write_bytes(times.tobytes())


def receive(out: str, *interfaces: str) -> None:
    """Receive until told to stop."""
    running, seen = Running(), array("q")
    positions = {name: position for position, name in enumerate(interfaces)}
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as link:
        link.setsockopt(socket.SOL_SOCKET, 33, _BUFFER_BYTES)  # SO_RCVBUFFORCE
        link.settimeout(0.2)
        end = _IP_UDP + len(_MAGIC)
        while running:
            try:
                frame, (name, *_) = link.recvfrom(2048)
            except (TimeoutError, InterruptedError):
                continue
            except OSError:  # an interface went down
                continue
            now = time.monotonic_ns()
            if frame[_IP_UDP:end] == _MAGIC and name in positions:
                seen.extend((int.from_bytes(frame[end : end + 8], "big"), now, positions[name]))
    Path(out).write_bytes(seen.tobytes())


def main() -> None:
    """Do what the command line says, at real-time priority where that is allowed."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    what, *arguments = sys.argv[1:]
    if what == "send":
        send(*arguments)
    else:
        receive(*arguments)


if __name__ == "__main__":
    main()
