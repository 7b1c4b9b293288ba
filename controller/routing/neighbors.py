"""The neighbors of one router, as its guest's kernel sees them, within the slice's quota.

A session repeats them all. One that an earlier session told of and this one has not is stale: it goes when the resync
is swept, or before that where another needs its place. A gateway in use gets a moment longer: the VRC may just be
looking for it.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from math import inf

from controller.routing.usage import SliceUsage

FAILED_DROP_S = 3.0
"""How long a neighbor that did not answer is dropped before its packets are gleaned again."""

STALE_IN_USE_S = 10.0
"""How long after the sweep a gateway in use that was not repeated is still forwarded to."""

NeighborKey = tuple[int, bytes]
"""(interface id, address of 4 or 16 octets)"""


@dataclass(slots=True)
class NeighborState:
    """A neighbor: its MAC, or that it failed until a time of the controller's clock."""

    mac: bytes
    failed_until: float = 0.0


class NeighborTable:
    """Neighbors by key, what is stale of them, and how many the quota had no room for in this session."""

    def __init__(self, usage: SliceUsage) -> None:
        self.states: dict[NeighborKey, NeighborState] = {}
        self.refused = 0
        self.by_address: dict[bytes, dict[int, None]] = {}  # ids of the interfaces on which there is one
        self._sorted: dict[int, list[bytes]] = {4: [], 16: []}  # these addresses, by their length
        self._usage = usage
        self._failed: dict[NeighborKey, float] = {}  # until when, in this order
        self._stale: dict[NeighborKey, None] = {}
        self._forget_at: float | None = None
        self._quota_then = 0  # when one was refused last

    def begin_resync(self) -> None:
        """Mark all of them; what is not repeated until `sweep` goes then."""
        self._stale = dict.fromkeys(self.states)
        self._forget_at = None
        self.refused = 0

    def set(self, told: Mapping[NeighborKey, tuple[bytes, bool]], now: float) -> tuple[dict[NeighborKey, None], int]:
        """Take MACs, and whether resolution failed; neither unsets a neighbor.

        Returns the keys that have changed, stale ones that made room among them, and how many were refused.
        """
        changed: dict[NeighborKey, None] = {}
        refused = 0
        for key, (mac, failed) in told.items():
            self._stale.pop(key, None)
            if not mac and not failed:
                self._forget(key)
            elif (known := self.states.get(key)) is not None or self._make_room(changed):
                if known is not None and mac and known.mac == mac:  # as it was
                    continue
                self._failed.pop(key, None)
                self._note_address(key)
                self.states[key] = NeighborState(mac, 0.0 if mac else now + FAILED_DROP_S)
                if not mac:
                    self._failed[key] = now + FAILED_DROP_S
            else:
                refused += 1
                continue
            changed[key] = None
        self.refused += refused
        if refused:
            self._quota_then = self._usage.quota.neighbors
        return changed, refused

    @property
    def room_again(self) -> bool:
        """Whether what was refused in this session may get in: the quota is larger than then, or has room for all of
        it and a tenth to spare, as a new session is dear and neighbors come and go."""
        most, has = self._usage.quota.neighbors, self._usage.neighbors
        return self.refused > 0 and (has < most > self._quota_then or has + self.refused <= most - most // 10)

    def forget_interface(self, interface_id: int) -> list[NeighborKey]:
        """Forget the neighbors on an interface; returns them."""
        return self._forget_all([key for key in self.states if key[0] == interface_id])

    def sweep(self, in_use: Callable[[NeighborKey], bool], now: float) -> list[NeighborKey]:
        """End a resync: forget what is stale, gateways in use after `STALE_IN_USE_S`; returns what was forgotten."""
        self._forget_at = now + STALE_IN_USE_S
        return self._forget_all([key for key in self._stale if not in_use(key)])

    def expire(self, now: float) -> tuple[list[NeighborKey], list[NeighborKey]]:
        """Let time pass; returns failed neighbors that may be tried again, and stale ones that were forgotten."""
        failed = list(takewhile(lambda key: self._failed[key] <= now, self._failed))
        for key in failed:
            del self._failed[key]
            self.states[key].failed_until = 0.0
        if self._forget_at is None or self._forget_at > now:
            return failed, []
        self._forget_at = None
        return failed, self._forget_all(list(self._stale))

    @property
    def next_due(self) -> float:
        """When `expire` has something to do next; inf where nothing is timed."""
        failed = next(iter(self._failed.values()), inf)
        return failed if self._forget_at is None else min(failed, self._forget_at)

    def _make_room(self, changed: dict[NeighborKey, None]) -> bool:
        """Count one more in; False where the quota has no room and nothing is stale."""
        if self._usage.neighbors >= self._usage.quota.neighbors:
            oldest = next(iter(self._stale), None)
            if oldest is None:
                return False
            self._forget(oldest)
            changed[oldest] = None
        self._usage.neighbors += 1
        return True

    def _forget_all(self, keys: list[NeighborKey]) -> list[NeighborKey]:
        for key in keys:
            self._forget(key)
        return keys

    def _forget(self, key: NeighborKey) -> None:
        self._stale.pop(key, None)
        self._failed.pop(key, None)
        if self.states.pop(key, None) is not None:
            self._usage.neighbors -= 1
            here = self.by_address[key[1]]
            del here[key[0]]
            if not here:
                del self.by_address[key[1]]
                addresses = self._sorted[len(key[1])]
                del addresses[bisect_left(addresses, key[1])]

    def _note_address(self, key: NeighborKey) -> None:
        if key[1] not in self.by_address:
            self.by_address[key[1]] = {}
            insort(self._sorted[len(key[1])], key[1])
        self.by_address[key[1]][key[0]] = None

    def within(self, prefix: bytes, most: int) -> list[bytes]:
        """Return the addresses in a prefix, ``most`` of them at most."""
        size = len(prefix) - 1
        addresses, hosts = self._sorted[size], (1 << 8 * size - prefix[-1]) - 1
        last = (int.from_bytes(prefix[:-1], "big") | hosts).to_bytes(size, "big")
        first = bisect_left(addresses, prefix[:-1])
        return addresses[first : min(bisect_right(addresses, last), first + most)]
