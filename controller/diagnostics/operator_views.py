"""What an operator is shown: what is declared, joined with what runs and with what guests say of themselves."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, fields, replace

from controller.errors import Conflict, NoSuch
from controller.guests.base import GuestStatus
from controller.guests.fleet import GuestFleet
from controller.guests.suites import unforwarded
from controller.model import (
    SHARE_WHOLE,
    USUAL_SHARE,
    PlaneConfig,
    Quota,
    RouterConfig,
    Share,
    SliceConfig,
    TenantConfig,
    names_of,
)
from controller.protocols import DeclaredPort, DiagnosticsPort
from controller.spec.changes import show_vlans
from controller.spec.planes import reached_at
from controller.spec.reservations import Shares
from controller.spec.state import State
from controller.views import CapturedFrame, InterfaceView, PlaneView, RouterView, ShareView, TableView


@dataclass(frozen=True, slots=True)
class SliceView:
    """A tenant's part of one plane."""

    slice: str  # "red@s1"
    plane: str
    ports: dict[str, str]  # port → "untagged 100 200-210"
    overcommit: bool
    said: list[str]  # the quotas that are given; of the others it gets a part
    quota: dict[str, int | None]  # as they hold now; None: no bound
    reserved: dict[str, int]  # of tables whose size is known: no other slice gets this
    used: dict[str, int]  # what all routers of the slice have together
    share: ShareView


@dataclass(frozen=True, slots=True)
class TenantView:
    """A tenant, its slices and routers."""

    name: str
    slices: list[SliceView]
    routers: list[str]


class OperatorViews:
    """Views by the names of the declared state. ``running`` answers what needs no such name."""

    def __init__(self, declared: DeclaredPort, running: DiagnosticsPort, guests: GuestFleet) -> None:
        self.running = running
        self._declared, self._guests = declared, guests
        self._by_tenant: tuple[State, dict[str, list[RouterConfig]]] = State(), {}

    def router(self, name: str) -> RouterConfig:
        """Return a router by "tenant/router", or by its own name where only one tenant has it."""
        if "/" in name:
            found = [router for full, router in self._declared.state.routers.items() if full == name]
        else:
            found = [router for router in self._declared.state.routers.values() if router.name == name]
        if len(found) > 1:
            raise Conflict(f"router {name!r} is ambiguous: {names_of(found)}; write tenant/router")
        if not found:
            raise NoSuch("router", name, "see vrctl get routers")
        return found[0]

    def slice_views(self) -> Iterator[SliceView]:
        """Iterate over all slices, as `tenant_views`."""
        for tenant in self._tenants():
            yield from self._slice_views(tenant)

    def tenant_views(self) -> Iterator[TenantView]:
        """Iterate over all tenants. Of those that change meanwhile, each is shown as it is in its turn."""
        for tenant in self._tenants():
            routers = sorted(router.name for router in self._routers_of(tenant.name))
            yield TenantView(tenant.name, list(self._slice_views(tenant)), routers)

    def _tenants(self) -> Iterator[TenantConfig]:
        """Iterate over those that are declared at first, by name, as they are declared by then."""
        for name in sorted(self._declared.state.tenants):
            tenant = self._declared.state.tenants.get(name)
            if tenant is not None:
                yield tenant

    def _routers_of(self, tenant: str) -> list[RouterConfig]:
        """Return a tenant's routers; they are looked for once in each state, which never changes."""
        state = self._declared.state
        if self._by_tenant[0] is not state:
            routers: dict[str, list[RouterConfig]] = {}
            for router in state.routers.values():
                routers.setdefault(router.tenant, []).append(router)
            self._by_tenant = state, routers
        return self._by_tenant[1].get(tenant, [])

    def _slice_views(self, tenant: TenantConfig) -> Iterator[SliceView]:
        interfaces = Counter[str]()
        for router in self._routers_of(tenant.name):
            interfaces[router.plane] += len(router.interfaces)
        for part in tenant.slices:
            yield self._slice_view(tenant.name, part, interfaces[part.plane])

    def _slice_view(self, tenant: str, part: SliceConfig, interfaces: int) -> SliceView:
        shares = self._declared.shares.get(part.plane, Shares({}, {}))
        return SliceView(
            f"{tenant}@{part.plane}",
            part.plane,
            {port: show_vlans(vlans) for port, vlans in part.ports},
            part.overcommit,
            sorted(part.said),
            quota_view(shares.limits.get(tenant, part.quota)),
            shares.reserved.get(tenant, {}),
            self.running.slice_usage(tenant, part.plane) | {"interfaces": interfaces},
            _share_view(part.share),
        )

    def router_views(self) -> Iterator[RouterView]:
        """Iterate over all routers, with what their guests say of themselves, and those that are being deleted.

        Of routers that change meanwhile, each is shown once, as it is in its turn."""
        shown = set[int]()
        for router in self._routers():
            shown.add(router.vrf_id)
            yield self.router_view(router)
        for tombstone in list(self._declared.tombstones.values()):
            router = tombstone.router
            if router.vrf_id in shown:
                continue  # deleted since
            what = "its plane" if not tombstone.plane_clean else "its guest"
            yield RouterView(
                *(router.full_name, router.plane, "deleting", f"waits for {what}", 0, 0, 0, 0, 0, 0, 0),
                guest=router.guest.kind.value,
                suite=router.routing.suite.value,
            )

    def _routers(self) -> Iterator[RouterConfig]:
        """Iterate over those that are declared at first, by name, as they are declared by then."""
        for name in sorted(self._declared.state.routers):
            router = self._declared.state.routers.get(name)
            if router is not None:  # or it was deleted, and its id may be another's
                yield router

    def router_view(self, router: RouterConfig) -> RouterView:
        """Show one router."""
        try:
            view = self.running.router_view(router.vrf_id)
        except NoSuch:  # declared a moment ago, or the controller was started with its plane detached
            state, reason = "starting", ""
            if router.plane in self._declared.state.detached:
                state, reason = "no-plane", f"plane {router.plane}: detached; use it again with vrctl plane attach"
            view = RouterView(router.full_name, router.plane, state, reason, 0, 0, 0, 0, 0, 0, 0)
        else:
            view = self._with_trouble(router, view)
        remarks = [*view.remarks, *filter(None, [unforwarded.remark(router.routing)])]
        suite = router.routing.suite.value
        share = None if router.share == USUAL_SHARE else _share_view(router.share)
        return replace(view, guest=self._guests.label(router), suite=suite, remarks=remarks, share=share)

    def require_running(self, router: RouterConfig) -> RouterConfig:
        """Return a router; NoSuch for one of which nothing can be asked but what is declared: see `router_view`."""
        try:
            self.running.router_view(router.vrf_id)
        except NoSuch:
            if router.plane in self._declared.state.detached:
                remedy = f"use it again with vrctl plane attach {router.plane}"
                raise NoSuch("plane in use", router.plane, remedy) from None
            raise NoSuch("running router", router.full_name, "it is starting; see vrctl get routers") from None
        return router

    def _with_trouble(self, router: RouterConfig, view: RouterView) -> RouterView:
        """Let a guest that does not run, or not well, show in the state of its router."""
        if failure := self._guests.failure(router):
            return replace(view, state="degraded", reason=failure)
        trouble = self._guests.trouble(router)
        if not trouble or view.state == "no-plane":
            return view
        return replace(view, state="disconnected" if view.state == "disconnected" else "degraded", reason=trouble)

    def interface_views(self) -> Iterator[InterfaceView]:
        """Iterate over the interfaces of all routers."""
        for router in self._routers():
            yield from self._interfaces_of(router)

    def _interfaces_of(self, router: RouterConfig) -> list[InterfaceView]:
        try:
            return self.running.interface_views(router.vrf_id)
        except NoSuch:  # as of `router_view`
            return [
                InterfaceView(
                    *(router.full_name, one.name, one.port, one.vlan, one.mac.hex(":"), one.mtu),
                    addresses=sorted(address.split("/")[0] for address in one.addresses),
                    up=False,
                    port_up=False,
                )
                for one in router.interfaces
            ]

    async def plane_views(self) -> AsyncIterator[PlaneView]:
        """Iterate over all planes, those that are detached too; each is shown as it is in its turn."""
        for name in sorted(self._declared.state.planes):
            view = await self.running.plane_view(name)
            plane = self._declared.state.planes.get(name)
            if plane is not None:  # or it was deleted meanwhile
                tables = _tables(plane, view)
                shown = view or self._unused_plane(plane)
                yield replace(shown, kind=plane.kind.value, reached_at=reached_at(plane), tables=tables)

    def _unused_plane(self, plane: PlaneConfig) -> PlaneView:
        reason = "detached" if plane.name in self._declared.state.detached else ""
        routers = sum(router.plane == plane.name for router in self._declared.state.routers.values())
        return PlaneView(plane.name, plane.kind.value, False, reason, routers, [], {}, [])

    async def guest_status(self, router: RouterConfig) -> GuestStatus:
        """Tell what runs in a router's guest."""
        return await self._guests.status(router)

    async def exec_argv(self, router: RouterConfig, argv: list[str]) -> list[str]:
        """Return the command that runs ``argv`` in a router's guest, as the controller would start it."""
        return await self._guests.exec_argv(router, argv)

    def console_argv(self, router: RouterConfig) -> list[str]:
        """Return the command that connects a terminal with the console of a router's guest."""
        return self._guests.console_argv(router)

    def logs_argv(self, router: RouterConfig, follow: bool) -> list[str]:
        """Return the command that shows what a router's guest says."""
        return self._guests.logs_argv(router, follow)

    def capture(self, router: RouterConfig, interface: str | None) -> AsyncIterator[CapturedFrame]:
        """Follow punted and injected frames of a router."""
        if interface is not None and all(one.name != interface for one in router.interfaces):
            raise NoSuch("interface", f"{router.full_name} {interface}", "see vrctl get interfaces")
        return self.running.capture(router.vrf_id, interface)


def _tables(plane: PlaneConfig, view: PlaneView | None) -> dict[str, TableView]:
    """Return how full the route tables are, of the size that is given; with a fallback it is known already."""
    tables = {} if view is None else view.tables
    given = {} if plane.fallback is not None else asdict(plane.capacity)
    return {
        name: replace(one, capacity=given[name], source="given") if given.get(name) else one
        for name, one in tables.items()
    }


def quota_view(quota: Quota) -> dict[str, int | None]:
    """Return a quota as plain numbers."""
    limits = {each.name: getattr(quota, each.name) for each in fields(quota) if each.name != "punts_per_s"}
    return limits | {f"punts_{name}_per_s": rate for name, rate in quota.punts_per_s._asdict().items()}


def _share_view(share: Share) -> ShareView:
    return ShareView(share.weight, _percent(share.guarantee), _percent(share.ceiling))


def _percent(part: int) -> float | None:
    return part * 100 / SHARE_WHOLE if part else None
