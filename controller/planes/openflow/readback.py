"""What a switch holds, read back and sorted into entries of the contract, pipeline, and what is somebody else's."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from controller.planes.base import (
    DROP_OF_CODE,
    MAX_OBJECT_ID,
    Counters,
    Installed,
    InterfaceCounters,
    PuntClass,
    PuntPlace,
    PuntReason,
    RouteCounts,
    RoutesInto,
    RouteTraffic,
)
from controller.planes.openflow import codec, messages
from controller.planes.openflow import program as prog
from controller.planes.openflow.channel import Channel
from controller.planes.openflow.codec import Flow, FlowStatistics, Group, Multipart
from controller.planes.openflow.messages import MeterCounts
from controller.planes.openflow.pipeline import static_flows
from controller.planes.openflow.policers import MeterLayout, find_policer, meter_of, meters_of
from controller.planes.openflow.program import Kind, Table
from controller.planes.openflow.routes import SHARE_MASK, SHARES, RouteCounter, RouteReader, TrafficReader

FLOWS_AT_ONCE, ENTRIES_AT_ONCE = 2000, 40
"""Flows of small tables, or meters, and entries made of them, that are looked at before others get their turn on the
event loop: some milliseconds."""

T = TypeVar("T")
K = TypeVar("K")
_ROUTER_INTERFACE_TABLES = {*prog.EGRESS_TABLES, *prog.INGRESS_TABLES}


@dataclass(slots=True)
class Inventory:
    """What has to be known of a switch to write to it: which ids exist, and which generation flows have."""

    groups: set[int] = field(default_factory=set)
    meters: set[int] = field(default_factory=set)
    slots: dict[int, int] = field(default_factory=dict)  # meter slot by vrf_id
    worn: set[int] = field(default_factory=set)  # slots with meters of policers that are still to be written anew
    generations: dict[tuple[Kind, int], int] = field(default_factory=dict)
    layout: MeterLayout = field(default_factory=MeterLayout, compare=False, repr=False)

    def next_generation(self, kind: Kind, entry_id: int) -> int:
        """Return the generation for a new write of an entry, and keep it as the present one."""
        generation = (self.generations.get((kind, entry_id), -1) + 1) % prog.GENERATIONS
        self.generations[kind, entry_id] = generation
        return generation

    def take_slot(self, vrf_id: int) -> int | None:
        """Return the meter slot of a router, a free one for a new router, None where there is none left."""
        slot = self.slots.get(vrf_id)
        if slot is None:
            taken = set(self.slots.values())
            slot = self._free_slot(taken | self.worn)
            slot = self._free_slot(taken) if slot is None else slot
            if slot is not None:
                self.slots[vrf_id] = slot
        return slot

    def _free_slot(self, taken: set[int]) -> int | None:
        return next((each for each in range(self.layout.slots) if each not in taken), None)


class Readback:
    """One reading of a switch, with routers' meters as ``layout`` says: first the small tables, groups and meters,
    then, if wanted, the routes."""

    def __init__(self, layout: MeterLayout, routes: RoutesInto | None = None) -> None:
        self._layout = layout
        self.flows: list[FlowStatistics] = []
        self.groups: list[Group] = []
        self.meters: dict[int, tuple[int, int]] = {}
        self._foreign = 0  # of these flows
        self._routes = {} if routes is None else routes
        self._readers = {family: RouteReader(family, self._routes) for family in prog.ROUTE_TABLE}

    async def read_small(self, channel: Channel) -> None:
        """Read all but the routes."""
        await asyncio.gather(
            *(channel.list(Multipart.FLOW, codec.flow_stats_request(t), self._add_flows) for t in prog.SMALL_TABLES),
            *(self._list_static(channel, table) for table in prog.ROUTE_TABLE.values()),
            channel.list(Multipart.GROUP_DESC, b"", self._add_groups),
            channel.list(Multipart.METER_CONFIG, messages.METER_ALL, self._add_meters),
        )

    async def read_routes(self, channel: Channel) -> None:
        """Read the routes."""
        await _list_routes(channel, self._readers)

    async def _list_static(self, channel: Channel, table: Table) -> None:
        body = codec.flow_stats_request(table, prog.cookie(Kind.STATIC), prog.KIND_MASK)
        await channel.list(Multipart.FLOW, body, self._add_flows)

    def _add_flows(self, body: bytes) -> None:
        self.flows.extend(codec.decode_flow(entry) for entry in codec.split_entries(body))

    def _add_groups(self, body: bytes) -> None:
        self.groups.extend(codec.decode_group(entry) for entry in codec.split_entries(body))

    def _add_meters(self, body: bytes) -> None:
        self.meters.update(messages.decode_meters(body))

    # -- sorting -----------------------------------------------------------------------------------------------------
    async def pipeline_changes(self) -> tuple[list[Flow], list[Flow]]:
        """Return the pipeline's flows that are missing or differ, and flows that claim to be of it and are not."""
        flows = _paced(self.flows, FLOWS_AT_ONCE)
        present = {each.flow.key: each.flow async for each in flows if _owner(each.flow) == Kind.STATIC}
        wanted = {flow.key: flow for flow in static_flows()}
        missing = [flow for key, flow in wanted.items() if present.get(key) != flow]
        return missing, [flow for key, flow in present.items() if key not in wanted]

    async def inventory(self) -> Inventory:
        """Return what writing needs."""
        inventory = Inventory({group.id for group in self.groups}, set(self.meters), layout=self._layout)
        taken: set[int] = set()
        async for (kind, entry_id), flows in _paced((await self._entries()).items(), ENTRIES_AT_ONCE):
            inventory.generations[kind, entry_id] = prog.present_generation(flow.cookie for flow in flows)
            if kind is Kind.POLICER:
                slot = find_policer(entry_id, flows, self.meters, self._layout)[1]
                if slot >= 0 and slot not in taken:  # who is second there is damaged, and gets one of its own
                    inventory.slots[entry_id] = slot
                    taken.add(slot)
                else:
                    inventory.worn.update(map(self._layout.slot, meters_of(flows)))
        return inventory

    async def unused_meters(self, inventory: Inventory) -> set[int]:
        """Return the meters that are nobody's: no flow names them, and they are of no router's slot."""
        slots = {-1, *inventory.slots.values()}  # with that of meters which are none of ours
        loose = {m async for m in _paced(self.meters, FLOWS_AT_ONCE) if self._layout.slot(m) not in slots}
        if loose:
            async for each in _paced(self.flows, FLOWS_AT_ONCE):
                loose -= meters_of([each.flow])
        return loose

    async def installed(self) -> Installed:
        """Return the entries."""
        installed = Installed(routes=self._routes)
        entries = await self._entries()
        installed.foreign = self._foreign + sum(reader.foreign for reader in self._readers.values())
        async for (kind, entry_id), flows in _paced(entries.items(), ENTRIES_AT_ONCE):
            if kind is Kind.ROUTER_INTERFACE:
                interface = prog.find_router_interface(entry_id, flows)
                _file(installed, "router_interface", installed.router_interfaces, entry_id, interface)
            else:
                policer = find_policer(entry_id, flows, self.meters, self._layout)[0]
                _file(installed, "policer", installed.policers, entry_id, policer)
        async for group in _paced(self.groups, ENTRIES_AT_ONCE):
            entry_id = group.id & MAX_OBJECT_ID
            if group.id & prog.GROUP_RANGE == prog.NEXTHOP_GROUPS:
                _file(installed, "nexthop", installed.nexthops, entry_id, prog.find_nexthop(group))
            elif group.id & prog.GROUP_RANGE == prog.MEMBER_GROUPS:
                _file(installed, "nexthop_group", installed.groups, entry_id, prog.find_nexthop_group(group))
        return installed

    async def _entries(self) -> dict[tuple[Kind, int], list[Flow]]:
        entries: dict[tuple[Kind, int], list[Flow]] = defaultdict(list)
        self._foreign = 0
        async for each in _paced(self.flows, FLOWS_AT_ONCE):
            kind = _owner(each.flow)
            self._foreign += kind is None
            if kind in (Kind.ROUTER_INTERFACE, Kind.POLICER):
                entries[kind, prog.cookie_id(each.flow.cookie)].append(each.flow)
        return entries


async def _paced(items: Iterable[T], at_once: int) -> AsyncIterator[T]:
    """Walk over many items; others get their turn on the event loop after so many."""
    for number, item in enumerate(items, 1):
        yield item
        if number % at_once == 0:
            await asyncio.sleep(0)


def _file(installed: Installed, table: str, entries: dict[int, T], entry_id: int, entry: T | None) -> None:
    if entry is None:
        installed.damaged.add((table, entry_id))
    else:
        entries[entry_id] = entry


def _owner(flow: Flow) -> Kind | None:
    """Return what a flow of a small table belongs to, None for somebody else's."""
    if not prog.cookie_is_ours(flow.cookie):
        return None
    kind = prog.cookie_kind(flow.cookie)
    if kind == Kind.STATIC:
        return Kind.STATIC
    if kind == Kind.ROUTER_INTERFACE and flow.table in _ROUTER_INTERFACE_TABLES:
        return Kind.ROUTER_INTERFACE
    if kind == Kind.POLICER and flow.table == Table.PACKET_IN:
        return Kind.POLICER
    return None


async def read_route_counts(channel: Channel) -> RouteCounts:
    """Read what the routes have met."""
    counts = RouteCounts()
    await _list_routes(channel, {family: RouteCounter(family, counts) for family in prog.ROUTE_TABLE})
    return counts


async def _list_routes(channel: Channel, readers: Mapping[int, RouteReader]) -> None:
    """Read the route tables, one share after the other: the switch forwards in between."""
    for family, reader in readers.items():
        for share in range(SHARES):
            body = codec.flow_stats_request(prog.ROUTE_TABLE[family], share, SHARE_MASK)
            await channel.list(Multipart.FLOW, body, reader.add)


async def read_route_traffic(channel: Channel, vrf_id: int) -> RouteTraffic:
    """Read what the routes of one router have met; no others are asked for."""
    traffic: RouteTraffic = {}
    cookie, mask = prog.cookie(Kind.ROUTE, vrf_id), prog.ENTRY_MASK
    for family, table in prog.ROUTE_TABLE.items():
        meter = TrafficReader(family, vrf_id, traffic)
        for share in range(SHARES):
            body = codec.flow_stats_request(table, cookie | share, mask | SHARE_MASK)
            await channel.list(Multipart.FLOW, body, meter.add)
    return traffic


async def read_sent(channel: Channel) -> dict[int, int]:
    """Read how many packets router interfaces have sent, by id."""
    sent: dict[int, int] = {}

    def add(body: bytes) -> None:
        for each in map(codec.decode_flow, codec.split_entries(body)):
            if _owner(each.flow) is Kind.ROUTER_INTERFACE:
                entry_id = prog.cookie_id(each.flow.cookie)
                sent[entry_id] = sent.get(entry_id, 0) + each.packets

    await channel.list(Multipart.FLOW, codec.flow_stats_request(Table.ROUTER_INTERFACE_EGRESS), add)
    return sent


_REASONS = {int(reason): reason for reason in PuntReason}


async def count(
    flows: Iterable[FlowStatistics], inventory: Inventory, metered: Mapping[int, MeterCounts]
) -> Counters:
    """Return the counters of the small tables' flows and of routers' meters.

    Open vSwitch credits a packet to the flows on *both* sides of check_pkt_larger, so the flows of MTU_EXCEEDED count
    everything forwarded. Meters act in the datapath alone: what a router's meter of class MTU met, without what came
    to it by flows of other reasons, is what was really too long.
    """
    counters = Counters()
    by_flows: dict[int, tuple[int, int]] = {}  # by meter, of what is not MTU_EXCEEDED
    async for each in _paced(flows, FLOWS_AT_ONCE):
        kind, entry_id = _owner(each.flow), prog.cookie_id(each.flow.cookie)
        code = prog.cookie_reason(each.flow.cookie)
        if kind is Kind.ROUTER_INTERFACE:
            interface = counters.router_interfaces.setdefault(entry_id, InterfaceCounters())
            if each.flow.table == Table.INTERFACE_CLASSIFIER and code != prog.WAY_BACK:
                interface.rx_packets += each.packets
                interface.rx_bytes += each.octets
            elif each.flow.table == Table.ROUTER_INTERFACE_EGRESS:
                interface.tx_packets += each.packets
                interface.tx_bytes += each.octets
        elif kind is Kind.POLICER and code in _REASONS:
            _add(counters.punts, (entry_id, _REASONS[code]), each)
            if code != PuntReason.MTU_EXCEEDED and (number := meter_of(each.flow)) is not None:
                _add(by_flows, number, each)
        elif kind is not None and code in DROP_OF_CODE:
            _add(counters.drops, (entry_id, DROP_OF_CODE[code]), each)
    async for vrf_id, slot in _paced(inventory.slots.items(), ENTRIES_AT_ONCE):
        for number, classes in inventory.layout.meters(slot).items():
            met = metered.get(number, MeterCounts())
            if met.dropped:
                counters.lost_of_routers[vrf_id, classes[0], PuntPlace.POLICER] = met.dropped
            if PuntClass.MTU in classes:
                packets, octets = by_flows.get(number, (0, 0))
                too_long = max(0, met.packets - packets), max(0, met.octets - octets)
                counters.punts[vrf_id, PuntReason.MTU_EXCEEDED] = too_long
    return counters


def _add(totals: dict[K, tuple[int, int]], key: K, flow: FlowStatistics) -> None:
    packets, octets = totals.get(key, (0, 0))
    totals[key] = packets + flow.packets, octets + flow.octets
