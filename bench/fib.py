"""bench/fib: longest prefix match, vr-forwarder's trie against DPDK's rte_fib and rte_lpm.

    the same routes and destinations, one core ──┬─► the trie (native build), bursts of 64
                                                 ├─► rte_fib: DIR24-8, scalar; the trie of rte_fib6
                                                 └─► rte_lpm, rte_lpm6

Each case is one process of forwarder/bench/fib, which measures all of them by turns and proves that they agree.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.prefixes import announcements
from lab.processes import machine_s

_PROGRAM = Path(__file__).parent.parent / "build" / "forwarder" / "bench" / "fib" / "lookups"

# Prefix length → routes per thousand of the IPv6 table of the mid-2020s, near enough: nearly half are /48.
_IPV6_SHARES = {
    48: 460,
    32: 115,
    44: 85,
    40: 85,
    36: 55,
    46: 35,
    42: 30,
    29: 30,
    33: 25,
    38: 20,
    34: 20,
    47: 20,
    45: 10,
    35: 10,
}
# The blocks that the regional registries give out of, and how many prefixes are of one network.
_IPV6_BLOCKS = (0x2400, 0x2600, 0x2800, 0x2A00, 0x2C00)
_IPV6_PER_NETWORK = 5


@dataclass(frozen=True)
class Case:
    """So many tables with so many routes each."""

    name: str
    tables: int
    routes: int
    family: int = 4

    def records(self, seed: int) -> Iterator[bytes]:
        """Yield the routes as the native program reads them."""
        for table in range(self.tables):
            if self.family == 4:
                found = announcements(self.routes, seed + table)
                prefixes = [(one.network << 96, one.length) for one in found]
            else:
                prefixes = ipv6_prefixes(self.routes, seed + table)
            number = table.to_bytes(4, "little")
            for address, length in prefixes:
                yield address.to_bytes(16, "big") + bytes((length, 0, 0, 0)) + number


_CASES = (
    Case("1 VRF, 1M routes", 1, 1_000_000),
    Case("256 VRFs, 4k routes each", 256, 4_000),
    Case("4096 VRFs, 64 routes each", 4096, 64),
    Case("1 VRF, 200k IPv6 routes", 1, 200_000, 6),
)


def say(text: str) -> None:
    """Tell people how far it is."""
    print(f"fib: {text}", file=sys.stderr, flush=True)


def ipv6_prefixes(count: int, seed: int) -> list[tuple[int, int]]:
    """Return ``count`` different prefixes as (address, length): networks of /29 or /32 and parts of them."""
    chance = random.Random(seed)
    lengths, weights = list(_IPV6_SHARES), list(_IPV6_SHARES.values())
    networks = [
        chance.choice(_IPV6_BLOCKS) << 112
        | chance.getrandbits(17) << 99
        | chance.choice((0, chance.getrandbits(3))) << 96
        for _ in range(max(1, count // _IPV6_PER_NETWORK))
    ]
    chosen: dict[tuple[int, int], None] = {}
    while len(chosen) < count:
        length = chance.choices(lengths, weights)[0]
        address = chance.choice(networks) | chance.getrandbits(16) << 80
        chosen[address >> (128 - length) << (128 - length), length] = None
    return list(chosen)


def measure(case: Case, options: argparse.Namespace, cores: tuple[int, int]) -> dict[str, Any]:
    """Run one case and return what the native program says."""
    with tempfile.NamedTemporaryFile(prefix="sp-fib-") as file:
        file.writelines(case.records(options.seed))
        file.flush()
        reader, writer = cores
        command = [options.program, file.name, case.tables, case.family, options.runs, reader, writer]
        done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"fib: {case.name}: {options.program} failed, see above")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def rounded(value: Any, digits: int = 2) -> Any:
    """Return numbers with fewer digits, and all else as it is."""
    return round(value, digits) if isinstance(value, float) else value


def program(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all cases and return the result."""
    if not options.program.exists():
        raise SystemExit(f"fib: {options.program} is missing; run: scripts/setup tests")
    available = sorted(os.sched_getaffinity(0))
    cores = (available[-1], available[0])
    before = machine_s()
    cases = []
    for case in _CASES:
        say(case.name)
        found = measure(case, options, cores)
        cases.append({"name": case.name, **{name: rounded(value) for name, value in found.items()}})
    first = cases[0]
    return {
        "runs": options.runs,
        "seed": options.seed,
        "reader_core": cores[0],
        "writer_core": cores[1],
        "machine_s": {name: round(now - before[name], 2) for name, now in machine_s().items()},
        "cases": cases,
        "empty_vrf_bytes": first["empty_vrf_bytes"],
        "updates_per_s": round(first["updates_per_s"]),
        "lookup_drop_under_updates": first["disturbed_drop"],
    }


def main() -> int:
    """Print the result as the last line."""
    parser = argparse.ArgumentParser(prog="fib", description="longest prefix match: the forwarder's trie and DPDK's")
    parser.add_argument("--runs", type=int, default=5, help="runs of each; the median is reported")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=Path, default=_PROGRAM, help="the native side")
    print(json.dumps(program(parser.parse_args())), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
