"""Writes to a hardware plane and its fallback, each in its own order, and knows what each of them holds.

The software gets everything, the hardware what the software has taken; nexthops and groups that the hardware refuses
are kept, counted, and tried again, and so are those that it does not delete, and routes.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import TypeVar

from controller.fallback.hardware_routes import HardwareRoutes
from controller.fallback.installed_entries import Ends, Groups, InstalledEntries, KeptOut, id_of
from controller.fallback.link.ports import LinkPorts, LinkVlans, on_hardware, on_software, port_number
from controller.fallback.pace import paced
from controller.fallback.recovery import lost_entries, take_in
from controller.planes.base import (
    ROUTE_TABLE_NAME,
    Clock,
    Installed,
    Nexthop,
    NexthopGroup,
    Op,
    Plane,
    Policer,
    Refused,
    RouterInterface,
    RouteUpdates,
    Update,
    WriteBatch,
)
from controller.planes.encoding_time import EncodingTime

RETRY_S = 30.0
"""How long what the hardware refused, or did not delete, waits to be tried again …"""

ROOM_S = 1.0
"""… and how long where others have left meanwhile."""

E = TypeVar("E", RouterInterface, Nexthop, NexthopGroup, Policer)


class PairWriter:
    """What both planes hold of the small tables, and the writes to them."""

    def __init__(
        self, hardware: Plane, software: Plane, link: LinkPorts, routes: HardwareRoutes, clock: Clock
    ) -> None:
        self.refusals: dict[str, int] = {}  # writes that the hardware did not take, by table
        self.vlans = LinkVlans()
        self._hardware, self._software, self._link, self._routes = hardware, software, link, routes
        self._in_hardware, self._in_software = InstalledEntries(), InstalledEntries()
        self._kept_out = KeptOut()
        self._groups = Groups()  # of the hardware
        self._retry_at = inf
        self._writing = asyncio.Lock()  # to the small tables of the hardware
        self.draining = asyncio.Lock()  # whoever holds it has no route written to the hardware
        self._clock = clock

    # What was read

    async def give_back(self, hard: Installed, soft: Installed) -> None:
        """Give the software what it lacks of what routes lead to: the FIB knows it by what was read of either."""

        def there(one: RouterInterface) -> RouterInterface | None:
            ends = self.ends(replace(one, fallback=None))
            return None if ends is None else ends[1]

        batch = lost_entries(hard, soft, there)
        if batch:
            take_in(soft, batch, await self._software.write(batch))

    def adopt(self, hard: Installed, soft: Installed) -> None:
        """Begin with what both planes were read to hold; nexthops and groups that only the software has are
        pending."""
        self._in_hardware, self._in_software = InstalledEntries.of(hard), InstalledEntries.of(soft)
        self._routes.barred.clear()  # what is refused again is told anew, and routes to it looked for
        self._kept_out = KeptOut()  # what was tried again before may be nobody's by now
        self._kept_out.lost(hard, soft)  # routes would be refused for want of them
        self._groups = Groups(dict(hard.groups))
        self._retry_at = self._clock()

    def caught_up(self, hard: Installed, soft: Installed) -> None:
        """Begin with what the software was read to hold; what was written of interfaces while it left may be on
        neither."""
        self._in_software = InstalledEntries.of(soft)
        self.vlans.keep(hard.router_interfaces.keys() | soft.router_interfaces.keys())

    def ends(self, declared: RouterInterface) -> Ends | None:
        """Return how either plane is to have a router interface; None where the link is not there, or full."""
        here, there = (
            port_number(self._hardware, self._link.hardware),
            port_number(self._software, self._link.software),
        )
        vlan = self.vlans.of(declared.id)
        if here is None or there is None or vlan is None:
            return None
        return on_hardware(declared, here, vlan), on_software(declared, there, vlan)

    def known_ends(self, declared: RouterInterface) -> Ends | None:
        """Return the same of a router interface that has its VLAN; None of one that has gone since it was read."""
        return self.ends(declared) if declared.id in self.vlans else None

    # Writing

    async def to_software(self, batch: WriteBatch) -> list[Refused]:
        """Write to the software; returns what it does not take, and what the link has no VLAN for."""
        installed, port = self._in_software, port_number(self._software, self._link.software)
        refused: list[Refused] = []
        interfaces = []
        for update in batch.router_interfaces:
            entry, vlan = update.entry, self.vlans.of(update.entry.id)
            if vlan is None or port is None:
                reason = f"the fallback link of {self._hardware.name} has no VLAN left"
                refused.append(Refused("router_interface", entry.vrf_id, entry.id, update.op, reason))
            else:
                interfaces.append(Update(update.op, on_software(entry, port, vlan)))
        mine = WriteBatch(
            installed.fit("policer", batch.policers),
            installed.fit("router_interface", interfaces),
            installed.fit("nexthop", batch.nexthops),
            installed.fit("nexthop_group", batch.groups),
            batch.routes,
            batch.encoding,
        )
        for one in await self._software.write(mine) if mine else ():
            installed.refused(one)
            refused.append(replace(one, reason=f"plane {self._software.name}: {one.reason}"))
        return refused

    async def follow(self, batch: WriteBatch, refused: list[Refused], told: bool) -> list[Refused]:
        """Give the hardware its part of a batch that the software has taken, except what was refused before; or, not
        ``told`` of it, will be given."""
        without = {(one.table, one.key) for one in refused}
        opening, closing = WriteBatch(encoding=batch.encoding), WriteBatch(encoding=batch.encoding)
        for part, deletes in ((opening, False), (closing, True)):
            part.policers = _chosen(batch.policers, deletes, without, "policer")
            part.nexthops = _chosen(batch.nexthops, deletes, without, "nexthop")
            part.groups = _chosen(batch.groups, deletes, without, "nexthop_group")
        opening.router_interfaces = _chosen(batch.router_interfaces, False, without, "router_interface")
        found = await self.to_hardware(opening)
        for update in opening.policers:
            try:
                self._routes.tables.open(update.entry.vrf_id)
            except ValueError as problem:
                vrf_id = update.entry.vrf_id
                found.append(Refused("policer", vrf_id, vrf_id, update.op, str(problem)))
        for update in closing.policers:
            self._routes.close(update.entry.vrf_id)
        not_taken: dict[tuple[str, int], set[bytes | int]] = {}  # by table and router: others have the same prefixes
        for one in refused:
            not_taken.setdefault((one.table, one.vrf_id), set()).add(one.key)
        for columns in batch.routes:
            table = ROUTE_TABLE_NAME[columns.family], columns.vrf_id
            self._routes.tables.change(columns, not_taken.get(table, ()), ahead=not told)
        await paced(self._routes.adoption.release_users(closing))
        await self.drain(batch.encoding)
        found += await self.to_hardware(closing)
        found += self._routes.tables.failed()
        for gone in _chosen(batch.router_interfaces, True, without, "router_interface"):
            self.vlans.free(gone.entry.id)
        return found

    async def to_hardware(self, batch: WriteBatch) -> list[Refused]:
        """Write to the small tables of the hardware; returns what makes a router less than whole.

        One at a time: what is tried again would come after what replaces it, and neither would know what is there.
        """
        if not batch:
            return []
        async with self._writing:
            return await self._to_hardware(batch)

    async def _to_hardware(self, batch: WriteBatch) -> list[Refused]:
        installed, port = self._in_hardware, port_number(self._hardware, self._link.hardware)
        interfaces = []
        for update in batch.router_interfaces:
            vlan = self.vlans.of(update.entry.id)
            if vlan is not None and port is not None:
                interfaces.append(Update(update.op, on_hardware(update.entry, port, vlan)))
        mine = WriteBatch(
            installed.fit("policer", batch.policers),
            installed.fit("router_interface", interfaces),
            installed.fit("nexthop", batch.nexthops),
            installed.fit("nexthop_group", batch.groups),
            encoding=batch.encoding,
        )
        refused = await self._hardware.write(mine) if mine else []
        self._groups.follow(batch.groups)
        useless = self._useless(batch, refused)
        in_vain = [Refused("nexthop_group", 0, one.id, Op.MODIFY, "a nexthop of it was refused") for one in useless]
        self._kept_out.took(batch)
        self._kept_out.useless(useless)
        found: list[Refused] = []
        objects: list[Refused] = []
        for one in refused:
            installed.refused(one)
            self._count(one)
            (objects if one.table in ("nexthop", "nexthop_group") else found).append(one)
        if objects:
            self._kept_out.refused(mine, objects)
            self._retry_at = min(self._retry_at, self._clock() + RETRY_S)
        without = [one for one in objects if one.op is not Op.DELETE]
        ops = [update.op for update in mine.nexthops] + [update.op for update in mine.groups]
        if ops.count(Op.DELETE) > len(objects) - len(without):
            self._retry_at = min(self._retry_at, self._clock() + ROOM_S)
        await paced(self._routes.allowing(batch, refused + in_vain))  # all: to delete what it never took is no write
        await self._keep_out(without + [one for one in in_vain if one.key not in self._routes.barred.groups])
        return found

    def _useless(self, batch: WriteBatch, refused: list[Refused]) -> list[NexthopGroup]:
        """Return the groups that the hardware has and cannot use, as it refused a nexthop of theirs: what it holds of
        that may be what it was before."""
        said = {(one.table, one.key) for one in refused if one.op is not Op.DELETE}
        taken = {update.entry.id for update in batch.nexthops if ("nexthop", update.entry.id) not in said}
        barred = self._routes.barred.nexthops
        if barred & taken:
            self._retry_at = self._clock()  # groups that were kept out for them may be used again
        nexthops = barred - taken | {key for table, key in said if table == "nexthop" and isinstance(key, int)}
        return [one for one in self._groups.having(nexthops) if ("nexthop_group", one.id) not in said]

    async def _keep_out(self, refused: list[Refused]) -> None:
        if refused:
            await paced(self._routes.barring(refused))
            self._retry_at = min(self._retry_at, self._clock() + RETRY_S)

    async def once_more(self) -> None:
        """Write nexthops and groups that the hardware does not have, and have leave what it did not delete, where it
        is time to."""
        if self._clock() >= self._retry_at:
            async with self._writing:
                self._retry_at = inf
                self._routes.writes.retry_deletions()
                await self._to_hardware(self._kept_out.once_more())

    async def drain(self, encoding: EncodingTime | None = None) -> None:
        """Write the stages of routes that wait, until the hardware holds what is placed there."""
        encoding = encoding or EncodingTime()
        async with self.draining:
            await self.once_more()
            while stage := await self._next_stage():
                refused = await self._hardware.write(WriteBatch(routes=stage, encoding=encoding))
                for one in refused:
                    self._count(one)
                self._routes.confirm(stage, refused)
                if any(one.op is Op.DELETE for one in refused):
                    self._retry_at = min(self._retry_at, self._clock() + RETRY_S)

    async def _next_stage(self) -> list[RouteUpdates]:
        await paced(self._routes.planning())
        return self._routes.next_stage()

    def _count(self, one: Refused) -> None:
        self.refusals[one.table] = self.refusals.get(one.table, 0) + 1


def _chosen(
    updates: Iterable[Update[E]], deletes: bool, without: set[tuple[str, bytes | int]], table: str
) -> list[Update[E]]:
    """Return the deletions or the others, except entries that were refused."""
    return [
        update
        for update in updates
        if (update.op is Op.DELETE) is deletes and (table, id_of(update.entry)) not in without
    ]
