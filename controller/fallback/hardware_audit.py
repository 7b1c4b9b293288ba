"""Compares the routes that a hardware plane is read to hold with those installed, as they come; pure.

What is written meanwhile is left to the next audit: nobody knows what the plane had of it.
"""

from collections.abc import Iterator, Mapping

from controller.fallback.hardware_tables import HardwareTables
from controller.fallback.pace import parts
from controller.fallback.staged_writes import StagedWrites
from controller.planes.base import ROUTE_TABLE_NAME
from controller.routing.route_audit import AuditedRoutes
from wire.columns import family_of


class HardwareAudit(dict[int, dict[bytes, int]]):
    """Takes routes by vrf_id as a reader fills them in, and stays empty. It ends with `end`."""

    def __init__(self, tables: HardwareTables) -> None:
        super().__init__()
        self.repaired = 0
        """How many entries differed, except those of frozen routers."""
        self._tables = tables
        self._written = tables.writes.begin_audit()
        self._audited: dict[int, AuditedRoutes] = {}
        self._read: Mapping[int, Mapping[bytes, int]] | None = None  # where that is there whole

    def setdefault(self, vrf_id: int, default: dict[bytes, int]) -> dict[bytes, int]:
        """Return what takes the routes of a router."""
        return self._of(vrf_id)

    def _of(self, vrf_id: int) -> AuditedRoutes:
        found = self._audited.get(vrf_id)
        if found is None:
            installed = _Installed(self._tables.writes, vrf_id)
            found = self._audited[vrf_id] = AuditedRoutes(installed, self._written[vrf_id])
        return found

    def take(self, read: Mapping[int, Mapping[bytes, int]]) -> Iterator[None]:
        """Compare what was read whole, in steps."""
        self._read = read
        for vrf_id, routes in read.items():
            audited = self._of(vrf_id)
            for part in parts(routes.items()):
                for key, action in part:
                    audited[key] = action
                yield

    def repair(self) -> Iterator[None]:
        """Have what differs written, in steps, once everything was read."""
        writes = self._tables.writes
        for vrf_id in self._audited.keys() | self._tables.routers | {vrf_id for vrf_id, _ in writes.installed}:
            audited = self._of(vrf_id)
            whole = audited.whole
            self.repaired += self._tables.repair(vrf_id, audited.found)
            self.repaired += self._tables.retry_defaults(vrf_id)
            yield
            for family in ROUTE_TABLE_NAME if not whole else ():
                installed = writes.installed.get((vrf_id, family), {})
                for part in parts(list(installed)):
                    missing = [key for key in part if key in installed and self._is_missing(vrf_id, key)]
                    self.repaired += self._tables.repair(vrf_id, dict.fromkeys(missing))
                    yield

    def _is_missing(self, vrf_id: int, key: bytes) -> bool:
        if self._read is None:
            return self._of(vrf_id).is_missing(key)
        return key not in self._read.get(vrf_id, ()) and key not in self._written[vrf_id]

    def end(self) -> None:
        """Note no more what is written."""
        self._tables.writes.end_audit()


class _Installed(Mapping[bytes, int]):
    """What the plane is known to hold of one router."""

    def __init__(self, writes: StagedWrites, vrf_id: int) -> None:
        self._writes, self._vrf_id = writes, vrf_id

    def _table(self, family: int) -> Mapping[bytes, int]:
        return self._writes.installed.get((self._vrf_id, family), {})

    def __getitem__(self, key: bytes) -> int:
        return self._table(family_of(key))[key]

    def __iter__(self) -> Iterator[bytes]:
        for family in ROUTE_TABLE_NAME:
            yield from self._table(family)

    def __len__(self) -> int:
        return self._writes.count(self._vrf_id)
