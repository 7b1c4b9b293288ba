"""The shares of one plane's routers and slices: desired against installed, and who is over its share.

    declarations of routers ─► desired ─► differs from installed? ─► put, delete ─► confirmed

A slice's share is what its routers' declarations say of it, and goes with the last of them. What says no more than
what holds without it is not installed. All of it is written before anything else, so a router has its share before
its first packet; a share that changes is one change of one entry.
"""

import asyncio
from collections.abc import Callable
from itertools import islice

from controller.errors import PlaneUnreachable
from controller.events.log import EventLog
from controller.model import USUAL_SHARE, RouterConfig
from controller.planes.base import Capability, Plane
from controller.planes.shares import ROUTER_SHARE, SLICE_SHARE, ShareEntries, ShareEntry, ShareKey, ShareUse
from controller.spec.shares import lacking

SHARES_AT_ONCE = 1000
"""Most of them in one write, and so between two of anything else."""

LOOK_S = 5.0
"""How often one looks who is over its share …"""

LOOKS = 2
"""… and how many looks after each other have to find it before it is told."""


class PlaneShares:
    """What a plane is to hold of shares, and holds as far as one knows."""

    def __init__(self, plane: Plane, events: EventLog, wake: Callable[[], None]) -> None:
        """``wake`` is called whenever there is something to write."""
        self._plane, self._events, self._wake = plane, events, wake
        self._offered = False  # whether the plane, as it is connected, has shares
        self._configs: dict[int, RouterConfig] = {}  # by vrf_id
        self._members: dict[int, set[int]] = {}  # vrf_ids by slice
        self._desired: ShareEntries = {}
        self._installed: ShareEntries = {}
        self._refused: dict[ShareKey, str] = {}
        self._marked: dict[ShareKey, None] = {}
        self._writes = 0  # begun and ended
        self._seen: dict[int, ShareUse] = {}  # by vrf_id, at the last look
        self._over: dict[int, int] = {}  # looks in a row that found a router over its share

    # What is declared

    def want(self, config: RouterConfig) -> None:
        """Follow the declaration of a router."""
        before = self._configs.get(config.vrf_id)
        if before is not None and before.slice_id != config.slice_id:
            self._leave(before)
        self._configs[config.vrf_id] = config
        self._desire((ROUTER_SHARE, config.vrf_id), ShareEntry(config.share, config.slice_id))
        if config.slice_id:
            self._members.setdefault(config.slice_id, set()).add(config.vrf_id)
            self._desire((SLICE_SHARE, config.slice_id), ShareEntry(config.slice_share))

    def drop(self, vrf_id: int) -> None:
        """Forget a router: its share goes from the plane, and that of its slice where it was the last."""
        config = self._configs.pop(vrf_id, None)
        if config is not None:
            self._desire((ROUTER_SHARE, vrf_id), None)
            self._leave(config)
        self._seen.pop(vrf_id, None)
        self._over.pop(vrf_id, None)

    def _leave(self, config: RouterConfig) -> None:
        members = self._members.get(config.slice_id, set())
        members.discard(config.vrf_id)
        if not members and self._members.pop(config.slice_id, None) is not None:
            self._desire((SLICE_SHARE, config.slice_id), None)

    def _desire(self, key: ShareKey, entry: ShareEntry | None) -> None:
        if entry is None or entry.usual:
            self._desired.pop(key, None)
        else:
            self._desired[key] = entry
        self._refused.pop(key, None)
        if self._desired.get(key) != self._installed.get(key):
            self._marked[key] = None
            self._wake()

    # The plane

    @property
    def busy(self) -> bool:
        """Whether there is anything to write."""
        return self._offered and bool(self._marked)

    async def adopt(self) -> None:
        """Take over what the plane holds and mark what differs. PlaneUnreachable where it goes away."""
        read = await self._plane.read_shares()
        self._offered = read is not None
        self._installed = read or {}
        self._refused.clear()
        self._marked = dict.fromkeys(self._differing())
        self._seen.clear()

    def _differing(self) -> list[ShareKey]:
        keys = self._desired.keys() | self._installed.keys()
        return sorted(key for key in keys if self._desired.get(key) != self._installed.get(key))

    async def write(self) -> set[int]:
        """Write some of what is marked; returns the routers whose own it was. PlaneUnreachable where the plane goes
        away: what it holds is then unknown until it is adopted."""
        some = list(islice(self._marked, SHARES_AT_ONCE))
        put = {key: self._desired[key] for key in some if key in self._desired}
        gone = [key for key in some if key not in put and key in self._installed]
        for key in some:
            del self._marked[key]
        self._writes += 1
        refused = await self._plane.write_shares(put, gone) if put or gone else {}
        self._writes += 1
        for key in some:
            if key not in refused:
                self._refused.pop(key, None)
        self._installed |= {key: entry for key, entry in put.items() if key not in refused}
        for key in gone:
            if key not in refused:
                self._installed.pop(key, None)
        for (table, whose), reason in refused.items():
            self._refused[table, whose] = reason
            text = f"plane {self._plane.name} {table} {whose}: {reason}"
            self._events.report("error", "entry-refused", self._plane.name, text)
        for key in some:  # what was declared meanwhile may have been no change of what was known then
            if key not in refused and self._desired.get(key) != self._installed.get(key):
                self._marked[key] = None
        return {whose for table, whose in some if table == ROUTER_SHARE}

    async def audit(self) -> dict[int, int]:
        """Read back and mark what differs from what was written, unless something was meanwhile; returns how many
        shares that were, by vrf_id, those of slices counted to one of their routers."""
        writes = self._writes
        read = await self._plane.read_shares()
        if read is None or not self._offered or self._marked or writes != self._writes:
            return {}
        damaged = [key for key in read.keys() | self._installed.keys() if read.get(key) != self._installed.get(key)]
        self._installed = read
        self._marked.update(dict.fromkeys(self._refused))  # there may be room now
        counts: dict[int, int] = {}
        for table, whose in damaged:
            self._marked[table, whose] = None
            vrf_id = whose if table == ROUTER_SHARE else min(self._members.get(whose, ()), default=0)
            counts[vrf_id] = counts.get(vrf_id, 0) + 1
        return counts

    def problem(self, config: RouterConfig) -> str:
        """Return why a router does not have the share that is declared, in one line; empty where it has."""
        for key in ((ROUTER_SHARE, config.vrf_id), (SLICE_SHARE, config.slice_id)):
            if key in self._refused:
                return f"plane {self._plane.name} refused {key[0]}: {self._refused[key]}"
        asks = config.share != USUAL_SHARE or config.slice_share != USUAL_SHARE
        if asks and self._plane.connected and Capability.SHARES not in self._plane.capabilities:
            return lacking(self._plane.name, f"router {config.full_name}")
        return ""

    # Who is over its share

    async def watch(self) -> None:
        """Tell which routers are over their share for some seconds, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._offered and self._plane.connected:
                try:
                    self.look(await self._plane.share_use())
                except PlaneUnreachable:
                    continue  # the mirror sees that, too

    def look(self, use: dict[int, ShareUse]) -> None:
        """Compare what routers have had with the last look."""
        for vrf_id, now in use.items():
            config, before = self._configs.get(vrf_id), self._seen.get(vrf_id)
            if config is None or before is None:
                continue
            core, link = now.over_share_core - before.over_share_core, now.over_share_link - before.over_share_link
            if core <= 0 and link <= 0:
                self._within(config)
                continue
            self._over[vrf_id] = looks = self._over.get(vrf_id, 0) + 1
            if looks == LOOKS:
                text = f"{core:,} packets over its share of a core and {link:,} of a link dropped in {LOOK_S:g} s"
                self._events.report("warning", "over-share", config.full_name, f"{text}; it has {_shown(config)}")
        self._seen = dict(use)

    def _within(self, config: RouterConfig) -> None:
        if self._over.pop(config.vrf_id, 0) >= LOOKS:
            self._events.report("info", "within-share", config.full_name, "nothing of it is dropped any more")


def _shown(config: RouterConfig) -> str:
    if config.slice_share == USUAL_SHARE:
        return str(config.share)
    return f"{config.share} in a slice of {config.slice_share}"
