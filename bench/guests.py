"""bench/guests: what guests cost, by kind: from start to session, memory, CPU when idle; and how long many take.

    vrctl apply ─► controller ─► N guests at a few at a time: zebra, bgpd, staticd, VRC ─► N sessions ─► N routers up

Each router has one interface, a VLAN of one port, and a BGP neighbor that never answers. Memory is the proportional
set size (PSS) of all processes of a guest; of a machine, of QEMU and what runs for it on the host.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.rig import PLANE, Rig, bgp_config, report, say
from lab.enclosure import STATE, kept_directory, run_enclosed
from lab.network import NetworkError
from lab.planes.catalog import DEFAULT, PLANES
from lab.processes import cpu_s, descendants

_PORT = "feed"
_KINDS = ("netns", "kvm")
_POLL_S = 0.05
_SETTLE_S = 5.0  # after the last router is up, before anything counts as idle


def pss_mib(pid: int) -> float:
    """Return the proportional set size of a process in MiB, 0.0 where it has ended (proc(5), smaps_rollup)."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


class Guests:
    """A controller whose routers come and go, in an enclosure of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rig = rig = Rig(PLANES[DEFAULT]())
        rig.network.wire(rig.network.host("far"), "eth0", rig.network[PLANE], _PORT)
        rig.network.start()
        rig.apply([])

    def run(self) -> dict[str, Any]:
        """Measure each kind of guest alone, then how the time of an apply grows."""
        options = self._options
        kinds = {kind: self._one_kind(kind) for kind in options.kinds}
        apply_s = {str(count): round(self._apply_s(count), 2) for count in options.counts}
        return {**{kind: kinds.get(kind) for kind in _KINDS}, "apply_s": apply_s, "plane": DEFAULT}

    def _one_kind(self, kind: str) -> dict[str, Any]:
        boots = []
        for number in range(self._options.runs):
            with self._routers(1, kind) as took_s:
                boots.append(took_s)
                say(f"{kind}: up after {took_s:.2f} s")
                if number == self._options.runs - 1:
                    return {"boot_to_session_s": round(statistics.median(boots), 2), **self._idle(kind)}
        raise NetworkError("--runs is at least 1")

    def _idle(self, kind: str) -> dict[str, Any]:
        time.sleep(_SETTLE_S)
        (first,) = self._first_processes()
        before = {pid: cpu_s(pid) for pid in (first, *descendants(first))}
        start = time.monotonic()
        time.sleep(self._options.idle_s)
        took = time.monotonic() - start
        pids = [pid for pid in (first, *descendants(first)) if pid in before]
        used = sum(cpu_s(pid) - before[pid] for pid in pids)
        memory = {self._name(pid): pss_mib(pid) for pid in pids}
        say(f"{kind}: " + ", ".join(f"{name} {mib:.1f} MiB" for name, mib in sorted(memory.items())))
        return {
            "memory_mib": round(sum(memory.values()), 1),
            "idle_cpu_percent": round(100 * used / took, 3),
            "processes_mib": {name: round(mib, 1) for name, mib in sorted(memory.items())},
        }

    def _apply_s(self, count: int) -> float:
        with self._routers(count, "netns") as took_s:
            say(f"{count} routers: up after {took_s:.2f} s")
            memory = [sum(pss_mib(pid) for pid in (first, *descendants(first))) for first in self._first_processes()]
            say(f"{count} routers: {statistics.mean(memory):.1f} MiB each")
            return took_s

    @contextmanager
    def _routers(self, count: int, kind: str) -> Iterator[float]:
        """Apply that many routers and yield the seconds until all were up; delete them afterwards."""
        document = Path(STATE / "bench-guests.yaml")
        document.write_text(json.dumps(self._document(count, kind)))  # JSON is YAML
        start = time.monotonic()
        self._rig.controller.vrctl("apply", "-f", str(document))
        while not self._all_up(count):
            if time.monotonic() > start + self._options.timeout:
                raise NetworkError(f"{count} {kind} routers are not up after {self._options.timeout:.0f} s")
            time.sleep(_POLL_S)
        try:
            yield time.monotonic() - start
        finally:
            self._rig.controller.vrctl("delete", "tenant", "load")

    def _all_up(self, count: int) -> bool:
        views = self._rig.api.get("routers")
        return len(views) == count and all(view["state"] == "up" for view in views)

    def _document(self, count: int, kind: str) -> dict[str, Any]:
        vlans = list(range(1, count + 1))
        routers = [
            {
                "name": f"r{vlan}",
                "plane": PLANE,
                "guest": {"kind": kind},
                "interfaces": [
                    {"name": "eth0", "port": _PORT, "vlan": vlan, "addresses": [f"10.{vlan >> 8}.{vlan & 255}.1/24"]}
                ],
                "frr": bgp_config([f"10.{vlan >> 8}.{vlan & 255}.2"], 65100),
            }
            for vlan in vlans
        ]
        tenant = {"name": "load", "slices": [{"plane": PLANE, "ports": {_PORT: vlans}}], "routers": routers}
        return {"version": 1, "planes": self._rig.network.planes.declared(), "tenants": [tenant]}

    @staticmethod
    def _first_processes() -> list[int]:
        return [int(path.read_text().split()[0]) for path in STATE.glob("guests/*/guest.pid")]

    @staticmethod
    def _name(pid: int) -> str:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            known = {"vrc.agent": "vrc", "vrc.guest.supervisor": "supervisor"}
            named = [known[word] for word in words if word in known]
            return named[0] if named else Path(words[0]).name
        return "ended"


def program() -> int:
    """Measure once, inside the enclosure."""
    options = _options()
    return report("guests", lambda: Guests(options).run(), options.keep)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="guests", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kinds", nargs="*", choices=_KINDS, default=["netns"], help="(default: netns)")
    parser.add_argument("--counts", nargs="*", type=int, default=[1, 10, 25, 50], metavar="N", help="of routers")
    parser.add_argument("--runs", type=int, default=5, metavar="K", help="starts whose median is reported (5)")
    parser.add_argument("--idle-s", type=float, default=30, metavar="S", help="how long CPU is measured (30)")
    parser.add_argument("--timeout", type=float, default=300, metavar="S", help="for each apply (default: 300)")
    parser.add_argument("--keep", type=kept_directory, metavar="DIR", help="copy all logs to DIR at the end")
    return parser.parse_args()


def main() -> int:
    """Check the command line, then measure inside an enclosure."""
    options = _options()
    if options.runs < 1 or any(not 1 <= count <= 1000 for count in options.counts):
        print("guests: --runs is at least 1, --counts are 1 to 1000", file=sys.stderr)
        return 2
    return run_enclosed("guests", "bench.guests", program, PLANES[DEFAULT]().missing)


if __name__ == "__main__":
    sys.exit(main())
