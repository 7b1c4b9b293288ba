"""bench/fairness: what each router gets of a core or link that is too small for all, beside what it is entitled to.

    generator ── veth ──► vr-forwarder ── veth ──► receiver
      first core            last core: NAPI of its ingress, and its threads

Packets of all routers arrive at given rates, at up to four times what the core forwards. Each case runs without
shares and with them, in turns; in `queue-each` each router has a veth pair and a NAPI thread, and the kernel's
scheduler has the weights. The last line is {"cases": [{"name", "load", "error", "victim_loss", "victim_p99_us",
"converge_ms", "aggregate_ratio", "routers": [{"offered", "forwarded", "cpu_share", "entitled"}]}]}; docs/fairness.md
says what is what.
"""

import argparse
import json
import logging
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench import fairness_plot
from bench.fairness_bed import STEP, WIRE_OCTETS, Bed, Machine
from bench.fairness_cases import CASES, Case, added_cost
from bench.fairness_judge import Costs
from bench.fairness_table import table
from lab.commands import NetworkError
from lab.offers import MOST_STEPS
from lab.processes import machine_s
from lab.wires import FORWARDER_CORE, GENERATOR_CORE, WiresError, enclose

_ROOT = Path(__file__).parent.parent
_WORK = Path("/run/fairness")
_CALIBRATED_S = 0.5
_WIRE_BITS = 8 * WIRE_OCTETS
_STEPPED = 0.5  # a load above it is reached in a step
_TRIED_STEPS = 200
_ROOM = 1.15  # the generator sends so much more, without keeping to a rate, than is wanted of it
_DIGITS = 4
_WITHOUT = ("error", "victim_loss", "victim_p99_us", "idle", "forwarded", "refused", "routers")


def say(text: str) -> None:
    """Tell people how far it is."""
    print(f"fairness: {text}", file=sys.stderr, flush=True)


class Measured:
    """One case: its forwarders, and what was seen of them, load by load."""

    def __init__(self, case: Case, options: argparse.Namespace) -> None:
        self.case, self._options = case, options
        self._with: dict[float, list[dict[str, Any]]] = {load: [] for load in self.loads}
        self._without: dict[float, list[dict[str, Any]]] = {load: [] for load in self.loads}
        self._costs: list[Costs] = []
        self._most, self._slowed = 0.0, 0

    @property
    def loads(self) -> list[float]:
        """The loads that are wanted of those of the case."""
        wanted = self._options.loads
        return [load for load in self.case.loads if wanted is None or load in wanted]

    def run(self) -> None:
        """Measure everything so often as is wanted. NetworkError where a forwarder does not start or forward."""
        options = self._options
        with ExitStack() as stack:
            plain = stack.enter_context(self._bed(0, shared=False))
            shared = plain if self.case.each_its_queue else self._shared(stack, self._speed_bps(plain))
            for number in range(options.runs):
                say(f"{self.case.name}: run {number + 1} of {options.runs}")
                plain.unshare()
                self._slowed = self._steps(plain)
                for bed in (plain, *([shared] if shared is not None else ())):
                    bed.slow(self._slowed)
                costs = plain.costs(_CALIBRATED_S)
                say(f"{self.case.name}: {_told(costs)}; the generator sends {plain.most / 1e6:.2f} Mpps at most")
                self._most = plain.most
                self._costs.append(costs)
                if shared is not None and shared.speed_bps:
                    costs = self._of_link(shared)
                for load in self.loads:
                    plain.unshare()
                    self._without[load].append(self._judged(plain, load, costs))
                    if shared is not None:
                        if self.case.each_its_queue:
                            shared.share()
                        self._with[load].append(self._judged(shared, load, costs))

    def _speed_bps(self, plain: Bed) -> float:
        """Return the speed of the egress port, in bit/s, that is the case's part of what the core forwards."""
        if not self.case.link_part:
            return 0.0
        return self.case.link_part / min(plain.costs(_CALIBRATED_S).routers) * _WIRE_BITS

    def _of_link(self, bed: Bed) -> Costs:
        """What a packet costs of the link's second; one that is dropped costs nothing of it."""
        return Costs((_WIRE_BITS / bed.speed_bps,) * len(self.case.routers), 0.0)

    def _steps(self, bed: Bed) -> int:
        """Return how much what is forwarded has to be slowed down, for the generator to send what the highest load
        is, and costs to be in the ratio of the case."""
        if self._options.steps is not None or self.case.link_part:
            return int(self._options.steps or 0)
        found = []
        for steps in (0, _TRIED_STEPS):
            bed.slow(steps)
            found.append(bed.costs(_CALIBRATED_S).routers)
        each = (min(found[1]) - min(found[0])) / _TRIED_STEPS
        wanted = added_cost(found[0], max(self.loads) * _ROOM / bed.most, self.case.ratio)
        return min(MOST_STEPS, math.ceil(wanted / each))

    def _bed(self, number: int, shared: bool, speed_bps: float = 0.0) -> Bed:
        options = self._options
        generator, program = (options.build / name for name in ("bench/generator", "daemon/vr-forwarder"))
        for built in (generator, program):
            if not built.exists():
                raise WiresError(f"{built} is missing; run: scripts/setup tests")
        return Bed(Machine(program, generator, _WORK, options.seed), self.case, number, shared, speed_bps)

    def _shared(self, stack: ExitStack, speed_bps: float) -> Bed | None:
        bed = stack.enter_context(self._bed(1, True, speed_bps))
        try:
            bed.share()
        except NetworkError as problem:
            say(f"{self.case.name}: only without shares: {problem}")
            return None
        return bed

    def _judged(self, bed: Bed, load: float, costs: Costs) -> dict[str, Any]:
        found = bed.judged(load, costs, self._options.seconds).report(STEP if load > _STEPPED else None)
        say(f"{self.case.name}, {load:g}: {_short(found)}")
        return found

    def result(self) -> Iterator[dict[str, Any]]:
        """Yield each load's figures: medians of all runs."""
        for load in self.loads:
            without, found = self._without[load], self._with[load]
            medians = _medians(found or without)
            pairs = zip(found, without, strict=True) if found else ()
            most = load if self.case.link_part else 1.0  # without shares a link lets all through that comes
            ratios = [one["forwarded"] / other["forwarded"] * max(1.0, most) for one, other in pairs]
            yield {
                "name": self.case.name,
                "load": load,
                "reached": medians.pop("load"),
                "shares": "kernel" if self.case.each_its_queue else "forwarder" if found else None,
                "aggregate_ratio": round(median(ratios), _DIGITS) if ratios else None,
                **medians,
                "weights": [router.weight for router in self.case.routers],
                "without": {key: value for key, value in _medians(without).items() if key in _WITHOUT},
                "costs_ns": [round(1e9 * median(costs), 1) for costs in zip(*self._all_costs(), strict=True)],
                "generator_mpps": round(self._most / 1e6, 3),
                "steps": self._slowed,
            }

    def _all_costs(self) -> list[tuple[float, ...]]:
        return [(*costs.routers, costs.drop) for costs in self._costs]


def _told(costs: Costs) -> str:
    kinds = ", ".join(f"{1e9 * cost:.0f}" for cost in dict.fromkeys(costs.routers))
    return f"a packet costs {kinds} ns, one that is dropped {1e9 * costs.drop:.0f}"


def _short(found: dict[str, Any]) -> str:
    shares = " ".join(f"{router['cpu_share']:.3f}/{router['entitled']:.3f}" for router in found["routers"][-6:])
    keys = ("load", "error", "victim_loss", "victim_p99_us", "converge_ms", "idle", "refused", "lost_behind")
    told = ", ".join(f"{key} {found[key]:.4g}" for key in keys if found[key] is not None)
    return f"{told}; {found['forwarded'] / 1e6:.3f} Mpps; {shares}"


def _medians(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of dictionaries that are alike, key by key."""
    merged: dict[str, Any] = {}
    for key in found[0]:
        values = [one[key] for one in found]
        if key == "routers":
            merged[key] = [_medians(routers) for routers in zip(*values, strict=True)]
        else:
            merged[key] = _median(values)
    return merged


def _median(values: Sequence[float | None]) -> float | None:
    """Return the median, in which what never came is infinite; None where that is the median, or there is none."""
    if all(value is None for value in values):
        return None
    middle = median(math.inf if value is None else value for value in values)
    return None if math.isinf(middle) else round(middle, _DIGITS)


def parsed() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="bench/fairness", description="What routers get of a core or link.")
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="NAME", help=f"of: {', '.join(CASES)}")
    parser.add_argument("--loads", type=float, nargs="+", metavar="L", help="only these of each case's loads")
    parser.add_argument("--runs", type=int, default=3, help="whose medians are reported (3)")
    parser.add_argument("--seconds", type=int, default=3, help="that are measured of each load (3)")
    parser.add_argument(
        "--steps", type=int, help="of a loop for each packet that is sent (what the highest load of a case asks for)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--build", type=Path, default=_ROOT / "build" / "forwarder", help="where forwarder/ was built"
    )
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw the figures of docs/fairness.md there as well")
    parser.add_argument("--from", type=Path, dest="kept", metavar="FILE", help="of an earlier run: print its table")
    options = parser.parse_args()
    if options.kept is not None and not options.kept.exists():
        parser.error(f"{options.kept} is not there; --from takes what an earlier run has printed")
    if options.runs < 1 or options.seconds < 1 or not 0 <= (options.steps or 0) <= MOST_STEPS:
        parser.error(f"--runs and --seconds are 1 at least, --steps {MOST_STEPS} at most")
    options.build = options.build.resolve()
    return options


def program(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and return the result."""
    before = machine_s()
    _WORK.mkdir()
    found: list[dict[str, Any]] = []
    for name in options.only or CASES:
        measured = Measured(CASES[name], options)
        if measured.loads:
            measured.run()
            found += measured.result()
    return {
        "runs": options.runs,
        "seconds": options.seconds,
        "cores": {"generator": GENERATOR_CORE, "forwarder and receiver": FORWARDER_CORE},
        "machine_s": {name: round(now - before[name], 2) for name, now in machine_s().items()},
        "cases": found,
    }


def main() -> int:
    """Measure, and print JSON on the last line; or show what was kept of that."""
    options = parsed()
    logging.getLogger("controller").setLevel(logging.ERROR)
    try:
        if options.kept is not None:
            result = json.loads(options.kept.read_text().splitlines()[-1])
            if options.plot is not None:
                fairness_plot.draw(result, options.plot)
            print(table(result))
            return 0
        enclose("bench.fairness")
        result = program(options)
        if options.plot is not None:
            fairness_plot.draw(result, options.plot)
        print(json.dumps(result), flush=True)
    except NetworkError as error:
        print(f"fairness: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
