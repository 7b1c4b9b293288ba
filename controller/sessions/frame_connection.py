"""A VRC's frames: a connection over its session socket, which its session's ticket opens (wire/frames.py).

It is read and written where its octets come and go, without a task or gRPC in between. All of them together have the
event loop for one turn at a time, which is not that of the Control streams: a frame does not wait behind route work.
What frames cost is charged to their router in both. Who sends more than it has turns for is not read from meanwhile;
nor, for a while, who sends more than it may, because refusing frames takes the loop's time as well.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from controller.errors import SessionRefused
from controller.events.log import EventLog
from controller.sessions.sockets import SILENT_S, FrameProtocol
from controller.shard.loop_share import LoopShare
from controller.shard.punt_relay import OVER_RATE, TURN_FRAMES, Punt
from controller.shard.router import VirtualRouter
from controller.shard.shards import Shards
from wire.frames import MAGIC, TICKET_BYTES, BadFrame, Frame, FrameReader, pack_frame

OVER_RATE_REST_S = 0.05
"""How long nothing is read after a frame beyond the rate: in that time a thousand more may be sent."""
_SENT_AHEAD_BYTES = 32 << 10


class FrameService(Protocol):
    """What a connection asks of the session service."""

    def present(self, connection: "FrameConnection", ticket: bytes) -> VirtualRouter:
        """Return the router whose ticket it is; SessionRefused where it is not that of the socket's session."""

    def refuse(self, connection: "FrameConnection", refused: SessionRefused) -> None:
        """Take note of a connection that is refused, and cut it a while later."""


class FrameConnection(FrameProtocol):
    """One connection over the socket of the router ``vrf_id``; ``gone`` is called once, when it has ended."""

    def __init__(
        self,
        vrf_id: int,
        service: FrameService,
        shards: Shards,
        events: EventLog,
        share: LoopShare,
        gone: Callable[["FrameConnection"], None],
    ) -> None:
        self.vrf_id = vrf_id
        self.writable = True
        self.router: VirtualRouter | None = None
        self._service, self._shards, self._events, self._share, self._gone = service, shards, events, share, gone
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._turn: asyncio.Task[None] | None = None  # waits for one of the loop
        self._over_rate = False  # a frame was refused for that just now
        self._refused = False
        self._patience: asyncio.TimerHandle

    def cut(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the ticket, but not for long."""
        assert isinstance(transport, asyncio.Transport)
        # Frames wait in the queues of their classes, not in a kernel's.
        transport.set_write_buffer_limits(0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_AHEAD_BYTES)
        self._transport = transport
        self._patience = asyncio.get_running_loop().call_later(SILENT_S, self.cut)

    def connection_lost(self, _error: Exception | None) -> None:
        """Have frames wait for the next connection."""
        self._transport, self.writable = None, False
        self._patience.cancel()
        if self._turn is not None:
            self._turn.cancel()
        if self.router is not None:
            self.router.punts.disconnect(self)
        self._gone(self)

    def pause_writing(self) -> None:
        """Take no more frames: the guest reads too slowly."""
        self.writable = False

    def resume_writing(self) -> None:
        """Take what waits."""
        self.writable = True
        if self.router is not None:
            self.router.punts.flush()

    def data_received(self, data: bytes) -> None:
        """Take in what the guest says."""
        self._reader.feed(data)
        try:
            if self.router is None:
                self._begin()
            if self._turn is None:
                self._take()
        except SessionRefused as refused:
            self._refuse(refused)

    # Plane → guest

    def write(self, punts: list[Punt]) -> None:
        """Send a few frames to the guest."""
        if self._transport is not None:
            self._transport.write(b"".join([pack_frame(one, frame, reason) for one, reason, frame in punts]))

    # Guest → plane

    def _begin(self) -> None:
        preface = self._reader.octets(len(MAGIC) + TICKET_BYTES)
        if preface is None:
            return
        if not preface.startswith(MAGIC):
            raise SessionRefused("a connection that begins neither with TLS nor as one of frames")
        self.router = self._service.present(self, preface[len(MAGIC) :])
        self._patience.cancel()
        self.router.punts.connect(self)

    def _take(self) -> None:
        """Send what has come, while the loop has time for it."""
        while (router := self.router) is not None and (frames := self._frames()):
            if self._over_rate or not self._share.turn_now(self._share.account(router.config)):
                assert self._transport is not None
                self._transport.pause_reading()
                self._turn = asyncio.get_running_loop().create_task(self._take_in_turns(router, frames))
                return
            self._send(router, frames)

    async def _take_in_turns(self, router: VirtualRouter, frames: list[Frame]) -> None:
        try:
            while frames:
                if self._over_rate:
                    await asyncio.sleep(OVER_RATE_REST_S)
                    self._over_rate = False
                await self._share.turn(self._share.account(router.config))
                self._send(router, frames)
                frames = self._frames()
        except SessionRefused as refused:
            self._refuse(refused)
        except BaseException:
            self.cut()  # nobody would read from it again
            raise
        self._turn = None
        if self._transport is not None and not self._refused:
            self._transport.resume_reading()

    def _frames(self) -> list[Frame]:
        try:
            return self._reader.frames(TURN_FRAMES)
        except BadFrame as problem:
            raise SessionRefused(str(problem)) from None

    def _send(self, router: VirtualRouter, frames: list[Frame]) -> None:
        route_share, what = self._shards.loop_share, "frames of its guest"
        account, of_routes = self._share.account(router.config), route_share.account(router.config)
        with self._share.slice(account, what), route_share.slice(of_routes, what):
            for interface_id, _, frame in frames:
                reason = self._shards.packet_out(router, interface_id, frame)
                if reason is not None:
                    self._over_rate |= reason == OVER_RATE
                    text = f"{reason} on interface {interface_id}, {len(frame)} octets"
                    self._events.report(
                        "error", "packet-out-refused", router.config.full_name, text, share=f"packet-out {reason}"
                    )

    def _refuse(self, refused: SessionRefused) -> None:
        self._refused = True
        if self._transport is not None:
            self._transport.pause_reading()
        self._service.refuse(self, refused)
