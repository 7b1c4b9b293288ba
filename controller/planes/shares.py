"""Shares of a plane's cores and links, and what routers have had of them (docs/planes.md, Shares).

They are apart from the tables of the contract: no entry refers to a share, nor a share to an entry that has to be
there. A router, or a slice, without one has that of every other: weight 1, no guarantee, no ceiling, and a router is
of no slice. So their order does not matter, and each is put in place of what there was, in one change.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from controller.model import USUAL_SHARE, Share

ROUTER_SHARE, SLICE_SHARE = "router_share", "slice_share"

ShareKey = tuple[str, int]
"""Whose: ROUTER_SHARE and a vrf_id, or SLICE_SHARE and a slice's id."""


@dataclass(frozen=True, slots=True)
class ShareEntry:
    """One share on a plane."""

    share: Share
    slice_id: int = 0  # of a router: its slice; 0: none

    @property
    def usual(self) -> bool:
        """Whether it says what holds without it."""
        return self == _USUAL


_USUAL = ShareEntry(USUAL_SHARE)

ShareEntries = dict[ShareKey, ShareEntry]


@dataclass(frozen=True, slots=True)
class ShareUse:
    """What a router has had so far."""

    core_ns: int = 0  # of all cores together: what its packets cost, those that were dropped, too
    over_share_core: int = 0  # packets dropped as a core was too small for all
    over_share_link: int = 0  # packets dropped as a link was

    def __add__(self, other: "ShareUse") -> "ShareUse":
        return ShareUse(
            self.core_ns + other.core_ns,
            self.over_share_core + other.over_share_core,
            self.over_share_link + other.over_share_link,
        )


def used_of(*of: Mapping[int, ShareUse]) -> dict[int, ShareUse]:
    """Return what routers have had of several planes together."""
    total: dict[int, ShareUse] = {}
    for use in of:
        for vrf_id, one in use.items():
            total[vrf_id] = total.get(vrf_id, ShareUse()) + one
    return total


class Sharing(Protocol):
    """The part of a plane that is about shares. PlaneUnreachable where the channel is down or goes down."""

    async def read_shares(self) -> ShareEntries | None:
        """Read back the shares that are installed; None from a plane that has none."""

    async def write_shares(
        self, put: Mapping[ShareKey, ShareEntry], gone: Collection[ShareKey]
    ) -> dict[ShareKey, str]:
        """Install shares in place of what there is, and delete others; returns why any was refused."""

    async def share_use(self) -> dict[int, ShareUse]:
        """Read what routers have had, by vrf_id; nothing from a plane that has no shares."""


class WithoutShares:
    """A plane that has none. Implements `Sharing`."""

    async def read_shares(self) -> ShareEntries | None:
        """Tell that it has none."""
        return None

    async def write_shares(
        self, put: Mapping[ShareKey, ShareEntry], gone: Collection[ShareKey]
    ) -> dict[ShareKey, str]:
        """Refuse all."""
        return dict.fromkeys(put, "this plane has no shares")

    async def share_use(self) -> dict[int, ShareUse]:
        """Tell of nobody."""
        return {}
