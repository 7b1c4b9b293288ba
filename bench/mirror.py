"""bench/mirror: how long N BGP routes take from a neighbor's announcement to the switch's confirmation.

    BIRD ──BGP──► bgpd ─► zebra ─FPM─► vrc ─gRPC─► vr-controller ─OpenFlow─► Open vSwitch        mirror_s
    BIRD ──BGP──► bgpd ─► zebra ─FPM─► a sink that counts                                        fpm_sink_s
                                       the same flows, one bundle of ovs-ofctl ─► another switch ovs_bundle_s

With --plane bmv2 the switch is a BMv2, driven by P4Runtime, and the third is another one:

                                       the same entries, encoded before, ─► another BMv2         bmv2_write_s

With --plane forwarder there is no third.

The clock of the first two starts when birdc has BIRD announce over an established session.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import p4reference
from bench.again import last_line
from bench.beside import Beside
from bench.profile import Profile
from bench.references import FpmSink, bundle_s
from bench.rig import AS_NUMBER, MORE_ROUTES, PLANE, Rig, bgp_config, interface, report, say, tenant
from lab import bird
from lab.bird import Bird
from lab.enclosure import kept_directory, run_enclosed
from lab.network import NetworkError
from lab.planes.catalog import PLANES
from lab.prefixes import Announcement, announcements
from lab.processes import Meter

ROUTER = "load/r1"
_OURS, _THEIRS = "10.0.1.1", "10.0.1.2"
_ROUTE_TABLE = 3  # ipv4_route
_POLL_S, _LAST_POLL_S = 0.5, 0.05
_NEARLY = 0.6  # of the routes are learned: from now on every answer may be the last


class Measurement:
    """One run of everything, in an enclosure of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._announced: list[Announcement] = announcements(options.routes, options.seed)
        self._frr = bgp_config([_THEIRS], bird.AS_NUMBER)
        self._rig = Rig(PLANES[options.plane]())

    def run(self) -> dict[str, Any]:
        """Measure the references and the mirror, and prove that nothing was lost."""
        options, rig = self._options, self._rig
        feed, sink_feed = rig.network.host("feed", f"{_THEIRS}/24"), rig.network.host("sink-feed")
        rig.network.wire(feed, "eth0", rig.network[PLANE], "feed")
        beside = Beside(rig) if options.beside else None
        rig.network.start()
        say(f"{options.routes} routes into an FPM sink that counts")
        sink = FpmSink(self._frr, options.routes)
        sink.wire(sink_feed, f"{_OURS}/24", f"{_THEIRS}/24")
        fpm_sink_s = sink.measure(self._bird(sink_feed), self._announced, options.timeout)
        say(f"fpm_sink_s {fpm_sink_s:.2f}, cpu_s {sink.cpu_s}")
        router = {"name": "r1", "interfaces": [interface("eth0", "feed", f"{_OURS}/24")], "frr": self._frr}
        load = tenant("load", ["feed"], router, ipv4_routes=options.routes + MORE_ROUTES)
        rig.apply([load, *(beside.tenants() if beside else [])])
        feeding = self._bird(feed)
        feeding.start(self._announced)
        feeding.wait_established()
        mirrored = self._mirror(feeding, beside)
        say(f"mirror_s {mirrored['mirror_s']:.2f}, cpu_s {mirrored['cpu_s']}; verifying")
        say(f"{rig.verify(ROUTER)}: no route lost, none stale")
        verified = Meter(rig.processes(ROUTER)).peak_mib()
        return {
            "plane": options.plane,
            "routes": options.routes,
            "mirror_s": round(mirrored["mirror_s"], 2),
            "fpm_sink_s": round(fpm_sink_s, 2),
            "sink_ratio": round(mirrored["mirror_s"] / fpm_sink_s, 3),
            **self._write(mirrored["mirror_s"], fpm_sink_s),
            "cpu_s": mirrored["cpu_s"],
            "peak_mib": mirrored["peak_mib"],
            "verified_peak_mib": {name: verified[name] for name in ("vrc", "controller")},
            "machine_s": mirrored["machine_s"],
            "sink_cpu_s": sink.cpu_s,
            "sink_machine_s": sink.machine_s,
        } | ({"beside": mirrored["beside"]} if beside else {})

    def _write(self, mirror_s: float, fpm_sink_s: float) -> dict[str, float]:
        """Measure what the switch alone takes, where there is a way to, and return it with the ratio."""
        if self._options.plane not in _WRITES:
            return {}
        name, measure = _WRITES[self._options.plane]
        write_s = measure(self._rig, self._options.routes)
        say(f"{name} {write_s:.2f}")
        return {name: round(write_s, 2), "ratio": round(mirror_s / (fpm_sink_s + write_s), 3)}

    def _bird(self, host: Any) -> Bird:
        return Bird(host, [(_THEIRS, _OURS)], AS_NUMBER)

    def _mirror(self, feeding: Bird, beside: Beside | None) -> dict[str, Any]:
        """Announce the routes and wait until the switch has confirmed the last one."""
        options, rig = self._options, self._rig
        if beside is not None:
            beside.start()
        own = rig.api.router(ROUTER)["ipv4_routes"]
        meter = Meter(rig.processes(ROUTER))
        say(f"{options.routes} routes through vrc and controller to the switch")
        with Profile(options.profile, meter.processes):
            start = time.monotonic()
            feeding.announce()
            self._wait(own + options.routes, start + options.timeout)
            took = time.monotonic() - start
            result = {"mirror_s": took, "cpu_s": meter.cpu_s(), "peak_mib": meter.peak_mib()}
            result["machine_s"] = meter.machine_s()
        if beside is not None:
            result["beside"] = beside.stop()
        return result

    def _wait(self, routes: int, deadline: float) -> None:
        shown = time.monotonic()
        while True:
            view = self._rig.api.router(ROUTER)
            if view["ipv4_routes"] >= routes and not view["pending"]:
                return
            now = time.monotonic()
            if now > deadline:
                raise NetworkError(f"not confirmed in time: {view}")
            if now > shown + 2:
                shown = now
                say(f"{view['ipv4_routes']} learned, {view['pending']} to be confirmed")
            time.sleep(_LAST_POLL_S if view["ipv4_routes"] >= _NEARLY * routes else _POLL_S)


def _ovs_bundle_s(rig: Rig, routes: int) -> float:
    return bundle_s(PLANE, _ROUTE_TABLE, routes)


def _bmv2_write_s(rig: Rig, routes: int) -> float:
    (declared,) = rig.network.planes.declared()
    return p4reference.write_s(declared["address"], declared["device_id"], "ipv4_route", routes)


_WRITES: dict[str, tuple[str, Callable[[Rig, int], float]]] = {
    "ovs": ("ovs_bundle_s", _ovs_bundle_s),
    "bmv2": ("bmv2_write_s", _bmv2_write_s),
}
"""How long the switch alone takes for the routes: the name in the result, and how it is measured."""


def program() -> int:
    """Measure once, inside the enclosure."""
    options = _options()
    return report("mirror", lambda: Measurement(options).run(), options.keep)


def _repeat(options: argparse.Namespace) -> int:
    """Run each measurement from scratch and report the one of median ratio, to the sink where there is no other."""
    results: list[dict[str, Any]] = []
    for number in range(options.runs):
        say(f"run {number + 1} of {options.runs}")
        print(line := last_line("bench.mirror", *sys.argv[1:], "--runs", "1"), flush=True)
        results.append(json.loads(line))
    key = "ratio" if "ratio" in results[0] else "sink_ratio"
    middle = statistics.median_low([result[key] for result in results])
    print(json.dumps(next(result for result in results if result[key] == middle) | {"runs": options.runs}))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mirror", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plane", choices=PLANES, default="ovs", help="what forwards (default: %(default)s)")
    parser.add_argument("--routes", type=int, default=200_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--runs", type=int, default=1, metavar="K", help="report the median of K runs")
    parser.add_argument("--seed", type=int, default=1, help="of the prefixes (default: %(default)s)")
    parser.add_argument("--beside", action="store_true", help="also measure what another tenant notices")
    parser.add_argument("--timeout", type=float, default=300, metavar="S", help="for each part (default: 300)")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="sample vrc and controller; needs py-spy on PATH")
    parser.add_argument("--keep", type=kept_directory, metavar="DIR", help="copy all logs to DIR at the end")
    return parser.parse_args()


def main() -> int:
    """Check the command line, then measure inside an enclosure."""
    options = _options()
    if options.routes < 1 or options.runs < 1:
        print("mirror: --routes and --runs are at least 1", file=sys.stderr)
        return 2
    if options.runs > 1:
        return _repeat(options)
    return run_enclosed("mirror", "bench.mirror", program, PLANES[options.plane]().missing)


if __name__ == "__main__":
    sys.exit(main())
