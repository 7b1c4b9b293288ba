"""The packet-outs of one connection: in turns of the routers, and few ahead of what the switch has taken.

    send ─► those that wait, by router ─► connection: AHEAD at most ─► switch
                                              ▲ an echo request behind each MARKED of them; its reply: they are taken

All that the plane is told goes by that connection: what of one router's packets lies in its buffers is in front of
every other's packets and routes. A switch takes messages in order here (OpenFlow 1.3.5 section 6.2 has it so only
around barriers, which would wait for flow-mods, too).
"""

import asyncio
from collections.abc import Callable

from controller.planes.shared_queue import SharedQueue

_WAITING = 8192
"""Most packet-outs that wait, of all routers."""

AHEAD = 64
"""Most that the switch has not taken yet, as far as is known."""

MARKED = 16
"""After so many it is asked whether it has."""

_UNSENT_OCTETS = 1 << 16
"""No more is written where so much is unsent, and whoever drains waits: asyncio alone would let TLS have 512 KiB."""

Mark = Callable[[], "asyncio.Future[bytes]"]


class PacketOuts:
    """Sends packet-outs; ``mark`` asks the switch for what it answers once all before is taken."""

    def __init__(self, writer: asyncio.StreamWriter, mark: Mark) -> None:
        self._writer, self._mark = writer, mark
        writer.transport.set_write_buffer_limits(_UNSENT_OCTETS)
        self._waiting = SharedQueue[bytes](_WAITING)
        self._more = asyncio.Event()  # perhaps one that waits can go
        self._ahead = self._unmarked = 0

    def send(self, vrf_id: int, octets: bytes) -> bool:
        """Send a router's message, or keep it until those before it have gone; False where too many wait."""
        if not self._waiting and not self._held_up:
            self._write(octets)
            return True
        if self._ahead < AHEAD:
            self._more.set()
        return self._waiting.push(vrf_id, octets)

    async def run(self) -> None:
        """Send what waits whenever connection and switch take more, until cancelled. OSError where it is lost."""
        while True:
            await self._more.wait()
            await self._writer.drain()
            while self._waiting and not self._held_up:
                self._write(self._waiting.pop())
            if not self._waiting or self._ahead >= AHEAD:
                self._more.clear()
            else:
                await asyncio.sleep(0)  # too much is unsent: others' turn, even where draining does not wait

    @property
    def _held_up(self) -> bool:
        return self._ahead >= AHEAD or self._writer.transport.get_write_buffer_size() > _UNSENT_OCTETS

    def _write(self, octets: bytes) -> None:
        self._writer.write(octets)
        self._ahead += 1
        self._unmarked += 1
        if self._unmarked == MARKED:
            self._unmarked = 0
            self._mark().add_done_callback(self._taken)

    def _taken(self, mark: "asyncio.Future[bytes]") -> None:
        mark.exception()  # a switch that refuses an echo has read it, too
        self._ahead -= MARKED
        if self._waiting:
            self._more.set()
