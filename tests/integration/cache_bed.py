"""A router with 9,999 routes on a switch with a fallback, and probes to all of them, each to be told by where it
arrives.

    red/r1   source 10.1.0.1/24 ── host 1, which sends probes
             a      10.2.0.1/24 ── host 2
             b      10.3.0.1/24 ── host 3
             c      10.4.0.1/24 ── host 4

Blocks of /20 lead to a, b and c in turn, and every second /24 of a block to the next one of them: so no two entries
can be one, and whoever forwards by a block's route while that of its /24 is elsewhere sends it to the wrong host.
"""

import contextlib
import json
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from random import Random

from rig import DEADLINE_S, LATE_S, Rig, interface, tenant, until
from rig_switches import FallbackSwitch

from controller.planes.packet import internet_checksum
from controller.vrctl.client import Refused, Unreachable
from lab.namespaces import Host, sh

ROUTER = "red/r1"
BLOCKS, HOLES = 1111, range(0, 16, 2)
ENTRIES = BLOCKS * (1 + len(HOLES))
ROUTES = ENTRIES + 4
MOST = ENTRIES * 9 // 10
"""Entries of a hardware that has all: a few routes are one."""
INTERVAL_S = 0.003
UNDER_WAY = 32
"""Probes at once: a port of BMv2 has room for 64 packets, and one of its threads may have no core for long."""
_FIRST = int(IPv4Address("20.0.0.0"))
_SINKS = (2, 3, 4)
_PROBE = b"splitplane probe"
_HEADERS = struct.Struct("!6s6sHBBHHHBBH4s4sHHHH")


def block_sink(block: int) -> int:
    """Return the host that a /20 leads to."""
    return _SINKS[block % 3]


def hole_sink(block: int) -> int:
    """Return the host that its every second /24 leads to."""
    return _SINKS[(block + 1) % 3]


def _text() -> str:
    lines = []
    for block in range(BLOCKS):
        base = _FIRST + (block << 12)
        lines.append(f"route add {IPv4Address(base)}/20 via 10.{block_sink(block)}.0.2")
        lines += [f"route add {IPv4Address(base + (hole << 8))}/24 via 10.{hole_sink(block)}.0.2" for hole in HOLES]
    return "\n".join(lines) + "\n"


@dataclass
class Probes:
    """Numbered packets to addresses drawn from all routes, from host 1, and what of them arrived where."""

    bed: "Bed"
    wrong: list[str] = field(default_factory=list)
    sent: dict[int, tuple[bytes, int]] = field(default_factory=dict)  # destination, and the host it is for
    sent_s: list[float] = field(default_factory=list)  # when, as the events of the controller have it
    seen: set[int] = field(default_factory=set)
    first_seen: int = -1
    _oldest: int = 0  # of those that may be under way
    _ended: threading.Event = field(default_factory=threading.Event)  # no more are sent
    _judged: threading.Event = field(default_factory=threading.Event)  # nor looked at

    @property
    def lost(self) -> list[int]:
        """The numbers of those that have not arrived."""
        return sorted(set(self.sent) - self.seen)

    def account(self) -> str:
        """Say which are lost, when they were sent, and what happened around that."""
        rows = []
        for number in self.lost:
            at = time.strftime("%H:%M:%S", time.gmtime(self.sent_s[number])) + f"{self.sent_s[number] % 1:.3f}"[1:]
            rows.append(f"{number} to {IPv4Address(self.sent[number][0])} at {at}")
        return "\n".join((f"{len(rows)} of {len(self.sent)} lost", *rows[:50], self.bed.rig.account()))

    @contextlib.contextmanager
    def running(self) -> Iterator["Probes"]:
        """Send them; at the end all have arrived, or are late."""
        with contextlib.ExitStack() as stack:
            ready = stack.enter_context(selectors.DefaultSelector())
            for number, host in self.bed.hosts.items():
                ready.register(stack.enter_context(host.packet_socket()), selectors.EVENT_READ, number)
            threads = [threading.Thread(target=self._receive, args=(ready,)), threading.Thread(target=self._send)]
            for thread in threads:
                thread.start()
            try:
                yield self
            finally:
                self._ended.set()
                threads[1].join()
                with contextlib.suppress(AssertionError):
                    until("the last probes", lambda: not self.lost, LATE_S)
                self._judged.set()
                threads[0].join()

    def _send(self) -> None:
        draw, due = Random(1), time.monotonic()
        with self.bed.source.packet_socket() as out:
            number = 0
            while not self._ended.is_set():
                block, part = draw.randrange(BLOCKS), draw.randrange(16)
                destination = _FIRST + (block << 12) + (part << 8) + draw.randrange(256)
                target = hole_sink(block) if part in HOLES else block_sink(block)
                self.sent[number] = (destination.to_bytes(4, "big"), target)
                self.sent_s.append(time.time())
                out.send(self._frame(number, destination.to_bytes(4, "big")))
                # What a busy machine held up is not made up for: a switch's queue has no room for so many at once.
                number, due = number + 1, max(due + INTERVAL_S, time.monotonic())
                self._ended.wait(max(0.0, due - time.monotonic()))
                while self._under_way() >= UNDER_WAY and not self._ended.is_set():
                    self._ended.wait(INTERVAL_S)

    def _under_way(self) -> int:
        """Return how many have not arrived; after a second they are lost, or late, and count no more."""
        sent, now = len(self.sent_s), time.time()
        while self._oldest < sent and (self._oldest in self.seen or self.sent_s[self._oldest] < now - 1):
            self._oldest += 1
        return sum(number not in self.seen for number in range(self._oldest, sent))

    def _frame(self, number: int, destination: bytes) -> bytes:
        payload = _PROBE + struct.pack("!I", number)
        source = socket.inet_aton("10.1.0.2")
        macs = self.bed.macs[1], bytes.fromhex(self.bed.source.mac.replace(":", ""))
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0xB9, 28 + len(payload), 0, 0, 64, 17, 0, source, destination)
        head = head[:10] + internet_checksum(head).to_bytes(2, "big") + head[12:]
        return b"".join((*macs, b"\x08\0", head, struct.pack("!HHHH", 7, 7, 8 + len(payload), 0), payload))

    def _receive(self, ready: selectors.BaseSelector) -> None:
        while not self._judged.is_set():
            for key, _ in ready.select(0.1):
                with contextlib.suppress(BlockingIOError):
                    for _ in range(64):
                        self._judge(key.data, key.fileobj.recv(2048))  # type: ignore[union-attr]

    def _judge(self, at: int, frame: bytes) -> None:
        if frame[42:58] != _PROBE or (at == 1 and frame[6:12] == bytes.fromhex(self.bed.source.mac.replace(":", ""))):
            return
        (number,) = struct.unpack("!I", frame[58:62])
        destination, target = self.sent[number]
        host = bytes.fromhex(self.bed.hosts[at].mac.replace(":", ""))
        right = (at, frame[:6], frame[6:12], frame[15], frame[22], frame[30:34], internet_checksum(frame[14:34]))
        if right != (target, host, self.bed.macs[at], 0xB9, 63, destination, 0):
            self.wrong.append(f"probe {number} to {IPv4Address(destination)}, for host {target}: at {right}")
        if number in self.seen:
            self.wrong.append(f"probe {number} came twice")
        self.seen.add(number)
        self.first_seen = number if self.first_seen < 0 else self.first_seen


@dataclass
class Bed:
    """All of it, running."""

    rig: Rig
    hosts: dict[int, Host]
    macs: dict[int, bytes]  # the router's, by host

    @property
    def source(self) -> Host:
        """Who sends the probes."""
        return self.hosts[1]

    def move(self, to: str) -> None:
        """Begin to move the router's routes."""
        self.rig.api.call("POST", "/v1/routers/red/r1/move", {"to": to})

    def moved(self) -> int | None:
        """Return how many entries of a move that is under way are there; None where none is."""
        move = self.rig.router(ROUTER)["move"]
        return None if move is None else int(move["done"])

    def in_hardware(self) -> int:
        """Return the IPv4 entries of the hardware."""
        (view,) = [one for one in self.rig.api.get("planes") if one["name"] == "s1"]
        return int(view["entries"]["hardware ipv4_route"])

    def settled(self, entries: Callable[[int], bool]) -> None:
        """Wait until no move is under way and the hardware has as many entries."""

        def done() -> bool:
            try:
                return self.moved() is None and entries(self.in_hardware())
            except (Unreachable, Refused):
                return False

        self.rig.up(ROUTER, routes=ROUTES)
        until("all is where it is to be", done, DEADLINE_S, every_s=0.1)

    def in_the_middle(self, kill: Callable[[], None]) -> None:
        """Move routes back and forth until one move is caught in the middle; then kill."""
        for attempt in range(20):
            self.move(("software", "hardware")[attempt % 2])
            deadline = time.monotonic() + DEADLINE_S
            while (done := self.moved()) is not None and time.monotonic() < deadline:
                if ENTRIES // 10 < done < ENTRIES // 2:
                    kill()
                    return
        raise AssertionError("no move was ever caught in the middle")


@contextlib.contextmanager
def cache_bed(switch: Callable[[], FallbackSwitch], **router: object) -> Iterator[Bed]:
    """Bring it up, with all routes in hardware; ``router`` goes into its declaration."""
    with Rig(switch=switch) as rig:
        hosts = {number: rig.host(number, f"10.{number}.0.2/24", f"10.{number}.0.1") for number in (1, *_SINKS)}
        names = dict(zip(hosts, ("source", "a", "b", "c"), strict=True))
        interfaces = [interface(names[number], host, f"10.{number}.0.1/24") for number, host in hosts.items()]
        ports = {host.link: ["untagged"] for host in hosts.values()}
        rig.apply(tenant("red", ports, {"name": "r1", "interfaces": interfaces, "ip": _text()} | router))
        rig.up(ROUTER, routes=ROUTES)
        rig.switch.look_up_every_packet()
        macs = {}
        for number, host in hosts.items():  # hosts and guest get to know each other
            sh("ip", "netns", "exec", host.namespace, "ping", "-q", "-c", "2", "-i", "0.2", f"10.{number}.0.1")
            (neighbor,) = json.loads(host.ip("-j", "neigh", "show", f"10.{number}.0.1"))
            macs[number] = bytes.fromhex(neighbor["lladdr"].replace(":", ""))
        bed = Bed(rig, hosts, macs)
        bed.settled(lambda count: count > MOST)
        yield bed
