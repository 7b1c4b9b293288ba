"""bench/peers: vr-forwarder beside others, over the same wires with the same frames and on the same core.

    generator ── veth ──► forwarder under test ── veth ──► receiver

In each round every frame size is sent through every forwarder: first all of them under overload, one directly after
the other, then all in search of the highest rate without loss.
"""

import argparse
import json
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import destinations
from bench.peer_kinds import ROUTE, Bmv2, Forwarder, Linux, Ovs, Peer, Redirect, full_tables, present
from bench.peer_search import lossless
from lab.commands import NetworkError
from lab.processes import machine_s
from lab.wires import FORWARDER_CORE, GENERATOR_CORE, Wires, WiresError, enclose

_ROOT = Path(__file__).parent.parent
_WORK = Path("/run/peers")
_CHECK_SEQUENCE = 4  # octets of a frame that a veth does not carry
_TARGETS = 256  # networks of RFC 2544, section 12
_FULL, _ZIPF = "forwarder_1m", "forwarder_1m_zipf"
_EXPONENT = 1.1  # of Zipf's law
_WARM_S, _TAIL_S = 0.3, 0.1
_TRIALS, _TRIALS_S = 10, 1.5  # of a rate: so many at most, and so long, but two
_TRIAL_FRAMES, _LONGEST_S = 50_000, 1.0
_LEAST, _MOST = 500.0, 16e6  # frames/s
_KEPT = 0.98  # of a rate the generator has to reach


def say(text: str) -> None:
    """Tell people how far it is."""
    print(f"peers: {text}", file=sys.stderr, flush=True)


@dataclass
class Bed:
    """A forwarder in its wires, ready to be measured."""

    name: str
    peer: Peer
    wires: Wires
    destinations: Path | None = None  # others than the wires' own

    def overload(self, length: int, seconds: float) -> float:
        """Return what it forwards, in Mpps, while it is sent as much as the generator can."""
        with self.wires.sending(length, 0, _WARM_S + seconds + _TAIL_S, self.destinations) as sent:
            time.sleep(_WARM_S)
            first = self.wires.count()
            time.sleep(seconds)
            last = self.wires.count()
        self.wires.drained()
        packets = last.packets - first.packets
        if not packets or not sent[0]:
            raise WiresError(f"{self.name} forwards nothing of {sent[0]} frames")
        if self.peer.routes and last.routed - first.routed != packets:
            raise WiresError(f"{self.name} does not count the TTL of {packets - last.routed + first.routed} packets")
        return packets / (last.at_ns - first.at_ns) * 1e3

    def without_loss(self, length: int, seconds: float, first: float) -> float:
        """Return the highest rate, in Mpps, at which it loses nothing."""
        return lossless(first * 1e6, _LEAST, _MOST, lambda rate: self._holds(length, seconds, rate)) / 1e6

    def _holds(self, length: int, seconds: float, rate: float) -> bool:
        """A rate that is too high loses in each trial, one that holds only where something else had the core: a
        veth's ring has room for 256 frames, at 1 Mpps for a quarter of a millisecond."""
        seconds = max(seconds, min(_TRIAL_FRAMES / rate, _LONGEST_S))
        trials = min(_TRIALS, max(2, round(_TRIALS_S / seconds)))
        return any(self._trial(length, seconds, rate) for _ in range(trials))

    def _trial(self, length: int, seconds: float, rate: float) -> bool:
        before = self.wires.count()
        with self.wires.sending(length, rate, seconds) as sent:
            pass
        packets, took_ns = sent
        if packets < rate * took_ns / 1e9 * _KEPT:
            return False
        return self.wires.drained().packets - before.packets == packets


class Peers:
    """All forwarders, and what is measured of them."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self._options = options
        self._stack = stack
        self._generator = options.build / "bench" / "generator"
        self._program = options.build / "daemon" / "vr-forwarder"
        self._samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.beds: list[Bed] = []
        if not self._generator.exists():
            raise WiresError(f"{self._generator} is missing; run: scripts/setup tests")

    def start(self) -> None:
        """Start every forwarder that is here."""
        one = destinations.write(_WORK, [[ROUTE]], _TARGETS, self._options.seed)
        kinds: dict[str, tuple[Callable[[], Peer], Path]] = {
            "redirect_only": (lambda: Redirect(self._generator), one),
            "linux": (Linux, one),
        }
        if present("ovs-vswitchd"):
            kinds["ovs"] = (lambda: Ovs(_WORK / "ovs"), one)
        if present("simple_switch_grpc"):
            kinds["bmv2"] = (lambda: Bmv2(_WORK / "bmv2"), one)
        popular: Path | None = None
        if self._program.exists():
            tables = full_tables(self._options.routes, self._options.vrfs, self._options.seed)
            many = destinations.write(_WORK, tables, destinations.MOST, self._options.seed)
            kinds["forwarder"] = (lambda: Forwarder(self._program, _WORK / "forwarder", [[ROUTE]]), one)
            kinds[_FULL] = (lambda: Forwarder(self._program, _WORK / "full", tables), many)
            popular = destinations.write(_WORK, tables, destinations.MOST, self._options.seed, _EXPONENT)
        chosen = self._options.only or list(kinds)
        for name in chosen:
            if name not in kinds:
                raise WiresError(f"{name} is not here; there are: {', '.join(kinds)}")
            self._add(name, *kinds[name])
            if name == _FULL:
                self.beds.append(Bed(_ZIPF, self.beds[-1].peer, self.beds[-1].wires, popular))

    def _add(self, name: str, kind: Callable[[], Peer], towards: Path) -> None:
        start = time.monotonic()
        wires = self._stack.enter_context(Wires(len(self.beds), self._generator, towards))
        peer = kind()
        self._stack.callback(peer.stop)
        peer.start(wires)
        wires.pin()
        self.beds.append(Bed(name, peer, wires))
        say(f"{name} is up after {time.monotonic() - start:.1f} s")

    def round(self) -> None:
        """Measure everything once."""
        for size in self._options.sizes:
            length, samples = size - _CHECK_SEQUENCE, self._samples[str(size)]
            for bed in self.beds:
                if bed.name not in (_FULL, _ZIPF) or size == min(self._options.sizes):
                    samples[f"{bed.name}_mpps_overload"].append(bed.overload(length, self._options.overload_s))
            say(f"{size} octets, overload: {_latest(samples, '_overload')}")
            if self._options.trial_s:
                for bed in self.beds:
                    if bed.name not in (_FULL, _ZIPF):
                        first = samples[f"{bed.name}_mpps_overload"][-1]
                        rate = bed.without_loss(length, self._options.trial_s, first)
                        samples[f"{bed.name}_mpps"].append(rate)
                say(f"{size} octets, without loss: {_latest(samples, '_mpps')}")

    def result(self) -> dict[str, Any]:
        """Return medians, their extremes, and the ratios of what was measured directly one after the other."""
        names = ("forwarder", "redirect_only", "linux", "ovs", "bmv2")
        frames: dict[str, Any] = {}
        for size, samples in self._samples.items():
            wanted = [f"{name}_mpps{kind}" for kind in ("", "_overload") for name in names]
            wanted += [key for name in (_FULL, _ZIPF) if (key := f"{name}_mpps_overload") in samples]
            frames[size] = {key: round(median(samples[key]), 4) if samples.get(key) else None for key in wanted} | {
                "extremes": {key: [round(min(all_), 4), round(max(all_), 4)] for key, all_ in samples.items()}
            }
        return frames | {"ratios": self._ratios(self._samples[str(min(self._options.sizes))])}

    def _ratios(self, samples: dict[str, list[float]]) -> dict[str, float]:
        ratios = {}
        beside = (("forwarder", "redirect_only"), ("forwarder", "linux"))
        for ours, theirs in (*beside, (_FULL, "redirect_only"), (_ZIPF, "redirect_only")):
            pairs = list(zip(samples[f"{ours}_mpps_overload"], samples[f"{theirs}_mpps_overload"], strict=False))
            if pairs:
                ratios[f"{ours}_to_{theirs}_overload"] = round(median(one / other for one, other in pairs), 3)
        return ratios


def _latest(samples: dict[str, list[float]], ending: str) -> str:
    return ", ".join(
        f"{key.removesuffix(ending)} {all_[-1]:.3f}" for key, all_ in samples.items() if key.endswith(ending)
    )


def parsed() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="bench/peers", description="Compare vr-forwarder with other forwarders.")
    parser.add_argument("--runs", type=int, default=5, help="rounds, whose medians are reported (5)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 512, 1518], help="of frames, octets")
    parser.add_argument("--overload-s", type=float, default=1.0, help="length of a measurement under overload")
    parser.add_argument("--trial-s", type=float, default=0.1, help="shortest trial; 0: only overload")
    parser.add_argument("--routes", type=int, default=1_000_000, help="of the full table")
    parser.add_argument("--vrfs", type=int, default=64, help="that share the full table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure only these")
    parser.add_argument(
        "--build", type=Path, default=_ROOT / "build" / "forwarder", help="where forwarder/ was built"
    )
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def program(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and return the result."""
    before = machine_s()
    _WORK.mkdir()
    with ExitStack() as stack:
        peers = Peers(options, stack)
        peers.start()
        for number in range(options.runs):
            say(f"round {number + 1} of {options.runs}")
            peers.round()
    return {
        "routes": 1,
        f"{_FULL}_routes": options.routes // options.vrfs * options.vrfs,
        f"{_FULL}_vrfs": options.vrfs,
        "runs": options.runs,
        "trial_s": options.trial_s,
        "cores": {"generator": GENERATOR_CORE, "forwarder and receiver": FORWARDER_CORE},
        "machine_s": {name: round(now - before[name], 2) for name, now in machine_s().items()},
        **peers.result(),
    }


def main() -> int:
    """Measure, and print JSON on the last line."""
    options = parsed()
    logging.getLogger("controller").setLevel(logging.ERROR)
    try:
        enclose("bench.peers")
        print(json.dumps(program(options)), flush=True)
    except NetworkError as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
