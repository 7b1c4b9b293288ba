"""Table usage and known capacity of the hardware's route tables: questions that views ask, all of them read-only."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controller.fallback.hardware_tables import MAX_ROOM, HardwareTables
from controller.planes.base import ROUTE_TABLE_NAME


class Source(StrEnum):
    """Where the capacity of a table comes from."""

    GIVEN = "given"  # by the document
    REPORTED = "reported"  # by the plane: OpenFlow table features, the sizes of P4Info
    LEARNED = "learned"  # from a write that was refused for want of room
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Entries of one table."""

    used: int
    capacity: int | None  # None: as many as the plane takes
    source: Source = Source.UNKNOWN


class HardwareUsage:
    """What the route tables of one hardware plane hold of routers and slices, and what keeps the rest out."""

    def __init__(self, tables: HardwareTables) -> None:
        self._tables = tables

    def installed(self, vrf_id: int, family: int) -> Mapping[bytes, int]:
        """Return what the hardware holds of a router now, FALLBACK entries included."""
        return self._tables.writes.installed.get((vrf_id, family), {})

    def used_by(self, slice_name: str) -> dict[int, int]:
        """Return the entries that the hardware holds of a slice, by family."""
        members, installed = self._tables.members(slice_name), self._tables.writes.installed
        return {
            family: sum(len(installed.get((vrf_id, family), ())) for vrf_id in members) for family in ROUTE_TABLE_NAME
        }

    def counts(self) -> dict[str, int]:
        """Return the entries in hardware by table."""
        used = self._used()
        return {f"hardware {name}": used[family] for family, name in ROUTE_TABLE_NAME.items()}

    def occupancy(self) -> dict[str, Occupancy]:
        """Return what is used of the hardware's route tables."""
        used = self._used()
        return {name: self._occupancy(family, used[family]) for family, name in ROUTE_TABLE_NAME.items()}

    def whole(self, vrf_id: int) -> bool:
        """Tell whether all routes of a router are in hardware."""
        tables = self._tables
        return vrf_id not in tables.routers or all(fast.whole(vrf_id) for fast in tables.fast.values())

    def short_of(self, vrf_id: int) -> str:
        """Return what keeps routes of a router out of hardware: "room", "quota", "refused", or nothing."""
        if vrf_id not in self._tables.routers:
            return ""
        found = {fast.short_of(vrf_id) for fast in self._tables.fast.values()}
        return next((one for one in ("room", "quota", "refused") if one in found), "")

    def _used(self) -> dict[int, int]:
        used = dict.fromkeys(ROUTE_TABLE_NAME, 0)
        for (_, family), entries in self._tables.writes.installed.items():
            used[family] += len(entries)
        return used

    def _occupancy(self, family: int, used: int) -> Occupancy:
        capacity = self._tables.fast[family].capacity
        declared = self._tables.declared[family]
        if capacity < (declared.capacity or MAX_ROOM):  # refusals have lowered it
            return Occupancy(used, capacity, Source.LEARNED)
        if not declared.capacity:
            return Occupancy(used, None)
        return Occupancy(used, capacity, Source.GIVEN if declared.given else Source.REPORTED)
