"""Keeps one plane equal to the FIBs of its routers: adopts on connect, writes fairly, audits now and then.

    FIB of router 1 ─┐
    FIB of router 2 ─┼─► equal shares of a batch ─► Plane.write ─► confirm (in the order of writes)
    FIB of router n ─┘

Every batch is bounded, so a router with a full table to load delays another router's single change by no more than
the batches under way. Every entry costs one, a group as many as it has members. The routers that have work get equal
shares of a batch by deficit round robin: who took a group that costs more than its share has that much less of the
next ones. What a router leaves of its share goes to the others. Where many have work, at most `BATCH_ROUTERS` get a
share of a batch, in turn. A router without work costs nothing: who changes a FIB says so (`wake`).
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from math import inf
from typing import Any, Protocol

from controller.errors import PlaneUnreachable
from controller.events.log import EventLog
from controller.model import RouterConfig
from controller.planes.base import Clock, Installed, Plane, PortState, PuntReason, Refused, WriteBatch
from controller.planes.encoding_time import SHARED
from controller.routing.fib import Fib
from controller.routing.objects import PlaneObjects
from controller.routing.prefixes import Ticket
from controller.routing.route_audit import RouteAudit, beginning, repairing
from controller.shard.fib_work import FibWork, TablePasses
from controller.shard.loop_share import LoopShare
from controller.shard.plane_shares import PlaneShares
from controller.shard.router_ports import RouterPorts
from controller.shard.unclaimed import UnclaimedObjects, deletions, interfaces_by_router
from wire.columns import prefix_text

BATCH_ROUTES = 1000
"""Most routes, or what costs as much, in one write: some 10 ms of Open vSwitch's main thread, which also forwards."""

BATCH_LOOKS = 8 * BATCH_ROUTES
"""Most prefixes that are looked at for one write: most of them may be found equal."""

BATCH_ROUTERS = 64
"""Most routers that have a share of one write."""

WRITES_IN_FLIGHT = 2
"""One batch is encoded while the plane works on the one before."""

AUDIT_INTERVAL_S, TIDY_S = 300.0, 1.0
"""Between two audits, and between two looks for what nobody claims."""

SILENCE_LASTS_S = 10.0
"""How long after a plane was away its neighbors' silence means nothing: a guest's kernel tries again every 5 s."""


class MirrorListener(Protocol):
    """Whom a mirror tells what happens on its plane. None of these block."""

    @property
    def ahead(self) -> bool:
        """Whether routes can be written though the plane is not connected."""

    def adopted(self) -> None:
        """It is known what the plane has; nothing was written since."""

    def confirmed(self, vrf_id: int) -> None:
        """The plane has confirmed a write of a router, or what it holds of it is known."""

    def ports_changed(self, vrf_ids: Iterable[int]) -> None:
        """A port of these routers has changed."""

    def packet_in(self, router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        """A punted frame."""


class PlaneMirror:
    """One plane with the FIBs on it. Implements `PlaneListener`."""

    def __init__(
        self,
        plane: Plane,
        events: EventLog,
        clock: Clock,
        listener: MirrorListener,
        loop_share: LoopShare,
        audit_s: float = AUDIT_INTERVAL_S,
    ) -> None:
        self.plane = plane
        self.fibs: dict[int, Fib] = {}
        self.objects = PlaneObjects(plane.name)
        self._unclaimed = UnclaimedObjects(self.objects)
        self._wake = asyncio.Event()
        self.shares = PlaneShares(plane, events, self._wake.set)
        self.adopted = False
        self.ready = asyncio.Event()  # adopted at least once: ids issued from now on meet no installed ones
        self.reason = "not connected yet"
        self.foreign = 0
        self.changes: Counter[int] = Counter()  # routes written, by vrf_id
        self._events, self._clock = events, clock
        self._listener, self._loop_share = listener, loop_share
        self.account, self._work = loop_share.writer(plane.name), FibWork(events, loop_share, self._failed)
        self._passes = TablePasses(events, loop_share, self._work, self._passed, lambda: self._progress.wait())
        self._audit_s = audit_s
        self._busy: dict[int, Fib] = {}  # that may have work, in the order of their turns
        self._debts: Counter[int] = Counter()  # what routers took of batches beyond their shares, by vrf_id
        self.ports = RouterPorts(plane, self._follow_ports)
        self._progress = asyncio.Event()
        self._connection, self._silent_until, self._going_ahead = 0, -inf, False
        self._writes: deque[asyncio.Task[Any]] = deque()
        self._reading = asyncio.Lock()

    # Listening to the plane

    def plane_connected(self, plane: Plane) -> None:
        """Adopt what the plane holds, then write."""
        self._connection += 1
        self.ports.read_anew()
        self.adopted = False
        self._wake.set()

    def plane_disconnected(self, plane: Plane, reason: str) -> None:
        """Keep everything; the plane goes on forwarding."""
        self._connection += 1
        self.ports.read_anew()
        served, self._going_ahead = self.adopted or self._going_ahead, self._listener.ahead
        if served and not self._going_ahead:
            self._silent_until = inf
        self.adopted = False
        self.reason = reason
        self._events.emit("warning", "plane-disconnected", plane.name, reason)
        self._wake.set()

    def port_changed(self, plane: Plane, port: PortState) -> None:
        """Re-resolve what leaves by a port."""
        self.ports.changed(port)

    def _follow_ports(self, vrf_ids: list[int]) -> None:
        for vrf_id in vrf_ids:
            if (fib := self.fibs.get(vrf_id)) is not None:
                with self._work.slice(fib, "a port that has changed"):
                    self.set_ports(fib)
        self._listener.ports_changed(vrf_ids)

    def packet_in(self, plane: Plane, router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        """Pass a punted frame on."""
        self._listener.packet_in(router_interface_id, reason, frame)

    def noticed(self, plane: Plane, severity: str, kind: str, text: str) -> None:
        """Tell operators."""
        self._events.emit(severity, kind, plane.name, text)

    # Routers

    def add(self, fib: Fib) -> None:
        """Serve a router. On a plane adopted before, nothing of it can be installed: its ids were just issued."""
        self.fibs[fib.config.vrf_id] = fib
        self.configured(fib)

    def configured(self, fib: Fib) -> None:
        """Follow a FIB's declaration."""
        self.shares.want(fib.config)
        self.ports.use(fib.config.vrf_id, frozenset(one.port for one in fib.config.interfaces))
        self.set_ports(fib)
        self.wake(fib)

    def discard(self, vrf_id: int) -> None:
        """Stop serving a router, leaving whatever is installed."""
        fib = self.fibs.pop(vrf_id, None)
        if fib is not None:
            self._passes.discard(fib)
            self._work.failed.pop(fib, None)
        self._busy.pop(vrf_id, None)
        self._debts.pop(vrf_id, None)
        self.ports.use(vrf_id, frozenset())
        self.shares.drop(vrf_id)

    def fault(self, vrf_id: int) -> str:
        """Return why nothing is written of a router before its plane is read anew; empty where that is not so."""
        return self._work.problem(self.fibs.get(vrf_id))

    def problem(self, config: RouterConfig) -> str:
        """Return why a router is not on the plane as it is declared, beside what was refused; empty where it is."""
        return self.fault(config.vrf_id) or self.shares.problem(config)

    def set_ports(self, fib: Fib) -> None:
        """Tell a FIB the plane's ports; without a connection, its last known ones stay."""
        if self.plane.connected or self._listener.ahead:
            fib.set_ports(self.ports.states(), self._clock())
            self.wake(fib)

    @property
    def silent(self) -> bool:
        """Whether guests' probes may not have reached their neighbors of late, as the plane was away."""
        return self._clock() < self._silent_until

    def wake(self, *fibs: Fib) -> None:
        """Look for work of these."""
        for fib in fibs:
            if fib in self._work.failed:
                continue
            if fib.unfinished:
                self._passes.start(fib)
            if fib.busy:
                self._busy[fib.config.vrf_id] = fib
        self._wake.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until a condition on the FIBs holds. PlaneUnreachable where the plane is or goes away."""
        self._wake.set()
        while not reached():
            if not self.plane.connected:
                raise PlaneUnreachable(self.plane.name, self.reason)
            await self._progress.wait()

    # The writer

    async def run(self) -> None:
        """Serve the plane, which has been started with this as its listener, until cancelled."""
        try:
            while True:
                try:
                    await self._serve()
                except PlaneUnreachable as lost:
                    self.reason = lost.reason
                    await self._settle_writes()
                    self._advance()
                    await asyncio.sleep(0)  # for the plane to see it too: nothing above need have waited
        finally:
            await self._settle_writes()

    async def _serve(self) -> None:
        while not self.plane.connected:
            await self._go_ahead()
        connection = self._connection
        await self._adopt()
        beside = asyncio.create_task(self._look_after())
        beside.add_done_callback(lambda _: self._wake.set())
        try:
            while connection == self._connection:
                if beside.done():
                    await beside  # on the same connection it ends by an error alone
                while self._writes and (len(self._writes) >= WRITES_IN_FLIGHT or self._writes[0].done()):
                    await self._oldest_write()
                if self.shares.busy:
                    self._tell_confirmed(await self.shares.write())
                elif self._busy:
                    await self._loop_share.turn(self.account)
                    self._send()
                    await asyncio.sleep(0)
                elif self._writes:
                    await self._oldest_write()
                else:
                    await self._wake.wait()
                    self._wake.clear()
        finally:
            self.adopted = False  # also where an unforeseen error ends it: what the plane has is read anew
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
        raise PlaneUnreachable(self.plane.name, self.reason)

    async def _oldest_write(self) -> None:
        await self._writes[0]  # as one of them: an audit that begins meanwhile waits for it as well
        self._writes.popleft()

    async def _look_after(self) -> None:
        """Delete what nobody claims, and audit now and then: beside what is written, which waits for neither."""
        next_audit = self._clock() + self._audit_s
        while True:
            await asyncio.sleep(min(TIDY_S, max(0.0, next_audit - self._clock())))
            await self.delete_unclaimed()
            if self._clock() >= next_audit:
                if self._work.failed:
                    self.reason = "what it has is read anew"
                    self.plane_connected(self.plane)  # of those that failed, nobody knows it
                    return
                await self.audit()
                next_audit = self._clock() + self._audit_s

    async def _go_ahead(self) -> None:
        """Write what need not wait for the plane to be whole again, or wait for something to happen."""
        if self._listener.ahead and any(fib.busy_ahead for fib in self._busy.values()):
            batch = WriteBatch()
            await self._write(batch, self._fill(batch, ahead=True))
            await asyncio.sleep(0)
        else:
            await self._wake.wait()
            self._wake.clear()

    def _send(self) -> None:
        batch = WriteBatch()
        tickets = self._fill(batch)
        self._writes.append(asyncio.create_task(self._write(batch, tickets, *self._writes)))

    def _fill(self, batch: WriteBatch, ahead: bool = False) -> list[tuple[Fib, Ticket]]:
        ready = (fib for fib in self._busy.values() if fib.busy_ahead or not ahead)
        turn = list(islice(ready, BATCH_ROUTERS))
        served: dict[int, Fib] = {}
        tickets = []
        room, looks = BATCH_ROUTES, BATCH_LOOKS
        while turn and room > 0 and looks > 0:
            share = max(1, room // len(turn))
            for fib in turn:
                limit = self._limit(fib.config.vrf_id, min(share, room))
                served[fib.config.vrf_id] = fib
                if limit <= 0:
                    continue
                pending = fib.pending
                with self._work.slice(fib, "what it has to write"):
                    ticket = fib.take(batch, limit, ahead)
                if fib in self._work.failed:
                    continue
                tickets.append((fib, ticket))
                self._debts[fib.config.vrf_id] += max(0, ticket.cost - limit)
                room -= ticket.cost
                looks -= max(1, pending - fib.pending)
                if room <= 0 or looks <= 0:
                    break
            turn = [one for one in turn if one not in self._work.failed and (one.busy_ahead if ahead else one.busy)]
        for vrf_id, fib in served.items():  # whoever has more is the last of the next turn
            self._busy.pop(vrf_id, None)
            if not self._debts[vrf_id]:
                del self._debts[vrf_id]
            self.wake(fib)
        return tickets

    def _limit(self, vrf_id: int, share: int) -> int:
        """Return what is left of a router's share once it has paid for what it took beyond earlier ones."""
        paid = min(self._debts[vrf_id], share)
        self._debts[vrf_id] -= paid
        return share - paid

    async def _write(self, batch: WriteBatch, tickets: list[tuple[Fib, Ticket]], *before: asyncio.Task[Any]) -> None:
        try:
            refused = await self.plane.write(batch) if batch else []
            await asyncio.gather(*before, return_exceptions=True)  # the plane may have done the later one first
        except PlaneUnreachable:
            for fib, _ in tickets:
                fib.abandon()
                self._wake_served(fib)
            raise
        self._charge_encoding(batch, tickets)
        for columns in batch.routes:
            self.changes[columns.vrf_id] += len(columns)
        for fib, ticket in tickets:
            vrf_id = fib.config.vrf_id
            mine = [one for one in refused if one.vrf_id == vrf_id or fib.owns(one, ticket.deleted)]
            with self._work.slice(fib, "what its plane has confirmed"):
                fib.confirm(ticket, mine)
            self._wake_served(fib)
        served = {fib.config.vrf_id for fib, _ in tickets}
        others = [one for one in refused if one.vrf_id in self.fibs and one.vrf_id not in served]
        for one in others:  # of what the hardware of a pair has lost
            with self._work.slice(self.fibs[one.vrf_id], "what its plane has lost"):
                self.fibs[one.vrf_id].refuse(one)
        for one in refused[:8]:
            self._report(one)
        self._tell_confirmed(served | {one.vrf_id for one in others})

    def _tell_confirmed(self, vrf_ids: set[int]) -> None:
        for vrf_id in vrf_ids:
            self._listener.confirmed(vrf_id)
        self._advance()

    def _charge_encoding(self, batch: WriteBatch, tickets: list[tuple[Fib, Ticket]]) -> None:
        """Charge what the plane's back end took to encode a batch: routes to their router, the rest by what each has
        of it."""
        spent_s = batch.encoding.spent_s
        shared_s, entries = spent_s.pop(SHARED, 0.0), sum(ticket.entries for _, ticket in tickets)
        for fib, ticket in tickets:
            took_s = spent_s.pop(fib.config.vrf_id, 0.0)
            if ticket.entries:
                took_s += shared_s * ticket.entries / entries
            if took_s:
                self._loop_share.charge(self._loop_share.account(fib.config), took_s, "updates encoded for its plane")

    def _passed(self, fib: Fib) -> None:
        """A router has done a slice of what takes a pass over its tables."""
        self._wake_served(fib)
        if not fib.unfinished:
            self._listener.confirmed(fib.config.vrf_id)
            self._advance()

    def _failed(self, fib: Fib) -> None:
        """Write nothing more of a router; who waits for that hears why."""
        if self._busy.get(fib.config.vrf_id) is fib:
            del self._busy[fib.config.vrf_id]
        self._advance()

    async def close(self) -> None:
        """Leave what is unfinished of a plane that was closed; who waits for it hears that it is away."""
        await self._passes.close()
        self._advance()

    def _wake_served(self, fib: Fib) -> None:
        if self.fibs.get(fib.config.vrf_id) is fib:  # it may have been removed meanwhile
            self.wake(fib)

    def _report(self, one: Refused) -> None:
        fib = self.fibs.get(one.vrf_id)
        subject = self.plane.name if fib is None else fib.config.full_name
        key = prefix_text(one.key) if isinstance(one.key, bytes) else str(one.key)
        kind = "table-full" if one.full else "entry-refused"
        self._events.report("error", kind, subject, f"plane {self.plane.name} {one.table} {key}: {one.reason}")

    async def _settle_writes(self) -> None:
        pending, self._writes = list(self._writes), deque()
        await asyncio.gather(*pending, return_exceptions=True)

    def _advance(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()

    # Adoption and audit

    async def _adopt(self) -> None:
        await self.shares.adopt()
        read, connection = await self.plane.read(), self._connection
        self._work.failed.clear()
        await self._loop_share.take(self.account, "what it has", self._unclaimed.adopt(read, self.fibs))
        self._require(connection)
        self.foreign = read.foreign
        routes = sum(map(len, read.routes.values()))
        await self._adopt_routers(read, connection)
        for batch in deletions(read, self.fibs, BATCH_ROUTES):
            self._unclaimed.free(batch, await self.plane.write(batch))
        self._require(connection)
        self.adopted = True
        self._listener.adopted()
        self._silent_until = min(self._silent_until, self._clock() + SILENCE_LASTS_S)
        self.ready.set()
        self._events.emit("info", "plane-connected", self.plane.name, f"adopted {routes} routes")
        await self._loop_share.take(self.account, "what it has", self._tell_adopted())
        self._advance()

    async def _adopt_routers(self, read: Installed, connection: int) -> None:
        """Have all routers begin with what was read, those too that come before all of that is done."""
        adopted, interfaces = set[Fib](), interfaces_by_router(read)

        def steps(fib: Fib) -> Iterator[None]:
            self.set_ports(fib)
            yield from fib.adopt(read, interfaces.get(fib.config.vrf_id, {}))

        while waiting := [fib for fib in self.fibs.values() if fib not in adopted]:
            for fib in waiting:
                adopted.add(fib)
                goes_on = partial(self._serves, fib, connection)
                await self._work.take(self.account, fib, "what its plane has", steps(fib), goes_on)
                self._wake_served(fib)
            await self._loop_share.take(self.account, "what it has", self._unclaimed.adopt_left(read, self.fibs))

    def _require(self, connection: int) -> None:
        if connection != self._connection:
            raise PlaneUnreachable(self.plane.name, self.reason)

    def _serves(self, fib: Fib, connection: int) -> bool:
        self._require(connection)
        return self.fibs.get(fib.config.vrf_id) is fib and fib not in self._work.failed

    def _tell_adopted(self) -> Iterator[None]:
        for vrf_id in list(self.fibs):
            self._listener.confirmed(vrf_id)
            self._listener.ports_changed([vrf_id])
            yield

    async def delete_unclaimed(self) -> None:
        """Delete adopted nexthops and groups that their routers, once settled, neither claimed nor use."""
        connection = self._connection
        if not self.adopted:
            return
        for batch in self._unclaimed.deletions(self.fibs, BATCH_ROUTES):
            self._writes.append(write := asyncio.create_task(self.plane.write(batch)))
            refused = await asyncio.shield(write)  # it ends as the others do
            if connection != self._connection:
                return  # read back meanwhile, or to be
            self._unclaimed.free(batch, refused)

    async def read_back(self, only: int | None = None) -> tuple[Installed, dict[int, set[bytes]]]:
        """Read the plane while writing goes on, routes of ``only`` one router; and return keys written meanwhile."""
        async with self._watched(only) as written:
            return await self.plane.read(only), written

    async def audit(self, only: int | None = None) -> dict[int, int]:
        """Read back and repair what differs from what was written, of one router or of all; returns counts.

        Of all, the routes are compared as they are read, and those that were not read are looked for in slices.
        """
        repairs: Counter[int] = Counter()
        async with self._watched(only) as written:
            fibs = {vrf_id: self.fibs[vrf_id] for vrf_id in written}
            into = RouteAudit(fibs, written) if only is None else None
            connection, read = self._connection, await self.plane.read(only, into)
            self.foreign, streamed = read.foreign, into if read.routes is into else None
            for vrf_id, fib in fibs.items():
                audited = None if streamed is None else streamed.of(vrf_id)
                steps = repairing(fib, read, audited, written[vrf_id], repairs)
                await self._work.take(self.account, fib, "an audit", steps, partial(self._serves, fib, connection))
                self._wake_served(fib)
            repairs.update(await self.shares.audit())
        for repaired in [self.fibs[vrf_id] for vrf_id in +repairs if vrf_id in self.fibs]:
            name, count = repaired.config.full_name, repairs[repaired.config.vrf_id]
            self._events.emit("warning", "repaired", name, f"{count} entries differed on the plane")
            repaired.retry_refused()  # it may have been for want of what was lost
            self.wake(repaired)  # what was missing may be written by now
        self._unclaimed.retry()
        await self.delete_unclaimed()
        self.wake()
        return dict(+repairs)

    @contextlib.asynccontextmanager
    async def _watched(self, only: int | None) -> AsyncIterator[dict[int, set[bytes]]]:
        """Note the keys that are written from now on, by vrf_id, of ``only`` one router or all, once all before is
        confirmed and it is known what the plane has; one at a time, as each would take what another has under way
        for damage. PlaneUnreachable where the plane is away."""
        async with self._reading:
            begun: dict[Fib, set[bytes]] = {}
            try:
                await self._loop_share.take(self.account, "an audit", beginning(self.fibs, only, begun))
                if self._writes:
                    await asyncio.wait(list(self._writes))
                await self.until(lambda: self.adopted)  # or all that it has would be damage, and go
                yield {vrf_id: begun[fib] for vrf_id, fib in self.fibs.items() if fib in begun}
            finally:
                for fib in begun:
                    fib.end_audit()
