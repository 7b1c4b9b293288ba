"""One life of the Control stream: what changed is told in order, and acknowledgements bound how far ahead.

What is sent is state, not a log: at its turn each changed thing is sent as it is then. Order of a turn: interfaces,
neighbors, notices and lost frames; nexthop sets; routes that use them; released sets; the end of a resync.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from vrc.errors import VrcError
from vrc.interfaces import Interfaces, InterfaceStatus
from vrc.neighbors import Neighbors, Report
from vrc.packets import PacketRelay
from vrc.routes.nexthops import NexthopSets
from vrc.routes.table import Columns, RouteTable
from wire import LOSSES_PROTOCOL_VERSION, MAX_ITEMS_PER_MESSAGE, MAX_ROUTES_PER_MESSAGE, PROTOCOL_VERSION
from wire import splitplane_pb2 as pb
from wire.columns import pack_ids, pack_prefixes

log = logging.getLogger(__name__)

ROUTE_MESSAGES_AHEAD = 32
"""Most Routes messages that are sent and not acknowledged; what changes meanwhile is coalesced in the table."""

_SETS_PER_MESSAGE = 1000
_MEMBERS_PER_MESSAGE = 8000
_NEIGHBORS_PER_MESSAGE = 1000
_ADDRESSES_PER_MESSAGE = 1 << 14  # of 18 octets each
_NOTICES = 64
_SNAPSHOT_REQUESTS = 4
_MOST_FRAMES = (1 << 32) - 1  # of a loss, in one message


@dataclass(slots=True)
class Known:
    """Everything a session reports."""

    interfaces: Interfaces
    neighbors: Neighbors
    sets: NexthopSets
    table: RouteTable
    relay: PacketRelay
    notices: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=_NOTICES))


class SessionOwner:
    """Whom a session asks and tells; the agent overrides these."""

    async def declared(self, declaration: pb.Declaration) -> None:
        """Make the guest as declared; returns when everything known is in `Known`."""

    def port_changed(self, interface_id: int, up: bool) -> None:
        """Mirror a plane port's state."""

    def complete(self) -> bool:
        """Tell whether everything the daemons had to say at the start is known."""
        return True

    def settled_in_s(self) -> float:
        """Return in how many seconds the daemons will have settled: 0.0 when they have."""
        return 0.0

    def snapshot(self) -> AsyncIterator[Columns]:
        """Yield the kernel's own routes, as set ids of the session."""
        raise NotImplementedError


class ControlCall(Protocol):
    """The two directions of the Control stream."""

    async def write(self, request: pb.VrcMessage) -> None:
        """Send one message."""

    def __aiter__(self) -> AsyncIterator[pb.ControllerMessage]:
        """Yield what the controller says until it ends the stream."""


class ControlStream:
    """One life of the Control stream."""

    def __init__(
        self, call: ControlCall, known: Known, owner: SessionOwner, wake: asyncio.Event, connected: asyncio.Event
    ) -> None:
        self._call, self._known, self._owner, self._wake, self._connected = call, known, owner, wake, connected
        self._sequence = 0
        self._lock = asyncio.Lock()  # a definition and its use are written together
        self._unacknowledged: deque[int] = deque()
        self.protocol = PROTOCOL_VERSION
        """The version that both ends speak, once there was a declaration."""
        self.ticket: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        """What opens the connection of frames, once it is known."""
        self._declarations: deque[pb.Declaration] = deque(maxlen=1)
        self._declared = asyncio.Event()
        self._late_ports: dict[int, bool] = {}  # said after a declaration that is not applied yet
        self._statuses: dict[int, InterfaceStatus] = {}
        self._statuses_version = -1  # of `Interfaces`, when they were looked at
        self._ended = False  # ResyncEnd was sent
        self._settled = False  # … with daemons_settled
        self._ending: bool | None = None  # what the next one says of that, once the changes before it are noted
        self._snapshots: set[asyncio.Task[None]] = set()

    async def write(self, **body: object) -> None:
        """Send one message with the next sequence number."""
        self._sequence += 1
        await self._call.write(pb.VrcMessage(sequence=self._sequence, **body))  # type: ignore[arg-type]

    async def receive(self) -> None:
        """Take in what the controller says until it ends the stream."""
        try:
            async for message in self._call:
                self._take(message)
        finally:
            for task in self._snapshots:
                task.cancel()

    def _take(self, message: pb.ControllerMessage) -> None:
        kind = message.WhichOneof("body")
        if kind == "ack":
            while self._unacknowledged and self._unacknowledged[0] <= message.ack.sequence:
                self._unacknowledged.popleft()
            self._wake.set()
        elif kind == "declaration":
            self._declarations.append(message.declaration)
            self.protocol = message.declaration.protocol or PROTOCOL_VERSION
            if not self.ticket.done():
                self.ticket.set_result(message.declaration.frame_ticket)
            self._late_ports.clear()
            self._declared.set()
        elif kind == "port_states":
            for state in message.port_states.states:
                self._late_ports[state.interface_id] = state.up
                self._owner.port_changed(state.interface_id, state.up)
        elif kind == "snapshot_request":
            self._begin_snapshot(message.snapshot_request.id)
        elif kind == "refusal":
            fatal = ", and it ends the session" if message.refusal.fatal else ""
            log.error("the controller refuses: %s%s", message.refusal.reason, fatal)

    async def apply(self) -> None:
        """Apply declarations, the latest only; the first one begins the resync."""
        while True:
            await self._declared.wait()
            self._declared.clear()
            while self._declarations:
                await self._owner.declared(self._declarations.popleft())
                for interface_id, up in self._late_ports.items():
                    self._owner.port_changed(interface_id, up)
                if not self._connected.is_set():
                    self._begin_resync()
                self._wake.set()

    def _begin_resync(self) -> None:
        known = self._known
        known.sets.begin_session()
        known.table.begin_resend()
        known.neighbors.changed = dict(known.neighbors.reports())
        self._connected.set()
        log.info("session up, protocol %d: sending %d routes", self.protocol, len(known.table))

    async def send(self) -> None:
        """Send what changed, whenever something did."""
        await self._connected.wait()
        while True:
            # Cleared before looking, so that nothing that changes meanwhile is missed.
            self._wake.clear()
            while await self._turn():
                pass
            settled_in_s = self._owner.settled_in_s() if self._ended and not self._ending else None
            try:
                async with asyncio.timeout(settled_in_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _turn(self) -> bool:
        """Send the most urgent thing; False where there is nothing to send."""
        async with self._lock:
            return (
                await self._send_interfaces()
                or await self._send_neighbors()
                or await self._send_notice()
                or await self._send_losses()
                or await self._send_routes()
                or await self._send_released()
                or await self._send_resync_end()
            )

    async def _send_interfaces(self) -> bool:
        interfaces = self._known.interfaces
        if interfaces.version == self._statuses_version:
            return False
        self._statuses_version, statuses = interfaces.version, interfaces.statuses()
        changed = [status for key, status in statuses.items() if self._statuses.get(key) != status]
        self._statuses = statuses
        message, addresses = pb.InterfaceStates(), 0
        for one in changed:
            addresses += len(one.addresses)
            if len(message.states) >= MAX_ITEMS_PER_MESSAGE or addresses > _ADDRESSES_PER_MESSAGE:
                await self.write(interfaces=message)
                message, addresses = pb.InterfaceStates(), len(one.addresses)
            message.states.add(id=one.id, up=one.up, addresses=one.addresses)
        if message.states:
            await self.write(interfaces=message)
        return bool(changed)

    async def _send_neighbors(self) -> bool:
        changed = self._known.neighbors.changed
        if not changed:
            return False
        keys = list(changed)[:_NEIGHBORS_PER_MESSAGE]
        neighbors = [_neighbor(*key, changed.pop(key)) for key in keys]
        await self.write(neighbors=pb.Neighbors(neighbors=neighbors))
        return True

    async def _send_notice(self) -> bool:
        if not self._known.notices:
            return False
        kind, text = self._known.notices.popleft()
        await self.write(notice=pb.Notice(kind=kind, text=text))
        return True

    async def _send_losses(self) -> bool:
        due = self._known.relay.losses.due
        if not due or self.protocol < LOSSES_PROTOCOL_VERSION:
            return False
        told = [(key, due.pop(key)) for key in list(due)[:MAX_ITEMS_PER_MESSAGE]]
        await self.write(frame_losses=pb.FrameLosses(losses=[_loss(*key, frames) for key, frames in told]))
        return True

    async def _send_routes(self) -> bool:
        if len(self._unacknowledged) >= ROUTE_MESSAGES_AHEAD:
            return False
        columns = self._known.table.take(MAX_ROUTES_PER_MESSAGE)
        if columns is None:
            return False
        await self._announce(columns)
        self._unacknowledged.append(self._sequence + 1)
        await self.write(routes=_routes(columns))
        return True

    async def _announce(self, columns: Columns) -> None:
        """Send the definitions of the sets that these columns use and the controller does not know."""
        sets = self._known.sets
        new = set(columns.ids) - sets.announced
        new.discard(0)
        sets.announced |= new
        message, members = pb.NexthopSets(), 0
        messages = [message]
        for set_id in sorted(new):
            kind, ways = sets.content(set_id)
            if len(message.sets) >= _SETS_PER_MESSAGE or members + len(ways) > _MEMBERS_PER_MESSAGE:
                message, members = pb.NexthopSets(), 0
                messages.append(message)
            members += len(ways)
            definition = message.sets.add(id=set_id, kind=pb.NexthopSet.Kind.Name(kind))
            for interface_id, gateway, weight in ways:
                definition.members.add(interface_id=interface_id, gateway=gateway, weight=weight)
        for message in messages:
            if message.sets:
                await self.write(nexthop_sets=message)

    async def _send_released(self) -> bool:
        # Only when no prefix that was sent can still refer to one of them.
        gone = self._known.sets.gone
        if not gone or self._known.table.pending or self._snapshots:
            return False
        released = gone[:_SETS_PER_MESSAGE]
        del gone[:_SETS_PER_MESSAGE]
        await self.write(nexthop_sets=pb.NexthopSets(released=released))
        return True

    async def _send_resync_end(self) -> bool:
        if self._known.table.resending or self._settled or not self._owner.complete():
            return False
        settled = self._owner.settled_in_s() <= 0.0
        if self._ended and not settled:
            return False
        if self._ending is not settled:  # what is known by now comes before, and nothing that changes later
            self._ending = settled
            if self._known.table.resend_changed():
                return True
        self._ended, self._settled = True, settled
        await self.write(resync_end=pb.ResyncEnd(daemons_settled=settled))
        return True

    def _begin_snapshot(self, snapshot_id: int) -> None:
        if len(self._snapshots) >= _SNAPSHOT_REQUESTS:
            work = self._end_snapshot(snapshot_id, "too many snapshots at once")
        else:
            work = self._send_snapshot(snapshot_id)
        task = asyncio.get_running_loop().create_task(work)
        self._snapshots.add(task)
        task.add_done_callback(self._snapshot_done)

    def _snapshot_done(self, task: asyncio.Task[None]) -> None:
        self._snapshots.discard(task)
        self._wake.set()
        if not task.cancelled() and task.exception() is not None:
            log.warning("snapshot ended: %s", task.exception())

    async def _send_snapshot(self, snapshot_id: int) -> None:
        problem = ""
        await self._connected.wait()
        try:
            async for columns in self._owner.snapshot():
                async with self._lock:
                    await self._announce(columns)
                    await self.write(snapshot=pb.Snapshot(id=snapshot_id, routes=_routes(columns)))
        except VrcError as error:
            problem = str(error)
        await self._end_snapshot(snapshot_id, problem)

    async def _end_snapshot(self, snapshot_id: int, problem: str) -> None:
        async with self._lock:
            await self.write(snapshot=pb.Snapshot(id=snapshot_id, end=True, error=problem))


def _routes(columns: Columns) -> pb.Routes:
    return pb.Routes(family=columns.family, prefixes=pack_prefixes(columns.keys), sets=pack_ids(columns.ids))


def _neighbor(interface_id: int, address: bytes, report: Report) -> pb.Neighbor:
    return pb.Neighbor(interface_id=interface_id, address=address, mac=report.mac, failed=report.failed)


def _loss(interface_id: int, reason: str, frames: int) -> pb.FrameLoss:
    return pb.FrameLoss(interface_id=interface_id, reason=reason.upper(), frames=min(frames, _MOST_FRAMES))
