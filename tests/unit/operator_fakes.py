"""In-memory stand-ins for the ports of the operator's side, for tests: they remember what they were told and fail
where they are told to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from controller.errors import GuestError, NoSuch, PlaneError, PlaneUnreachable
from controller.guests.base import GuestSpec, GuestStatus
from controller.model import RouterConfig
from controller.planes.base import Plane
from controller.spec.reservations import Shares
from controller.views import (
    CapturedFrame,
    CounterView,
    FibEntryView,
    InterfaceView,
    LoadView,
    MoveView,
    NeighborView,
    PlacementView,
    PlaneLoad,
    PlaneView,
    RouteCounterView,
    RouterLoad,
    RouterView,
    RouteView,
    TableView,
    TraceStep,
    VerifyView,
)


class FakeCore:
    """Implements `ShardsPort` and `DiagnosticsPort`.

    ``calls`` lists what happened in order; planes in ``unreachable`` confirm nothing, those in ``refusing`` delete
    nothing.
    """

    def __init__(self) -> None:
        self.planes: dict[str, Plane] = {}
        self.routers: dict[int, RouterConfig] = {}
        self.calls: list[tuple[str, object]] = []
        self.unreachable: set[str] = set()
        self.refusing: set[str] = set()
        self.removing: set[int] = set()  # routers whose plane has not confirmed that they are gone
        self.rows = 3  # of routes and fib
        self.said: list[str] = []  # remarks on every router
        self.where: tuple[str, ...] = ("",)  # of fib's rows, again and again
        self.equal = True
        self.looks = 0  # at the load
        self.frames: list[CapturedFrame] = []
        self.paired: set[str] = set()  # planes that have a fallback
        self.reason = ""  # of placement
        self.on_adopted: Callable[[], None] = lambda: None
        self.used: dict[str, dict[str, dict[str, int]]] = {}  # by plane, tenant and quota
        self.sizes: dict[str, dict[str, int]] = {}  # by plane and table
        self.shares: dict[str, Shares] = {}  # by plane
        self.pooled: dict[str, set[str]] = {}
        self.lacking_shares: set[str] = set()  # planes without shares of cores and links
        self.moves: list[MoveView | None] = []  # what routers on such planes say next; then none is under way

    async def add_plane(self, plane: Plane, put_routers: Callable[[], Awaitable[None]]) -> None:
        """Remember the plane, and have its routers put."""
        self.calls.append(("add_plane", plane.name))
        self.planes[plane.name] = plane
        await put_routers()

    async def remove_plane(self, name: str) -> set[int]:
        """Forget the plane, and the routers that it has not confirmed to be gone."""
        self.calls.append(("remove_plane", name))
        del self.planes[name]
        forgotten = {vrf_id for vrf_id in self.removing if self.routers[vrf_id].plane == name}
        for vrf_id in forgotten:
            del self.routers[vrf_id]
        self.removing -= forgotten
        return forgotten

    async def put_router(self, config: RouterConfig) -> None:
        """Remember the router; what it gives up is confirmed at once where its plane is reachable."""
        if config.plane not in self.planes:
            raise NoSuch("plane", config.plane)
        before = self.routers.get(config.vrf_id)
        self.calls.append(("put_router", config))
        self.routers[config.vrf_id] = config
        ports = {(one.id, one.port, one.vlan) for one in config.interfaces}
        if before is not None and {(one.id, one.port, one.vlan) for one in before.interfaces} - ports:
            self._confirm(config.plane)

    async def remove_router(self, vrf_id: int) -> None:
        """Forget the router where its plane is reachable."""
        self.calls.append(("remove_router", vrf_id))
        plane = self._router(vrf_id).plane
        self.removing.add(vrf_id)
        self._confirm(plane)
        self.removing.discard(vrf_id)
        del self.routers[vrf_id]

    def forget_router(self, vrf_id: int) -> None:
        """Forget the router, without a word to its plane."""
        self.calls.append(("forget_router", vrf_id))
        self.routers.pop(vrf_id, None)

    async def ports_left(self, vrf_id: int, interface_ids: Set[int]) -> None:
        """Return at once where the plane is reachable."""
        self._confirm(self._router(vrf_id).plane)

    def usage(self, plane: str) -> Mapping[str, Mapping[str, int]]:
        """Say what ``used`` says."""
        return self.used.get(plane, {})

    def table_sizes(self) -> Mapping[str, Mapping[str, int]]:
        """Say what ``sizes`` says."""
        return self.sizes

    def limit(self, plane: str, shares: Shares, pooled: Set[str]) -> None:
        """Remember the limits."""
        self.shares[plane], self.pooled[plane] = shares, set(pooled)

    def without_shares(self) -> set[str]:
        return self.lacking_shares

    def at_rest(self, vrf_id: int) -> bool:
        """Tell whether no move is under way on a plane that is reachable."""
        view = self.router_view(vrf_id)
        return view.move is None and view.state != "no-plane"

    def _confirm(self, plane: str) -> None:
        if plane in self.unreachable:
            raise PlaneUnreachable(plane, "not connected")
        if plane in self.refusing:
            raise PlaneError(f"plane {plane} refused router_interface: busy")

    def _router(self, vrf_id: int) -> RouterConfig:
        if vrf_id not in self.routers:
            raise NoSuch("router", str(vrf_id))
        return self.routers[vrf_id]

    def router_view(self, vrf_id: int) -> RouterView:
        """Show a router as up."""
        router = self._router(vrf_id)
        view = RouterView(router.full_name, router.plane, "up", "", self.rows, 0, 1, 1, 0, 0, 0, remarks=[*self.said])
        if router.plane not in self.paired:
            return view
        return replace(view, placement=router.placement.value, move=self.moves.pop(0) if self.moves else None)

    def slice_usage(self, tenant: str, plane: str) -> dict[str, int]:
        """Count routes alone, the same in hardware."""
        count = sum((router.tenant, router.plane) == (tenant, plane) for router in self.routers.values())
        return {"ipv4_routes": self.rows * count, "hardware_ipv4_routes": self.rows * count}

    async def plane_view(self, name: str) -> PlaneView | None:
        """Show a plane, connected unless unreachable."""
        if name not in self.planes:
            return None
        connected, entries = name not in self.unreachable, {"ipv4_route": self.rows}
        return PlaneView(name, "fake", connected, "", 0, ["p1 (1) up"], entries, [])

    def interface_views(self, vrf_id: int) -> list[InterfaceView]:
        """Show interfaces as declared."""
        router = self._router(vrf_id)
        return [
            InterfaceView(
                router.full_name, i.name, i.port, i.vlan, i.mac.hex(":"), i.mtu, list(i.addresses), True, True
            )
            for i in router.interfaces
        ]

    async def routes(self, vrf_id: int) -> Iterator[RouteView]:
        """Make ``rows`` routes up."""
        self._router(vrf_id)
        return self._routes()

    def _routes(self) -> Iterator[RouteView]:
        for number in range(self.rows):
            prefix = f"10.{number >> 8 & 255}.{number & 255}.0/24"
            yield RouteView(prefix, "forward", ["192.0.2.1 eth0 weight 1"], False, True)

    async def fib(self, vrf_id: int) -> Iterator[FibEntryView]:
        """Make ``rows`` entries up."""
        self._router(vrf_id)
        members = ["eth0 02:00:00:00:00:01 port 1 vlan 0 weight 1"]
        rows = zip(self._routes(), cycle(self.where), strict=False)
        return (FibEntryView(route.prefix, "nexthop", 7, members, where) for route, where in rows)

    async def route_counters(self, vrf_id: int) -> Iterator[RouteCounterView]:
        """Have ``rows`` routes carry less and less."""
        self._router(vrf_id)
        routes = enumerate(self._routes())
        return (RouteCounterView(one.prefix, "s1", 1000 - at, 64 * (1000 - at), "sampled") for at, one in routes)

    async def placement(self, vrf_id: int) -> PlacementView:
        """Have all routes where they are declared, except one."""
        router = self._router(vrf_id)
        where, rows = router.placement.value, self.rows
        hardware = 1 if where == "software" else rows - 1
        return PlacementView(router.full_name, where, rows, hardware, self.reason)

    def neighbors(self, vrf_id: int) -> Iterator[NeighborView]:
        """Show one neighbor."""
        self._router(vrf_id)
        yield NeighborView("eth0", "192.0.2.1", "02:00:00:00:00:01", "resolved")

    async def counters(self, vrf_id: int) -> CounterView:
        """Count as far as the names go."""
        router = self._router(vrf_id)
        self._confirm(router.plane)
        zero = {"rx_packets": 5, "rx_bytes": 320, "tx_packets": 0, "tx_bytes": 0}
        return CounterView(
            router.full_name, {i.name: zero for i in router.interfaces}, {"local": 2}, {}, {"martian": 1}
        )

    async def load(self) -> LoadView:
        """Count 1,000 packets more on each look, a tenth of them on the link, in a second of its own."""
        self.looks += 1
        now, packets = float(self.looks), 1000 * self.looks
        tables = {"ipv4_route": TableView(self.rows, 1000, "given"), "ipv6_route": TableView(0, None, "")}
        return LoadView(
            [PlaneLoad(name, now, packets, packets // 10, tables, 5 * self.looks) for name in self.planes],
            [
                RouterLoad(
                    *(router.full_name, router.plane, now, packets, packets // 10),
                    *(self.rows, 5 * self.looks, 0.01 * now),
                )
                for router in self.routers.values()
            ],
        )

    async def trace(self, vrf_id: int, destination: str, interface: str | None) -> list[TraceStep]:
        """Miss in the route table."""
        self._router(vrf_id)
        return [TraceStep("ipv4_route", destination, "miss", "punt unreachable")]

    async def verify(self, vrf_id: int, repair: bool) -> VerifyView:
        """Say what ``equal`` says; repair it where asked."""
        self._confirm(self._router(vrf_id).plane)
        self.equal = self.equal or repair
        return VerifyView(
            self._router(vrf_id).full_name, self.equal, self.rows, total_differences=int(not self.equal)
        )

    async def capture(self, vrf_id: int, interface: str | None) -> AsyncIterator[CapturedFrame]:
        """Pass ``frames`` on, then end."""
        for frame in self.frames:
            yield frame
            await asyncio.sleep(0)


class FakeSessions:
    """Implements `SessionPort`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.admitted: set[int] = set()

    def directory_for(self, vrf_id: int) -> Path:
        """Name a directory."""
        return self._directory / str(vrf_id)

    def admit(self, vrf_id: int, uid: int) -> None:
        """Remember."""
        assert uid == 70_000 + vrf_id
        self.admitted.add(vrf_id)

    def revoke(self, vrf_id: int) -> None:
        """Forget."""
        self.admitted.discard(vrf_id)


class FakeGuests:
    """Implements `GuestDriver`; routers in ``failing`` cannot start, for the reason given there."""

    def __init__(self) -> None:
        self.running_specs: dict[int, GuestSpec] = {}
        self.starts: list[str] = []
        self.failing: dict[str, str] = {}
        self.silent: dict[str, asyncio.Event] = {}  # by router: it answers once that is set
        self.troubles: dict[str, str] = {}
        self.states: dict[str, list[dict[str, str]]] = {}  # by router, one for each question; the last stays
        self.looked: list[bool] = []  # each question for a state: whether it ran
        self.away = ""  # why its state cannot be had
        self.words = ""
        self.notices: list[str] = []

    async def start(self, spec: GuestSpec) -> None:
        """Run it."""
        if (reason := self.failing.get(spec.router)) is not None:
            raise GuestError(reason)
        self.starts.append(spec.router)
        if (answer := self.silent.get(spec.router)) is not None:
            await answer.wait()
        self.running_specs[spec.vrf_id] = spec

    async def stop(self, spec: GuestSpec) -> None:
        """Stop it."""
        self.running_specs.pop(spec.vrf_id, None)

    async def delete(self, spec: GuestSpec) -> None:
        """Stop it."""
        await self.stop(spec)

    async def status(self, spec: GuestSpec) -> GuestStatus:
        """Tell whether it runs, and what ``states`` says of its daemons."""
        self.looked.append(spec.vrf_id in self.running_specs)
        if self.away:
            raise GuestError(f"{spec.router}: {self.away}")
        if spec.vrf_id not in self.running_specs:
            return GuestStatus(False, 0, {}, 0)
        states = self.states.get(spec.router, [{"zebra": "up"}])
        return GuestStatus(True, 4242, states.pop(0) if len(states) > 1 else states[0], 0)

    async def close(self) -> None:
        """Nothing is held."""

    def running(self, spec: GuestSpec) -> int:
        """Name a process where it runs."""
        return 4242 if spec.vrf_id in self.running_specs else 0

    async def last_words(self, spec: GuestSpec) -> str:
        """Return what ``words`` says."""
        return self.words

    async def look_after(self, spec: GuestSpec) -> list[str]:
        """Return what ``notices`` says, once."""
        found, self.notices = self.notices, []
        return found

    def trouble(self, spec: GuestSpec) -> str:
        """Return what ``troubles`` says of a router."""
        return self.troubles.get(spec.router, "")

    def session_uid(self, vrf_id: int) -> int:
        """Somebody else for each router."""
        return 70_000 + vrf_id

    def label(self, spec: GuestSpec) -> str:
        """Show the kind as declared."""
        return spec.guest.kind.value

    def exec_argv(self, spec: GuestSpec, pid: int, argv: list[str]) -> list[str]:
        """Run it with env(1), in no namespace at all."""
        return ["env", f"GUEST_PID={pid}", *argv]

    def console_argv(self, spec: GuestSpec) -> list[str]:
        """Run it with env(1) too."""
        return ["env", "console", spec.router]

    def log_path(self, spec: GuestSpec) -> Path:
        """Name a file."""
        return spec.directory / "log"
