"""Relays frames between TAPs and the Packets stream: bounded queues, every loss counted by name."""

import asyncio
import errno
import os
from collections import Counter, deque
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass

from wire import MAX_FRAME_BYTES, MAX_FRAMES_PER_MESSAGE
from wire import splitplane_pb2 as pb

QUEUE_FRAMES = 512
"""Most frames that wait for the session."""

_FRAMES_PER_TURN = 64
_MIN_FRAME_BYTES = 14
# What a TAP answers, by errno; all else is `refused`.
_LOST = {errno.EIO: "interface_down", errno.EAGAIN: "tap_full", errno.EBADF: "interface_gone"}


@dataclass(slots=True)
class _Attached:
    fd: int
    interface_id: int


class PacketRelay:
    """The frames of all TAPs. ``lost`` counts what was dropped, by reason; ``sent`` and ``received`` what was not."""

    def __init__(self) -> None:
        self.lost: Counter[str] = Counter()
        self.sent = 0
        self.received = 0
        self._by_id: dict[int, int] = {}
        self._by_fd: dict[int, _Attached] = {}
        self._queue: deque[tuple[int, bytes]] = deque()
        self._waiting = asyncio.Event()
        self._open = False

    def attach(self, fd: int, interface_id: int) -> None:
        """Relay a TAP's frames from now on (again, where only the id changed)."""
        known = self._by_fd.get(fd)
        if known is not None:
            self._by_id.pop(known.interface_id, None)
            known.interface_id = interface_id
        else:
            self._by_fd[fd] = _Attached(fd, interface_id)
            asyncio.get_running_loop().add_reader(fd, self._readable, self._by_fd[fd])
        self._by_id[interface_id] = fd

    def detach(self, fd: int) -> None:
        """Stop relaying a TAP."""
        known = self._by_fd.pop(fd, None)
        if known is not None:
            asyncio.get_running_loop().remove_reader(fd)
            if self._by_id.get(known.interface_id) == fd:
                del self._by_id[known.interface_id]

    def close(self) -> None:
        """Stop relaying all TAPs."""
        for fd in list(self._by_fd):
            self.detach(fd)

    def _readable(self, tap: _Attached) -> None:
        for _ in range(_FRAMES_PER_TURN):
            try:
                frame = os.read(tap.fd, MAX_FRAME_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:  # the TAP was deleted under us: the declaration makes it again
                self.lost["interface_gone"] += 1
                self.detach(tap.fd)
                return
            self._outbound(tap.interface_id, frame)

    def _outbound(self, interface_id: int, frame: bytes) -> None:
        if not self._open:
            self.lost["no_session"] += 1
        elif not _MIN_FRAME_BYTES <= len(frame) <= MAX_FRAME_BYTES:
            self.lost["frame_size"] += 1
        else:
            if len(self._queue) >= QUEUE_FRAMES:  # the newest is worth more: its sender still waits for the answer
                self._queue.popleft()
                self.lost["queue_full"] += 1
            self._queue.append((interface_id, frame))
            self._waiting.set()

    async def send(self, write: Callable[[pb.PacketOuts], Awaitable[None]]) -> None:
        """Send what TAPs say by ``write`` until cancelled; before and after it frames are lost as `no_session`.

        What waits goes in one message, because a message costs far more than a frame.
        """
        self._open, queue, writing = True, self._queue, 0
        try:
            while True:
                await self._waiting.wait()
                self._waiting.clear()
                while queue:
                    writing = min(len(queue), MAX_FRAMES_PER_MESSAGE)
                    frames = [queue.popleft() for _ in range(writing)]
                    await write(pb.PacketOuts(packets=[pb.PacketOut(interface_id=i, frame=f) for i, f in frames]))
                    self.sent += writing
                    writing = 0
        finally:
            self._open = False
            self.lost["no_session"] += len(queue) + writing
            queue.clear()

    async def receive(self, stream: AsyncIterable[pb.PacketIns]) -> None:
        """Write every frame of a stream to its TAP until the stream ends."""
        async for message in stream:
            for packet in message.packets:
                self.inbound(packet.interface_id, packet.frame)

    def inbound(self, interface_id: int, frame: bytes) -> None:
        """Write one frame to the TAP of an interface; what cannot be written is counted."""
        fd = self._by_id.get(interface_id)
        if fd is None:
            self.lost["unknown_interface"] += 1
        elif not _MIN_FRAME_BYTES <= len(frame) <= MAX_FRAME_BYTES:
            self.lost["frame_size"] += 1
        else:
            try:
                os.write(fd, frame)
                self.received += 1
            except OSError as error:
                self.lost[_LOST.get(error.errno or 0, "refused")] += 1
