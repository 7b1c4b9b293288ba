"""The forwarders that bench/peers compares, each with the same one route; ours also with a full table.

Each gets the wires' two ends, forwards what is for `ROUTE` to the receiver, with its MAC and a TTL one less (but the
one that only redirects), and is on the forwarder's core with all that touches a packet.
"""

import asyncio
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from bench.p4write import Connected, write_all
from controller.model import PlaneConfig, PlaneKind
from controller.planes.base import (
    Nexthop,
    Op,
    Policer,
    RouteKind,
    RouterInterface,
    RouteUpdates,
    Update,
    WriteBatch,
    route_action,
    same_rate,
)
from controller.planes.p4runtime.plane import P4RuntimePlane
from controller.shard.mirror import BATCH_ROUTES
from lab.ovs_daemons import OvsDaemons
from lab.planes import bmv2, forwarder
from lab.prefixes import Announcement, announcements
from lab.processes import prefer
from lab.wires import (
    FORWARDER_CORE,
    IN_MAC,
    NEIGHBOR_MAC,
    OUT_MAC,
    Conversation,
    Wires,
    checked,
    inside,
)

ROUTE = Announcement(16 << 24, 8, 0)
MTU = 1500
_RATE = 1000
_CONNECT_S = 30.0
_IN_PORT, _OUT_PORT = 1, 2
_RUNNER = asyncio.Runner()
"""One event loop for all of them: grpc keeps to the first that it has seen."""


class Peer(Protocol):
    """A forwarder under test."""

    routes: bool  # it counts the TTL

    def start(self, wires: Wires) -> None:
        """Have it forward; WiresError where it does not start."""

    def stop(self) -> None:
        """End it; harmless when it did not start."""


class Redirect:
    """An XDP program that does nothing but redirect: the limit for whatever works by XDP."""

    routes = False

    def __init__(self, generator: Path) -> None:
        self._generator = generator
        self._process: Conversation | None = None

    def start(self, wires: Wires) -> None:
        """Attach it."""
        argv = inside(wires.namespace, str(self._generator), "redirect", wires.into, wires.out)
        self._process = Conversation(argv)

    def stop(self) -> None:
        """Detach it."""
        if self._process is not None:
            self._process.close()


class Linux:
    """Linux forwarding in a namespace."""

    routes = True

    def start(self, wires: Wires) -> None:
        """Set addresses, the route and its neighbor."""
        address = ("ip", "-n", wires.namespace, "address", "add")
        checked(*address, "198.18.0.1/24", "dev", wires.into)
        checked(*address, "198.19.0.1/24", "dev", wires.out)
        checked("ip", "-n", wires.namespace, "route", "add", ROUTE.text, "via", "198.19.0.2")
        neighbor = ("198.19.0.2", "lladdr", NEIGHBOR_MAC, "dev", wires.out, "nud", "permanent")
        checked("ip", "-n", wires.namespace, "neigh", "add", *neighbor)
        checked(*inside(wires.namespace, "sysctl", "-qw", "net.ipv4.ip_forward=1"))

    def stop(self) -> None:
        """Leave it to the namespace."""


def _on_core(wires: Wires) -> list[str]:
    """Return what begins the command of a forwarder: it runs where the wires end, on its core."""
    return inside(wires.namespace, core=FORWARDER_CORE)


class Ovs:
    """Open vSwitch with its userspace datapath: one flow with the route's match and actions."""

    routes = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._daemons: OvsDaemons | None = None

    def start(self, wires: Wires) -> None:
        """Start it, with a bridge of both ends."""
        self._directory.mkdir(parents=True)
        self._daemons = daemons = OvsDaemons(self._directory, _on_core(wires))
        daemons.start()
        daemons.vsctl("add-br", "br", "--", "set", "bridge", "br", "datapath_type=netdev", "fail_mode=secure")
        for number, end in ((_IN_PORT, wires.into), (_OUT_PORT, wires.out)):
            daemons.vsctl("add-port", "br", end, "--", "set", "interface", end, f"ofport_request={number}")
        match = f"in_port={_IN_PORT},ip,dl_dst={IN_MAC},nw_dst={ROUTE.text}"
        actions = f"mod_dl_src:{OUT_MAC},mod_dl_dst:{NEIGHBOR_MAC},dec_ttl,output:{_OUT_PORT}"
        checked("ovs-ofctl", "add-flow", f"unix:{self._directory}/br.mgmt", f"{match},actions={actions}")

    def stop(self) -> None:
        """End it."""
        if self._daemons is not None:
            self._daemons.kill()


class Bmv2:
    """BMv2 with our pipeline and one route, written by the controller's driver."""

    routes = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: bmv2.Bmv2 | None = None

    def start(self, wires: Wires) -> None:
        """Start it and write its tables."""
        self._directory.mkdir(parents=True)
        address = f"unix:{self._directory}/p4rt.sock"
        prefix = (*_on_core(wires), *bmv2.OWN_SYSFS)
        self._process = bmv2.Bmv2("peer", 1, address, 9090, self._directory / "bmv2.log", prefix, log_level="off")
        self._process.start({wires.into: _IN_PORT, wires.out: _OUT_PORT})
        prefer(self._process.pid)
        _RUNNER.run(fill(address, [_router(1, 0)], [[ROUTE]]))

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.stop()


class Forwarder:
    """vr-forwarder, driven by P4Runtime: a router on each VLAN, or one router on untagged frames.

    Where there are several links before it, each router has its own, in turns.
    """

    routes = True

    def __init__(
        self,
        program: Path,
        directory: Path,
        tables: list[list[Announcement]],
        *options: str,
    ) -> None:
        """``tables`` holds the routes of each router; ``options`` end its command line."""
        self._program, self._directory, self._tables, self._options = program, directory, tables, options
        self._process: forwarder.Forwarder | None = None

    @property
    def address(self) -> str:
        """Where its P4Runtime server listens; it runs."""
        assert self._process is not None
        return self._process.address

    def start(self, wires: Wires) -> None:
        """Start it and write its tables."""
        place = self._directory
        place.mkdir(parents=True)
        own = (place.name, 1, place / "state", place / "log", _on_core(wires))
        self._process = forwarder.Forwarder("vr-forwarder", *own, program=self._program)
        links = {into: _IN_PORT + place for place, into in enumerate(wires.intos)}
        out = _IN_PORT + len(links)
        self._process.start({**links, wires.out: out}, *self._options)
        prefer(self._process.pid)
        alone = len(self._tables) == 1
        ins = [_IN_PORT + place % len(links) for place in range(len(self._tables))]
        routers = [_router(vrf, 0 if alone else vrf, into, out) for vrf, into in enumerate(ins, 1)]
        _RUNNER.run(fill(self._process.address, routers, self._tables))

    def stop(self) -> None:
        """End it in order, so that it detaches."""
        if self._process is not None:
            self._process.stop(signal.SIGTERM)


def full_tables(routes: int, vrfs: int, seed: int) -> list[list[Announcement]]:
    """Return ``routes`` in all, shared equally by VRFs; each VRF has its own prefixes (see prefixes.py)."""
    return [announcements(routes // vrfs, seed + number) for number in range(vrfs)]


def _router(vrf: int, vlan: int, into: int = _IN_PORT, out: int = _OUT_PORT) -> WriteBatch:
    """Return what a router has beside its routes; nexthop ``vrf`` is the receiver."""
    receiving, sending = 2 * vrf - 1, 2 * vrf
    ends = (receiving, into, IN_MAC), (sending, out, OUT_MAC)
    return WriteBatch(
        policers=[Update(Op.INSERT, Policer(vrf, same_rate(_RATE)))],
        router_interfaces=[
            Update(Op.INSERT, RouterInterface(id, vrf, port, vlan, _octets(mac), MTU)) for id, port, mac in ends
        ],
        nexthops=[Update(Op.INSERT, Nexthop(vrf, sending, _octets(NEIGHBOR_MAC)))],
    )


def _octets(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _routes(vrf: int, table: list[Announcement]) -> Iterable[WriteBatch]:
    keys = [one.network.to_bytes(4, "big") + bytes((one.length,)) for one in table]
    for start in range(0, len(keys), BATCH_ROUTES):
        part = keys[start : start + BATCH_ROUTES]
        actions = [route_action(RouteKind.NEXTHOP, vrf)] * len(part)
        yield WriteBatch(routes=[RouteUpdates(vrf, 4, [Op.INSERT] * len(part), part, actions)])


async def fill(address: str, routers: list[WriteBatch], tables: list[list[Announcement]]) -> None:
    """Write routers and their routes into a P4Runtime device, which has to take all of them."""
    plane, connected = (
        P4RuntimePlane(PlaneConfig("peer", PlaneKind.P4RUNTIME, address=address, device_id=1)),
        Connected(),
    )
    await plane.start(connected)
    try:
        async with asyncio.timeout(_CONNECT_S):
            await connected.event.wait()
        routes = [batch for vrf, table in enumerate(tables, 1) for batch in _routes(vrf, table)]
        await write_all(plane, [*routers, *routes])
    finally:
        await plane.close()


def present(program: str) -> bool:
    """Return whether a program is on PATH."""
    return shutil.which(program) is not None
