"""What a device holds, read back and sorted into entries of the contract, rows of the plane's own, and foreign ones.

A device may answer with one message of a hundred megabytes. It is decoded in steps, between which the event loop does
other things.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import islice
from typing import Any

import grpc
from finsy.proto import p4r

from controller.planes.base import (
    DROP_OF_CODE,
    PUNT_OF_CODE,
    ROUTE_TABLE_NAME,
    Counters,
    Installed,
    InterfaceCounters,
    Nexthop,
    NexthopGroup,
    Policer,
    RouteCounts,
    RouterInterface,
    RouteTraffic,
)
from controller.planes.p4runtime.channel import Channel, ChannelClosed, RequestRefused, decoded
from controller.planes.p4runtime.messages import entities_of
from controller.planes.p4runtime.program import (
    NOBODY,
    SMALL_TABLES,
    Owner,
    Program,
    Row,
    RowKey,
)
from controller.planes.p4runtime.routes import RouteReader

_ROUTES_AT_ONCE = 4000  # some 4 ms
_ENTRIES_AT_ONCE = 100  # some 5 ms

_COUNTED_TABLES = ("interface_classifier", "router_interface_egress", "reason")


class Inventory:
    """The rows that a device holds in the small tables, each with the entry it belongs to, if any."""

    def __init__(self) -> None:
        self.rows: dict[RowKey, bytes] = {}
        self._owner_of: dict[RowKey, Owner | None] = {}
        self._owned: dict[Owner, set[RowKey]] = defaultdict(set)

    def put(self, row: Row, owner: Owner | None) -> None:
        """Note a row that is there now."""
        self.remove(row.key)
        self.rows[row.key], self._owner_of[row.key] = row.content, owner
        if owner is not None:
            self._owned[owner].add(row.key)

    def remove(self, key: RowKey) -> None:
        """Note that a row is not there any more."""
        self.rows.pop(key, None)
        owner = self._owner_of.pop(key, None)
        if owner is not None:
            self._owned[owner].discard(key)
            if not self._owned[owner]:
                del self._owned[owner]

    def holds(self, row: Row, owner: Owner) -> bool:
        """Tell whether exactly this row is there and belongs to this entry."""
        return self.rows.get(row.key) == row.content and self._owner_of[row.key] == owner

    def of(self, owner: Owner) -> dict[RowKey, bytes]:
        """Return the rows of an entry."""
        return {key: self.rows[key] for key in self._owned.get(owner, ())}

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._owned

    def owners(self) -> list[Owner]:
        """Return the entries that have rows, whole or not."""
        return list(self._owned)


class Readback:
    """One reading of a device: first the small tables, then, if wanted, the routes."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.inventory = Inventory()
        self._foreign = 0

    async def read_small(self, channel: Channel) -> None:
        """Read all but the routes."""
        async for entry in _entries(channel, self._program, SMALL_TABLES):
            found = self._program.find_row(entry)
            if found is None:
                self._foreign += 1
            else:
                row, owner = found
                self._foreign += owner is None
                self.inventory.put(row, owner)

    async def read_routes(self, channel: Channel, installed: Installed) -> None:
        """Read the routes as well."""
        for family, table in ROUTE_TABLE_NAME.items():
            reader = RouteReader(self._program.schema, family, installed.routes)
            wanted = p4r.TableEntry(table_id=self._program.schema.table(table).id)
            async for response in channel.read([p4r.Entity(table_entry=wanted)]):
                entities = entities_of(response)
                while some := list(islice(entities, _ROUTES_AT_ONCE)):
                    reader.add(some)
                    await asyncio.sleep(0)
            installed.foreign += reader.foreign

    async def installed(self) -> Installed:
        """Return the entries, without routes."""
        installed = Installed(foreign=self._foreign)
        for position, owner in enumerate(self.inventory.owners()):
            if owner == ("policer", NOBODY):
                continue
            entry = self._program.find_entry(owner, self.inventory.of(owner))
            if entry is None:
                installed.damaged.add(owner)
            else:
                _entries_of(installed, entry)[owner[1]] = entry
            if position % _ENTRIES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return installed


def _entries_of(installed: Installed, entry: RouterInterface | Nexthop | NexthopGroup | Policer) -> dict[int, Any]:
    match entry:
        case RouterInterface():
            return installed.router_interfaces
        case Nexthop():
            return installed.nexthops
        case NexthopGroup():
            return installed.groups
        case Policer():
            return installed.policers


async def _entries(
    channel: Channel, program: Program, tables: Iterable[str], *, counted: bool = False
) -> AsyncIterator[p4r.TableEntry]:
    """Yield the entries of some tables; ChannelClosed where the device answers with anything else."""
    wanted = []
    for name in tables:
        entry = p4r.TableEntry(table_id=program.schema.table(name).id)
        if name == "policer":
            entry.meter_config.SetInParent()
        if counted:
            entry.counter_data.SetInParent()
        wanted.append(p4r.Entity(table_entry=entry))
    ids = {entity.table_entry.table_id for entity in wanted}
    count = 0
    async for response in channel.read(wanted):
        for octets in entities_of(response):
            entry = decoded(p4r.Entity, octets).table_entry
            if entry.table_id not in ids:
                raise ChannelClosed(f"the device answered a read with an entry of table {entry.table_id:#x}")
            yield entry
            count += 1
            if count % _ENTRIES_AT_ONCE == 0:
                await asyncio.sleep(0)


async def read_counters(channel: Channel, program: Program) -> Counters:
    """Read all counters."""
    counters = Counters()
    names: Mapping[int, str] = {program.schema.table(name).id: name for name in _COUNTED_TABLES}
    async for entry in _entries(channel, program, _COUNTED_TABLES, counted=True):
        key = program.schema.table(names[entry.table_id]).find_key(entry)
        if key is not None:
            _count(counters, program, names[entry.table_id], key, entry)
    return counters


async def counts_routes(channel: Channel, program: Program) -> bool:
    """Ask the device whether it counts packets by route."""
    table = program.schema.table(ROUTE_TABLE_NAME[4])
    vrf = table.fields["vrf_id"]
    wanted = p4r.TableEntry(table_id=table.id, counter_data=p4r.CounterData())
    wanted.match.add(field_id=vrf.id).exact.value = vrf.octets(NOBODY)  # who has no routes
    try:
        async for _ in channel.read([p4r.Entity(table_entry=wanted)]):
            pass
    except RequestRefused as refused:
        return refused.code is not grpc.StatusCode.UNIMPLEMENTED
    return True


async def read_route_counts(channel: Channel, program: Program) -> RouteCounts:
    """Read what the routes have met."""
    counts = RouteCounts()
    async for reader, some in _counted_routes(channel, program):
        reader.count(some, counts)
    return counts


async def read_route_traffic(channel: Channel, program: Program, vrf_id: int) -> RouteTraffic:
    """Read what the routes of one router have met. It reads those of all: a device gives out a table whole."""
    traffic: RouteTraffic = {}
    async for reader, some in _counted_routes(channel, program):
        reader.traffic(some, vrf_id, traffic)
    return traffic


async def _counted_routes(channel: Channel, program: Program) -> AsyncIterator[tuple[RouteReader, list[bytes]]]:
    """Yield some entries at a time, and who understands them."""
    for family, table in ROUTE_TABLE_NAME.items():
        reader = RouteReader(program.schema, family, {})
        wanted = p4r.TableEntry(table_id=program.schema.table(table).id, counter_data=p4r.CounterData())
        async for response in channel.read([p4r.Entity(table_entry=wanted)]):
            entities = entities_of(response)
            while some := list(islice(entities, _ENTRIES_AT_ONCE)):
                yield reader, some
                await asyncio.sleep(0)


async def read_sent(channel: Channel, program: Program) -> dict[int, int]:
    """Read how many packets router interfaces have sent, by id."""
    sent: dict[int, int] = {}
    table = program.schema.table("router_interface_egress")
    async for entry in _entries(channel, program, ["router_interface_egress"], counted=True):
        key = table.find_key(entry)
        if key is not None:
            sent[key[0]] = entry.counter_data.packet_count
    return sent


def _count(counters: Counters, program: Program, table: str, key: tuple[int, ...], entry: p4r.TableEntry) -> None:
    packets, octets = entry.counter_data.packet_count, entry.counter_data.byte_count
    if table == "reason":
        vrf_id, code = key
        if code in PUNT_OF_CODE:
            counters.punts[vrf_id, PUNT_OF_CODE[code]] = packets, octets
        elif code in DROP_OF_CODE:
            counters.drops[vrf_id, DROP_OF_CODE[code]] = packets, octets
        return
    interface_id = key[0] if table == "router_interface_egress" else program.receiver(entry)
    if interface_id is None:
        return
    interface = counters.router_interfaces.setdefault(interface_id, InterfaceCounters())
    if table == "interface_classifier":
        interface.rx_packets, interface.rx_bytes = packets, octets
    else:
        interface.tx_packets, interface.tx_bytes = packets, octets
