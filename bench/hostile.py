"""bench/hostile: what routers that do nobody harm lose while one attacker does all it can, attack by attack.

    m1/r … m20/r     BGP and OSPF with external neighbors, each with BFD; transit, ARP, one route changed each second
    the attackers    a router whose tenant is hostile, its hosts, a machine, clients: bench/hostile_router.py

Floods of a host come at a share of what one core forwards: bench/peers measures that before, or it is given.

Each attack is a JSON line on stderr as well, beside what the attacker did. The last line of stdout is {"attacks":
[{"name", "sessions_lost", "transit_lost", "route_change_worst_ms", "arp_p99_ms", "loop_stall_max_ms", "loop_ran_ms",
"loop_queued_ms"}]}, all of the modest ones; and "memory", where that attack is among them: what it costs the
throughput of a router beside.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.again import last_line
from bench.attacks.floods import OF_HOSTS
from bench.hostile_router import ATTACKS, HOSTILE, MACHINE, RANDOM_ACCESS, RESTORED_S, UP_S, Attackers
from bench.modest_routers import HOSTS, ModestRouters
from bench.neighbor_throughput import ATTACKED_S, ATTACKER_CORE, LoadedNeighbor
from bench.rig import WORK, Rig, report, say
from bench.watched_controller import StallFile
from lab import generator
from lab.commands import last_lines
from lab.control import Controller
from lab.enclosure import STATE, kept_directory, run_enclosed
from lab.network import NetworkError, checked
from lab.planes.base import Planes
from lab.planes.catalog import DEFAULT, PLANES
from lab.planes.forwarder import ForwarderPlanes

NONE = "none"
_CHOICES = (NONE, *ATTACKS)
_BEFORE_S, _AFTER_S = 2.0, 1.0
_ENDS_S = 60.0
_STATE_MIB = 256
_MOST_SHARE = 4.0
_SHORTEST = "64"  # octets of a frame, check sequence included
_OVERLOAD = ("--trial-s", "0", "--runs", "3")  # a search for the rate without loss says nothing on a busy machine
_STALLS, _PROBES = WORK / "stalls", WORK / "probes.log"


class UnderAttack:
    """Modest routers and a hostile one, in an enclosure of their own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        WORK.mkdir(parents=True, exist_ok=True)
        self._stalls = StallFile(_STALLS)
        watched = Controller([sys.executable, "-m", "bench.watched_controller", str(_STALLS)])
        self._rig = rig = Rig(_planes(options), watched)
        self._modest = ModestRouters(rig, options.routers)
        self._attackers = Attackers(rig, options.share * (options.core_mpps or 0) * 1e6)
        self._loaded = LoadedNeighbor(rig) if RANDOM_ACCESS in options.attacks else None
        self._events = 0

    def run(self) -> dict[str, Any]:
        """Bring everything up, attack, and return what it cost the modest ones."""
        rig, loaded = self._rig, self._loaded
        # A file system of its own, as a host's disk is one: who fills it does not fill the machine's memory.
        STATE.mkdir(exist_ok=True)
        checked(["mount", "-n", "-t", "tmpfs", "-o", f"mode=755,size={_STATE_MIB}m", "tmpfs", str(STATE)])
        rig.network.start()
        others = [loaded.tenant()] if loaded is not None else []
        rig.apply([*self._modest.tenants(), *others, self._attackers.tenant()], UP_S)
        say(f"{self._options.routers} routers are up; their neighbors start")
        self._modest.start_neighbors()
        if loaded is not None:
            loaded.learn()
        self._attackers.prepare()
        found: list[dict[str, Any]] = []
        names = [name for name in self._options.attacks if name not in self._attackers.left_out]
        for name in self._options.attacks:
            if why := self._attackers.left_out.get(name):
                say(f"{name}: left out: {why}")
        try:
            for name in names:
                self._attacked(name, found)
        except NetworkError as problem:
            if not found:
                raise
            left = ", ".join(names[len(found) :]) or "none"
            say(f"not as before the attack {found[-1]['name']}: {problem}; attacks left out: {left}")
        if loaded is None:
            return {"attacks": found}
        attack = partial(self._attackers.random_access, ATTACKED_S, core=ATTACKER_CORE)
        return {"attacks": found, "memory": loaded.compare(attack)}

    def _attacked(self, name: str, found: list[dict[str, Any]]) -> None:
        """Attack once and add what the modest ones saw; returns when all are as before. NetworkError."""
        with self._attackers.ready(name, self._modest_restored):
            self._vrc_sessions_lost()
            before = self._modest.sessions_lost()
            with self._probing() as seen:
                time.sleep(_BEFORE_S)
                self._stalls.forget()
                told = self._attack(name)
                time.sleep(_AFTER_S)
                stall_s, ran_s, queued_s = self._stalls.longest_s()
        say(f"{name}: the attacker: {told}")
        lost = self._modest.sessions_lost() - before
        lost["vrc"] = self._vrc_sessions_lost()
        say(f"{name}: sessions lost: {dict(+lost)}; {seen}")
        result = {
            "name": name,
            "sessions_lost": lost.total(),
            "transit_lost": seen["lost"],
            "route_change_worst_ms": seen["route_change_worst_ms"],
            "arp_p99_ms": seen["arp_p99_ms"],
            "loop_stall_max_ms": round(1000 * stall_s, 1),
            "loop_ran_ms": round(1000 * ran_s, 1),
            "loop_queued_ms": round(1000 * queued_s, 1),
        }
        found.append(result)
        say(json.dumps(result))
        self._attackers.wait_restored()
        self._modest_restored()

    def _attack(self, name: str) -> str:
        if name == NONE:
            time.sleep(self._options.seconds)
            return "nobody"
        return self._attackers.attack(name, self._options.seconds)

    def _modest_restored(self) -> None:
        self._modest.wait_restored(RESTORED_S)

    @contextmanager
    def _probing(self) -> Iterator[dict[str, Any]]:
        """Probe the modest routers inside ``with``; what they saw is in the value afterwards."""
        seen: dict[str, Any] = {}
        with _PROBES.open("wb") as errors:
            command = [sys.executable, "-m", "bench.modest_probes", str(HOSTS)]
            probes = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        assert probes.stdout is not None
        try:
            if probes.stdout.readline() != b"begun\n":
                raise NetworkError(f"the probes ended: {last_lines(_PROBES, 1)}", _PROBES)
            yield seen
            probes.terminate()
            out, _ = probes.communicate(timeout=_ENDS_S)
            seen |= json.loads(out)
        finally:
            probes.kill()
            probes.wait()

    def _vrc_sessions_lost(self) -> int:
        """Return how many sessions of modest routers' VRCs were lost since the last time this was asked."""
        events = self._rig.api.get(f"events?since={self._events}")
        if events:
            self._events = events[-1]["sequence"]
        lost = Counter(event["subject"] for event in events if event["kind"] == "vrc-lost")
        return sum(count for subject, count in lost.items() if subject not in (HOSTILE, MACHINE))


def program() -> int:
    """Measure, inside the enclosure."""
    options = _options()
    return report("hostile", lambda: UnderAttack(options).run(), options.keep)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__.splitlines()[0] if __doc__ else None)
    plane = os.environ.get("PLANE", DEFAULT)
    parser.add_argument("--plane", choices=PLANES, default=plane, help="what forwards (default: $PLANE, %(default)s)")
    parser.add_argument("--routers", type=int, default=20, metavar="N", help="that are modest (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=15, metavar="S", help="of each attack (default: 15)")
    parser.add_argument(
        "--attacks", nargs="*", choices=_CHOICES, default=_CHOICES, metavar="A", help=f"of: {', '.join(_CHOICES)}"
    )
    parser.add_argument(
        "--share", type=float, default=0.5, metavar="S", help="of a core's rate, of floods, up to 4 (default: 0.5)"
    )
    parser.add_argument(
        "--core-shares",
        action="store_true",
        help="vr-forwarder divides its cores by shares, which it does not by itself",
    )
    parser.add_argument(
        "--core-mpps", type=float, metavar="R", help="a core's rate (default: bench/peers measures it)"
    )
    parser.add_argument("--keep", type=kept_directory, metavar="DIR", help="copy all logs to DIR at the end")
    return parser.parse_args()


def main() -> int:
    """Check the command line, then measure inside an enclosure."""
    options = _options()
    if not 1 <= options.routers <= 100 or options.seconds <= 0:
        print("hostile: --routers are 1 to 100, --seconds more than 0", file=sys.stderr)
        return 2
    if not 0 < options.share <= _MOST_SHARE:
        print(f"hostile: --share is more than 0, and at most {_MOST_SHARE:g}", file=sys.stderr)
        return 2
    if options.core_shares and options.plane != DEFAULT:
        print(f"hostile: --core-shares are of --plane {DEFAULT} alone", file=sys.stderr)
        return 2
    if options.core_mpps is not None and options.core_mpps <= 0:
        print("hostile: --core-mpps is more than 0", file=sys.stderr)
        return 2
    if options.core_mpps is None and set(OF_HOSTS) & set(options.attacks):
        if problem := generator.missing():
            print(f"hostile: {problem}", file=sys.stderr)
            return 1
        if (rate := _core_mpps(options.plane)) is None:
            print("hostile: bench/peers measured no rate; give --core-mpps", file=sys.stderr)
            return 1
        sys.argv += ["--core-mpps", str(rate)]
    missing = PLANES[options.plane]().missing
    return run_enclosed("hostile", "bench.hostile", program, lambda: missing() or generator.missing())


def _planes(options: argparse.Namespace) -> Planes:
    return ForwarderPlanes("--core-shares") if options.core_shares else PLANES[options.plane]()


def _core_mpps(plane: str) -> float | None:
    """Return what one core forwards of the shortest frames under overload, None where that cannot be measured."""
    try:
        line = last_line("bench.peers", "--only", plane, *_OVERLOAD, "--sizes", _SHORTEST)
    except SystemExit as ended:
        if ended.code != 1:  # by a signal
            raise
        return None
    rate: float | None = json.loads(line)[_SHORTEST][f"{plane}_mpps_overload"]
    return rate or None


if __name__ == "__main__":
    sys.exit(main())
