"""bench/aggregate: how much smaller a table is with equal forwarding, and what it costs to keep it so.

    a seeded table ── load ──► Aggregate ── changes, one by one ──► writes, time
                                        └── improve ──► as small as can be again

Each case is one process, so that its memory is its own.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bench.fib import ipv6_prefixes
from controller.route_cache.aggregate import LIMIT, Aggregate
from controller.routing.ranges import flatten
from lab.prefixes import IPV4_SHARES, announcements
from lab.processes import machine_s, peak_mib, resident_mib

_LONGEST_BLOCK = 20  # what is this long or shorter starts a network
_RUN = 0.8  # how often a prefix follows the last one of its network at once
_COVERED = 0.5  # how often a network's prefixes are inside its block, and not elsewhere
_HOME = 0.9  # how often a prefix has its network's nexthop
_REGION_BITS = 8
_REGION = 0.5  # how often a network has its region's nexthop
_UNSTABLE = 10  # one prefix in so many has most of the changes
_MOSTLY = 0.9
_QUIET_EVERY = 100  # changes
_QUIET_WRITES = 50
_NO_LIMIT = 1 << 30

Table = dict[bytes, int]
Change = tuple[bytes, int | None]


@dataclass(frozen=True)
class Case:
    """One table: its prefixes, how many nexthops it has, and whether neighbors share them."""

    table: str  # "clustered", "spread" or "ipv6"
    routes: int
    nexthops: int
    correlated: bool
    limit: int = LIMIT
    default: bool = False  # with a default route

    @property
    def name(self) -> str:
        """What people call it."""
        alike = "correlated" if self.correlated else "uncorrelated"
        limit = "" if self.limit == LIMIT else f", limit {'none' if self.limit == _NO_LIMIT else self.limit}"
        default = ", default route" if self.default else ""
        return f"{self.table} {self.routes}, {self.nexthops} nexthops {alike}{default}{limit}"

    @property
    def family(self) -> int:
        """4 or 6."""
        return 6 if self.table == "ipv6" else 4


def cases(routes: int) -> list[Case]:
    """Return all cases."""
    found = [
        Case(table, count, nexthops, correlated)
        for table, count in (("clustered", routes), ("spread", routes), ("ipv6", routes // 5))
        for nexthops in (2, 8, 64)
        for correlated in (True, False)
    ]
    found += [Case("clustered", routes, 8, True, limit) for limit in (2, 4, 8, 16, 32, 256, _NO_LIMIT)]
    return [*found, Case("clustered", routes, 8, True, default=True)]


# Tables


def clustered(count: int, seed: int) -> list[tuple[int, int]]:
    """Return ``count`` IPv4 prefixes as (address, length): networks, whose prefixes follow each other.

    The lengths are those of bench/mirror. A prefix of _LONGEST_BLOCK bits or fewer is a network's block; longer ones
    are of the network before them, and lie in runs inside its block or inside a /16 that is not announced.
    """
    chance = random.Random(seed)
    chosen: dict[tuple[int, int], None] = {}
    for prefix in _networks(chance):
        chosen[prefix] = None
        if len(chosen) == count:
            break
    return list(chosen)


def _networks(chance: random.Random) -> Iterator[tuple[int, int]]:
    lengths, weights = list(IPV4_SHARES), list(IPV4_SHARES.values())
    block, size, at = 0, 16, 0
    while True:
        length = chance.choices(lengths, weights)[0]
        if length <= _LONGEST_BLOCK:
            block, size = chance.randrange(1 << 24, 224 << 24) >> (32 - length) << (32 - length), length
            yield block, length
            if chance.random() > _COVERED:
                block, size = chance.randrange(1 << 24, 224 << 24) >> 16 << 16, 16
            at = block
            continue
        step = 1 << (32 - length)
        if chance.random() > _RUN:
            at = block + chance.randrange(1 << (32 - size))
        at = -(-at // step) * step
        if at + step > block + (1 << (32 - size)):
            at = block
        yield at, length
        at += step


def table_of(case: Case, seed: int) -> tuple[Table, "Nexthops"]:
    """Return a case's table, key → action, and where its actions came from."""
    if case.table == "clustered":
        prefixes = clustered(case.routes, seed)
    elif case.table == "spread":
        prefixes = [(one.network, one.length) for one in announcements(case.routes, seed)]
    else:
        prefixes = ipv6_prefixes(case.routes, seed)
    width = 32 if case.family == 4 else 128
    actions = Nexthops(case, width, seed)
    table = {at.to_bytes(width // 8, "big") + bytes((length,)): actions.of(at) for at, length in prefixes}
    if case.default:
        table[bytes(width // 8 + 1)] = 1
    return table, actions


class Nexthops:
    """Draws nexthops, 1 and on: the n-th as often as 1/n, and where they are correlated mostly its network's own."""

    def __init__(self, case: Case, width: int, seed: int) -> None:
        self._chance = random.Random(f"nexthops {seed}")
        self._case = case
        self._network_shift = width - (16 if width == 32 else 32)
        self._region_shift = width - (_REGION_BITS if width == 32 else 16)
        self._numbers = range(1, case.nexthops + 1)
        self._weights = [1 / number for number in self._numbers]
        self._regions: dict[int, int] = {}
        self._networks: dict[int, int] = {}

    def of(self, address: int) -> int:
        """Draw one for a prefix at ``address``."""
        if not self._case.correlated:
            return self._chance.choice(self._numbers)
        if self._chance.random() > _HOME:
            return self._drawn()
        network, region = address >> self._network_shift, address >> self._region_shift
        if network not in self._networks:
            shared = self._regions.setdefault(region, self._drawn())
            self._networks[network] = shared if self._chance.random() < _REGION else self._drawn()
        return self._networks[network]

    def _drawn(self) -> int:
        return self._chance.choices(self._numbers, self._weights)[0]


def changes(table: Table, nexthops: Nexthops, seed: int) -> Iterator[Change]:
    """Yield changes without end: a prefix gets another nexthop, or is withdrawn, or comes back. Few do most of it."""
    chance = random.Random(f"changes {seed}")
    keys = [key for key in table if key[-1]]
    unstable = keys[::_UNSTABLE]
    gone: set[bytes] = set()
    while True:
        key = chance.choice(unstable if chance.random() < _MOSTLY else keys)
        if key not in gone and chance.random() < 1 / 3:
            gone.add(key)
            yield key, None
        else:
            gone.discard(key)
            yield key, nexthops.of(int.from_bytes(key[:-1], "big"))


# Measuring


def percentile(values: list[int], share: float) -> int:
    """Return the smallest value that ``share`` of all do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def churn(aggregate: Aggregate, some: list[Change], *, quiet: bool) -> dict[str, Any]:
    """Make changes one by one and say what it cost; with ``quiet`` times between, improve it then with a budget."""
    writes, improved, change_s, improve_s = [], 0, 0.0, 0.0
    for first in range(0, len(some), _QUIET_EVERY):
        start = time.process_time()
        writes += [len(aggregate.change({key: action})) for key, action in some[first : first + _QUIET_EVERY]]
        change_s += time.process_time() - start
        if quiet:
            start = time.process_time()
            improved += len(aggregate.improve(_QUIET_WRITES))
            improve_s += time.process_time() - start
    entries = len(aggregate)
    start = time.process_time()
    repair = len(aggregate.improve())
    return {
        "writes_mean": round(statistics.fmean(writes), 3),
        "writes_p99": percentile(writes, 0.99),
        "writes_max": max(writes),
        "improve_writes_mean": round(improved / len(writes), 3),
        "change_cpu_us": round(change_s / len(writes) * 1e6, 2),
        "improve_cpu_us": round(improve_s / len(writes) * 1e6, 2),
        "entries": entries,
        "smallest": len(aggregate),
        "repair_writes": repair,
        "repair_cpu_ms": round((time.process_time() - start) * 1e3, 1),
    }


def measure(case: Case, count: int, seed: int) -> dict[str, Any]:
    """Run one case and return its numbers."""
    table, nexthops = table_of(case, seed)
    stream = list(islice(changes(table, nexthops, seed), 2 * count))
    before = resident_mib(own := os.getpid())
    aggregate = Aggregate(case.family, case.limit)
    start = time.process_time()
    loaded = len(aggregate.load(table))
    load_cpu_s = time.process_time() - start
    return {
        "name": case.name,
        "routes": len(table),
        "entries": loaded,
        "share": round(loaded / len(table), 3),
        "load_cpu_s": round(load_cpu_s, 2),
        "load_peak_mib": round(peak_mib(own) - before),
        "held_mib": round(resident_mib(own) - before),
        "write_bound": aggregate.write_bound,
        "changes": churn(aggregate, stream[:count], quiet=False),
        "with_improve": churn(aggregate, stream[count:], quiet=True),
        "equal": is_equal(aggregate, case.family, {**table, **dict(stream)}),
    }


def is_equal(aggregate: Aggregate, family: int, full: Mapping[bytes, int | None]) -> bool:
    """Whether every address is forwarded as by the full table, in which None is no route."""
    there = {key: action for key, action in full.items() if action is not None}
    return flatten(aggregate.table(), family) == flatten(there, family)


def in_a_process(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a case in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (case, options.changes, options.seed))


def say(text: str) -> None:
    """Tell people how far it is."""
    print(f"aggregate: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Print the result as the last line; 1 where a table does not forward as the full one."""
    parser = argparse.ArgumentParser(prog="aggregate", description="FIB aggregation: entries, writes, time, memory")
    parser.add_argument("--routes", type=int, default=1_000_000, help="of IPv4; a fifth of it of IPv6")
    parser.add_argument("--changes", type=int, default=50_000, help="of each of two runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    options = parser.parse_args()
    if options.routes < 5 or options.changes < 1:
        parser.error("--routes are at least 5, --changes at least 1")
    before = machine_s()
    results = []
    for case in cases(options.routes):
        if options.only in case.name:
            results.append(in_a_process(case, options))
            say(json.dumps(results[-1]))
    machine = {name: round(now - before[name], 2) for name, now in machine_s().items()}
    print(json.dumps({"seed": options.seed, "changes": options.changes, "machine_s": machine, "cases": results}))
    return 0 if all(one["equal"] for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
