"""bench/daemons: routing daemons in ten virtual routers beside the same daemons in plain namespaces.

Both rings of bench/ring.py are run one after the other, alike: they converge from nothing, have a link cut and mended
under pings, and keep their BFD sessions while one of their routers takes many routes.
"""

import argparse
import statistics
import sys
import time
from typing import Any

from bench.rig import Rig, report, say
from bench.ring import AS_NUMBER, FEEDER, NEAR, ROUTERS, PlainRing, Ring, VirtualRing, host_address, wanted
from lab.bird import Bird
from lab.enclosure import kept_directory, run_enclosed
from lab.network import NetworkError, inside, output, wait_for
from lab.planes.catalog import PLANES
from lab.prefixes import announcements
from lab.probes import RunningPing
from lab.processes import machine_s

_POLL_S = 0.25
"""Asked twenty times a second, the controller spent a quarter of what it did meanwhile on the answers."""
_PING_S = 0.005
_BEFORE_S, _AFTER_S = 1.0, 4.0
_REST_S = 5.0


class Daemons:
    """Both rings, in an enclosure of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rig = Rig(PLANES[options.plane]())
        self._rings: dict[str, Ring] = {"plain": PlainRing(self._rig.network), "ours": VirtualRing(self._rig)}

    def run(self) -> dict[str, dict[str, Any]]:
        """Return what each took, by figure and ring."""
        self._rig.network.start()
        self._rig.start_controller()
        found = {name: self._measured(name, ring) for name, ring in self._rings.items()}
        figures = ("converge_s", "repair_ms", "bfd_flaps")
        return {figure: {name: found[name][figure] for name in ("ours", "plain")} for figure in figures}

    def _measured(self, name: str, ring: Ring) -> dict[str, Any]:
        ring.bridge()
        say(f"{name}: ten routers start")
        before, began = machine_s(), time.monotonic()
        ring.start()
        self._converged(ring)
        converge_s = time.monotonic() - began
        busy_s = machine_s()["busy"] - before["busy"]
        say(f"{name}: converged after {converge_s:.1f} s, in which both cores were busy for {busy_s:.1f} s")
        say(f"{name}: a link is cut {self._options.cuts} times")
        repairs = [self._repaired(ring) for _ in range(self._options.cuts)]
        say(f"{name}: repaired after {repairs} ms; {self._options.routes} routes come to r{FEEDER}")
        flaps = self._flaps(ring)
        ring.stop()
        return {
            "converge_s": round(converge_s, 1),
            "repair_ms": round(statistics.median(repairs)),
            "bfd_flaps": flaps,
        }

    def _converged(self, ring: Ring) -> None:
        missing = set(ROUTERS)

        def all_there() -> bool:
            missing.difference_update([router for router in missing if wanted(router) <= ring.prefixes(router)])
            return not missing

        wait_for("every route on every router", all_there, self._options.timeout, _POLL_S)

    def _repaired(self, ring: Ring) -> float:
        """Cut the first link of the way from near to far; returns for how long pings found no other, in ms."""
        near, far = ring.hosts["near"], host_address("far")
        self._at_rest(ring)
        ping = RunningPing(near, far, _PING_S)
        time.sleep(_BEFORE_S)
        ring.cut(NEAR, True)
        time.sleep(_AFTER_S)
        stream = ping.stop()
        ring.cut(NEAR, False)
        if not stream.lost:
            raise NetworkError("the cut lost no ping: they did not go that way")
        return round(stream.outage_ms, 1)

    def _at_rest(self, ring: Ring) -> None:
        """Wait until the shortest way is used again, and for SPF to be quick again (its hold time has passed)."""
        near, far = ring.hosts["near"], host_address("far")
        short = "ttl=61"  # three routers

        def is_short() -> bool:
            return short in output(inside(near, ["ping", "-n", "-c", "1", "-W", "1", far]))

        wait_for("the shortest way", is_short, self._options.timeout, 0.2)
        time.sleep(_REST_S)

    def _flaps(self, ring: Ring) -> int:
        host = ring.hosts["feeder"]
        theirs = host_address("feeder")
        feeding = Bird(host, [(theirs, theirs.removesuffix("2") + "1")], AS_NUMBER)
        feeding.start(announcements(self._options.routes, 1))
        feeding.wait_established()
        self._at_rest(ring)
        before, began = ring.sessions_lost(), time.monotonic()
        feeding.announce()
        wait_for("the routes", lambda: ring.routes(FEEDER) >= self._options.routes, self._options.timeout, 1)
        say(f"all routes after {time.monotonic() - began:.1f} s")
        time.sleep(max(0.0, began + self._options.seconds - time.monotonic()))
        lost = [
            sum(times_lost(then[peer], now[peer]) for peer in then)
            for then, now in zip(before, ring.sessions_lost(), strict=True)
        ]
        feeding.stop()
        say(f"BFD sessions that went down, by router: {lost}")
        return sum(lost)


def times_lost(before: int, now: int) -> int:
    """Return how often a session went down between two counts: one that OSPF gave up and made again counts anew."""
    return now - before if now >= before else now + 1


def program() -> int:
    """Measure, inside the enclosure."""
    options = _options()
    return report("daemons", lambda: Daemons(options).run(), options.keep)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="daemons", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plane", choices=PLANES, default="forwarder", help="what forwards (default: %(default)s)")
    parser.add_argument("--routes", type=int, default=100_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--cuts", type=int, default=5, metavar="K", help="the median counts (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=120, metavar="S", help="of watching BFD (default: 120)")
    parser.add_argument("--timeout", type=float, default=300, metavar="S", help="for each part (default: 300)")
    parser.add_argument("--keep", type=kept_directory, metavar="DIR", help="copy all logs to DIR at the end")
    return parser.parse_args()


def main() -> int:
    """Check the command line, then measure inside an enclosure."""
    options = _options()
    if options.routes < 1 or options.cuts < 1:
        print("daemons: --routes and --cuts are at least 1", file=sys.stderr)
        return 2
    return run_enclosed("daemons", "bench.daemons", program, PLANES[options.plane]().missing)


if __name__ == "__main__":
    sys.exit(main())
