"""Compares the routes that a plane is read to hold with those installed, one by one as they come: no copy is made.

    plane ─► key, action ─► as installed: a bit is set by the key's hash
                         └► otherwise: kept as found
    installed ─► a key whose bit is not set was not read

A key whose bit another one has set is taken for read, one in sixteen at most; it is found by the next audit, which
takes other bits of the hash.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Set

from controller.planes.base import DroppedRoutes, Installed
from controller.routing.fib import Fib
from controller.routing.table_pass import KeyScan

AUDITED_AT_ONCE = 4096
"""Prefixes that are looked at in one step, where some were not read."""

BEGUN_AT_ONCE = 250
"""Routers whose audit begins in one step: half a millisecond."""

_BITS_A_KEY = 16


class AuditedRoutes(dict[bytes, int]):
    """Takes what is read of one router, and stays empty. ``written`` are the keys that are written meanwhile: nobody
    knows what the plane had of them."""

    def __init__(self, installed: Mapping[bytes, int], written: Set[bytes]) -> None:
        super().__init__()
        bits = 3 + max(0, (_BITS_A_KEY * len(installed)).bit_length() - 3)
        self._installed, self._written = installed, written
        self._mask, self._shift = (1 << bits) - 1, random.randrange(32)
        self._bits = bytearray(1 << bits - 3)
        self._found: dict[bytes, int] = {}
        self._alike = 0

    def __setitem__(self, key: bytes, action: int) -> None:
        """Compare what is read."""
        if key in self._written:
            return
        if self._installed.get(key) == action:
            self._alike += 1
            bit = hash(key) >> self._shift & self._mask
            self._bits[bit >> 3] |= 1 << (bit & 7)
        else:
            self._found[key] = action

    @property
    def found(self) -> dict[bytes, int]:
        """What the plane has otherwise than it is installed."""
        return {key: action for key, action in self._found.items() if key not in self._written}

    @property
    def whole(self) -> bool:
        """Whether all that is installed was read, as their numbers tell; False where they cannot."""
        return not self._written and self._alike == len(self._installed)

    def is_missing(self, key: bytes) -> bool:
        """Tell whether a prefix that is installed was not read."""
        bit = hash(key) >> self._shift & self._mask
        return not self._bits[bit >> 3] >> (bit & 7) & 1 and key not in self._written and key not in self._found


class RouteAudit(dict[int, dict[bytes, int]]):
    """Routes by vrf_id, as a reader fills them in; of routers that are not audited nothing is kept."""

    def __init__(self, fibs: Mapping[int, Fib], written: Mapping[int, Set[bytes]]) -> None:
        """``fibs`` are audited; ``written`` are their keys that are written meanwhile."""
        super().__init__()
        self._fibs, self._written = fibs, written
        self._audited: dict[int, AuditedRoutes] = {}
        self._others = DroppedRoutes()

    def setdefault(self, vrf_id: int, default: dict[bytes, int]) -> dict[bytes, int]:
        """Return what takes the routes of a router."""
        return self.of(vrf_id) if vrf_id in self._fibs else self._others

    def of(self, vrf_id: int) -> AuditedRoutes:
        """Return what was read of a router that is audited."""
        found = self._audited.get(vrf_id)
        if found is None:
            installed = self._fibs[vrf_id].installed_routes
            found = self._audited[vrf_id] = AuditedRoutes(installed, self._written[vrf_id])
        return found


def beginning(fibs: Mapping[int, Fib], only: int | None, begun: dict[Fib, set[bytes]]) -> Iterator[None]:
    """Begin an audit of ``only`` one router or of all, in steps: what is written of each is noted in ``begun``."""
    for number, fib in enumerate([fib for vrf_id, fib in fibs.items() if only in (None, vrf_id)], 1):
        begun[fib] = fib.begin_audit()
        if number % BEGUN_AT_ONCE == 0:
            yield


def repairing(
    fib: Fib, read: Installed, audited: AuditedRoutes | None, written: set[bytes], repaired: Counter[int]
) -> Iterator[None]:
    """Repair in steps what was read of a router otherwise than it is installed, or not at all; counts it by vrf_id.

    Its routes are in ``audited``, or in what was read. ``written`` are the keys that are written meanwhile."""
    vrf_id, followed = fib.config.vrf_id, read.hardware is not None
    if audited is None:
        repaired[vrf_id] += fib.repair(read, written)
        return
    repaired[vrf_id] += fib.repair_entries(read)
    yield
    repaired[vrf_id] += fib.repair_routes(audited.found, followed)
    scan, whole = KeyScan(), audited.whole
    while not whole:
        yield
        missing, whole = fib.find_installed(scan, audited.is_missing, AUDITED_AT_ONCE)
        repaired[vrf_id] += fib.repair_routes(dict.fromkeys(missing), followed)
