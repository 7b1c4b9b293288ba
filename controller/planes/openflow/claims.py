"""What can be told of a peer before, and beside, the datapath id that it claims."""

from collections.abc import Callable
from dataclasses import dataclass

SILENT_OF_ONE, SILENT_OF_ALL = 16, 64
"""Connections that have not said yet who they are: of an address, and of all."""

SETTLED_S = 600.0
"""After so long in service a switch is known by the address it came from."""


class SilentPeers:
    """Connections that have not said yet who they are.

    Where one is too many, the one that has waited longest makes way: of the same address, or of the address that has
    most. A switch says who it is within a round trip, so who stays silent keeps nobody out.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[object, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def enter(self, address: str, end: Callable[[], None]) -> object:
        """Add one, which ``end`` ends; returns what `leave` takes."""
        while len(self._waiting.get(address, ())) >= SILENT_OF_ONE:
            self._end_oldest(address)
        while len(self) >= SILENT_OF_ALL:
            self._end_oldest(max(self._waiting, key=lambda one: len(self._waiting[one])))
        key = object()
        self._waiting.setdefault(address, {})[key] = end
        return key

    def leave(self, address: str, key: object) -> None:
        """Remove one that has said who it is, or has ended."""
        if (known := self._waiting.get(address)) is not None:
            known.pop(key, None)
            if not known:
                del self._waiting[address]

    def _end_oldest(self, address: str) -> None:
        key, end = next(iter(self._waiting[address].items()))
        self.leave(address, key)
        end()


@dataclass(slots=True)
class Claim:
    """Who is served under a datapath id, and the address that its switch is known by."""

    known_at: str
    served: str = ""
    since_s: float = 0.0

    def serve(self, address: str, now_s: float) -> None:
        """Somebody is served from now on."""
        self.served, self.since_s = address, now_s

    def settle(self, now_s: float) -> None:
        """Know the switch by the address that was served for long."""
        if now_s - self.since_s >= SETTLED_S:
            self.known_at = self.served

    def comes_back(self, address: str, now_s: float) -> bool:
        """Tell whether a newcomer is the known switch, which finds somebody else in its place."""
        self.settle(now_s)
        return address == self.known_at != self.served
