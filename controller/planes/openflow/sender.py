"""Sends batches over one connection in the contract's order and tells which updates the switch refused.

    policers │ router interfaces, egress and fallback_link │ their way back in │ nexthops │ groups │
        ingress that goes │ routes │ ingress that comes, whatever else of changed router interfaces goes
        ── all of it sent without waiting, a barrier at each line; then its confirmations; refused bundles again ──
    groups that go │ nexthops that go │ router interfaces, egress, that go │ policers that go

The switch works through one connection in order, so batches follow each other without waiting for confirmations. What
deletes groups waits, because a group takes every flow that uses it with it.

A bundle is all or nothing. Where the switch refuses one, its routes are sent again one by one, without those that a
later batch has changed meanwhile; one that it has modified is inserted as it became. The good ones are then in force
and each bad one has its own error.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from controller.planes.base import Op, Refused, RouteUpdates, WriteBatch
from controller.planes.encoding_time import SHARED, EncodingTime
from controller.planes.openflow import codec, messages, stages
from controller.planes.openflow import program as prog
from controller.planes.openflow.channel import Channel, Watch
from controller.planes.openflow.codec import BundleControl, Command, Flow, Multipart
from controller.planes.openflow.messages import SwitchError
from controller.planes.openflow.readback import Inventory
from controller.planes.openflow.routes import RouteEncoder
from controller.planes.openflow.stages import Message, Stage
from controller.planes.refusals import Refusals, group_key, nexthop_key, route_key

ROUTES_PER_BUNDLE = 500
"""A commit holds up Open vSwitch's main thread, which in the userspace datapath answers everything else too:
500 routes are some 5 ms, and a route costs hardly more than in larger bundles."""

_MESSAGES_PER_CHUNK = 500
_CHUNKS_IN_FLIGHT = 3  # a packet-out waits behind these

_GROUP_STATS = struct.Struct("!HxxII")


@dataclass(slots=True, eq=False)
class _EntryChunk:
    messages: list[Message]
    watch: Watch
    confirmed: asyncio.Future[bytes]


@dataclass(slots=True, eq=False)
class _RouteChunk:
    updates: RouteUpdates
    positions: range
    bundled: bool
    watch: Watch
    confirmed: asyncio.Future[bytes]
    settled: bool = False


@dataclass(slots=True)
class _Writing(Refusals):
    """One call of write under way."""

    entries: list[_EntryChunk] = field(default_factory=list)
    routes: list[_RouteChunk] = field(default_factory=list)
    encoding: EncodingTime = field(default_factory=EncodingTime)

    def confirmations(self) -> "list[asyncio.Future[bytes]]":
        return [*(chunk.confirmed for chunk in self.entries), *(chunk.confirmed for chunk in self.routes)]


class Sender:
    """The writing side of one connection; `turn` is held while messages of one batch are sent."""

    def __init__(self, channel: Channel, inventory: Inventory, bundles: bool) -> None:
        self._channel, self.inventory, self._bundles = channel, inventory, bundles
        self.turn = asyncio.Lock()
        self._in_flight = asyncio.Semaphore(_CHUNKS_IN_FLIGHT)
        self._encoders: dict[tuple[int, int], RouteEncoder] = {}
        self._journal: deque[_RouteChunk] = deque()  # route chunks in the order sent, from the oldest unsettled one

    async def write(self, batch: WriteBatch) -> list[Refused]:
        """Send a batch and return what was refused when the rest is confirmed; ChannelClosed where the connection
        ends first."""
        writing = _Writing(encoding=batch.encoding)
        try:
            async with self.turn:
                last = Stage()
                await self._send_entries(writing, stages.arrivals(self.inventory, batch, last, writing.refuse))
                for updates in batch.routes:
                    await self._send_routes(writing, updates)
                await self._send_entries(writing, [last])
            await self._settle(writing)
            if stages.has_departures(batch):
                async with self.turn:
                    departures = list(stages.departures(self.inventory, batch))
                    await self._refuse_groups_in_use(writing, batch, departures)
                    await self._send_entries(writing, departures)
                await self._settle(writing)
        finally:
            self._forget(writing)
        return list(writing.refused.values())

    async def send_flows(
        self, additions: Iterable[Flow], deletions: Iterable[Flow], unused_meters: Iterable[int] = ()
    ) -> list[SwitchError]:
        """Put the pipeline's own flows right, delete meters that no flow names, and return the switch's objections.
        The caller has the turn."""
        stage, update_key, writing = Stage(), ("pipeline", 0, 0, Op.INSERT), _Writing()
        for entry in deletions:
            stage.add(
                update_key,
                lambda xid, entry=entry: codec.flow_mod(Command.DELETE_STRICT, entry, xid, codec.ALL_BITS),  # type: ignore[misc]
            )
        for entry in additions:
            stage.add_flow(update_key, entry)
        for number in unused_meters:
            stage.add(update_key, lambda xid, number=number: messages.meter_delete(xid, number))  # type: ignore[misc]
            self.inventory.meters.discard(number)
        try:
            await self._send_entries(writing, [stage])
            await asyncio.gather(*writing.confirmations())
            return [error for chunk in writing.entries for error in chunk.watch.errors.values()]
        finally:
            self._forget(writing)

    async def _refuse_groups_in_use(self, writing: _Writing, batch: WriteBatch, departures: list[Stage]) -> None:
        """Take out of the stages the deletion of groups that flows still use, and refuse it."""
        update_keys = {prog.MEMBER_GROUPS | u.entry.id: group_key(u) for u in batch.groups if u.op is Op.DELETE}
        update_keys |= {prog.NEXTHOP_GROUPS | u.entry.id: nexthop_key(u) for u in batch.nexthops if u.op is Op.DELETE}
        users: dict[int, int] = {}

        def take(body: bytes) -> None:
            for entry in codec.split_entries(body):
                if len(entry) < _GROUP_STATS.size:
                    raise codec.MalformedMessage("a group's statistics are cut off")
                _, group_id, references = _GROUP_STATS.unpack_from(entry)
                users[group_id] = references

        wanted = list(update_keys)
        for start in range(0, len(wanted), 32):
            await asyncio.gather(
                *(
                    self._channel.list(Multipart.GROUP, struct.pack("!I4x", group_id), take)
                    for group_id in wanted[start : start + 32]
                )
            )
        for group_id, update_key in update_keys.items():
            references = users.get(group_id, 0)
            if not references:
                continue
            writing.refuse(update_key, f"{references} flows still use it")
            self.inventory.groups.add(group_id)
            for stage in departures:
                stage.messages = [message for message in stage.messages if message.update_key != update_key]

    # -- sending -----------------------------------------------------------------------------------------------------
    async def _send_entries(self, writing: _Writing, sequence: Iterable[Stage]) -> None:
        for stage in writing.encoding.making(sequence):
            for start in range(0, len(stage.messages), _MESSAGES_PER_CHUNK):
                some = stage.messages[start : start + _MESSAGES_PER_CHUNK]

                def encode(watch: Watch, some: list[Message] = some) -> bytes:
                    with writing.encoding.of(SHARED):
                        return b"".join(message.encoder(watch.first + n) for n, message in enumerate(some))

                writing.entries.append(_EntryChunk(some, *await self._send(len(some), encode)))
                await self._channel.drain()

    async def _send_routes(self, writing: _Writing, updates: RouteUpdates) -> None:
        size = ROUTES_PER_BUNDLE if self._bundles else _MESSAGES_PER_CHUNK
        for start in range(0, len(updates), size):
            positions = range(start, min(start + size, len(updates)))
            bundled = self._bundles and len(positions) > 1
            chunk = await self._send_chunk(writing, updates, positions, bundled)
            writing.routes.append(chunk)
            self._journal.append(chunk)
            await self._channel.drain()

    async def _send_chunk(
        self, writing: _Writing, updates: RouteUpdates, positions: range, bundled: bool
    ) -> _RouteChunk:
        def encode(watch: Watch) -> bytes:
            octets = self._encode(writing, updates, positions, watch.first, bundled)
            if not bundled:
                return octets
            opening = codec.bundle_control(BundleControl.OPEN_REQUEST, watch.end - 2)
            return opening + octets + codec.bundle_control(BundleControl.COMMIT_REQUEST, watch.end - 1)

        watch, confirmed = await self._send(len(positions) + 2 * bundled, encode)
        return _RouteChunk(updates, positions, bundled, watch, confirmed)

    def _encode(self, writing: _Writing, updates: RouteUpdates, positions: range, first: int, bundled: bool) -> bytes:
        where = updates.vrf_id, updates.family
        encoder = self._encoders.get(where)
        if encoder is None:
            encoder = self._encoders[where] = RouteEncoder(*where)
        with writing.encoding.of(updates.vrf_id):
            octets, unknown = encoder.encode(updates, positions, first, bundled)
        for position in unknown:
            writing.refuse(route_key(updates, position), "this plane does not offer such a route action")
        return octets

    async def _send(self, count: int, encode: Callable[[Watch], bytes]) -> "tuple[Watch, asyncio.Future[bytes]]":
        """Send ``count`` messages, and a barrier that ends their flight, when there is room for another flight."""
        await self._in_flight.acquire()
        watch = self._channel.watch(count)
        try:
            self._channel.send(encode(watch))
            confirmed = self._channel.barrier()
        except BaseException:
            self._channel.unwatch(watch)
            self._in_flight.release()
            raise
        confirmed.add_done_callback(lambda _: self._in_flight.release())
        return watch, confirmed

    # -- confirmation ------------------------------------------------------------------------------------------------
    async def _settle(self, writing: _Writing) -> None:
        """Wait until all that was sent is confirmed, with refused bundles sent again, and note what was refused."""
        await asyncio.gather(*writing.confirmations())
        for entries in writing.entries:
            for position, error in entries.watch.errors.items():
                message = entries.messages[position]
                writing.refuse(message.update_key, error.text, error.full)
                if message.learn is not None:
                    message.learn(error)
        refused = [chunk for chunk in writing.routes if chunk.bundled and chunk.watch.errors and not chunk.settled]
        if refused:
            async with self.turn:
                for chunk in refused:
                    await self._send_singly(writing, chunk)
        for chunk in writing.routes:
            if not chunk.bundled and not chunk.settled:
                for position, error in chunk.watch.errors.items():
                    update_key = route_key(chunk.updates, chunk.positions[position])
                    writing.refuse(update_key, error.text, error.full)
        self._forget(writing)

    async def _send_singly(self, writing: _Writing, chunk: _RouteChunk) -> None:
        """Send what is left of a refused bundle one by one."""
        left = self._left(chunk)
        for start in range(0, len(left), _MESSAGES_PER_CHUNK):
            positions = range(start, min(start + _MESSAGES_PER_CHUNK, len(left)))

            def encode(watch: Watch, positions: range = positions) -> bytes:
                return self._encode(writing, left, positions, watch.first, False)

            watch, confirmed = await self._send(len(positions), encode)
            try:
                await confirmed
            finally:
                self._channel.unwatch(watch)
            for position, error in watch.errors.items():
                writing.refuse(route_key(left, positions[position]), error.text, error.full)
        chunk.settled = True

    def _left(self, chunk: _RouteChunk) -> RouteUpdates:
        """Return the routes of a bundle that were not changed by what was sent later.

        One that was only modified since is inserted as it became: modifying a flow that is not there does nothing,
        and is no error (OpenFlow 1.3.5, section 6.4).
        """
        updates = chunk.updates
        where = updates.vrf_id, updates.family
        later: dict[bytes, tuple[Op, int]] = {}
        after = False
        for other in self._journal:
            if after and (other.updates.vrf_id, other.updates.family) == where:
                ops, keys, actions = other.updates.ops, other.updates.keys, other.updates.actions
                later.update((keys[position], (ops[position], actions[position])) for position in other.positions)
            after = after or other is chunk
        left = RouteUpdates(*where)
        for position in chunk.positions:
            op, key, action = updates.ops[position], updates.keys[position], updates.actions[position]
            last, become = later.get(key, (None, action))
            if last is None or (op is Op.INSERT and last is Op.MODIFY):
                left.ops.append(op)
                left.keys.append(key)
                left.actions.append(become)
        return left

    def _forget(self, writing: _Writing) -> None:
        for entries in writing.entries:
            self._channel.unwatch(entries.watch)
        for chunk in writing.routes:
            self._channel.unwatch(chunk.watch)
            chunk.settled = True
        writing.entries.clear()
        writing.routes.clear()
        while self._journal and self._journal[0].settled:
            self._journal.popleft()
