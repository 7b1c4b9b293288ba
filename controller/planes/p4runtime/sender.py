"""Sends batches over one connection in the contract's order and tells which updates the device refused.

    arrivals, stage by stage │ routes │ openings, departures, stage by stage
       each stage confirmed    sent      when all routes are confirmed, those of earlier batches too

P4Runtime orders neither the updates of a request nor requests beside each other. So a stage is confirmed before the
next is sent, while requests of one stage, and of routes, are under way together: routes of a batch have different
keys, and a route waits for an earlier request that has its key.

What the device holds is known from the read-back and from every answer since; INSERT or MODIFY follow from that. A
table of a million routes is not kept a second time here: there the FIB's word is taken, and where the device knows
better (it has a route that is inserted, lacks one that is modified), the update is sent again as the other one.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from finsy.proto import p4r, rpc_code

from controller.planes import base
from controller.planes.base import Op, Refused, RouteKind, RouteUpdates, WriteBatch
from controller.planes.encoding_time import SHARED, EncodingTime
from controller.planes.p4runtime.channel import Channel, Problem
from controller.planes.p4runtime.messages import request_head, update_of
from controller.planes.p4runtime.program import NOBODY, Program
from controller.planes.p4runtime.readback import Inventory
from controller.planes.p4runtime.routes import RouteEncoder, is_route_action
from controller.planes.p4runtime.stages import Stage, Stages, Step
from controller.planes.refusals import Refusals, RouteUpdateKey, UpdateKey, route_key

UPDATES_PER_REQUEST = 1000
"""BMv2 takes some 10 ms for so many; more at once is hardly faster."""

_OCTETS_PER_REQUEST = 1 << 20  # groups are large, and servers take 4 MiB by default
_REQUESTS_IN_FLIGHT = 4

_OTHER_OP: dict[tuple[Op, int], Op] = {
    (Op.INSERT, rpc_code.ALREADY_EXISTS): Op.MODIFY,
    (Op.MODIFY, rpc_code.NOT_FOUND): Op.INSERT,
}
_GONE_ALREADY = (Op.DELETE, rpc_code.NOT_FOUND)
_OBJECT_OF_KIND = {RouteKind.NEXTHOP: "nexthop", RouteKind.GROUP: "nexthop_group"}


@dataclass(slots=True)
class _Writing(Refusals):
    """One call of write under way."""

    encoding: EncodingTime = field(default_factory=EncodingTime)

    def refuse_for(self, update_key: UpdateKey | RouteUpdateKey, problem: Problem) -> None:
        self.refuse(update_key, problem.text, problem.code == rpc_code.RESOURCE_EXHAUSTED)


@dataclass(frozen=True, slots=True, eq=False)
class _RouteRequest:
    where: tuple[int, int]  # vrf_id, family
    keys: frozenset[bytes]
    sending: "asyncio.Task[None]"


class Sender:
    """The writing side of one connection; `turn` is held while a batch's order depends on what is sent."""

    def __init__(self, channel: Channel, program: Program, inventory: Inventory) -> None:
        self._channel, self._program, self._inventory = channel, program, inventory
        self.turn = asyncio.Lock()
        self._room = asyncio.Semaphore(_REQUESTS_IN_FLIGHT)
        self._encoders: dict[tuple[int, int], RouteEncoder] = {}
        self._under_way: list[_RouteRequest] = []

    @property
    def inventory(self) -> Inventory:
        """What the device holds in the small tables."""
        return self._inventory

    @inventory.setter
    def inventory(self, read: Inventory) -> None:
        self._inventory = read
        self._forget_actions()

    async def write(self, batch: WriteBatch) -> list[Refused]:
        """Send a batch and return what was refused when the rest is confirmed; ChannelClosed where the connection
        ends first."""
        writing = _Writing(encoding=batch.encoding)
        sending: list[asyncio.Task[None]] = []
        async with self.turn:
            stages = Stages(self._program, self._inventory, batch, writing.refuse)
            await self._send_stages(writing, stages.arrivals())
            for updates in batch.routes:
                sending += await self._start_routes(writing, updates)
            if stages.after_routes:
                await self._quiet(self._under_way)
                await self._send_stages(writing, stages.openings())
                await self._send_stages(writing, stages.departures())
                self._forget_actions()
            if writing.refused:
                await self._send_remains(writing, stages.remains(writing.has_refused))
        await asyncio.gather(*sending)
        return list(writing.refused.values())

    async def keep_own_rows(self) -> list[Refused]:
        """Put the plane's own rows right and return what was refused. The caller has the turn."""
        writing, update_key, owner = _Writing(), ("policer", NOBODY, NOBODY, Op.INSERT), ("policer", NOBODY)
        wanted = self._program.own_rows()
        missing = [row for row in wanted if not self._inventory.holds(row, owner)]
        ops = [Op.MODIFY if row.key in self._inventory.rows else Op.INSERT for row in missing]
        await self._send_stage(
            writing, [Step(update_key, owner, op, row) for op, row in zip(ops, missing, strict=True)]
        )
        return list(writing.refused.values())

    # -- entries -----------------------------------------------------------------------------------------------------
    async def _send_stages(self, writing: _Writing, stages: Iterable[Stage]) -> None:
        for stage in writing.encoding.making(stages):
            await self._send_stage(writing, stage)

    async def _send_stage(self, writing: _Writing, stage: Stage) -> None:
        """Send a stage without the steps of refused updates. An INSERT of a row that the device has is sent again as
        MODIFY, a MODIFY of one that it lacks as INSERT.
        """
        steps = [step for step in stage if not writing.has_refused(step.update_key)]
        turned: Stage = []
        for step, problem in await self._ask_all(writing, steps):
            other = None if problem is None else _OTHER_OP.get((step.op, problem.code))
            if other is None:
                self._settle(writing, step, problem)
            else:
                turned.append(step.turned(other))
        for step, problem in await self._ask_all(writing, turned):
            self._settle(writing, step, problem)

    async def _send_remains(self, writing: _Writing, stages: Iterable[Stage]) -> None:
        """Delete rows of entries that are refused already; one that stays is found by the next read-back."""
        for stage in stages:
            for step, problem in await self._ask_all(writing, stage):
                if problem is None or (step.op, problem.code) == _GONE_ALREADY:
                    self._inventory.remove(step.row.key)

    def _settle(self, writing: _Writing, step: Step, problem: Problem | None) -> None:
        if problem is not None and (step.op, problem.code) != _GONE_ALREADY:
            writing.refuse_for(step.update_key, problem)
        elif step.op is Op.DELETE:
            self._inventory.remove(step.row.key)
        else:
            self._inventory.put(step.row, step.owner)

    async def _ask_all(self, writing: _Writing, steps: Stage) -> list[tuple[Step, Problem | None]]:
        """Send steps in as many requests as they need, all at once, and return each with what the device says."""
        with writing.encoding.of(SHARED):
            requests = list(self._requests(steps))
        answers = await asyncio.gather(*(self._ask(octets, len(some)) for some, octets in requests))
        return [
            (step, problems.get(position))
            for (some, _), problems in zip(requests, answers, strict=True)
            for position, step in enumerate(some)
        ]

    def _requests(self, steps: Stage) -> Iterator[tuple[Stage, bytes]]:
        some: Stage = []
        octets = bytearray()
        for step in steps:
            update = update_of(step.op, self._entry(step))
            if len(some) == UPDATES_PER_REQUEST or (some and len(octets) + len(update) > _OCTETS_PER_REQUEST):
                yield some, bytes(octets)
                some, octets = [], bytearray()
            some.append(step)
            octets += update
        if some:
            yield some, bytes(octets)

    def _entry(self, step: Step) -> p4r.TableEntry:
        if step.op is Op.DELETE:
            return self._program.key_entry(step.row.key)
        return p4r.TableEntry.FromString(step.row.content)

    async def _ask(self, updates: bytes, count: int) -> dict[int, Problem]:
        """Send one request when there is room for it and return what was refused, by position."""
        async with self._room:
            return await self._write(updates, count)

    async def _write(self, updates: bytes, count: int) -> dict[int, Problem]:
        head = request_head(self._channel.target.device_id, self._channel.election_id)
        return await self._channel.write(head + updates, count)

    # -- routes ------------------------------------------------------------------------------------------------------
    async def _start_routes(self, writing: _Writing, updates: RouteUpdates) -> "list[asyncio.Task[None]]":
        """Send routes when there is room and no earlier request has one of their keys; returns what to wait for."""
        where, started = (updates.vrf_id, updates.family), []
        for start in range(0, len(updates), UPDATES_PER_REQUEST):
            part = slice(start, start + UPDATES_PER_REQUEST)
            some = RouteUpdates(*where, updates.ops[part], updates.keys[part], updates.actions[part])
            keys = frozenset(some.keys)
            await self._quiet(one for one in self._under_way if one.where == where and not keys.isdisjoint(one.keys))
            await self._room.acquire()
            sending = asyncio.create_task(self._send_routes(writing, some), name="p4runtime routes")
            request = _RouteRequest(where, keys, sending)
            self._under_way.append(request)
            sending.add_done_callback(lambda done, request=request: self._ended(request, done))  # type: ignore[misc]
            started.append(sending)
        return started

    def _ended(self, request: _RouteRequest, done: "asyncio.Task[None]") -> None:
        self._room.release()
        self._under_way.remove(request)
        if not done.cancelled():
            done.exception()  # whoever waits is told; nobody need wait

    async def _quiet(self, requests: Iterable[_RouteRequest]) -> None:
        """Wait until requests have ended, well or not."""
        sending = [request.sending for request in requests]
        if sending:
            await asyncio.wait(sending)

    async def _send_routes(self, writing: _Writing, updates: RouteUpdates) -> None:
        sent, octets = self._encode(writing, updates)
        problems = await self._write(octets, len(sent)) if len(sent) else {}
        turned = RouteUpdates(updates.vrf_id, updates.family)
        for position, problem in problems.items():
            op = sent.ops[position]
            other = _OTHER_OP.get((op, problem.code))
            if other is not None:
                turned.ops.append(other)
                turned.keys.append(sent.keys[position])
                turned.actions.append(sent.actions[position])
            elif (op, problem.code) != _GONE_ALREADY:
                writing.refuse_for(route_key(sent, position), problem)
        if len(turned):
            sent, octets = self._encode(writing, turned)
            for position, problem in (await self._write(octets, len(sent))).items():
                writing.refuse_for(route_key(sent, position), problem)

    def _encode(self, writing: _Writing, updates: RouteUpdates) -> tuple[RouteUpdates, bytes]:
        """Return the updates that can be sent, and their octets."""
        where = updates.vrf_id, updates.family
        encoder = self._encoders.get(where)
        if encoder is None:
            encoder = self._encoders[where] = RouteEncoder(self._program.schema, *where, self._objection)
        with writing.encoding.of(updates.vrf_id):
            octets, left_out = encoder.encode(updates.ops, updates.keys, updates.actions)
        if not left_out:
            return updates, octets
        for position, reason in left_out.items():
            writing.refuse(route_key(updates, position), reason)
        kept = [position for position in range(len(updates)) if position not in left_out]
        columns = ([column[position] for position in kept] for column in (updates.ops, updates.keys, updates.actions))
        return RouteUpdates(*where, *columns), octets  # type: ignore[arg-type]

    def _objection(self, action: int) -> str | None:
        """Tell why a route may not have an action: the device does not look whether its object exists."""
        if not is_route_action(action):
            return "this plane does not offer such a route action"
        table = _OBJECT_OF_KIND.get(base.action_kind(action))
        object_id = base.action_value(action)
        return f"{table} {object_id} does not exist" if table and (table, object_id) not in self._inventory else None

    def _forget_actions(self) -> None:
        for encoder in self._encoders.values():
            encoder.forget()
