"""One VRC's Control stream: what it says is checked, applied and acknowledged, what it is told goes out.

A message costs the others no more than its router's share of the event loop (shard/loop_share.py), and a router that
is far ahead of its plane is not read from.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sized
from typing import Any, Literal

from google.protobuf.message import DecodeError

from controller.errors import SessionRefused
from controller.events.log import EventLog
from controller.events.untrusted_text import printable
from controller.model import RouterConfig
from controller.shard.loop_share import LoopAccount, LoopShare
from controller.shard.router import VirtualRouter
from wire import (
    MAX_ITEMS_PER_MESSAGE,
    MAX_MEMBERS_PER_MESSAGE,
    MAX_MESSAGE_BYTES,
    MAX_ROUTES_PER_MESSAGE,
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    splitplane_pb2,
)
from wire.columns import KEY_STRIDE, unpack_ids, unpack_prefixes
from wire.frames import TICKET_BYTES

SETS_COST, SET_COST = 400, 4
"""What one piece of work takes of the nexthop sets of a message, in members: some milliseconds; and what a set costs
beside its members."""

PROTOCOLS = range(OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION + 1)
"""The versions of sessions that a controller speaks: today's and, where there was one, the one before."""

LAST_WORDS_S = 1.0
"""How long a VRC that does not read may hold up the end of its session."""


class ControlSession:
    """One VRC's Control stream. Implements `VrcPort`; what is to be sent is kept as the latest of each kind.

    ``began`` is called when the VRC has said Hello, from when on both speak the version ``protocol``.
    """

    def __init__(
        self,
        router: VirtualRouter,
        context: Any,
        events: EventLog,
        loop_share: LoopShare,
        began: Callable[["ControlSession"], None] = lambda _: None,
        protocols: range = PROTOCOLS,
    ) -> None:
        self.protocol = protocols[-1]
        self.ticket = secrets.token_bytes(TICKET_BYTES)
        self._began, self._protocols = began, protocols
        self._router = router
        self._context = context
        self._events, self._loop_share = events, loop_share
        self._sequence = 0
        self._outbound: dict[str, Any] = {}
        self._ready = asyncio.Event()
        self._closing: str | None = None

    # VrcPort

    @property
    def remark(self) -> str:
        """What an operator should know of it."""
        if self.protocol == self._protocols[-1]:
            return ""
        return f"its VRC speaks protocol {self.protocol}, of the version before; restart the guest"

    def declare(self, config: RouterConfig, ports_up: dict[int, bool]) -> None:
        """Send the declaration."""
        declaration = splitplane_pb2.Declaration(
            interfaces=[
                splitplane_pb2.Interface(
                    id=one.id,
                    name=one.name,
                    mac=one.mac,
                    mtu=one.mtu,
                    addresses=one.addresses,
                    virtual_macs=one.virtual_macs,
                    port_up=ports_up.get(one.id, False),
                    admin_up=one.admin_up,
                )
                for one in config.interfaces
            ],
            neighbor_limit=config.quota.neighbors,
            hold_time_s=config.hold_time_s,
            frame_ticket=self.ticket,
            protocol=self.protocol,
        )
        self._send("declaration", splitplane_pb2.ControllerMessage(declaration=declaration))

    def acknowledge(self, sequence: int) -> None:
        """Send an acknowledgement."""
        self._send("ack", splitplane_pb2.ControllerMessage(ack=splitplane_pb2.Ack(sequence=sequence)))

    def ports_changed(self, ports_up: dict[int, bool]) -> None:
        """Send the states of all ports."""
        states = [splitplane_pb2.PortState(interface_id=i, up=up) for i, up in ports_up.items()]
        message = splitplane_pb2.ControllerMessage(port_states=splitplane_pb2.PortStates(states=states))
        self._send("port_states", message)

    def request_snapshot(self, request_id: int) -> None:
        """Ask for a snapshot."""
        request = splitplane_pb2.SnapshotRequest(id=request_id)
        self._send(f"snapshot {request_id}", splitplane_pb2.ControllerMessage(snapshot_request=request))

    def close(self, reason: str) -> None:
        """Send a refusal and end the stream."""
        self._closing = reason
        refusal = splitplane_pb2.Refusal(reason=reason, fatal=True)
        self._send("refusal", splitplane_pb2.ControllerMessage(refusal=refusal))

    # The stream

    async def read(self, requests: AsyncIterator[bytes]) -> None:
        """Apply what the VRC says. SessionRefused where it is not its to say."""
        account = self._loop_share.account(self._router.config)
        async for octets in requests:
            if not await self._turn(account):
                continue
            what = f"a message of {len(octets)} octets"
            with self._loop_share.slice(account, what):
                body, message = self._read(octets)
                parts = self._apply(body, message)
                done = body != "hello" and next(parts, True)
            if body == "hello":
                await self._router.plane_known()
            while not done and await self._turn(account):
                with self._loop_share.slice(account, what):
                    done = next(parts, True)
            await self._router.caught_up()

    async def _turn(self, account: LoopAccount) -> bool:
        """Wait for a turn; False where the session is closed by then: what another one says now is what counts."""
        if self._closing is None:
            await self._loop_share.turn(account)
        return self._closing is None

    def _read(self, octets: bytes) -> tuple[str, Any]:
        """Return a message and what it is; SessionRefused where it is out of order, or nothing that is known."""
        message = decode(splitplane_pb2.VrcMessage, octets)
        if message.sequence != self._sequence + 1:
            raise SessionRefused(f"message {message.sequence} after {self._sequence}")
        self._sequence = message.sequence
        body = message.WhichOneof("body")
        if (self._sequence == 1) != (body == "hello"):
            raise SessionRefused(f"message {self._sequence} is a {body}; Hello comes first, and once")
        if body is None:
            raise SessionRefused(f"message {self._sequence} has no known body")
        return body, message

    def _apply(self, body: str, message: Any) -> Iterator[Literal[False]]:
        """Apply a message in parts, each a piece of work of its own: only the parts before the last yield."""
        try:
            parts = getattr(self, f"_on_{body}")(getattr(message, body))
            if parts is not None:
                yield from parts
        except ValueError as problem:
            raise SessionRefused(str(problem)) from None
        self._router.processed(self._sequence)

    async def write(self) -> None:
        """Send what is due, until closed."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            messages, self._outbound = self._outbound, {}
            for message in messages.values():
                await whole(self._context.write(message))
            if self._closing is not None:
                return

    def _send(self, kind: str, message: Any) -> None:
        self._outbound.pop(kind, None)  # behind what was said before it: a declaration has the states of ports, too
        self._outbound[kind] = message
        self._ready.set()

    # What a VRC says

    def _on_hello(self, hello: Any) -> None:
        name = self._router.config.full_name
        self.protocol = _agreed(hello, self._protocols)
        if hello.router != name:
            raise SessionRefused(f"Hello of router {hello.router[:64]!r} with the certificate of {name}")
        self._router.open(self)
        self._began(self)
        self._events.report("info", "vrc-connected", name, f"source {hello.source[:16]}, protocol {self.protocol}")

    def _on_interfaces(self, interfaces: Any) -> None:
        _require_few(interfaces.states, "interface states")
        latest = {one.id: one for one in interfaces.states}
        self._router.interface_states((one.id, one.up, one.addresses) for one in latest.values())

    def _on_neighbors(self, neighbors: Any) -> Iterator[Literal[False]]:
        _require_few(neighbors.neighbors, "neighbors")
        told = ((one.interface_id, one.address, one.mac, one.failed) for one in neighbors.neighbors)
        return self._router.neighbors(told)

    def _on_nexthop_sets(self, sets: Any) -> Iterator[Literal[False]]:
        _require_few(sets.sets, "nexthop sets")
        _require_few(sets.released, "released nexthop sets")
        members = sum(len(one.members) for one in sets.sets)
        if members > MAX_MEMBERS_PER_MESSAGE:
            raise SessionRefused(f"{members} members in one message; at most {MAX_MEMBERS_PER_MESSAGE} are taken")
        cost = 0
        for one in sets.sets:
            if cost > SETS_COST:
                yield False
                cost = 0
            cost += SET_COST + len(one.members)
            self._router.define_set(one.id, one.kind, [(m.interface_id, m.gateway, m.weight) for m in one.members])
        self._router.release(sets.released)

    def _on_routes(self, routes: Any) -> None:
        family, keys, ids = _columns(routes)
        self._router.routes(family, keys, ids)

    def _on_resync_end(self, end: Any) -> None:
        self._router.resync_end(end.daemons_settled)

    def _on_snapshot(self, snapshot: Any) -> None:
        if snapshot.routes.prefixes:
            family, keys, ids = _columns(snapshot.routes)
            self._router.snapshot_chunk(snapshot.id, family, keys, ids)
        if snapshot.end:
            self._router.snapshot_end(snapshot.id, printable(snapshot.error, 200))

    def _on_frame_losses(self, losses: Any) -> None:
        _require_few(losses.losses, "frame losses")
        told = ((one.interface_id, _REASONS.get(one.reason, "other"), one.frames) for one in losses.losses)
        self._router.punts.lost_with_guest(told, self._router.fib.interfaces)

    def _on_notice(self, notice: Any) -> None:
        # Older guests write `fpm_lost`.
        kind = "vrc-" + printable(notice.kind, 32).replace("_", "-")
        text = printable(notice.text, 200)
        self._events.report("warning", kind, self._router.config.full_name, text, share="vrc-notice")


_REASONS = {number: name.lower() for name, number in splitplane_pb2.FrameLoss.Reason.items()}


def _agreed(hello: Any, protocols: range) -> int:
    """Return the newest version that both ends speak; SessionRefused where there is none."""
    newest = min(hello.protocol, protocols[-1])
    if newest >= max(hello.oldest_protocol or hello.protocol, protocols[0]):
        return int(newest)
    spoken = " and ".join(map(str, protocols))
    remedy = "restart the guest, whose VRC is of another version (docs/operations.md, Upgrade)"
    raise SessionRefused(f"protocol {hello.protocol}; this controller speaks {spoken}: {remedy}")


def decode(kind: Any, octets: bytes) -> Any:
    """Return a message; SessionRefused where it is too long or none of this kind."""
    if len(octets) > MAX_MESSAGE_BYTES:
        raise SessionRefused(f"a message of {len(octets)} octets; at most {MAX_MESSAGE_BYTES} are taken")
    try:
        return kind.FromString(octets)
    except DecodeError:
        raise SessionRefused(f"{len(octets)} octets that are no {kind.DESCRIPTOR.name}") from None


def _require_few(items: Sized, what: str) -> None:
    if len(items) > MAX_ITEMS_PER_MESSAGE:
        raise SessionRefused(f"{len(items)} {what} in one message; at most {MAX_ITEMS_PER_MESSAGE} are taken")


async def whole(write: Coroutine[Any, Any, None]) -> None:
    """Await a write to its end, also where this task is cancelled.

    gRPC never ends a stream that had a write cancelled under way (grpcio 1.81): its VRC would wait for ever.
    """
    writing = asyncio.ensure_future(write)
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        writing.add_done_callback(_fail_unheard)  # gRPC cancels this once more where the VRC has gone, too
        await asyncio.wait([writing], timeout=LAST_WORDS_S)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        raise


def _fail_unheard(writing: "asyncio.Future[None]") -> None:
    """Take the error of a write that nobody waits for any more: asyncio would log it as one of ours."""
    if not writing.cancelled():
        writing.exception()


def _columns(routes: Any) -> tuple[int, list[bytes], Any]:
    stride = KEY_STRIDE.get(routes.family)
    if stride is None or len(routes.prefixes) > stride * MAX_ROUTES_PER_MESSAGE:
        raise ValueError(f"Routes of family {routes.family} with {len(routes.prefixes)} octets of prefixes")
    keys = unpack_prefixes(routes.family, routes.prefixes)
    ids = unpack_ids(routes.sets)
    if len(ids) != len(keys):
        raise ValueError(f"{len(keys)} prefixes with {len(ids)} nexthop set ids")
    return routes.family, keys, ids
