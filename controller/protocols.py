"""What the operator's side needs of the rest of the controller, as Protocols that tests fill with fakes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Protocol

from controller.model import PlaneConfig, RouterConfig
from controller.planes.base import Plane
from controller.spec.reservations import Shares
from controller.spec.state import State, Tombstone
from controller.views import (
    CapturedFrame,
    CounterView,
    FibEntryView,
    InterfaceView,
    LoadView,
    NeighborView,
    PlacementView,
    PlaneView,
    RouteCounterView,
    RouterView,
    RouteView,
    TraceStep,
    VerifyView,
)


class ShardsPort(Protocol):
    """What runs: planes, and the routers on them."""

    on_adopted: Callable[[], None]
    """Called whenever it became known what a plane has, before anything is written to it."""

    async def add_plane(self, plane: Plane, put_routers: Callable[[], Awaitable[None]]) -> None:
        """Begin to use a plane; ``put_routers`` puts all that are to be on it, before it connects."""

    async def remove_plane(self, name: str) -> set[int]:
        """Stop using a plane; it goes on forwarding. Returns the routers that were being removed from it: they are
        not known any more."""

    async def put_router(self, config: RouterConfig) -> None:
        """Create or change a router. Returns once interfaces that were taken away are confirmed gone from the
        plane, PlaneUnreachable where that cannot be confirmed, PlaneError where it is refused; the rest follows on
        its own."""

    async def remove_router(self, vrf_id: int) -> None:
        """Remove a router and everything it installed; PlaneUnreachable where that cannot be confirmed, PlaneError
        where it is refused."""

    def forget_router(self, vrf_id: int) -> None:
        """Know nothing of a router any more whose plane is not in use; what is installed stays there."""

    async def ports_left(self, vrf_id: int, interface_ids: Set[int]) -> None:
        """Wait until the plane confirmed that a router has these interfaces by no port and VLAN but those that are
        declared; PlaneUnreachable where that cannot be confirmed, PlaneError where it is refused."""

    def usage(self, plane: str) -> Mapping[str, Mapping[str, int]]:
        """Count what each tenant uses of a plane, by the keys of its quota."""

    def table_sizes(self) -> Mapping[str, Mapping[str, int]]:
        """Return what planes said of the sizes of their tables, by plane and table."""

    def without_shares(self) -> set[str]:
        """Return the planes that are connected and have no shares of cores and links."""

    def limit(self, plane: str, shares: Shares, pooled: Set[str]) -> None:
        """Say what tenants may have of a plane from now on; those in ``pooled`` share the pool."""

    def at_rest(self, vrf_id: int) -> bool:
        """Whether a router's routes are where they are placed, as far as its plane can say."""


class DiagnosticsPort(Protocol):
    """What can be asked of what runs."""

    def router_view(self, vrf_id: int) -> RouterView:
        """Show a router; NoSuch where it was never put."""

    def slice_usage(self, tenant: str, plane: str) -> dict[str, int]:
        """Count what the routers of a tenant use on a plane, by the keys of its quota."""

    async def plane_view(self, name: str) -> PlaneView | None:
        """Show a plane, also one behind another; None where it is not in use."""

    def interface_views(self, vrf_id: int) -> list[InterfaceView]:
        """Show a router's interfaces."""

    async def routes(self, vrf_id: int) -> Iterator[RouteView]:
        """Walk over a router's RIB."""

    async def fib(self, vrf_id: int) -> Iterator[FibEntryView]:
        """Walk over what is installed for a router."""

    async def placement(self, vrf_id: int) -> PlacementView:
        """Tell where a router's routes are; Conflict where its plane has no fallback."""

    def neighbors(self, vrf_id: int) -> Iterator[NeighborView]:
        """Walk over a router's neighbors."""

    async def counters(self, vrf_id: int) -> CounterView:
        """Read a router's counters."""

    async def route_counters(self, vrf_id: int) -> Iterator[RouteCounterView]:
        """Read what a router's routes have met; Conflict where its plane counts none."""

    async def load(self) -> LoadView:
        """Count what has passed through all planes and routers."""

    async def trace(self, vrf_id: int, destination: str, interface: str | None) -> list[TraceStep]:
        """Follow a packet through the tables."""

    async def verify(self, vrf_id: int, repair: bool) -> VerifyView:
        """Compare learned, desired and installed."""

    def capture(self, vrf_id: int, interface: str | None) -> AsyncIterator[CapturedFrame]:
        """Follow punted and injected frames."""


class DeclaredPort(Protocol):
    """What is declared, and what of it is still to be deleted."""

    @property
    def state(self) -> State:
        """The declared state."""

    @property
    def shares(self) -> Mapping[str, Shares]:
        """How the tables of planes are divided among slices, by plane."""

    @property
    def tombstones(self) -> Mapping[int, Tombstone]:
        """Deleted routers of which something is left, by vrf_id."""


class SessionPort(Protocol):
    """The VRC sessions."""

    def directory_for(self, vrf_id: int) -> Path:
        """The directory that is bind-mounted into the router's guest."""

    def admit(self, vrf_id: int, uid: int) -> None:
        """Let a router's VRC connect, as this user of the host."""

    def revoke(self, vrf_id: int) -> None:
        """Turn a router's VRC away, an open session included."""


PlaneFactory = Callable[[PlaneConfig, PlaneConfig | None], Plane]
"""Makes a plane that is ready to start, with the plane behind it if it has a fallback."""
