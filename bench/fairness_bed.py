"""A forwarder with the routers of a case, in wires that offers come through."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench import p4shares
from bench.fairness_cases import Case, rates
from bench.fairness_judge import SECOND, Costs, Judge
from bench.peer_kinds import ROUTE, Forwarder
from bench.schedule import Schedule
from lab.cpu_groups import CpuGroups, cpu_groups, set_turn
from lab.namespaces import Private
from lab.offers import ENTRANCES, WINDOW_S, OfferWires, Outcome, Phase, between
from lab.prefixes import Announcement, announcements
from lab.wires import WiresError

LENGTH = 60  # octets of a frame of 64 without its check sequence
WIRE_OCTETS = 84
"""What a frame of 64 takes of a link: with preamble and delimiter (8) and gap (12)."""
_MIXED, _MIXED_MANY, _ALONE_MANY, _ALONE, _NOBODYS = 1 << 14, 1 << 17, 1 << 16, 1 << 8, 1 << 4
_MANY = 1000  # routes: more than that want many destinations
_WARM_S, _BEFORE, _SETTLED_S = 0.3, 0.5, 0.6
_STEP_S = 0.5
_DEVICE_ID = 1
_TURN_S = 1e-4
"""Of a NAPI thread: in the kernel's own turns, of milliseconds, the rings of all others overflow."""
STEP = round(_STEP_S / WINDOW_S)
"""The window in which the load rises."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a bed is made of: programs, and where its files go."""

    program: Path
    generator: Path
    work: Path
    seed: int


@dataclass
class Bed(Private):
    """The forwarder of one case: ``with Bed(…) as bed``; its egress port has a speed where one is given, in bit/s."""

    machine: Machine
    case: Case
    number: int
    shared: bool
    speed_bps: float = 0.0
    most: float = field(default=0.0, init=False)  # packets/s that the generator has sent
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _groups: CpuGroups | None = field(default=None, init=False)

    def bring_up(self) -> None:
        """Start the wires, the forwarder and what schedules its queues."""
        case, machine, routers = self.case, self.machine, self.case.routers
        entrances = len(routers) if case.each_its_queue else 1
        if entrances > ENTRANCES:
            raise WiresError(f"{case.name}: {entrances} links before the forwarder; the generator has {ENTRANCES}")
        work = machine.work / f"{case.name}-{self.number}"
        work.mkdir(parents=True)
        tables = [_table(router.routes, machine.seed + place) for place, router in enumerate(routers)]
        self._alone: dict[int, tuple[int, int]] = {}  # by number of routes
        self._mixed: dict[float, tuple[int, int]] = {}  # by load
        schedule = self._scheduled(Schedule(tables, entrances, machine.seed))
        own = (self.number, machine.generator, schedule.write(work / "destinations"), entrances, work)
        self._wires = self._stack.enter_context(OfferWires(*own))
        options = ("--core-shares", *self._speed_options()) if self.shared else self._speed_options()
        self._forwarder = Forwarder(machine.program, work / f"fair{self.number}", tables, *options)
        self._stack.callback(self._forwarder.stop)
        self._forwarder.start(self._wires)
        self._wires.pin()
        if case.each_its_queue:
            groups = cpu_groups(machine.work / "cpu", f"fairness-{self._wires.into}", self._wires.threads)
            self._groups = self._stack.enter_context(groups)
            for thread in self._wires.threads:
                set_turn(thread, _TURN_S)

    def _speed_options(self) -> tuple[str, ...]:
        """Return what tells the forwarder the speed of its egress port, the last one, where it has one."""
        number = len(self._wires.intos) + 1
        return ("--speed", f"{number}={self.speed_bps / 1e6:.3f}M") if self.speed_bps else ()

    def _scheduled(self, schedule: Schedule) -> Schedule:
        routers = self.case.routers
        many = max(router.routes for router in routers) > _MANY
        self._nobodys = schedule.mixed([1.0] + [0.0] * (len(routers) - 1), _NOBODYS, nobodys=True)
        for place, router in enumerate(routers):
            if router.routes not in self._alone:
                parts = [1.0 if other == place else 0.0 for other in range(len(routers))]
                count = _ALONE_MANY if router.routes > _MANY else _ALONE
                self._alone[router.routes] = schedule.mixed(parts, count)
        fixed = any(router.part for router in routers)
        for load in self.case.loads if fixed else self.case.loads[:1]:
            # Costs are those of equal packets here: where parts are fixed, routers have equal tables.
            parts = rates(routers, [1.0] * len(routers), load)
            self._mixed[load] = schedule.mixed(parts, _MIXED_MANY if many else _MIXED)
        return schedule

    def share(self) -> None:
        """Give routers and slices their shares. NetworkError where the forwarder takes none."""
        if self._groups is not None:
            self._groups.weigh([router.weight for router in self.case.routers])
            return
        shares = [(router.share, router.slice) for router in self.case.routers]
        p4shares.write(self._forwarder.address, _DEVICE_ID, shares, self.case.slices)

    def unshare(self) -> None:
        """Have the kernel treat the routers' queues alike, where each has its own."""
        if self._groups is not None:
            self._groups.weigh([1.0] * len(self.case.routers))

    def slow(self, steps: int) -> None:
        """Have what is forwarded cost more: `OfferWires.slow`."""
        self._wires.slow(steps)

    def costs(self, seconds: float) -> Costs:
        """Measure what a packet of each router costs while the core has nothing else to do, and what a drop costs."""
        alone = {routes: self._cost(destinations, seconds) for routes, destinations in self._alone.items()}
        drop = self._cost(self._nobodys, seconds)
        return Costs(tuple(alone[router.routes] for router in self.case.routers), drop)

    def _cost(self, destinations: tuple[int, int], seconds: float) -> float:
        outcome = self._offer([Phase(_WARM_S + seconds, 0, *destinations)], _WARM_S)
        first, last = round(_WARM_S / WINDOW_S), round((_WARM_S + seconds) / WINDOW_S)
        count = len(self.case.routers)
        sent, received = (
            sum(between(counts, first, last, count)) for counts in (outcome.sent, outcome.received)
        )
        self.most = max(self.most, sent / seconds)
        taken = received or sent * (1 - outcome.refused / sum(outcome.sent))
        if not taken:
            raise WiresError(f"{self.case.name}: nothing comes of {sent} packets")
        return outcome.busy * seconds / taken

    def judged(self, load: float, costs: Costs, seconds: float) -> Judge:
        """Offer a load, after half of what there is, and return its judge."""
        routers, before = self.case.routers, min(load, _BEFORE)
        wanted = sum(rates(routers, costs.routers, load))
        set_ = self._mixed.get(load) or next(iter(self._mixed.values()))
        phases = [Phase(_STEP_S, wanted * before / load, *set_), Phase(_SETTLED_S + seconds, wanted, *set_)]
        outcome = self._offer(phases, _STEP_S + _SETTLED_S)
        first = round((_STEP_S + _SETTLED_S) / WINDOW_S)
        return Judge(self.case, load, costs, outcome, first, first + round(seconds) * SECOND)

    def _offer(self, phases: Sequence[Phase], measured_s: float) -> Outcome:
        return self._wires.offer(LENGTH, phases, measured_s)


def _table(routes: int, seed: int) -> list[Announcement]:
    return [ROUTE] if routes == 1 else announcements(routes, seed)
