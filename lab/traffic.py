"""UDP flows through a router, sent and received as raw frames; a program of its own for each end.

    traffic.py send RATE INTERFACE ROUTER_MAC OUT CAME PREFIX_FILE FLOWS    packets a second; until SIGTERM
    traffic.py receive RATE OUT CAME INTERFACE…                             until SIGTERM

Packet n belongs to flow n modulo FLOWS. The sender writes the CLOCK_MONOTONIC nanoseconds of each packet, the
receiver n, the time it came and the position of the interface it came by, as arrays of signed 64-bit integers.

Both run at real-time priority. Not with a RATE of 0: then as many are sent as get through, a window of packets is
under way and whatever comes lets the next go, as with TCP; late is only slow, and who else needs the CPU gets some.
CAME is a file of 8 octets, in which the receiver counts.
"""

import contextlib
import mmap
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
_WINDOW = 128  # packets: the socket of a switch's port has room for some 270
_YIELD_S = 50e-6  # for as long as a full window is left alone
_LOST_S = 1.0  # what has not come while nothing came for so long is taken for lost
_COUNT = struct.Struct("=Q")


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
        (came,) = _COUNT.unpack_from(self._came)
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
        mac = link.getsockname()[4]
        frames = headers(mac, bytes.fromhex(router_mac.replace(":", "")), destinations(Path(prefixes), int(flows)))
        count, number = len(frames), 0
        pack = struct.Struct("!Q").pack
        pace = Paced(rate) if rate else Windowed(count_of_came)
        while running:
            due = pace.due(number)
            while number < due:
                times.append(time.monotonic_ns())
                with contextlib.suppress(BlockingIOError):
                    link.send(frames[number % count] + pack(number))
                number += 1
            time.sleep(pace.wait_s)
    Path(out).write_bytes(times.tobytes())


def receive(out: str, came: str, *interfaces: str) -> None:
    """Receive until told to stop."""
    running, seen = Running(), array("q")
    positions = {name: position for position, name in enumerate(interfaces)}
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as link,
        counter(came) as count_of_came,
    ):
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
