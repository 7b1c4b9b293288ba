"""A timer wheel: who is due when, in slots of `SLOT_S`, so that whoever waits costs nothing until then."""

from collections.abc import Hashable
from math import ceil, inf
from typing import Generic, TypeVar

SLOT_S = 0.25

K = TypeVar("K", bound=Hashable)


class TimerWheel(Generic[K]):
    """At most one time for each key; it is due at the first end of a slot that is not before it."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[K, None]] = {}
        self._slot_of: dict[K, int] = {}

    def set(self, key: K, at: float) -> None:
        """Wake a key at a time in place of any other; inf: not at all."""
        self.discard(key)
        if at < inf:
            slot = ceil(at / SLOT_S)
            self._slot_of[key] = slot
            self._slots.setdefault(slot, {})[key] = None

    def hasten(self, key: K, at: float) -> None:
        """Wake a key at a time, if it would be woken later or not at all."""
        slot = self._slot_of.get(key)
        if slot is None or at / SLOT_S <= slot - 1:
            self.set(key, at)

    def discard(self, key: K) -> None:
        """Forget a key."""
        slot = self._slot_of.pop(key, None)
        if slot is not None:
            keys = self._slots[slot]
            del keys[key]
            if not keys:
                del self._slots[slot]

    def pop_due(self, now: float) -> list[K]:
        """Return the keys whose time has come, and forget their times."""
        slots = sorted(slot for slot in self._slots if slot * SLOT_S <= now)
        due = [key for slot in slots for key in self._slots.pop(slot)]
        for key in due:
            del self._slot_of[key]
        return due
