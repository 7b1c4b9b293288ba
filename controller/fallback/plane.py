"""A hardware plane and the software forwarder behind it, as one plane to everything above.

    mirror ─► FallbackPair ─┬─► software   every entry, with router interfaces attached to VLANs of the link
                            └─► hardware   the same small tables; routes as far as they are placed there, and
                                           FALLBACK for all others

A packet that the hardware has no route of its own for takes the link, is routed by the software, and comes back to
leave by its port. So the software's tables are the truth, and the hardware's a part of them that is right at every
moment: what is added reaches the software first, a way in is closed at the hardware first, and the hardware's routes
go from one state to the next in stages (see `write_order`).

What the hardware refuses (a full table, a group it has no room for) is left to the software, counted, and tried
again. A route that it refuses for another reason than room waits until its action changes, or a nexthop or group
that was refused, too, is taken, or an operator has the router repaired.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import replace

from controller.errors import PlaneUnreachable
from controller.fallback.hardware_audit import HardwareAudit
from controller.fallback.hardware_routes import HardwareRoutes
from controller.fallback.installed_entries import Ends, common_share, merging, summed
from controller.fallback.link.ports import LinkPorts, port_number
from controller.fallback.link.probe import LinkProbe
from controller.fallback.pace import paced
from controller.fallback.traffic_poll import TrafficPoll
from controller.fallback.writer import PairWriter
from controller.planes.base import (
    Capability,
    Clock,
    Counters,
    Installed,
    Op,
    Plane,
    PlaneListener,
    PortState,
    PuntReason,
    Refused,
    RouteCounts,
    RouterInterface,
    RoutesInto,
    RouteTraffic,
    Sampler,
    WriteBatch,
)
from controller.planes.shares import ShareEntries, ShareEntry, ShareKey, ShareUse, used_of
from controller.views import MoveView

WORK_S = 0.25
"""How often the placement follows the traffic."""

MAX_ROUNDS = 100
"""Rounds of one call of `work`: what is to be tried again gets its turn in between."""


class FallbackPair:
    """Implements `Plane` by two of them."""

    def __init__(
        self,
        hardware: Plane,
        software: Plane,
        link: LinkPorts,
        routes: HardwareRoutes,
        clock: Clock = time.monotonic,
        probe: LinkProbe | None = None,
    ) -> None:
        self.name = hardware.name
        self.connected = False
        self.hardware, self.software, self.link, self.routes = hardware, software, link, routes
        self.shared_meters = hardware.shared_meters
        self.probe = probe  # without one the link is taken to carry all
        self._listener: PlaneListener | None = None
        self._writer = PairWriter(hardware, software, link, routes, clock)
        self._adopted = False  # what the hardware holds is known
        self._told = False  # … and what both held by then, by all routers
        self._behind = False  # the software was away since, and what it holds is not
        self._device: tuple[dict[str, int], frozenset[Capability]] | None = None  # what it said of itself
        self._refilling: set[int] = set()  # routers of which it may lack routes since
        self._outages = 0
        self._reading = asyncio.Lock()
        self._clock = clock
        self.traffic_poll = TrafficPoll(hardware, software, routes, lambda: self.connected and self._adopted, clock)
        self._turn: asyncio.Event | None = None  # set when the latest write has ended
        self._known = asyncio.Event()  # set but while it is found out what the hardware holds
        self._known.set()

    # Plane

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What both have. The software sees the port of the link alone, so it takes none of the others out of its
        groups."""
        return (self.hardware.capabilities & self.software.capabilities) - {Capability.LOCAL_FAILOVER}

    @property
    def _planes(self) -> tuple[Plane, Plane]:
        return self.hardware, self.software

    @property
    def ports(self) -> dict[int, PortState]:
        """The ports of the hardware, without that of the link."""
        return {number: port for number, port in self.hardware.ports.items() if port.name != self.link.hardware}

    @property
    def table_sizes(self) -> dict[str, int]:
        """The room of the software, which has all routes."""
        return self.software.table_sizes

    @property
    def problem(self) -> str:
        """Why the two are not one plane now, in one line; empty where they are."""
        for plane, port in ((self.hardware, self.link.hardware), (self.software, self.link.software)):
            if not plane.connected:
                return f"plane {plane.name} is not connected"
            if not self._reaches(plane, port):
                return f"port {port} of the fallback link is not on plane {plane.name}"
        return ""

    @staticmethod
    def _reaches(plane: Plane, port: str) -> bool:
        return plane.connected and port_number(plane, port) is not None

    @property
    def ahead(self) -> bool:
        """Whether only the software is away: routes, nexthops and groups are written to the hardware meanwhile.

        So the hardware is right, or falls back, whatever changes. The software goes on by what it held until it is
        read back and given the rest. Router interfaces and policers wait for it: an interface that is gone must be
        gone from both, or what comes in by its VLAN's next owner would meet its routes.
        """
        return self._adopted and not self.connected and self._reaches(self.hardware, self.link.hardware)

    @property
    def link_problem(self) -> str:
        """Why packets cannot pass between the two, in one line; empty where they can."""
        for plane, name in ((self.hardware, self.link.hardware), (self.software, self.link.software)):
            if not any(port.name == name and port.up for port in plane.ports.values()):
                return f"port {name} of plane {plane.name} is down: what is in software alone is not forwarded"
        return "" if self.probe is None else self.probe.problem

    def move(self, vrf_id: int) -> MoveView | None:
        """Return how far the routes of a router are that was placed elsewhere, None where they are there."""
        move = self.routes.moves.view(vrf_id)
        if self._adopted and vrf_id not in self.routes.writes.frozen:
            return move
        stored = self.routes.moves.unknown(vrf_id)  # what is there, or is to be, is not known yet
        return stored if self.connected or (stored.before and move is None) else move

    def written(self, vrf_id: int, settled: bool) -> None:
        """The FIB has written all that either lacked of a router; ``settled``: all that the router's guest knows."""
        if not self._behind:
            self._refilling.discard(vrf_id)
        if settled and self._adopted:  # or nobody knows yet what the software has lost
            self.routes.adoption.complete(vrf_id)

    def told(self) -> None:
        """All routers have adopted what was read: where the software goes now, they can write on without it."""
        self._told = True

    def sample_to(self, sampler: Sampler | None) -> None:
        """Do nothing: the software's samples are the pair's own, and of both together there are none."""

    async def start(self, listener: PlaneListener) -> None:
        """Begin to connect to both."""
        self._listener = listener
        side = _Side(self)
        await self.hardware.start(side)
        try:
            await self.software.start(side)
        except BaseException:
            await self.hardware.close()
            raise

    async def close(self) -> None:
        """Close both channels; what is installed stays."""
        await self.hardware.close()
        await self.software.close()

    async def read(self, only: int | None = None, into: RoutesInto | None = None) -> Installed:
        """Read both back. What one of them lacks, or has otherwise than the other, is damaged. All routes are read
        whatever is asked for: the hardware's table is one of all routers."""
        async with self._reading:
            self._require()
            if not self._adopted:
                async with self._unwritten():
                    found = await self._take_over()
            elif self._behind:
                found = await self._catch_up()
            else:
                found = await self._audit(into)
            self._behind = False
            return found

    async def _take_over(self) -> Installed:
        """Read both, and begin with what they hold; what has no room is written again, and refused."""
        outages = self._outages
        hard, soft = await self._read_both()
        self._writer.vlans.adopt(hard.router_interfaces.values(), soft.router_interfaces.values())
        await self._writer.give_back(hard, soft)
        self._require_since(outages)
        await self._adopt(hard, soft)
        self._require_since(outages)
        found = await self._merged(hard, soft, self._writer.ends, outages)
        self._adopted, self._told = True, False
        found.damaged |= {("policer", vrf_id) for vrf_id in soft.policers.keys() - self.routes.routers}
        return self._with_defaults(found)

    async def _catch_up(self) -> Installed:
        """Read both where the hardware is ahead of the software: what differs is for the FIB to write."""
        outages = self._outages
        hard, soft = await self._read_both()
        self._require_since(outages)
        self._writer.caught_up(hard, soft)
        self._refilling |= self.routes.routers
        self.routes.tables.told(soft.routes)
        if self.probe is not None:
            self.probe.schedule()
        return await self._merged(hard, soft, self._writer.ends, outages)

    async def _audit(self, into: RoutesInto | None) -> Installed:
        """Read both, and have written again what the hardware holds otherwise than it is known to."""
        outages, writes = self._outages, self.routes.writes
        idle, generation = writes.idle, writes.generation
        audit = HardwareAudit(self.routes.tables)
        try:
            hard, soft = await self._read_both(None if into is None else audit, into)
            self._require_since(outages)
            if into is None:
                await paced(audit.take(hard.routes))
            await paced(audit.repair())
            self._require_since(outages)
        finally:
            audit.end()
        if audit.repaired:
            self._notice("warning", "repaired", f"{audit.repaired} routes differed in hardware")
        found = await self._merged(hard, soft, self._writer.known_ends, outages)
        return self._with_defaults(found) if idle and generation == writes.generation else found

    async def _read_both(
        self, hardware: RoutesInto | None = None, software: RoutesInto | None = None
    ) -> tuple[Installed, Installed]:
        hard, soft = await asyncio.gather(self.hardware.read(None, hardware), self.software.read(None, software))
        if self.probe is not None:
            self.probe.strip(self.hardware, hard)
            self.probe.strip(self.software, soft)
        return hard, soft

    async def _merged(
        self, hard: Installed, soft: Installed, ends: Callable[[RouterInterface], Ends | None], outages: int
    ) -> Installed:
        """Return what both hold; PlaneUnreachable as `_require_since`: it is taken for what they hold now."""
        found = Installed()
        await paced(merging(found, hard, soft, self.routes.barred, ends))
        self._require_since(outages)
        return found

    def _with_defaults(self, found: Installed) -> Installed:
        """Note as damaged what leaves a router without its default entry: it is not served, as without a policer."""
        lacking = self.routes.writes.defaults_lacking
        found.damaged |= {("policer", vrf_id) for vrf_id in self.routes.routers if lacking(vrf_id)}
        return found

    def _require_since(self, outages: int) -> None:
        """PlaneUnreachable where either was away since: nobody knows what was read of it."""
        if outages != self._outages:
            raise PlaneUnreachable(self.name, self.problem or "the connection was lost while it was read")

    @contextlib.asynccontextmanager
    async def _unwritten(self) -> AsyncIterator[None]:
        """Have nothing written while it is not known what the hardware holds; what is under way ends before."""
        self._known.clear()
        self.routes.adoption.begin()
        try:
            if self._turn is not None:
                await self._turn.wait()
            async with self._writer.draining:
                yield
        finally:
            self._known.set()

    async def _adopt(self, hard: Installed, soft: Installed) -> None:
        self.routes.tables.reported(self.hardware.table_sizes)
        device = dict(self.hardware.table_sizes), self.hardware.capabilities
        if _is_empty(hard) or device != self._device:  # another one, or one that has lost what was in its way
            self.routes.tables.forget_learned()
        self._device = device
        await paced(self.routes.adoption.adopt(hard.routes, soft.routes, soft.policers))
        self._writer.adopt(hard, soft)
        self.traffic_poll.adopt((hard.router_interfaces | soft.router_interfaces).values())
        self._refilling.clear()
        if self.probe is not None:
            self.probe.adopt(soft.router_interfaces.values())

    async def write(self, batch: WriteBatch) -> list[Refused]:
        """Write to the software, then what the hardware is to have of it; see `ahead` for what is written without."""
        await self._known.wait()
        if not self.ahead:
            self._require()
        if self.probe is not None:
            self.probe.follow(batch.router_interfaces)
        before, self._turn = self._turn, asyncio.Event()
        ended = self._turn
        try:
            closing = [update for update in batch.router_interfaces if update.op is Op.DELETE]
            if closing and before is not None:
                await before.wait()
            self.traffic_poll.follow(batch.router_interfaces)
            refused = await self._writer.to_hardware(WriteBatch(router_interfaces=closing))
            found, told = await self._lead(batch)
            refused += found
            left = not told and bool(self.connected or batch.router_interfaces or batch.policers)
            if left:
                batch = replace(batch, policers=[], router_interfaces=[])
            if before is not None:
                await before.wait()
            refused += await self._writer.follow(batch, refused, told)
            if left:
                raise PlaneUnreachable(self.name, self.problem or "not connected")
            return refused
        except PlaneUnreachable:
            raise
        except BaseException:
            self._adopted = False  # nobody knows what of it the hardware has
            raise
        finally:
            ended.set()

    async def counters(self) -> Counters:
        """Read the counters of both: an interface's are the hardware's, which sees every packet of it once."""
        return summed(*await self.counters_of_both())

    async def counters_of_both(self) -> tuple[Counters, Counters]:
        """Read the counters of each: what an interface received of the software took the link."""
        self._require()
        return await asyncio.gather(self.hardware.counters(), self.software.counters())

    @property
    def refusals(self) -> Mapping[str, int]:
        """How many writes the hardware has refused, by table."""
        return self._writer.refusals

    async def route_counts(self) -> RouteCounts:
        """Read what the hardware's routes have met."""
        self._require()
        return await self.hardware.route_counts()

    async def route_traffic(self, vrf_id: int) -> RouteTraffic:
        """Read what the hardware's routes of a router have met; who wants the software's asks that."""
        self._require()
        return await self.hardware.route_traffic(vrf_id)

    async def read_shares(self) -> ShareEntries | None:
        """Read back the shares of both; None where neither has any. One that is not the same in both counts as one
        that nobody would write."""
        self._require()
        found = [read for plane in self._planes if (read := await plane.read_shares()) is not None]
        if not found:
            return None
        return {key: common_share([read.get(key) for read in found]) for read in found for key in read}

    async def write_shares(
        self, put: Mapping[ShareKey, ShareEntry], gone: Collection[ShareKey]
    ) -> dict[ShareKey, str]:
        """Put and delete shares where there are any: of the fallback alone, what goes through it is divided."""
        self._require()
        refused: dict[ShareKey, str] = {}
        for plane in self._planes:
            if Capability.SHARES in plane.capabilities:
                found = await plane.write_shares(put, gone)
                refused |= {key: f"plane {plane.name}: {reason}" for key, reason in found.items()}
        return refused

    async def share_use(self) -> dict[int, ShareUse]:
        """Read what routers have had of both."""
        self._require()
        return used_of(*[await plane.share_use() for plane in self._planes])

    async def sent(self) -> dict[int, int]:
        """Read how many packets router interfaces have sent: the hardware's, by which every packet leaves."""
        self._require()
        return await self.hardware.sent()

    def packet_out(self, interface: RouterInterface, frame: bytes) -> bool:
        """Send a frame out of the hardware's port."""
        return self.hardware.packet_out(interface, frame)

    def _link_changed(self, problem: str) -> None:
        if problem:
            self._notice("warning", "link-problem", problem)
        else:
            self._notice("info", "link-proved", "the fallback link carries the longest frames")

    def _notice(self, severity: str, kind: str, text: str) -> None:
        assert self._listener is not None, "start comes first"
        self._listener.noticed(self, severity, kind, text)

    # What the two say

    def reached(self) -> None:
        """Follow a change of either channel or of the ports of the link."""
        assert self._listener is not None, "start comes first"
        problem, ahead = self.problem, self._adopted and not self.connected
        self._outages += bool(problem)
        if not self._reaches(self.hardware, self.link.hardware) or (problem and not self._told):
            self._adopted = False
        if (self.connected and problem) or (ahead and not self._adopted):
            self.connected, self._behind = False, True
            self._listener.plane_disconnected(self, problem)
        elif not self.connected and not problem:
            self.connected = True
            self._listener.plane_connected(self)

    def port_changed(self, plane: Plane, port: PortState) -> None:
        """Pass on what happens to a port of the hardware; those of the link are our own."""
        assert self._listener is not None, "start comes first"
        self.reached()
        if self.probe is not None and port.name == (
            self.link.hardware if plane is self.hardware else self.link.software
        ):
            self.probe.schedule()
        if plane is self.hardware and port.name != self.link.hardware:
            self._listener.port_changed(self, port)

    def packet_in(self, plane: Plane, router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        """Pass a punted frame on, of either plane: both know interfaces by the same ids."""
        if self.probe is not None and self.probe.hear(plane, router_interface_id, frame):
            return
        assert self._listener is not None, "start comes first"
        self._listener.packet_in(self, router_interface_id, reason, frame)

    def noticed(self, plane: Plane, severity: str, kind: str, text: str) -> None:
        """Pass on what one of the two says of itself."""
        assert self._listener is not None, "start comes first"
        self._listener.noticed(plane, severity, kind, text)

    # Time

    async def run(self) -> None:
        """Let the placement follow the traffic, and finish what is left to write, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.traffic_poll.run(), name=f"traffic of {self.name}")
            await self._follow_traffic()

    async def _follow_traffic(self) -> None:
        while True:
            more = False
            with contextlib.suppress(PlaneUnreachable):  # the mirror sees that too, and reads back
                more = await self.work()
            await asyncio.sleep(0 if more else WORK_S)

    async def watch_link(self) -> None:
        """Prove again and again that the link carries what it has to, until cancelled."""
        if self.probe is not None:
            await self.probe.run(lambda: self.connected and self._adopted, self._link_changed)

    async def work(self) -> bool:
        """Do that once, and tell whether more is to be moved at once. PlaneUnreachable where a channel goes down."""
        self._refilling &= self.routes.routers  # others are closed
        if self._adopted:
            await paced(self.routes.adoption.thaw())
        if not self.connected or not self._adopted or self._behind or self._refilling:
            return False
        await self._writer.once_more()
        await paced(self.traffic_poll.hand_over(self._clock()))
        for _ in range(MAX_ROUNDS):
            if not self.connected or not self._adopted:  # the software is not for moving to what it may not have
                return False
            moved = self.routes.rebalance(self._clock())
            await self._writer.drain()
            if not moved or not self.routes.hurried:
                return False
        return True

    # Writing

    def _require(self) -> None:
        if not self.connected:
            raise PlaneUnreachable(self.name, self.problem or "not connected")

    async def _lead(self, batch: WriteBatch) -> tuple[list[Refused], bool]:
        """Write to the software and tell whether it has that; where it is away, or was for a moment, the hardware
        leads: what the FIB takes for written, the hardware has."""
        if self.ahead:
            return [], False
        try:
            return await self._writer.to_software(batch), True
        except PlaneUnreachable:
            if not self._adopted or not self._reaches(self.hardware, self.link.hardware):
                raise
            return [], False


class _Side:
    """Listens to one of the two. Implements `PlaneListener`."""

    def __init__(self, pair: FallbackPair) -> None:
        self._pair = pair

    def plane_connected(self, plane: Plane) -> None:
        """See whether both are there now."""
        self._pair.reached()

    def plane_disconnected(self, plane: Plane, reason: str) -> None:
        """See what is left."""
        self._pair.reached()

    def port_changed(self, plane: Plane, port: PortState) -> None:
        """Follow a port."""
        self._pair.port_changed(plane, port)

    def packet_in(self, plane: Plane, router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        """Pass a frame on."""
        self._pair.packet_in(plane, router_interface_id, reason, frame)

    def noticed(self, plane: Plane, severity: str, kind: str, text: str) -> None:
        """Pass it on."""
        self._pair.noticed(plane, severity, kind, text)


def _is_empty(read: Installed) -> bool:
    return not any((read.policers, read.router_interfaces, read.nexthops, read.groups, *read.routes.values()))
