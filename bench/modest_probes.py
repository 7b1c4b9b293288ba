"""What hosts beside many routers see of them: transit, ARP answers, and how soon changed routes forward.

modest_probes.py FILE: until SIGTERM, then prints one JSON object. The file has a list of hosts:

    {"pid", "router_mac", "bird"}     whose network namespace, its router's MAC, the control socket of its BIRD

    eth0 ──► router ──► eth1     1,000 packets/s to prefixes that stay; the kernel counts what comes
                                 200 packets/s to CHANGING, which BIRD announces and withdraws, once a second
    eth0 ◄─► router              an ARP request five times a second at most

A change has taken effect with the first of its packets that comes, or the last. One process for all hosts, at
real-time priority: it measures the routers and not how busy the machine is with itself.
"""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from bench import arping
from lab import traffic
from lab.namespaces import in_namespace
from lab.traffic import PORT, Flow, Running

NEAR_HOST, NEAR_ROUTER, FAR_HOST, FAR_ROUTER = "10.1.0.2", "10.1.0.1", "10.2.0.2", "10.2.0.1"
"""Of every router the same: they are tenants that do not know of each other."""
STAYING, CHANGING = "203.0.113.0/24", "198.18.0.0/24"
FEED = "changing"
"""BIRD's protocol that has the latter."""

_TICK_S = 0.001
_CHANGING_TICKS, _ARP_TICKS, _CHANGE_TICKS = 5, 200, 1000
_LATE_TICKS = 20  # what could not be sent for longer is not sent at all
_GONE_PACKETS = 10  # that were sent and did not come: the route is gone
_GONE_S = 0.1
_LOST_S = 2.0  # as long as an ARP request waits
_LAST_S = 10.0  # as long as a change is waited for once all ends
_DRAIN_S = 0.5
_FLOWS = 8
_ETH_ARP = 0x0806
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_STATISTICS = struct.Struct("=II")
_STAMP = struct.Struct("@qq")
_STAMP_BYTES = socket.CMSG_SPACE(_STAMP.size)


class Host:
    """A host with an interface on either side of a router."""

    def __init__(self, pid: int, router_mac: str, bird: str) -> None:
        sockets = in_namespace(f"/proc/{pid}/ns/net", self._sockets)
        self._out, self._transit, self.changing, self.arp = sockets
        mac, router = self._out.getsockname()[4], bytes.fromhex(router_mac.replace(":", ""))
        staying, changing = (IPv4Address(prefix.partition("/")[0]) for prefix in (STAYING, CHANGING))
        self._frames = [Flow.towards(staying + 1 + n, n, mac, router).frame(n) for n in range(_FLOWS)]
        self._changing_frame = Flow.towards(changing + 1, 0, mac, router, PORT + 1).frame(0)
        self._wanted = socket.inet_aton(NEAR_ROUTER)
        self._question = arping.request(mac, socket.inet_aton(NEAR_HOST), self._wanted)
        self._bird = socket.socket(socket.AF_UNIX)
        self._bird.connect(bird)
        self._bird.setblocking(False)
        self.sent, self.came = 0, 0
        self.waits: list[float] = []
        self._asked: float | None = None
        self.changes: list[float] = []
        self.announced, self._changed = False, None  # type: bool, float | None
        self._last_arrival, self._sent_since = 0.0, 0
        self.unfinished = 0

    @staticmethod
    def _sockets() -> tuple[socket.socket, socket.socket, socket.socket, socket.socket]:
        out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        out.bind(("eth0", 0))
        transit, changing = traffic.listener(PORT), traffic.listener(PORT + 1)
        transit.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # nobody reads it: the kernel counts
        arp = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_ARP))
        arp.bind(("eth0", _ETH_ARP))
        arp.setsockopt(socket.SOL_SOCKET, traffic.SO_TIMESTAMPNS, 1)
        for one in (out, changing, arp):
            one.setblocking(False)
        transit.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        return out, transit, changing, arp

    def send(self) -> None:
        """Send one packet of transit; what the host's own queue has no room for was not sent."""
        with contextlib.suppress(OSError):
            self._out.send(self._frames[self.sent % _FLOWS])
            self.sent += 1

    def count(self) -> None:
        """Add what has come of the transit; the kernel forgets it."""
        packets, _dropped = _STATISTICS.unpack(
            self._transit.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        )
        self.came += packets

    def ask(self) -> None:
        """Ask for the router's MAC, where the last question was answered or has waited too long."""
        now = time.monotonic()
        if self._asked is not None:
            if now - self._asked < _LOST_S:
                return
            self.waits.append(float("inf"))
        self._asked = None
        with contextlib.suppress(OSError):
            self._out.send(self._question)
            self._asked = now

    def take_arp(self) -> None:
        """Note an answer."""
        for frame, at in _received(self.arp):
            if self._asked is not None and arping.answers(frame, self._wanted):
                self.waits.append(max(0.0, at - self._asked))
                self._asked = None

    def change(self) -> None:
        """Announce or withdraw, where the change before has taken effect."""
        if self._changed is not None:
            return
        self.announced = not self.announced
        with contextlib.suppress(BlockingIOError):
            while self._bird.recv(1 << 16):
                pass
        self._changed, self._sent_since = time.monotonic(), 0
        self._bird.send(f"{'enable' if self.announced else 'disable'} {FEED}\n".encode())

    def send_changing(self) -> None:
        """Send one packet to the prefix that changes, and see whether the change has taken effect."""
        with contextlib.suppress(OSError):
            self._out.send(self._changing_frame)
            self._sent_since += 1
        if self._changed is None or self.announced:
            return
        now = time.monotonic()
        gone_for = now - max(self._last_arrival, self._changed)
        if self._sent_since >= _GONE_PACKETS and gone_for >= _GONE_S:
            self.changes.append(max(0.0, self._last_arrival - self._changed))
            self._changed = None

    def take_changing(self) -> None:
        """Note what has come of the packets to the prefix that changes."""
        for _, at in _received(self.changing):
            self._last_arrival, self._sent_since = max(self._last_arrival, at), 0
            if self.announced and self._changed is not None and at >= self._changed:
                self.changes.append(at - self._changed)
                self._changed = None

    @property
    def is_changing(self) -> bool:
        """Whether a change has not taken effect yet."""
        return self._changed is not None

    def give_up(self) -> None:
        """Count a change that has not taken effect as lasting until now, and an unanswered question as lost."""
        if self._changed is not None:
            self.changes.append(time.monotonic() - self._changed)
            self.unfinished += 1
        if self._asked is not None:
            self.waits.append(float("inf"))


def _received(link: socket.socket) -> Iterable[tuple[bytes, float]]:
    """Yield what has come, each with the time at which the kernel had it, by the monotonic clock."""
    wall_s = time.time() - time.monotonic()  # the kernel's stamps are of the wall clock
    with contextlib.suppress(BlockingIOError):
        while True:
            frame, ancillary, _, (_, _, kind, *_) = link.recvmsg(256, _STAMP_BYTES)
            if kind != socket.PACKET_OUTGOING and ancillary:
                seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])
                yield frame, seconds + nanoseconds / 1e9 - wall_s


class Probes:
    """All hosts."""

    def __init__(self, hosts: list[Host]) -> None:
        self._hosts = hosts
        self._poll = select.epoll()
        self._takers = {}
        for host in hosts:
            for link, take in ((host.arp, host.take_arp), (host.changing, host.take_changing)):
                self._poll.register(link, select.EPOLLIN)
                self._takers[link.fileno()] = take

    def run(self) -> None:
        """Probe until told to stop, then until every change has taken effect."""
        running, begun, done = Running(), time.monotonic(), 0
        while running:
            due = int((time.monotonic() - begun) / _TICK_S)
            for tick in range(max(done, due - _LATE_TICKS), due):
                self._probe(tick)
            done = due
            self._take(_TICK_S)
        end = time.monotonic() + _LAST_S
        while time.monotonic() < end and any(host.is_changing for host in self._hosts):
            for host in self._hosts:
                host.send_changing()
            self._take(_CHANGING_TICKS * _TICK_S)
            time.sleep(_CHANGING_TICKS * _TICK_S)
        end = time.monotonic() + _DRAIN_S
        while (left := end - time.monotonic()) > 0:
            self._take(left)
        for host in self._hosts:
            host.count()
            host.give_up()

    def _probe(self, tick: int) -> None:
        for number, host in enumerate(self._hosts):
            host.send()
            if tick % _CHANGING_TICKS == number % _CHANGING_TICKS:
                host.send_changing()
            if tick % _ARP_TICKS == number * _ARP_TICKS // len(self._hosts):
                host.ask()
            if tick % _CHANGE_TICKS == number * _CHANGE_TICKS // len(self._hosts):
                host.change()

    def _take(self, wait_s: float) -> None:
        for descriptor, _ in self._poll.poll(wait_s):
            self._takers[descriptor]()

    def report(self) -> dict[str, Any]:
        """Return what was seen."""
        hosts = self._hosts
        waits = sorted(wait for host in hosts for wait in host.waits)
        p99_s = min(waits[min(len(waits) - 1, len(waits) * 99 // 100)], _LOST_S) if waits else _LOST_S
        changes = [change for host in hosts for change in host.changes]
        return {
            "sent": sum(host.sent for host in hosts),
            "lost": sum(max(0, host.sent - host.came) for host in hosts),
            "asked": len(waits),
            "unanswered": waits.count(float("inf")),
            "arp_p99_ms": round(1000 * p99_s, 2),
            "changes": len(changes),
            "unfinished": sum(host.unfinished for host in hosts),
            "route_change_median_ms": round(1000 * sorted(changes)[len(changes) // 2], 1) if changes else None,
            "route_change_worst_ms": round(1000 * max(changes, default=_LAST_S), 1),
        }


def main() -> None:
    """Probe, at real-time priority where that is allowed; says when it begins."""
    hosts = [Host(**one) for one in json.loads(Path(sys.argv[1]).read_text())]
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells the program too, which ends this one
    probes = Probes(hosts)
    print("begun", flush=True)
    probes.run()
    print(json.dumps(probes.report()), flush=True)


if __name__ == "__main__":
    main()
