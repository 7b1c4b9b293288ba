"""What of a router's full table is still to enter hardware, where all of it may: longest first, found bit by bit.

    search ─► to be looked at ─ look: a slice a round ─► waiting, by length ─► first, pop
                                                            └─ postpone ─► waits until all was looked at

If a shorter prefix entered before a longer one in it, that would need a cover. So while a search goes on, what would
need one is postponed: what it would be for may be found yet.
"""

from collections.abc import Callable, Iterable


class Backlog:
    """Prefixes that may be missing; whoever takes the first one looks again whether it is."""

    def __init__(self) -> None:
        self._unseen: list[bytes] = []
        self._waiting: dict[int, list[bytes]] = {}  # by length
        self._postponed: list[bytes] = []

    def __len__(self) -> int:
        return len(self._unseen) + sum(map(len, self._waiting.values())) + len(self._postponed)

    @property
    def searching(self) -> bool:
        """Whether there is more to be looked at."""
        return bool(self._unseen)

    def clear(self) -> None:
        """Forget everything."""
        self._unseen, self._waiting, self._postponed = [], {}, []

    def search(self, keys: Iterable[bytes]) -> None:
        """Begin anew, with a search of these."""
        self.clear()
        self._unseen = list(keys)

    def look(self, missing: Callable[[bytes], bool], most: int) -> None:
        """Look at ``most`` more of what is searched and keep what is missing."""
        seen = self._unseen[-most:]
        del self._unseen[-most:]
        self.add(filter(missing, seen))
        if not self._unseen:
            self.add(self._postponed)
            self._postponed = []

    def add(self, keys: Iterable[bytes]) -> None:
        """Have more wait."""
        for key in keys:
            self._waiting.setdefault(key[-1], []).append(key)

    @property
    def first(self) -> bytes | None:
        """The longest that waits, None where none does."""
        return self._waiting[max(self._waiting)][-1] if self._waiting else None

    def pop(self) -> bytes:
        """Take it; ValueError where none waits."""
        length = max(self._waiting)
        keys = self._waiting[length]
        key = keys.pop()
        if not keys:
            del self._waiting[length]
        return key

    def postpone(self) -> None:
        """Have the first one wait until all was looked at."""
        self._postponed.append(self.pop())
