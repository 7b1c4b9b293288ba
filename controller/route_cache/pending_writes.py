"""Prefixes of one route table that the plane may hold otherwise than is wanted, in the order of `write_order.rank`: a
full table is planned a part at a time, and each part can be written before the next is looked at."""

from collections.abc import Iterator
from itertools import chain, islice

from controller.route_cache.write_order import rank


class PendingWrites:
    """Prefixes by rank. Whoever changes what the plane holds, or is to hold, of a prefix notes that."""

    def __init__(self) -> None:
        self._ranks: dict[bytes, int] = {}
        self._keys: dict[int, dict[bytes, None]] = {}  # by rank

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._ranks)

    def note(self, key: bytes, have: int | None, want: int | None) -> None:
        """Take what the plane has of a prefix and is to have."""
        self.discard(key)
        self._ranks[key] = place = rank(key, have, want)
        self._keys.setdefault(place, {})[key] = None

    def discard(self, key: bytes) -> None:
        """Forget a prefix."""
        place = self._ranks.pop(key, None)
        if place is not None:
            keys = self._keys[place]
            del keys[key]
            if not keys:
                del self._keys[place]

    def first(self, most: int) -> list[bytes]:
        """Return so many prefixes that may be written before all others."""
        return list(islice(chain.from_iterable(self._keys[place] for place in sorted(self._keys)), most))
