"""bench/failover: what a link that goes down costs, with many prefixes and active flows behind an ECMP pair.

                                   ┌── far-a ── eth0 ┐
    near ── [ edge/r1 on switch ] ─┤                 ├ far (BIRD announces the same prefixes on both links)
      UDP flows ──────────────►    └── far-b ── eth1 ┘

eth0 of far goes down. The switch sees its port's carrier go; bgpd sees its interface's and ends the session; zebra
points every prefix, one by one, to the way that is left. Messages to the switch are counted where that is an Open
vSwitch.
"""

import argparse
import json
import signal
import sys
import time
from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.again import last_line
from bench.rig import (
    AS_NUMBER,
    PLANE,
    PREFIXES,
    RECEIVED,
    SENT,
    WORK,
    Rig,
    bgp_config,
    interface,
    report,
    say,
    tenant,
)
from bench.snoop import Snoop
from lab import bird
from lab.bird import Bird
from lab.enclosure import kept_directory, run_enclosed
from lab.network import NetworkError, checked, inside, wait_for
from lab.planes.catalog import PLANES
from lab.prefixes import announcements

ROUTER = "edge/r1"
_LINKS = (("10.2.1.1", "10.2.1.2"), ("10.2.2.1", "10.2.2.2"))
_WARM_S, _AFTER_S, _QUIET_S = 8.0, 5.0, 5.0
_CALM_PACKETS = 200  # without a loss among them, traffic flows again


class Failover:
    """One link failure with a number of flows, in an enclosure of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rig = rig = Rig(PLANES[options.plane]())
        network = rig.network
        self._near = network.host("near", "10.1.0.2/24")
        self._far = network.host("far", f"{_LINKS[0][1]}/24")
        network.wire(self._near, "eth0", network[PLANE], "near")
        network.wire(self._far, "eth0", network[PLANE], "far-a")
        network.wire(self._far, "eth1", network[PLANE], "far-b")

    def run(self) -> dict[str, Any]:
        """Bring everything up, take a link down under traffic, and return what it cost."""
        self._bring_up()
        self._snoop = Snoop(PLANE, WORK / "snoop") if self._options.plane == "ovs" else None
        say(f"{self._options.flows} flows, {self._options.rate} packets/s")
        flows = int(self._options.flows)
        sender, receiver = self._rig.start_flows(self._near, self._far, ["eth0", "eth1"], self._options.rate, flows)
        time.sleep(_WARM_S)
        say("taking the link of far-a down")
        down_ns, down_wall = time.monotonic_ns(), time.time()
        checked(inside(self._far, ["ip", "link", "set", "eth0", "down"]))
        time.sleep(_AFTER_S)
        for process in (sender, receiver):
            process.send_signal(signal.SIGTERM)
        for process in (sender, receiver):
            process.wait(timeout=30)
        result = self._traffic_result(down_ns)
        self._wait_quiet()
        counts: dict[str, Any] = {}
        if self._snoop is not None:
            self._snoop.stop()
            counts = self._snoop.counts(down_wall, down_wall + result["recovered_ms"] / 1000)
        say(self._rig.verify(ROUTER))
        asked = {"plane": self._options.plane, "prefixes": self._options.prefixes, "flows": flows}
        return asked | result | counts

    def _bring_up(self) -> None:
        options, rig = self._options, self._rig
        rig.network.start()
        checked(inside(self._far, ["ip", "address", "add", f"{_LINKS[1][1]}/24", "dev", "eth1"]))
        interfaces = [interface("near", "near", "10.1.0.1/24")]
        interfaces += [
            interface(f"far-{end}", f"far-{end}", f"{ours}/24") for end, (ours, _) in zip("ab", _LINKS, strict=True)
        ]
        frr = bgp_config([theirs for _, theirs in _LINKS], bird.AS_NUMBER)
        router = {"name": "r1", "interfaces": interfaces, "frr": frr}
        rig.apply([tenant("edge", ["near", "far-a", "far-b"], router)])
        announced = announcements(options.prefixes, options.seed)
        PREFIXES.write_text("\n".join(one.text for one in announced))
        feeding = Bird(self._far, [(theirs, ours) for ours, theirs in _LINKS], AS_NUMBER)
        feeding.start(announced)
        feeding.wait_established()
        say(f"{options.prefixes} prefixes over two links")
        feeding.announce()
        wait_for("every prefix over both links", self._all_grouped, options.timeout, 2)

    def _all_grouped(self) -> bool:
        view = self._rig.api.router(ROUTER)
        wanted: int = self._options.prefixes
        if view["ipv4_routes"] < wanted or view["pending"]:
            return False
        return self._rig.api.text(f"routers/{ROUTER}/fib").count('"action":"group"') >= wanted

    def _wait_quiet(self) -> None:
        """Wait until the controller has written nothing for a while."""
        size, since = -1, time.monotonic()
        deadline = since + self._options.timeout
        while time.monotonic() < since + _QUIET_S:
            if time.monotonic() > deadline:
                raise NetworkError("the router does not come to rest after the failure")
            view, now = self._rig.api.router(ROUTER), self._snoop.octets if self._snoop is not None else 0
            if view["pending"] or now > size + 20_000:  # keepalives of BGP and of the connection go on
                size, since = now, time.monotonic()
            time.sleep(0.5)

    def _traffic_result(self, down_ns: int) -> dict[str, Any]:
        return Arrivals(SENT, RECEIVED, int(self._options.flows)).around(down_ns)


class Arrivals:
    """What was sent and what of it came."""

    def __init__(self, sent: Path, received: Path, flows: int) -> None:
        self._flows = flows
        self._sent, seen = array("q", sent.read_bytes()), array("q", received.read_bytes())
        self._came = {seen[at]: (seen[at + 1], seen[at + 2]) for at in range(0, len(seen), 3)}

    def around(self, down_ns: int) -> dict[str, Any]:
        """Return the blackout of the flows that used the link that went down (position 0) until then.

        `lost_ms` is from the first of their lost packets to the first after which none was lost for a while;
        `gap_ms` the longest silence between arrivals of all these flows together, which counts delay as well.
        """
        sent, came, flows = self._sent, self._came, self._flows
        used = {n % flows for n, (when, by) in came.items() if by == 0 and when < down_ns}
        window = self._window(down_ns)
        mine = [n for n in window if n % flows in used]
        lost = [position for position, n in enumerate(mine) if n not in came]
        if not used or (lost and lost[-1] > len(mine) - _CALM_PACKETS):
            raise NetworkError(f"{len(used)} flows used the link; traffic does not show that and when it came back")
        calm = (p for p, following in pairwise([*lost, len(mine)]) if following - p > _CALM_PACKETS)
        last = next(calm, -1)
        arrivals = sorted(came[n][0] for n in mine if n in came)
        gap_ns = max(later - earlier for earlier, later in pairwise(arrivals))
        resumed_ns = sent[mine[last + 1]] if lost else down_ns
        lost_ns = resumed_ns - sent[mine[lost[0]]] if lost else 0
        return {
            "blackout_ms": round(max(lost_ns, gap_ns) / 1e6, 1),
            "lost_ms": round(lost_ns / 1e6, 1),
            "gap_ms": round(gap_ns / 1e6, 1),
            "recovered_ms": round((resumed_ns - down_ns) / 1e6, 1),
            "flows_moved": len(used),
            "lost_packets": sum(position <= last for position in lost),
            "lost_later": sum(position > last for position in lost),
            "lost_of_other_flows": sum(n % flows not in used and n not in came for n in window),
        }

    def _window(self, down_ns: int) -> range:
        """Return the packets from a second before until the last that could have come."""
        sent = self._sent
        first = next((n for n in range(len(sent)) if sent[n] > down_ns - 10**9), len(sent))
        return range(first, len(sent) - 100)


def program() -> int:
    """Measure one failure, inside the enclosure."""
    options = _options()
    keep = options.keep / str(options.flows) if options.keep else None
    return report("failover", lambda: Failover(options).run(), keep)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="failover", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plane", choices=PLANES, default="ovs", help="what forwards (default: %(default)s)")
    parser.add_argument("--prefixes", type=int, default=100_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--flows", default="1000,10000", metavar="M,…", help="one failure each (default: %(default)s)"
    )
    parser.add_argument("--rate", type=int, default=4000, metavar="PPS", help="of all flows (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the prefixes (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=300, metavar="S", help="for each part (default: 300)")
    parser.add_argument("--keep", type=kept_directory, metavar="DIR", help="copy all logs to DIR at the end")
    options = parser.parse_args()
    if not all(part.isdigit() and int(part) for part in options.flows.split(",")):
        parser.error(f"--flows {options.flows!r} is not a list of numbers")
    return options


def main() -> int:
    """Measure a failure for each number of flows, each inside an enclosure of its own."""
    options = _options()
    if "," not in options.flows:
        return run_enclosed("failover", "bench.failover", program, PLANES[options.plane]().missing)
    results = []
    for flows in options.flows.split(","):
        print(line := last_line("bench.failover", *sys.argv[1:], "--flows", flows), flush=True)
        results.append(json.loads(line))
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
