"""Frames between a VRC and the controller, on a connection of their own: a punt never waits behind a route.

    VRC ─► MAGIC, the ticket of its session, frames …
        ◄─ frames …

A frame is preceded by its length in octets (16 bits), the punt reason (8; 0 from a VRC), 8 bits of zero, and the id
of its router interface (32), in network order. The ticket comes with the session's Declaration, and is good for as
long as the session lasts.
"""

from struct import Struct

from wire import MAX_FRAME_BYTES

MAGIC = b"SPF3"
"""How the connection begins: no record of TLS does (RFC 8446, section 5.1)."""

TICKET_BYTES = 16

_HEADER = Struct("!HBxI")

Frame = tuple[int, int, bytes]
"""Router interface id, punt reason, octets."""


class BadFrame(ValueError):
    """What came cannot be a frame."""


def pack_frame(interface_id: int, frame: bytes, reason: int = 0) -> bytes:
    """Return a frame as it is sent."""
    return _HEADER.pack(len(frame), reason, interface_id) + frame


class FrameReader:
    """Cuts what comes into frames. It holds what it was fed and has not given: who feeds it stops in time."""

    def __init__(self) -> None:
        self._held, self._start = b"", 0

    def __len__(self) -> int:
        return len(self._held) - self._start

    def feed(self, octets: bytes) -> None:
        """Take in what came."""
        self._held = self._held[self._start :] + octets if len(self) else octets
        self._start = 0

    def octets(self, count: int) -> bytes | None:
        """Take so many octets; None while there are fewer."""
        if len(self) < count:
            return None
        self._start += count
        return self._held[self._start - count : self._start]

    def frames(self, most: int) -> list[Frame]:
        """Take at most so many whole frames; BadFrame where the first is longer than `MAX_FRAME_BYTES`."""
        held, start, found = self._held, self._start, list[Frame]()
        while len(found) < most and len(held) - start >= _HEADER.size:
            size, reason, interface_id = _HEADER.unpack_from(held, start)
            if size > MAX_FRAME_BYTES:
                if found:  # what came before it is good
                    break
                raise BadFrame(f"a frame of {size} octets; at most {MAX_FRAME_BYTES} are taken")
            begin = start + _HEADER.size
            if len(held) - begin < size:
                break
            start = begin + size
            found.append((interface_id, reason, held[begin:start]))
        self._start = start
        return found
