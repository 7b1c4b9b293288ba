"""bench/move: what traffic loses while a router moves between a switch and its fallback, back and forth.

                                             ┌── far-0 ── eth0 ┐
    near ── near [ edge/r1 on Open vSwitch ]─┤       …         ├ far: BIRD announces the prefixes on the
      UDP flows ──►     │ link               └── far-7 ── eth7 ┘ first link, the router spreads
                 [ vr-forwarder ]                                them over the eight nexthops

With many nexthops little can be aggregated, so that most routes are an entry in hardware too. In software one entry
there sends all packets over the link; only own addresses have theirs.
"""

import argparse
import os
import re
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.rig import (
    AS_NUMBER,
    MORE_ROUTES,
    PLANE,
    PREFIXES,
    RECEIVED,
    SENT,
    Rig,
    bgp_config,
    interface,
    report,
    say,
    tenant,
)
from lab import bird
from lab.bird import Bird
from lab.enclosure import kept_directory, run_enclosed
from lab.network import NetworkError, checked, inside, output, wait_for
from lab.planes.fallback import FallbackPlanes
from lab.prefixes import announcements
from lab.processes import Meter, prefer

ROUTER = "edge/r1"
_LINKS = [(f"10.2.{number}.1", f"10.2.{number}.2") for number in range(8)]
_OWN_ENTRIES = 2 + len(_LINKS)  # the default entry and own addresses
_DROPPED = re.compile(r"\bd(\d+)\)")  # the last field of a socket's skmem
_POLL_S = 0.05
_CALM_S = 3.0  # a first move has ended when nothing changed for so long
_WARM_S = 2.0  # traffic before the first move and after the last
_LATE_S = 0.2  # what was sent so shortly before the end may be under way
_FULL_RATE = 0  # as many packets as get through
_STILL_S = 10.0


def _spread() -> str:
    """Return FRR's route map that gives a route a nexthop by the last digit of the AS it comes from."""
    lines = []
    for number, (_, theirs) in enumerate(_LINKS):
        lines += [f"bgp as-path access-list last{number} permit {number}$", f"route-map spread permit {number + 1}"]
        lines += [f" match as-path last{number}", f" set ip next-hop {theirs}", "exit"]
    return "\n".join([*lines, f"route-map spread permit {len(_LINKS) + 1}", "exit", ""])


class Moves:
    """A router with many routes that moves under traffic, in an enclosure of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._planes = FallbackPlanes({})
        self._rig = rig = Rig(self._planes)
        network = rig.network
        self._near, self._far = network.host("near", "10.1.0.2/24"), network.host("far", f"{_LINKS[0][1]}/24")
        network.wire(self._near, "eth0", network[PLANE], "near")
        for number in range(len(_LINKS)):
            network.wire(self._far, f"eth{number}", network[PLANE], f"far-{number}")
        self._entries: dict[str, int] = {}  # placement → entries in hardware once a move has ended

    def run(self) -> dict[str, Any]:
        """Bring everything up, move under both rates, and return what it cost."""
        options = self._options
        self._bring_up()
        for placement in ("software", "hardware"):
            self._first(placement)
            say(f"in {placement}: {self._entries[placement]} entries in hardware")
        if self._entries["software"] > _OWN_ENTRIES:
            raise NetworkError(f"{self._entries['software']} entries are left in hardware after the move to software")
        slow = self._under(options.rate * options.flows)
        full = self._under(_FULL_RATE)
        still = self._still()
        say(self._rig.verify(ROUTER))
        return {
            "routes": options.routes,
            "entries": self._entries,
            "flows": options.flows,
            "moves": options.moves,
            "rate": options.rate * options.flows,
            **slow,
            **{f"{name}_full_rate": value for name, value in full.items()},
            **{f"{name}_still": still[name] for name in ("sent_per_s", "lost")},
        }

    def _bring_up(self) -> None:
        options, rig = self._options, self._rig
        rig.network.start()
        self._reserve(rig.network.planes.process(PLANE))
        prefer(self._planes.forwarder.pid)
        for number, (_, theirs) in enumerate(_LINKS[1:], 1):
            checked(inside(self._far, ["ip", "address", "add", f"{theirs}/24", "dev", f"eth{number}"]))
        interfaces = [interface("near", "near", "10.1.0.1/24")]
        interfaces += [interface(f"far-{n}", f"far-{n}", f"{ours}/24") for n, (ours, _) in enumerate(_LINKS)]
        ours, theirs = _LINKS[0]
        frr = _spread() + bgp_config([theirs], bird.AS_NUMBER, f" neighbor {theirs} route-map spread in")
        router = {"name": "r1", "interfaces": interfaces, "frr": frr, "placement": "hardware"}
        ports = [one["port"] for one in interfaces]
        rig.apply([tenant("edge", ports, router, ipv4_routes=options.routes + MORE_ROUTES)])
        own = rig.api.router(ROUTER)["ipv4_routes"]
        announced = announcements(options.routes, options.seed)
        PREFIXES.write_text("\n".join(one.text for one in announced))
        feeding = Bird(self._far, [(theirs, ours)], AS_NUMBER)
        feeding.start(announced)
        feeding.wait_established()
        say(f"{options.routes} routes into both planes")
        start = time.monotonic()
        feeding.announce()
        wait_for("every route", lambda: self._learned(own + options.routes), options.timeout, _POLL_S)
        say(f"learned in {time.monotonic() - start:.1f} s")

    @staticmethod
    def _reserve(pid: int) -> None:
        """Let all threads of a switch run before everything else: hardware does not share its CPU."""
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setscheduler(int(thread), os.SCHED_FIFO, os.sched_param(1))

    def _learned(self, routes: int) -> bool:
        view = self._rig.api.router(ROUTER)
        return view["ipv4_routes"] >= routes and not view["pending"]

    def _held(self) -> int:
        """Return how many IPv4 entries the controller knows in hardware."""
        planes = {one["name"]: one for one in self._rig.api.get("planes")}
        held: int = planes[PLANE]["entries"]["hardware ipv4_route"]
        return held

    def _first(self, placement: str) -> None:
        """Move without traffic, to learn how many entries are in hardware after a move."""
        self._rig.controller.vrctl("move", ROUTER, "--to", placement, "--no-wait")
        held, since = -1, time.monotonic()
        deadline = since + self._options.timeout
        while time.monotonic() < since + _CALM_S:
            if time.monotonic() > deadline:
                raise NetworkError(f"the first move to {placement} does not end")
            if (now := self._held()) != held:
                held, since = now, time.monotonic()
            time.sleep(_POLL_S)
        self._entries[placement] = held

    def _move(self, placement: str) -> float:
        """Move and return the seconds from `vrctl move --no-wait` until the last write is confirmed."""
        start = time.monotonic()
        self._rig.controller.vrctl("move", ROUTER, "--to", placement, "--no-wait")
        there = self._entries[placement]

        def ended() -> bool:
            return self._held() == there and not self._rig.api.router(ROUTER)["pending"]

        wait_for(f"the move to {placement}", ended, self._options.timeout, _POLL_S)
        return time.monotonic() - start

    def _under(self, rate: int) -> dict[str, Any]:
        """Move to software first, back and forth, under traffic of this many packets a second, or at full rate."""
        options, took = self._options, []
        packets = f"{rate} packets/s in all" if rate else "as many packets as get through"
        say(f"{options.moves} moves under {options.flows} flows, {packets}")
        controller = self._rig.processes(ROUTER)["controller"]
        meter = Meter({"controller": controller, "plane": self._rig.network.planes.process(PLANE)})

        def move() -> None:
            time.sleep(_WARM_S)
            for number in range(options.moves):
                placement = ("software", "hardware")[number % 2]
                took.append(self._move(placement))
                say(f"to {placement}: {took[-1]:.2f} s")
            time.sleep(_WARM_S)

        counts = self._traffic(rate, move)
        if not 0 < counts["over_link"] < counts["sent"]:
            raise NetworkError(f"{counts['over_link']} of {counts['sent']} packets went over the link: not both ways")
        costs = {"seconds_per_move": round(statistics.median(took), 2), "cpu_s": meter.cpu_s()}
        result = counts | costs | {"machine_s": meter.machine_s(), "load": round(os.getloadavg()[0], 1)}
        say(str(result))
        return result

    def _still(self) -> dict[str, int]:
        """Send all that gets through while nothing moves, in software, the longer way."""
        self._move("software")
        counts = self._traffic(_FULL_RATE, lambda: time.sleep(_STILL_S))
        say(f"all that gets through while nothing moves: {counts}")
        return counts

    def _traffic(self, rate: int, during: Callable[[], None]) -> dict[str, int]:
        """Return what came of the packets that were sent while a function ran."""
        overrun, over_link = self._overrun(), self._planes.forwarder.sent()
        interfaces = [f"eth{number}" for number in range(len(_LINKS))]
        sender, receiver = self._rig.start_flows(self._near, self._far, interfaces, rate, self._options.flows)
        during()
        for process in (sender, receiver):
            process.terminate()
            process.wait(timeout=60)
        counts = Arrivals(SENT, RECEIVED, self._options.flows).counts()
        return counts | {"overrun": self._overrun() - overrun, "over_link": self._planes.forwarder.sent() - over_link}

    @staticmethod
    def _overrun() -> int:
        """Return how many packets the bridge's ports have dropped because it did not fetch them in time."""
        text = output(["ss", "--packet", "--all", "--memory", "--numeric", "--no-header"])
        return sum(map(int, _DROPPED.findall(text)))


class Arrivals:
    """What was sent and what of it came."""

    def __init__(self, sent: Path, received: Path, flows: int) -> None:
        self._flows = flows
        self._sent, self._seen = array("q", sent.read_bytes()), array("q", received.read_bytes())

    def counts(self) -> dict[str, int]:
        """Return how many packets were sent and lost, came more than once, and came after a later one of their flow
        (RFC 4737, section 3.3).
        """
        sent, flows = self._sent, self._flows
        came: set[int] = set()
        latest = [-1] * flows
        duplicated = reordered = 0
        for number in self._seen[::3]:
            duplicated += number in came
            came.add(number)
            reordered += number < latest[number % flows]
            latest[number % flows] = max(latest[number % flows], number)
        end = sent[-1] - int(_LATE_S * 1e9)
        lost = sum(number not in came for number, when in enumerate(sent) if when < end)
        per_s = round(len(sent) / (sent[-1] - sent[0]) * 1e9)
        return {
            "sent": len(sent),
            "sent_per_s": per_s,
            "lost": lost,
            "duplicated": duplicated,
            "reordered": reordered,
        }


def program() -> int:
    """Measure, inside the enclosure."""
    options = _options()
    return report("move", lambda: Moves(options).run(), options.keep)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="move", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--routes", type=int, default=100_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--flows", type=int, default=64, metavar="M", help="(default: %(default)s)")
    parser.add_argument("--moves", type=int, default=10, metavar="K", help="(default: %(default)s)")
    parser.add_argument("--rate", type=int, default=100, metavar="PPS", help="of each flow (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the prefixes (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=300, metavar="S", help="for each part (default: 300)")
    parser.add_argument("--keep", type=kept_directory, metavar="DIR", help="copy all logs to DIR at the end")
    return parser.parse_args()


def main() -> int:
    """Check the command line, then measure inside an enclosure."""
    options = _options()
    if min(options.routes, options.flows, options.moves, options.rate) < 1:
        print("move: --routes, --flows, --moves and --rate are at least 1", file=sys.stderr)
        return 2
    return run_enclosed("move", "bench.move", program, FallbackPlanes({}).missing)


if __name__ == "__main__":
    sys.exit(main())
