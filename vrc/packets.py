"""Relays frames between TAPs and the controller: a bounded queue, every loss counted by name."""

import asyncio
import errno
import os
from collections import Counter, deque
from dataclasses import dataclass

from vrc.losses import OF_THE_GUEST, FrameLosses
from wire import MAX_FRAME_BYTES
from wire.frames import MAGIC, BadFrame, FrameReader, pack_frame

QUEUE_FRAMES = 512
"""Most frames that wait for the session."""

FRAMES_PER_TURN = 64
"""Most frames that are taken from a TAP, or sent, at once."""

_MIN_FRAME_BYTES = 14
# What a TAP answers, by errno; all else is `refused`.
_LOST = {errno.EIO: "interface_down", errno.EAGAIN: "tap_full", errno.EBADF: "interface_gone"}


@dataclass(slots=True)
class _Attached:
    fd: int
    interface_id: int


class PacketRelay:
    """The frames of all TAPs. ``lost`` counts what was dropped, by reason; ``sent`` and ``received`` what was not.
    ``losses`` is the same for the controller, by interface."""

    def __init__(self) -> None:
        self.lost: Counter[str] = Counter()
        self.losses = FrameLosses()
        self.sent = 0
        self.received = 0
        self._by_id: dict[int, int] = {}
        self._by_fd: dict[int, _Attached] = {}
        self._queue: deque[tuple[int, bytes]] = deque()
        self._link: FrameLink | None = None

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
        for _ in range(FRAMES_PER_TURN):
            try:
                frame = os.read(tap.fd, MAX_FRAME_BYTES + 1)
            except BlockingIOError:
                break
            except OSError:  # the TAP was deleted under us: the declaration makes it again
                self._lose("interface_gone")
                self.detach(tap.fd)
                break
            self._outbound(tap.interface_id, frame)
        self.flush()

    def _outbound(self, interface_id: int, frame: bytes) -> None:
        if self._link is None:
            self._lose("no_session")
        elif not _MIN_FRAME_BYTES <= len(frame) <= MAX_FRAME_BYTES:
            self._lose("frame_size")
        else:
            if len(self._queue) >= QUEUE_FRAMES:  # the newest is worth more: its sender still waits for the answer
                self._queue.popleft()
                self._lose("queue_full")
            self._queue.append((interface_id, frame))

    def connect(self, link: "FrameLink") -> None:
        """Send what TAPs say from now on; before and after a session frames are lost as `no_session`."""
        self._link = link

    def disconnect(self, unsent: int) -> None:
        """Send no more; so many of the frames that were sent have not arrived."""
        self._link = None
        self.sent -= unsent
        self._lose("no_session", frames=len(self._queue) + unsent)
        self._queue.clear()

    def flush(self) -> None:
        """Send what waits, for as long as it is taken: several at once, because a write costs more than a frame."""
        queue = self._queue
        while queue and (link := self._link) is not None and link.writable:
            frames = [queue.popleft() for _ in range(min(len(queue), FRAMES_PER_TURN))]
            self.sent += len(frames)
            link.write(frames)

    def inbound(self, interface_id: int, frame: bytes) -> None:
        """Write one frame to the TAP of an interface; what cannot be written is counted."""
        fd = self._by_id.get(interface_id)
        if fd is None:
            self._lose("unknown_interface", interface_id)
        elif not _MIN_FRAME_BYTES <= len(frame) <= MAX_FRAME_BYTES:
            self._lose("frame_size", interface_id)
        else:
            try:
                os.write(fd, frame)
                self.received += 1
            except OSError as error:
                self._lose(_LOST.get(error.errno or 0, "refused"), interface_id)

    def _lose(self, reason: str, interface_id: int = OF_THE_GUEST, frames: int = 1) -> None:
        if frames:
            self.lost[reason] += frames
            self.losses.add(interface_id, reason, frames)


class FrameLink(asyncio.Protocol):
    """The connection of a session's frames (wire/frames.py), which its ``ticket`` opens."""

    def __init__(self, relay: PacketRelay, ticket: bytes) -> None:
        self.writable = True
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why it ended, once it has."""
        self._relay, self._ticket = relay, ticket
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._writing = 0  # frames of the write under way

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.abort()

    def write(self, frames: list[tuple[int, bytes]]) -> None:
        """Send a few frames, each with its router interface."""
        if self._transport is not None:
            self._writing = len(frames)
            self._transport.write(b"".join([pack_frame(*one) for one in frames]))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Present the ticket, and send what TAPs say."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(0)  # what waits does so in the relay's queue
        transport.write(MAGIC + self._ticket)
        self._transport = transport
        self._relay.connect(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Send no more."""
        self._transport = None
        self._relay.disconnect(0 if self.writable else self._writing)
        self._end(str(error or "the controller ended the connection of frames"))

    def pause_writing(self) -> None:
        """Have frames wait."""
        self.writable = False

    def resume_writing(self) -> None:
        """Send what waits."""
        self.writable = True
        self._relay.flush()

    def data_received(self, data: bytes) -> None:
        """Write what has come to its TAPs."""
        self._reader.feed(data)
        try:
            while frames := self._reader.frames(FRAMES_PER_TURN):
                for interface_id, _, frame in frames:
                    self._relay.inbound(interface_id, frame)
        except BadFrame as problem:
            self._end(f"the controller says {problem}")
            self.close()

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)
