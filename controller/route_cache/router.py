"""One router of the route cache: its tables, and what is known of its prefixes."""

from dataclasses import dataclass, field

from controller.model import Placement
from controller.route_cache.backlog import Backlog
from controller.route_cache.cover import CoveredTable
from controller.route_cache.popularity import Meter, Moment


@dataclass(slots=True)
class Router:
    """One router: its tables, and what its prefixes bring."""

    vrf_id: int
    table: CoveredTable
    placement: Placement = Placement.AUTO
    hard: dict[bytes, Meter] = field(default_factory=dict)  # by entry that forwards
    soft: dict[bytes, Meter] = field(default_factory=dict)  # by prefix or part of one, in software
    recent: set[bytes] = field(default_factory=set)  # of these, what was sampled since the last round
    counted: Moment | None = None  # when the entries were counted last
    pinned: set[bytes] = field(default_factory=set)
    waiting: set[bytes] = field(default_factory=set)  # pinned, but there was no room
    backlog: Backlog = field(default_factory=Backlog)  # of a router that wants all: what is missing
    incomplete: bool = False  # more may be missing than the backlog has
    fitted: bool = False  # whether everything of all routers beside it had room: what is new enters at once then
    wanted: int = 0  # entries that it wants in hardware, as far as its room knows

    @property
    def waits(self) -> bool:
        """Whether the next round may find something to do for it, though nothing changes."""
        fills = self.incomplete and (self.fitted or self.placement is Placement.HARDWARE)
        return bool(self.waiting or self.table.loose or self.recent or len(self.backlog)) or fills

    def want(self) -> None:
        """Let its room know what it wants in hardware."""
        wanted = 0 if self.placement is Placement.SOFTWARE else len(self.table.full) + 1
        self.table.room.wanted += wanted - self.wanted
        self.wanted = wanted

    def missing(self, key: bytes) -> bool:
        """Tell whether a prefix of the full table is in software although the plane would take it."""
        table = self.table
        return key in table.full and key not in table.refused and not table.forwards(key)
