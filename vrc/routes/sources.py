"""The two route sources: zebra's FPM, and the kernel's own netlink for any other daemon.

Both start from a dump of the kernel, which has an end. After a reconnect nothing is wiped: routes of an earlier life
of the source stay until they are repeated, or until the hold time is over and the kernel does not have them either.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from vrc.errors import DumpInterrupted, KernelRefused, MalformedNetlink
from vrc.netlink.requests import family_dump
from vrc.netlink.route_messages import (
    AF_INET,
    AF_INET6,
    RTM_GETNEXTHOP,
    RTM_GETROUTE,
    RTM_NEWNEXTHOP,
    Batch,
    Change,
    decode_nexthop,
    scan,
)
from vrc.netlink.sockets import (
    DUMP_ATTEMPTS,
    RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV6_ROUTE,
    RTNLGRP_NEXTHOP,
    Monitor,
    Rtnetlink,
)
from vrc.routes.fpm import FpmServer
from vrc.routes.nexthops import NexthopScope
from vrc.routes.system_routes import ZEBRA_PROTOCOLS, is_system
from vrc.routes.table import RouteTable

log = logging.getLogger(__name__)

DEFAULT_HOLD_S = 120.0
_QUIET_S = 2.0  # a replay without an end marker is over when nothing came for so long
_SWEEP_MARGIN_S = 5.0  # zebra -K sweeps its own stale routes when the hold time is over; we after it
_LONGEST_REPLAY_S = 30.0  # … or after so long, as a busy BGP is never quiet
_ABSENT_S = 15.0
_FIRST_QUIET_S, _FIRST_LIMIT_S = 0.5, 10.0  # of the first replay, for which the end of a resync waits
_DEBOUNCE_S = 0.3
_LEAD_S, _LEAD_SHARE = 0.1, 0.2
"""Before zebra connects: between two dumps of the kernel, and the share of the time that they may take."""

Notify = Callable[[str, str], None]
"""(kind, text): something the operator should see."""


class RouteSource(Protocol):
    """Fills the route table."""

    name: str
    seeded: asyncio.Event  # everything known at the start is in the table
    complete: asyncio.Event  # … and what the daemons had to say since

    async def run(self) -> None:
        """Learn until cancelled; begins when the interfaces are known."""

    def close(self) -> None:
        """Close sockets."""

    def links_changed(self) -> None:
        """A link went up or down: the kernel may have removed routes without a message."""

    def addresses_changed(self) -> None:
        """An IPv4 address came or went: with it the kernel removes, without a message, the routes that have it as
        their source, and all of an interface that has no other."""


async def dump_routes(netlink: Rtnetlink) -> AsyncIterator[Batch]:
    """Yield the kernel's nexthops and routes of both families, as batches. DumpInterrupted, KernelRefused."""
    requests = (
        ("dump of nexthops", RTM_GETNEXTHOP, family_dump(0, 8)),
        ("dump of IPv4 routes", RTM_GETROUTE, family_dump(AF_INET, 12)),
        ("dump of IPv6 routes", RTM_GETROUTE, family_dump(AF_INET6, 12)),
    )
    for what, kind, body in requests:
        async for buffer in netlink.dump(what, kind, body):
            batch = Batch()
            scan(buffer, 0, len(buffer), batch)
            yield batch


class FpmSource:
    """Zebra's FPM as the stream of changes, the kernel's dump as the snapshot; until zebra connects, the kernel."""

    name = "fpm"

    def __init__(
        self,
        table: RouteTable,
        netlink: Rtnetlink,
        address: tuple[str, int],
        ready: asyncio.Event,
        *,
        changed: Callable[[], None],
        notify: Notify,
        opened: Callable[[], None],
        zebra_age_s: Callable[[], float | None],
    ) -> None:
        """``changed`` tells of the table, ``opened`` that zebra connected; ``zebra_age_s`` is how long zebra runs."""
        self.seeded, self.complete = asyncio.Event(), asyncio.Event()
        self.hold_s = DEFAULT_HOLD_S
        self.connections = 0
        self.malformed = 0
        self._table, self._netlink, self._ready = table, netlink, ready
        self._changed, self._notify, self._tell_opened = changed, notify, opened
        self._zebra_age_s = zebra_age_s
        self._server = FpmServer(*address, self)
        self._scope: NexthopScope | None = None
        self._heard = asyncio.Event()
        self._opened = asyncio.Event()
        self._look_again = asyncio.Event()
        self._adopting = asyncio.Lock()
        self._moved = asyncio.Event()  # the kernel's routes changed, or zebra connected
        groups = (RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE)
        self._monitor = Monitor(groups, self._system_changed, self._look_again.set, passed_over=ZEBRA_PROTOCOLS)

    @property
    def port(self) -> int:
        """The port zebra connects to."""
        return self._server.port

    def close(self) -> None:
        """Stop listening."""
        self._server.close()
        self._monitor.close()

    def links_changed(self) -> None:
        """Read the kernel's own routes again where some went without a message; zebra tells of the others."""
        if self._table.system.ambiguous:
            self._look_again.set()

    def addresses_changed(self) -> None:
        """Read the kernel's own routes again; zebra tells of the others."""
        self._look_again.set()

    async def run(self) -> None:
        """Serve zebra, seed the table from the kernel once, and look after each replay."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._server.run())
            await self._ready.wait()
            await self._adopt_or_tell("seed")
            await self._look_at_system()
            tasks.create_task(self._follow_system())
            self.seeded.set()
            self._changed()
            tasks.create_task(self._lead())
            await self._expect_zebra()
            await self._quiet(_FIRST_QUIET_S, _FIRST_LIMIT_S)
            self.complete.set()
            self._changed()
            while True:
                await self._opened.wait()
                self._opened.clear()
                await self._after_replay()

    async def _expect_zebra(self) -> None:
        try:
            async with asyncio.timeout(_ABSENT_S):
                await self._opened.wait()
        except TimeoutError:
            problem = (
                "zebra does not connect to FPM; it needs -M dplane_fpm_nl and `fpm address` in its configuration"
            )
            self._notify("fpm-absent", problem)

    async def _lead(self) -> None:
        """Mirror what zebra writes to the kernel until it connects, 3 s after its start at the earliest.

        What zebra then does not repeat, and the kernel has no more, is withdrawn.
        """
        loop = asyncio.get_running_loop()
        monitor = Monitor((RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE), lambda _: self._moved.set(), self._moved.set)
        monitor.start()
        led = False
        try:
            while await self._moved.wait() and self._scope is None:
                self._moved.clear()
                led = True
                began = loop.time()
                if not await self._adopt(sweep=True):
                    self._moved.set()
                await asyncio.sleep(max(_LEAD_S, (loop.time() - began) / _LEAD_SHARE))
        finally:
            monitor.close()
        if led:
            await self._quiet(_FIRST_QUIET_S, _FIRST_LIMIT_S)
            await self._adopt(sweep=True)

    async def _after_replay(self) -> None:
        # A further connection starts this anew: its replay is the one that counts.
        loop = asyncio.get_running_loop()
        begun, scope, age_s = loop.time(), self._scope, self._zebra_age_s() or 0.0
        await self._quiet(_QUIET_S, _LONGEST_REPLAY_S)
        if self._opened.is_set() or scope is None:
            return
        await self._correct_weights(scope)
        # A zebra that ran on while this process was away has long swept its own.
        left = max(self.hold_s + _SWEEP_MARGIN_S - age_s, 0.0) + begun - loop.time()
        try:
            async with asyncio.timeout(max(left, 0.0)):
                await self._opened.wait()
        except TimeoutError:
            if self._scope is scope:
                await self._adopt_or_tell("sweep", sweep=True)

    async def _quiet(self, quiet_s: float, limit_s: float) -> None:
        """Wait until zebra has said nothing for ``quiet_s``, or the limit is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while True:
                    self._heard.clear()
                    async with asyncio.timeout(quiet_s):
                        await self._heard.wait()

    async def _adopt_or_tell(self, what: str, *, sweep: bool = False) -> None:
        if not await self._adopt(sweep=sweep):
            self._notify("dump-failed", f"{what}: the kernel's routes kept changing while they were dumped")

    async def _adopt(self, *, sweep: bool) -> bool:
        """Bind what zebra has not repeated to what the kernel has; with ``sweep`` withdraw the rest, unless zebra has
        connected meanwhile: of what it said before, the dump has passed a part, and it now repeats all of that.

        Tells whether the kernel could be read; it cannot while its routes keep changing.
        """
        async with self._adopting:
            self._table.withdrawn = set()
            try:
                return await self._adopt_dump(sweep)
            finally:
                self._table.withdrawn = None

    async def _adopt_dump(self, sweep: bool) -> bool:
        for _ in range(DUMP_ATTEMPTS):
            scope, current = self._table.open_scope(inline_first=True), self._scope
            try:
                async for batch in dump_routes(self._netlink):
                    self._table.adopt(batch.changes, scope, self._scope)
                    self._changed()
            except DumpInterrupted as error:
                log.info("%s; again", error)
                scope.ended = True
                continue
            if sweep and self._scope is current and (gone := self._table.keep_only(scope, current)):
                log.info("%d routes withdrawn that neither zebra nor the kernel has", gone)
                self._changed()
            return True
        return False

    async def _follow_system(self) -> None:
        """Read the kernel's own routes again whenever its messages were lost or cannot tell."""
        while True:
            await self._look_again.wait()
            await asyncio.sleep(_DEBOUNCE_S)
            await self._look_at_system()

    async def _look_at_system(self) -> None:
        self._monitor.catch_up()  # read after the dump, it would bring back what has gone since without a message
        self._look_again.clear()
        self._monitor.pause()
        for _ in range(DUMP_ATTEMPTS):
            found: list[Change] = []
            try:
                async for batch in dump_routes(self._netlink):
                    found += [change for change in batch.changes if change[1] and is_system(change[2])]
            except DumpInterrupted as error:
                log.info("system routes: %s; again", error)
                continue
            self._table.system.replace(found)
            break
        else:  # zebra is busy: what was read last stands until then
            self._look_again.set()
        self._monitor.start()
        self._table.follow_system()
        self._changed()

    def _system_changed(self, buffer: bytes) -> None:
        self._table.system.apply(_scanned(buffer).changes)
        self._table.follow_system()
        if self._table.system.ambiguous:
            self._look_again.set()
        self._changed()

    async def _correct_weights(self, scope: NexthopScope) -> None:
        """Take group weights from the kernel: a replay under ``zebra -K`` has them wrong (FRR 8.4)."""
        corrected = 0
        try:
            async for buffer in self._netlink.dump("dump of nexthops", RTM_GETNEXTHOP, family_dump(0, 8)):
                batch = Batch()
                scan(buffer, 0, len(buffer), batch)
                for kind, _, body, _ in batch.changes:
                    if kind == RTM_NEWNEXTHOP:
                        corrected += scope.correct_weights(decode_nexthop(body))
        except (DumpInterrupted, KernelRefused, MalformedNetlink) as error:
            log.warning("weights not checked: %s", error)
        if corrected:
            log.info("weights of %d nexthop groups corrected from the kernel", corrected)
            self._table.settle()
            self._changed()

    def fpm_opened(self) -> None:
        """Begin a new life of zebra's nexthop ids."""
        self.connections += 1
        if self._scope is not None:
            self._scope.ended = True
        self._scope = self._table.open_scope()
        self._opened.set()
        self._heard.set()
        self._moved.set()
        self._tell_opened()
        log.info("zebra connected")
        if self.connections > 1:
            self._notify("daemon-restart", "zebra connected to FPM again and repeats its routes")

    def fpm_batch(self, batch: Batch) -> None:
        """Take in what zebra said."""
        self._heard.set()
        if self._scope is not None:
            self._table.apply(batch.changes, self._scope)
        _count(self._table, batch)
        self._changed()

    def fpm_closed(self, reason: str) -> None:
        """Keep everything."""
        log.warning("FPM connection lost: %s; routes are kept", reason)
        self._notify("fpm-lost", f"FPM connection lost: {reason}; routes are kept")


class NetlinkSource:
    """The kernel's routing table as it changes; a dump starts it and repairs it after an overrun."""

    name = "netlink"

    def __init__(
        self,
        table: RouteTable,
        netlink: Rtnetlink,
        ready: asyncio.Event,
        *,
        changed: Callable[[], None],
        notify: Notify,
    ) -> None:
        self.seeded = self.complete = asyncio.Event()
        self.hold_s = DEFAULT_HOLD_S
        self.dumps = 0
        self._table, self._netlink, self._ready = table, netlink, ready
        self._changed, self._notify = changed, notify
        self._scope = table.open_scope(inline_first=True)
        self._resync = asyncio.Event()
        groups = (RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, RTNLGRP_NEXTHOP)
        self._monitor = Monitor(groups, self._received, self._overrun, receive_bytes=32 << 20)

    @property
    def overruns(self) -> int:
        """How often the kernel had to drop messages."""
        return self._monitor.overruns

    def close(self) -> None:
        """Stop listening."""
        self._monitor.close()

    def links_changed(self) -> None:
        """Dump again: IPv4 routes over a link that went down are removed without a message."""
        self._resync.set()

    def addresses_changed(self) -> None:
        """Dump again."""
        self._resync.set()

    async def run(self) -> None:
        """Dump, then follow; dump again whenever messages were lost or cannot tell."""
        await self._ready.wait()
        while True:
            self._monitor.catch_up()  # read after the dump, it would bring back what has gone since without a message
            self._resync.clear()
            await self._dump()
            self.seeded.set()
            self._changed()
            self._monitor.start()
            await self._resync.wait()
            await asyncio.sleep(_DEBOUNCE_S)

    async def _dump(self) -> None:
        self._monitor.pause()
        for _ in range(DUMP_ATTEMPTS):
            scope = self._table.open_scope(inline_first=True)
            try:
                async for batch in dump_routes(self._netlink):
                    self._table.apply_kernel(batch.changes, scope)
                    _count(self._table, batch)
                    self._changed()
            except DumpInterrupted as error:
                log.info("%s; again", error)
                scope.ended = True
                continue
            self._scope = scope
            self._table.keep_only(scope)
            self._table.ambiguous = False
            self.dumps += 1
            return
        self._notify("dump-failed", "the kernel's routes kept changing while they were dumped; trying on")
        self._resync.set()

    def _received(self, buffer: bytes) -> None:
        batch = _scanned(buffer)
        self._table.apply_kernel(batch.changes, self._scope)
        _count(self._table, batch)
        if self._table.ambiguous:
            self._resync.set()
        self._changed()

    def _overrun(self) -> None:
        self._notify("overrun", "the kernel dropped route messages; reading its whole table again")
        self._resync.set()


def _scanned(buffer: bytes) -> Batch:
    """Return what the kernel said; what cannot be read is counted, and ends it."""
    batch = Batch()
    try:
        scan(buffer, 0, len(buffer), batch)
    except MalformedNetlink as error:
        batch.malformed += 1
        batch.problem = str(error)
    return batch


def _count(table: RouteTable, batch: Batch) -> None:
    table.counters.foreign_table += batch.foreign
    if batch.malformed:
        table.counters.malformed += batch.malformed
        table.problem = batch.problem
