"""bench/cache: how much of the traffic a small hardware table carries when it follows the traffic.

    routes that change ──► FastTable ──stages──► a switch with few entries ◄── packets: so much in hardware
                               ▲ ▲                 │ counts every 5 s │ FALLBACK
                               │ └─────────────────┘                  ▼
                               └────────────────────── one of N packets in software

Time is simulated; the controller's part is the real one.
"""

import argparse
import json
import random
import sys
import time
from dataclasses import dataclass
from typing import Any

from bench.cache_world import Churn, Destinations, LongestPrefix, Switch, key_of
from controller.planes.base import FALLBACK
from controller.route_cache.fast_table import FastTable
from controller.route_cache.write_order import Changes, stages
from controller.routing.ranges import differences

_VRF = 1
_TICK_S = 0.25
_COUNTED_EVERY_S = 5.0
_SHIFT_EVERY_S = 60.0
_WRITES_PER_S = 1000
_CHECKED_IN_TICK = 250
_CHECKED_IN_STAGE = 20

_ROUTES = (100_000, 1_000_000)
_ROOM = (0.01, 0.02, 0.05)
_LEAST_ROUTES = 100  # which is room for an entry
_EXPONENTS = (1.0, 1.2, 1.5)


@dataclass(frozen=True)
class Case:
    """A table, its room in hardware, and the traffic."""

    routes: int
    room: float
    exponent: float
    shifting: bool

    @property
    def name(self) -> str:
        """What people read."""
        moving = "shifting" if self.shifting else "still"
        return f"{self.routes // 1000}k routes, room {self.room:.0%}, Zipf {self.exponent}, {moving}"


class Run:
    """One case."""

    def __init__(self, case: Case, options: argparse.Namespace) -> None:
        self.case, self._options = case, options
        self._chance = random.Random(options.seed)
        self._churn = Churn(case.routes, options.seed, self._chance)
        routes = self._churn.routes
        self._destinations = Destinations(routes.actions, case.exponent, self._chance)
        self._switch = Switch(self._destinations, self._chance)
        self._entries = round(case.routes * case.room)
        self._fast = FastTable(4, self._entries)
        self.now = 0.0
        self.wrong = self.packets = self._samples = 0
        self.cpu_s = 0.0
        self._apply(self._fast.add(_VRF, "red"), {})
        self._apply(self._fast.change(_VRF, self._churn.table()), {})

    def run(self) -> dict[str, Any]:
        """Let it learn, measure, and return the result."""
        options = self._options
        self._pass(options.warm_s)
        self._switch.writes, self._samples, self.cpu_s, hit, optimum = 0, 0, 0.0, 0.0, 0.0
        minutes = max(1, round(options.measured_s / _SHIFT_EVERY_S))
        for _ in range(minutes):
            hit += self._pass(_SHIFT_EVERY_S)  # begins with the shift, so the optimum is that of the same minute
            optimum += self._destinations.best_share(self._churn.routes, self._entries - 1)
        measured_s = minutes * _SHIFT_EVERY_S
        self._compare()
        placed = self._fast.counts(_VRF)
        return {
            "name": self.case.name,
            "hit": round(hit / minutes, 4),
            "optimum": round(optimum / minutes, 4),
            "gap_points": round(100 * (optimum - hit) / minutes, 2),
            "changes_per_s": round(self._switch.writes / measured_s, 1),
            "samples_per_s": round(self._samples / measured_s),
            "wrong": self.wrong,
            "packets_checked": self.packets,
            "cpu_ms_per_s": round(1000 * self.cpu_s / measured_s, 1),
            "entries": self._fast.used,
            "parts": placed.parts,
            "covers": placed.covers,
        }

    def _pass(self, seconds: float) -> float:
        """Let so much time pass, beginning with a shift; return the mean share in hardware."""
        steps, share = round(seconds / _TICK_S), 0.0
        for step in range(steps):
            if self.case.shifting and step * _TICK_S % _SHIFT_EVERY_S == 0:
                self._destinations.shift()
                self._switch.recount()
            share += self._tick()
        return share / steps

    def _tick(self) -> float:
        options = self._options
        self.now += _TICK_S
        old = self._churn.change(round(options.churn * _TICK_S))
        changed = {key_of(*route): self._churn.routes.actions.get(route) for route in old}
        self._apply(self._timed(lambda: self._fast.change(_VRF, changed)), old)
        drawn = self._destinations.draw(round(options.packets_per_s * _TICK_S / options.one_in))
        hosts = self._destinations.hosts
        self._check([hosts[one] for one in drawn[:_CHECKED_IN_TICK]], {})
        software = [key_of(hosts[one], 32) for one in self._switch.in_software(drawn)]
        samples = software[: round(options.samples_per_s * _TICK_S)]
        one_in = options.one_in * (len(software) / len(samples) if samples else 1)
        self._samples += len(samples)
        share = self._switch.share
        self._timed(lambda: self._fast.sample(self.now, _VRF, samples, one_in))
        if self.now % _COUNTED_EVERY_S == 0:
            counts = self._switch.counts(self.now, options.packets_per_s)
            self._timed(lambda: list(self._fast.count(self.now, _VRF, counts)))
        moved = self._timed(lambda: self._fast.rebalance(self.now, round(_WRITES_PER_S * _TICK_S)))
        self._apply(moved.get(_VRF, {}), {})
        return share

    def _timed(self, step: Any) -> Any:
        began = time.process_time()
        result = step()
        self.cpu_s += time.process_time() - began
        return result

    def _apply(self, changes: Changes, old: dict[tuple[int, int], int | None]) -> None:
        """Have the switch take the writes, with packets between the stages and to what has changed."""
        near = [int.from_bytes(key[:4], "big") | self._chance.getrandbits(32 - key[4]) for key in changes]
        near += [address | self._chance.getrandbits(32 - length) for address, length in old]
        for updates in stages(_VRF, 4, changes):
            if self.now:
                drawn = self._destinations.draw(_CHECKED_IN_STAGE)
                self._check(near[: 10 * _CHECKED_IN_STAGE], old)
                self._check([self._destinations.hosts[one] for one in drawn], old)
            self._switch.apply(updates, self.now)
            if len(self._switch.table.actions) > self._entries:
                raise SystemExit(f"cache: {self.case.name}: more than {self._entries} entries in the switch")
        if self.now:
            self._check(near, {})

    def _check(self, addresses: list[int], old: dict[tuple[int, int], int | None]) -> None:
        """Compare what the switch does with packets with what the routes say.

        ``old`` is what changed routes were: while the change is under way that is right as well.
        """
        routes, table = self._churn.routes, self._switch.table
        self.packets += len(addresses)
        for address in addresses:
            done = table.action(address)
            if done == FALLBACK or done == routes.action(address):
                continue
            if not old or done != _before(routes, old, address):
                self.wrong += 1

    def _compare(self) -> None:
        """Compare both tables over the whole address space; every range that differs is a wrong forwarding."""
        held = {key_of(*entry): action for entry, action in self._switch.table.actions.items()}
        tables = [self._churn.table(), held]
        self.wrong += sum(values[1] != FALLBACK for _, _, values in differences(tables, 4))


def _before(routes: LongestPrefix, old: dict[tuple[int, int], int | None], address: int) -> int | None:
    """Return the action that an address got before routes changed; ``old`` is what they were."""
    below = 33
    while True:
        now = routes.match(address, below)
        gone = [
            route for route in old if route[1] < below and address >> (32 - route[1]) == route[0] >> (32 - route[1])
        ]
        found = max([*gone, *([] if now is None else [now])], key=lambda route: route[1], default=None)
        if found is None:
            return None
        action = old[found] if found in old else routes.actions[found]
        if action is not None:
            return action
        below = found[1]


def say(text: str) -> None:
    """Tell people how far it is."""
    print(f"cache: {text}", file=sys.stderr, flush=True)


def program(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all cases and return the result."""
    cases = []
    for routes in options.routes:
        for room in _ROOM:
            for exponent in _EXPONENTS:
                for shifting in (False, True):
                    case = Case(routes, room, exponent, shifting)
                    if options.case in case.name:
                        cases.append(Run(case, options).run())
                        say(str(cases[-1]))
    names = ("seed", "warm_s", "measured_s", "packets_per_s", "one_in", "samples_per_s", "churn")
    result = {name: getattr(options, name) for name in names}
    return {**result, "writes_per_s": _WRITES_PER_S, "counted_every_s": _COUNTED_EVERY_S, "cases": cases}


def main() -> int:
    """Print the result as the last line; 1 where the switch forwarded a packet otherwise than the routes say."""
    parser = argparse.ArgumentParser(prog="cache", description="how much traffic a small hardware table carries")
    parser.add_argument("--routes", type=int, nargs="+", default=_ROUTES)
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warm-s", type=float, default=300.0, help="simulated time before")
    parser.add_argument("--measured-s", type=float, default=300.0, help="simulated time measured, whole minutes")
    parser.add_argument("--packets-per-s", type=int, default=1_000_000)
    parser.add_argument("--one-in", type=int, default=25, help="packets in software for one that is sampled")
    parser.add_argument("--samples-per-s", type=int, default=10_000, help="at most")
    parser.add_argument("--churn", type=int, default=20, help="changed routes a second")
    options = parser.parse_args()
    if min(options.routes) < _LEAST_ROUTES or options.warm_s < _TICK_S:
        parser.error(f"--routes are at least {_LEAST_ROUTES}, --warm-s at least {_TICK_S:g}")
    if min(options.packets_per_s, options.one_in) < 1:
        parser.error("--packets-per-s and --one-in are at least 1")
    result = program(options)
    print(json.dumps(result), flush=True)
    return 1 if any(case["wrong"] for case in result["cases"]) else 0


if __name__ == "__main__":
    sys.exit(main())
