"""Sessions as both ends really hold them, recorded octet by octet, and played again to one end.

    tests/streams/N.json      a session of version N: what each end said, in order, and what came of it

`record` has the VRC's ControlStream and the controller's ControlSession speak with each other. `replay_vrc` gives
the controller of today what a VRC of that version said, `replay_controller` the VRC of today what a controller said.
scripts/record-streams writes the file of today's version.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worlds import World, mac, router_config

from controller.diagnostics.describe import neighbor_views, route_views
from controller.sessions.control_stream import PROTOCOLS, ControlSession
from vrc.interfaces import IFF_LOWER_UP, IFF_UP, Interfaces, Link
from vrc.neighbors import Neighbors
from vrc.netlink.link_messages import NUD_REACHABLE, KernelNeighbor
from vrc.netlink.route_messages import RTM_DELROUTE, Batch, scan
from vrc.packets import PacketRelay
from vrc.routes.nexthops import NexthopSets, SetKind
from vrc.routes.table import Columns, RouteTable
from vrc.stream import ControlStream, Known, SessionOwner
from wire import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from wire import splitplane_pb2 as pb
from wire.frames import TICKET_BYTES

sys.path.append(str(Path(__file__).parents[1] / "vrc"))
from netlink_bytes import attribute, by_gateway, route, u32

FOLDER = Path(__file__).parents[2] / "streams"
_CONFIG = router_config(1, (1, 2))
_SNAPSHOT = 7
_QUIET_TURNS = 400  # of the loop, after which both ends have said what they had to
_UP = IFF_UP | IFF_LOWER_UP
_NUD_FAILED = 0x20  # linux/neighbour.h


@dataclass
class Recording:
    """What both ends said, in order, and what came of it: the controller's view, and what the VRC was told."""

    protocol: int
    said: list[tuple[str, str]] = field(default_factory=list)  # "vrc" or "controller", octets in hexadecimal
    learned: dict[str, Any] = field(default_factory=dict)
    heard: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Read one."""
        fields = json.loads(path.read_text())
        return cls(**fields | {"said": [tuple(one) for one in fields["said"]]})

    def write(self, path: Path) -> None:
        """Write one, a message a line."""
        said = ",\n    ".join(json.dumps(one) for one in self.said)
        came = ",\n  ".join(f'"{name}": {_lines(getattr(self, name))}' for name in ("learned", "heard"))
        path.write_text(f'{{\n  "protocol": {self.protocol},\n  "said": [\n    {said}\n  ],\n  {came}\n}}\n')

    def octets(self, end: str) -> list[bytes]:
        """Return what one end said."""
        return [bytes.fromhex(octets) for who, octets in self.said if who == end]


def _lines(came: dict[str, Any]) -> str:
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(came.items()))
    return f"{{\n{lines}\n  }}"


class Call:
    """The VRC's end of a stream; what it writes goes to ``said``."""

    def __init__(self, said: Callable[[bytes], None]) -> None:
        self.inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._said = said

    async def write(self, request: pb.VrcMessage) -> None:
        self._said(request.SerializeToString(deterministic=True))

    async def __aiter__(self) -> AsyncIterator[pb.ControllerMessage]:
        while (octets := await self.inbox.get()) is not None:
            yield pb.ControllerMessage.FromString(octets)


class Guest(SessionOwner):
    """The VRC of a guest with two links, with what it was told."""

    def __init__(self, said: Callable[[bytes], None]) -> None:
        links = {2: Link(2, "eth1", _UP, 1500, mac(1)), 3: Link(3, "eth2", _UP, 1500, mac(2))}
        addresses = {
            2: {(bytes((10, 0, 1, 1)), 24, b"")},
            3: {(bytes((10, 0, 2, 1)), 24, b""), (b"\xfd" + bytes(15), 64, b"")},
        }
        interfaces, sets = Interfaces(links, addresses, {"eth1": 1, "eth2": 2}), NexthopSets()
        self.table = RouteTable(sets, interfaces.usable)
        self.known = Known(interfaces, Neighbors(interfaces), sets, self.table, PacketRelay())
        self.call, self.wake, self.settled_s = Call(said), asyncio.Event(), 60.0
        self.stream = ControlStream(self.call, self.known, self, self.wake, asyncio.Event())
        self.heard: dict[str, Any] = {"declared": [], "ports": []}
        self._scope = self.table.open_scope()

    async def declared(self, declaration: pb.Declaration) -> None:
        told = {one.name: [one.id, one.mac.hex(":"), one.mtu, one.port_up] for one in declaration.interfaces}
        limits = {"neighbor_limit": declaration.neighbor_limit, "hold_time_s": declaration.hold_time_s}
        self.heard["declared"].append(told | limits)

    def port_changed(self, interface_id: int, up: bool) -> None:
        self.heard["ports"].append([interface_id, up])

    def settled_in_s(self) -> float:
        return self.settled_s

    async def snapshot(self) -> AsyncIterator[Columns]:
        set_id = self.known.sets.hold((SetKind.CONNECTED, ((1, b"", 1),)))
        yield Columns(4, [b"\x0a\0\1\0\x18"], [set_id])

    def learn(self, *messages: bytes) -> None:
        batch, buffer = Batch(), b"".join(messages)
        scan(buffer, 0, len(buffer), batch)
        self.table.apply(batch.changes, self._scope)
        self.wake.set()

    @asynccontextmanager
    async def speaking(self) -> AsyncIterator[None]:
        works = (self.stream.receive(), self.stream.apply(), self.stream.send())
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Controller:
    """A controller with one router and its session; what it writes goes to ``said``."""

    def __init__(self, said: Callable[[bytes], None], protocols: range) -> None:
        self.world, self._said, self._protocols = World(), said, protocols
        self.requests: asyncio.Queue[bytes] = asyncio.Queue()
        self.snapshots: dict[str, Any] = {}

    async def write(self, message: Any) -> None:
        self._said(message.SerializeToString(deterministic=True))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        await self.world.start(_CONFIG)
        await self.world.until(lambda: self.router.host.ready.is_set())
        share = self.world.shards.loop_share
        session = ControlSession(self.router, self, self.world.events, share, protocols=self._protocols)
        session.ticket = bytes(TICKET_BYTES)
        works = asyncio.ensure_future(session.read(self._asked())), asyncio.ensure_future(session.write())
        try:
            yield
            for work in works:
                assert not work.done() or work.exception() is None, work.exception()
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            await self.world.close()

    @property
    def router(self) -> Any:
        return self.world.router()

    async def _asked(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.requests.get()

    def ask_for_snapshot(self) -> None:
        def done(routes: dict[bytes, Any] | None, problem: str) -> None:
            self.snapshots = {"routes": len(routes or ()), "problem": problem}

        self.router.request_snapshot(_SNAPSHOT, done)

    def learned(self) -> dict[str, Any]:
        fib = self.router.fib
        keys = sorted(fib.learned, key=lambda key: (len(key), key))
        routes = {one.prefix: [one.kind, *one.nexthops, one.installed] for one in route_views(fib, keys)}
        neighbors = {one.address: [one.interface, one.mac, one.state] for one in neighbor_views(fib)}
        own = {one.config.name: sorted(a.hex() for a in one.addresses) for one in fib.interfaces.values()}
        told = [e.text for e in self.world.events.recent() if e.kind.startswith("vrc-") and e.kind != "vrc-connected"]
        lost = {name: count for name, count in self.router.punts.counters.items() if name.startswith("vrc_drop")}
        learned = {
            "routes": routes,
            "neighbors": neighbors,
            "addresses": own,
            "notices": told,
            "snapshot": self.snapshots,
        }
        return learned | ({"lost": lost} if lost else {})  # of version 3 none is told


async def quiet() -> None:
    """Let both ends say what they have to say."""
    for _ in range(_QUIET_TURNS):
        await asyncio.sleep(0)


async def record() -> Recording:
    """Record a session of today's version in which each kind of message is said."""
    recording = Recording(PROTOCOL_VERSION)
    guest: Guest
    controller: Controller

    def vrc_says(octets: bytes) -> None:
        recording.said.append(("vrc", octets.hex()))
        controller.requests.put_nowait(octets)

    def controller_says(octets: bytes) -> None:
        recording.said.append(("controller", octets.hex()))
        guest.call.inbox.put_nowait(octets)

    guest, controller = Guest(vrc_says), Controller(controller_says, PROTOCOLS)
    async with controller.serving(), guest.speaking():
        hello = pb.Hello(
            protocol=PROTOCOL_VERSION,
            oldest_protocol=OLDEST_PROTOCOL_VERSION,
            router=_CONFIG.full_name,
            instance="recorded",
            source="fpm",
        )
        for step in _steps(guest, controller):
            if step is None:
                await guest.stream.write(hello=hello)
            await quiet()
        await controller.world.settle()
        await quiet()
        recording.learned, recording.heard = controller.learned(), guest.heard
    return recording


def _steps(guest: Guest, controller: Controller) -> Any:
    """Yield after each thing that happens, None for Hello."""
    by_both = attribute(9, b"\x10\0\0\0" + u32(2) + attribute(5, bytes((10, 0, 1, 2))))
    by_both = attribute(9, by_both[4:] + b"\x10\0\0\3" + u32(3) + attribute(5, bytes((10, 0, 2, 2))))
    for number, ifindex in ((1, 2), (2, 3)):
        address = bytes((10, 0, number, 2))
        guest.known.neighbors.observe(KernelNeighbor(ifindex, address, mac(100 + number), NUD_REACHABLE))
    guest.learn(
        route("20.0.0.0/8", by_gateway("10.0.1.2", 2)),
        route("20.1.0.0/16", by_both),
        route("30.0.0.0/8", route_type=6),
        route("40.0.0.0/8", attribute(4, u32(2))),
        route("2001:db8::/32", by_gateway("fe80::1", 3)),
    )
    yield None
    guest.learn(route("20.0.0.0/8", by_gateway("10.0.2.2", 3)), route("30.0.0.0/8", kind=RTM_DELROUTE))
    guest.table.sweep()
    yield "changed"
    guest.known.neighbors.observe(KernelNeighbor(3, bytes((10, 0, 2, 2)), b"", _NUD_FAILED))
    guest.known.notices.append(("overrun", "the kernel's messages came too fast"))
    guest.wake.set()
    yield "failed"
    guest.known.relay.losses.add(2, "interface_down", 3)
    guest.known.relay.losses.look({}, "")
    guest.wake.set()
    yield "frames lost"
    controller.world.plane.set_port(2, "p2", False)
    yield "port"
    controller.ask_for_snapshot()
    yield "snapshot"
    controller.router.configure(router_config(1, (1, 2), hold_time_s=30))
    yield "declared again"
    guest.settled_s = 0.0
    guest.wake.set()
    yield "settled"


async def replay_vrc(recording: Recording, protocols: range = PROTOCOLS) -> tuple[dict[str, Any], list[Any]]:
    """Give a controller what the VRC said; return what it has learned, and what it says."""
    said: list[Any] = []
    controller = Controller(lambda octets: said.append(pb.ControllerMessage.FromString(octets)), protocols)
    async with controller.serving():
        for end, octets in recording.said:
            if end == "vrc":
                controller.requests.put_nowait(bytes.fromhex(octets))
            else:
                _repeat(controller, pb.ControllerMessage.FromString(bytes.fromhex(octets)))
            await quiet()
        remark = controller.router.vrc.remark
        await controller.world.settle()
        await quiet()
        learned = controller.learned()
    return learned | {"remark": remark}, said


def _repeat(controller: Controller, message: Any) -> None:
    """Have happen what made the controller say this."""
    match message.WhichOneof("body"):
        case "snapshot_request":
            controller.ask_for_snapshot()
        case "port_states":
            for one in message.port_states.states:
                controller.world.plane.set_port(one.interface_id, f"p{one.interface_id}", one.up)


async def replay_controller(recording: Recording) -> tuple[dict[str, Any], list[str]]:
    """Give a VRC what the controller said; return what it was told, and the kinds of what it says."""
    kinds: list[str] = []
    guest = Guest(lambda octets: kinds.append(pb.VrcMessage.FromString(octets).WhichOneof("body") or ""))
    async with guest.speaking():
        for octets in recording.octets("controller"):
            guest.call.inbox.put_nowait(octets)
            await quiet()
        assert guest.stream.protocol == recording.protocol
        assert await guest.stream.ticket == bytes(TICKET_BYTES)
    return guest.heard, kinds
