"""Prefixes that were withdrawn while the fallback could not be told, and that nothing else has a route for.

The hardware would send their packets to the fallback, which still has them. So they stay in hardware, as unreachable,
until the fallback has lost them too, or there is a route at or around them again.
"""

from collections.abc import Collection, Iterable, Mapping

from controller.planes.base import UNREACHABLE
from controller.route_cache.prefix_tree import PrefixTree


class Withdrawn:
    """Those of one router and family. None is inside another."""

    def __init__(self, family: int) -> None:
        self._prefixes = PrefixTree(family)

    def add(self, keys: Iterable[bytes]) -> dict[bytes, int | None]:
        """Remember prefixes; returns the changes to make of the table that hardware follows."""
        changes: dict[bytes, int | None] = dict.fromkeys(keys, UNREACHABLE)
        self._prefixes.update(changes)
        return changes

    def displaced(self, changes: Mapping[bytes, int | None]) -> dict[bytes, int | None]:
        """Forget those that routes come at or around; returns the changes to make."""
        if not self._prefixes.actions:
            return {}
        found = [
            inner for key, action in changes.items() if action is not None for inner in self._prefixes.inside(key)
        ]
        found += [key for key, action in changes.items() if action is not None and key in self._prefixes]
        return self._forget(found)

    def told(self, keys: Iterable[bytes]) -> dict[bytes, int | None]:
        """Forget those that the fallback has lost; returns the changes to make."""
        return self._forget([key for key in keys if key in self._prefixes])

    def kept(self, software: Collection[bytes]) -> dict[bytes, int | None]:
        """Forget those that the fallback was found not to have; returns the changes to make."""
        return self._forget([key for key in self._prefixes.actions if key not in software])

    def _forget(self, keys: Collection[bytes]) -> dict[bytes, int | None]:
        changes: dict[bytes, int | None] = dict.fromkeys(keys)
        self._prefixes.update(changes)
        return changes
