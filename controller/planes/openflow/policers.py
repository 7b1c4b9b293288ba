"""A router's policer as the flows of table `packet_in` and their meters, and back. Pure, as `program`.

A switch has 65,535 meters at most. So the plane's document may let punt classes share one (docs/planes.md): then a
router has fewer, and a slot of meters is shorter.

    from FIRST_METER │ bfd │ routing │ … │ options │ bfd │ routing │ … │ options │ …
                     └────────── slot 0 ───────────┴────────── slot 1 ───────────┴─   one slot a router

A switch that has the meters of another layout keeps them until each router's policer is written anew, as
`readback.Inventory` says.
"""

from collections.abc import Iterable

from controller.planes import base
from controller.planes.base import DropReason, Policer, PuntClass, PuntReason, SharedMeters
from controller.planes.openflow import codec
from controller.planes.openflow.codec import Flow, Oxm, flow, oxm
from controller.planes.openflow.program import Kind, Table, contents, cookie, cookie_reason
from controller.planes.punt_class import CLASSES_OF, FOR_THE_ROUTER, OF_REASON

FIRST_METER = 0x1000
_METERS = 0x10000 - FIRST_METER  # Open vSwitch: meter ids up to 65535


class MeterLayout:
    """Which meter a punt class of a router has; what shares one has that of the most urgent of its classes."""

    def __init__(self, shared: SharedMeters = ()) -> None:
        first = {each: min(classes) for classes in shared for each in classes}
        of_meter = [each for each in PuntClass if first.get(each, each) is each]
        self._offset = {each: of_meter.index(first.get(each, each)) for each in PuntClass}
        self.classes = [tuple(each for each in PuntClass if self._offset[each] == n) for n in range(len(of_meter))]
        """The classes of each meter of a slot, the most urgent first."""
        self.slots = _METERS // len(of_meter)

    def meter(self, slot: int, punt_class: PuntClass) -> int:
        """Return the meter of one punt class of the router with this meter slot."""
        return FIRST_METER + slot * len(self.classes) + self._offset[punt_class]

    def meters(self, slot: int) -> dict[int, tuple[PuntClass, ...]]:
        """Return the classes of each meter of a slot."""
        return {self.meter(slot, classes[0]): classes for classes in self.classes}

    def slot(self, number: int) -> int:
        """Return the slot that a meter would be of, -1 for one that is none of ours."""
        return (number - FIRST_METER) // len(self.classes) if FIRST_METER <= number < 0x10000 else -1


def meter_rate(policer: Policer, classes: Iterable[PuntClass]) -> int:
    """Return the rate of the meter of these classes: the largest of theirs."""
    return max(policer.rates[each] for each in classes)


def policer_flows(policer: Policer, slot: int, generation: int, layout: MeterLayout) -> list[Flow]:
    """Return the punt and drop flows of one router; a class with rate 0 is not punted at all."""
    flows = []
    for reason in PuntReason:
        for punt_class in sorted(CLASSES_OF[reason]):
            instructions = b""
            if policer.rates[punt_class]:
                up = codec.apply_actions(codec.output(codec.PORT_CONTROLLER))
                instructions = codec.meter(layout.meter(slot, punt_class)) + up
            noted = (oxm(Oxm.REG3, punt_class),) if reason in FOR_THE_ROUTER else ()
            flows.append(_packet_in_flow(policer.vrf_id, reason, generation, instructions, noted))
    for drop in (DropReason.BLACKHOLE, DropReason.NEIGHBOR_FAILED):
        flows.append(_packet_in_flow(policer.vrf_id, base.DROP_CODE[drop], generation, b""))
    return flows


def _packet_in_flow(
    vrf_id: int, code: int, generation: int, instructions: bytes, noted: tuple[bytes, ...] = ()
) -> Flow:
    match = (oxm(Oxm.METADATA, vrf_id << 32, codec.METADATA_VRF), oxm(Oxm.REG0, code), *noted)
    return flow(Table.PACKET_IN, 100, cookie(Kind.POLICER, vrf_id, code, generation), match, instructions)


def meter_of(each: Flow) -> int | None:
    """Return the meter that a flow names, None for one that names none."""
    return int.from_bytes(each.instructions[4:8], "big") if each.instructions[:2] == b"\0\6" else None


def meters_of(flows: Iterable[Flow]) -> set[int]:
    """Return the meters that flows name."""
    return {number for number in map(meter_of, flows) if number is not None}


def _class_of(each: Flow) -> PuntClass | None:
    """Return the class of what a router's flow punts, None where it is no flow that we would write."""
    reason = base.PUNT_OF_CODE.get(cookie_reason(each.cookie))
    if reason is None or reason in OF_REASON:
        return None if reason is None else OF_REASON[reason]
    value = codec.oxm_fields(each.match).get(Oxm.REG3, (b"", None))[0]
    noted = int.from_bytes(value, "big") if value else len(PuntClass)
    return PuntClass(noted) if noted < len(PuntClass) else None


def find_policer(
    vrf_id: int, flows: Iterable[Flow], meters: dict[int, tuple[int, int]], layout: MeterLayout
) -> tuple[Policer | None, int]:
    """Return the policer whose flows these are, or None where they are not exactly its flows, and its meter slot
    (-1: none of its flows names one, or they name those of another layout). ``meters`` holds rate and burst by meter
    id.

    Flows that name meters of several slots are a change that was cut off: theirs is the lowest.
    """
    flows = list(flows)
    named: dict[PuntClass, int] = {}
    slots = set()
    for each in flows:
        number = meter_of(each)
        if number is None:
            continue
        punt_class, its_slot = _class_of(each), layout.slot(number)
        if punt_class is None or its_slot < 0 or layout.meter(its_slot, punt_class) != number:
            return None, -1
        slots.add(its_slot)
        named[punt_class] = number
    rates = tuple(meters.get(named.get(each, 0), (0, 0))[0] for each in PuntClass)
    policer, slot = Policer(vrf_id, rates), min(slots, default=-1)
    intact = contents(policer_flows(policer, slot, 0, layout)) == contents(flows)
    held = set() if slot < 0 else layout.meters(slot).keys() & meters.keys()
    fitting = held == set(named.values()) and all(meters[n][1] == base.burst(meters[n][0]) for n in held)
    return (policer if intact and fitting else None), slot
