"""How much of a table is in use, and how much there can be, as far as anybody has said."""

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(slots=True)
class Declared:
    """The two figures that are said of a table, 0 where nothing is; what the document gives is believed before what
    the plane reports.
    """

    given: int
    reported: int = 0

    @property
    def capacity(self) -> int:
        """The capacity as far as it is said, 0 where it is not."""
        return self.given or self.reported

    def occupancy(self, used: int, capacity: int, unbounded: int) -> Occupancy:
        """Return what is used of a ``capacity`` that refusals may have lowered; ``unbounded`` stands for none."""
        if capacity < (self.capacity or unbounded):
            return Occupancy(used, capacity, Source.LEARNED)
        if not self.capacity:
            return Occupancy(used, None)
        return Occupancy(used, capacity, Source.GIVEN if self.given else Source.REPORTED)
