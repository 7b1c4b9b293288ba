"""The VRC: composes sources, TAPs and session, and supervises their tasks.

When have the daemons settled (ResyncEnd)? Routes that a plane still has and the guest's kernel does not may go only
if the daemons had the time to learn them again. They had, if this is not the guest's first VRC (a TAP has carrier,
which only VRCs give it) and zebra, or where that is not the source the guest, has been running for the hold time.
Else they have what is left of that, and with the first VRC the hold time from now.
What zebra does not repeat after a restart while this process runs is this process's own affair (sources.py).
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from vrc.errors import TapError, VrcError
from vrc.interfaces import Interfaces
from vrc.kernel import GuestKernel
from vrc.losses import read_kernel_drops
from vrc.neighbors import DEFAULT_LIMIT, Neighbors
from vrc.netlink.sockets import Rtnetlink
from vrc.packets import PacketRelay
from vrc.routes.nexthops import NexthopScope, NexthopSets
from vrc.routes.snapshot import kernel_columns
from vrc.routes.sources import FpmSource, NetlinkSource
from vrc.routes.table import Columns, RouteTable
from vrc.session import Identity, Session
from vrc.stream import Known, SessionOwner
from vrc.taps import Taps
from wire import splitplane_pb2 as pb
from wire.scheduling import share_cores

log = logging.getLogger("vrc")

_RESTART_S = 1.0
_SWEEP_S = 5.0
_FORWARDING = {"IPv4": "/proc/sys/net/ipv4/ip_forward", "IPv6": "/proc/sys/net/ipv6/conf/all/forwarding"}
_GATEWAYS_S = 0.2
_LOSSES_S = 5.0
_PROBES_S = 15.0  # six seconds without an answer, and a kernel gives a neighbor up; a busy machine takes longer


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    router: str
    session: str
    identity: str
    source: str = "fpm"
    fpm_listen: tuple[str, int] = ("127.0.0.1", 2620)


class Agent(SessionOwner):
    """One router's VRC. Must be made inside a running event loop."""

    def __init__(self, options: Options) -> None:
        self.interfaces = Interfaces()
        self.neighbors = Neighbors(self.interfaces, in_doubt=self._in_doubt)
        self.sets = NexthopSets()
        self.table = RouteTable(self.sets, self.interfaces.usable, self.interfaces.is_dark)
        self.relay = PacketRelay()
        self.known = Known(self.interfaces, self.neighbors, self.sets, self.table, self.relay)
        self.netlink = Rtnetlink()
        self.kernel = GuestKernel(
            self.netlink,
            self.interfaces,
            self.neighbors,
            self._changed,
            self._links_changed,
            lambda: self.source.addresses_changed(),
            self.notify,
        )
        self.taps = Taps(self.netlink, self.interfaces, self.relay, self.kernel.look)
        self._ready = asyncio.Event()
        self._zebra_connected = asyncio.Event()
        self._appeared = asyncio.Event()
        self.source = self._make_source(options)
        identity = partial(Identity.read, options.identity)
        self.session = Session(options.session, identity, options.router, options.source, self.known, self)
        self._settled_at_s: float | None = None
        self._heard_from_s = 0.0  # when probes that end have been sent with a session there
        self._hit: set[str] = set()
        self._elsewhere: set[str] = set()  # links that are no interfaces, and by which routes lead
        self._told_elsewhere: set[str] = set()
        self._not_forwarding = ""  # families that the kernel does not forward, as last told
        self._versions: list[tuple[NexthopScope, int]] = []  # whose gateways were looked at

    def _make_source(self, options: Options) -> FpmSource | NetlinkSource:
        if options.source == "fpm":
            return FpmSource(
                self.table,
                self.netlink,
                options.fpm_listen,
                self._ready,
                changed=self._changed,
                notify=self.notify,
                opened=self._zebra_connected.set,
                zebra_age_s=lambda: process_age_s("zebra"),
            )
        return NetlinkSource(self.table, self.netlink, self._ready, changed=self._changed, notify=self.notify)

    def _changed(self) -> None:
        self.session.wake()

    def _links_changed(self) -> None:
        self.table.system.drop_over(self.interfaces.is_down)
        self.table.system.follow_links()
        self.table.follow_system()
        self.table.refresh()
        self.source.links_changed()
        self.neighbors.links_changed()
        self.kernel.neighbors_changed()
        self.taps.forget_gone()
        if self.taps.appeared:
            self._appeared.set()
        self._versions = []
        self._changed()

    def notify(self, kind: str, text: str) -> None:
        """Tell the operator: in the log, and by the session."""
        log.warning("%s: %s", kind, text)
        self.known.notices.append((kind, text))
        self._changed()

    async def run(self) -> None:
        """Run until cancelled; leaves TAPs and kernel as they are."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, work in (
                    ("kernel", self.kernel.run),
                    ("source", self.source.run),
                    ("session", self.session.run),
                    ("gateways", self._follow_gateways),
                    ("sweep", self._sweep),
                    ("losses", self._tell_losses),
                    ("interfaces", self._take_late_interfaces),
                    ("addresses", self._repeat_addresses),
                ):
                    tasks.create_task(self._supervise(name, work), name=name)
        finally:
            self.relay.close()
            self.taps.close()
            self.kernel.close()
            self.source.close()
            self.netlink.close()

    async def _supervise(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
                return
            except VrcError as error:
                self.notify("restart", f"{name}: {error}")
            except Exception:  # the one place: a bug in one part must not end the others
                log.exception("%s failed; starting it again", name)
            await asyncio.sleep(_RESTART_S)

    async def _repeat_addresses(self) -> None:
        while True:
            await self._zebra_connected.wait()
            self._zebra_connected.clear()
            for problem in await self.taps.repeat_addresses():
                self.notify("interface", problem)

    async def _take_late_interfaces(self) -> None:
        while True:
            await self._appeared.wait()
            self._appeared.clear()
            try:
                await self._apply_interfaces()
            except VrcError:
                self._appeared.set()  # when this is started again
                raise
            self._links_changed()

    async def _apply_interfaces(self, declared: list[pb.Interface] | None = None) -> None:
        for problem in await self.taps.apply(declared):
            self.notify("interface", problem)
        self._look_at_losses()  # what the kernel counts of a new interface from now on is ours

    async def declared(self, declaration: pb.Declaration) -> None:
        """Make the guest as declared and wait until the source knows all that is there already."""
        self.neighbors.limit = declaration.neighbor_limit or DEFAULT_LIMIT
        if not self.session.connected.is_set():
            self._heard_from_s = time.monotonic() + _PROBES_S
            self.neighbors.retry()
        if declaration.hold_time_s:
            self.source.hold_s = float(declaration.hold_time_s)
        await self._apply_interfaces(list(declaration.interfaces))
        await self.kernel.look_at_neighbors()
        await self.kernel.look_at_rules()
        if self._settled_at_s is None:
            self._settled_at_s = time.monotonic() + self._unsettled_s()
        self._links_changed()
        self._ready.set()
        await self.source.seeded.wait()

    def _unsettled_s(self) -> float:
        hold_s = self.source.hold_s
        if not self.taps.adopted:
            return hold_s
        age_s = process_age_s("zebra") if self.source.name == "fpm" else guest_age_s()
        return hold_s if age_s is None else max(0.0, hold_s - age_s)

    def _in_doubt(self) -> bool:
        return not self.session.connected.is_set() or time.monotonic() < self._heard_from_s

    def complete(self) -> bool:
        """Tell whether the source has all that the daemons had to say at the start."""
        return self.source.complete.is_set()

    def settled_in_s(self) -> float:
        """Return in how many seconds the daemons will have settled."""
        if self._settled_at_s is None:
            return self.source.hold_s
        return max(0.0, self._settled_at_s - time.monotonic())

    def port_changed(self, interface_id: int, up: bool) -> None:
        """Mirror a plane port's state to the TAP's carrier."""
        try:
            self.taps.port_changed(interface_id, up)
        except TapError as error:
            self.notify("interface", str(error))

    def snapshot(self) -> AsyncIterator[Columns]:
        """Yield the kernel's own routes."""
        return kernel_columns(self.netlink, self.sets, self.interfaces.usable)

    async def _follow_gateways(self) -> None:
        # Gateways change with bindings, which are few and rarely made: looked at five times a second, not per route.
        while True:
            await asyncio.sleep(_GATEWAYS_S)
            versions = [(scope, scope.version) for scope in self.table.scopes]
            if versions != self._versions:
                self._versions = versions
                self.neighbors.want(self.table.gateways())
                self.kernel.neighbors_changed()
            self._report_bounds()

    def _report_bounds(self) -> None:
        reached = {
            "neighbor-limit": self.neighbors.over_limit,
            "routes-full": self.table.counters.full,
            "malformed": self.table.counters.malformed + self.kernel.malformed,
        }
        for kind, count in reached.items():
            if count and kind not in self._hit:
                self._hit.add(kind)  # once: the count itself is in the log
                self.notify(kind, f"{count} so far; {self.table.problem}".rstrip("; "))

    def _report_elsewhere(self) -> None:
        found = {self.interfaces.links[at].name for at in self.table.elsewhere()} if self._ready.is_set() else set()
        self._told_elsewhere &= found
        found.discard("lo")  # whose packets go nowhere in a guest, too
        lasting = found & self._elsewhere  # an interface that is just made may be declared next
        for name in sorted(lasting - self._told_elsewhere):
            text = f"routes lead to {name}, which no plane has: what has no other way goes to the guest"
            self.notify("not-forwarded", text)
        self._told_elsewhere |= lasting
        self._elsewhere = found

    def _report_forwarding(self) -> None:
        off = " and ".join(family for family, path in _FORWARDING.items() if _says_no(path))
        if off and off != self._not_forwarding:
            self.notify("forwarding-off", f"the guest's kernel does not forward {off}, so no new host is found there")
        self._not_forwarding = off

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            self._report_elsewhere()
            self._report_forwarding()
            self.table.sweep()
            self.neighbors.want_again()
            self.kernel.neighbors_changed()
            if self.sets.gone:
                self._changed()
            log.debug(
                "%d routes, %d sets, %d neighbors too many and not deleted, lost frames %s",
                len(self.table),
                len(self.sets),
                self.neighbors.not_deleted,
                dict(self.relay.lost),
            )

    async def _tell_losses(self) -> None:
        while True:
            await asyncio.sleep(_LOSSES_S)
            self._look_at_losses()

    def _look_at_losses(self) -> None:
        if self.relay.losses.look(self.interfaces.declared, read_kernel_drops()):
            self._changed()


def _says_no(path: str) -> bool:
    """Tell whether a setting of the kernel is there and 0."""
    with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
        return file.read().strip() == "0"
    return False


def process_age_s(name: str) -> float | None:
    """Return for how long a process of that name has been running in this PID namespace, None without one."""
    ages = (_age_s(pid, name) for pid in filter(str.isdigit, os.listdir("/proc")))
    return next((age_s for age_s in ages if age_s is not None), None)


def guest_age_s() -> float | None:
    """Return for how long the first process of this PID namespace has been running, None where that is not known."""
    return _age_s("1")


def _age_s(pid: str, name: str = "") -> float | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            text = file.read()
        if name in ("", text[text.index("(") + 1 : text.rindex(")")]):
            started_ticks = int(text[text.rindex(")") + 2 :].split()[19])
            return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    return None


def parse(arguments: list[str] | None = None) -> tuple[Options, str]:
    """Read the command line: options and log level."""
    parser = argparse.ArgumentParser(prog="vrc", description="The virtual router controller: the agent in a guest.")
    parser.add_argument("--router", required=True, metavar="TENANT/ROUTER")
    parser.add_argument("--session", required=True, help="gRPC target, such as unix:/run/splitplane/session.sock")
    parser.add_argument("--identity", required=True, metavar="DIR", help="has cert.pem, key.pem and ca.pem")
    parser.add_argument("--source", choices=("fpm", "netlink"), default="fpm")
    parser.add_argument("--fpm-listen", default="127.0.0.1:2620", metavar="HOST:PORT")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    given = parser.parse_args(arguments)
    host, _, port = given.fpm_listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        parser.error(f"--fpm-listen {given.fpm_listen!r} is not HOST:PORT")
    listen = (host.strip("[]"), int(port))
    return Options(given.router, given.session, given.identity, given.source, listen), given.log_level


async def _run(options: Options) -> None:
    Identity.read(options.identity)  # one line at once, rather than a session that never comes
    task = asyncio.ensure_future(Agent(options).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main(arguments: list[str] | None = None) -> int:
    """Run the VRC until SIGTERM; 1 with one line where it cannot start."""
    options, level = parse(arguments)
    share_cores()
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        asyncio.run(_run(options))
    except (VrcError, OSError) as error:
        print(f"vrc: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
