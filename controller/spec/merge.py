"""What a document declares, laid over the state there is: named objects become as declared, the others stay."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.errors import SpecError
from controller.model import InterfaceConfig, Placement, PuntRates, Quota, RouterConfig, SliceConfig, TenantConfig
from controller.spec import planes
from controller.spec.document import (
    InterfaceSection,
    LinkSection,
    PlaneSection,
    RouterSection,
    SliceSection,
    TenantSection,
    parse_mac,
    parse_vlans,
)
from controller.spec.parse import KeyProblem, Parsed, Place, routing_of
from controller.spec.state import Ids, LinkConfig, LinkEnd, State

Key = tuple[str, ...]

_EndName = tuple[str, str]
"""An end of a link within its tenant: router and interface."""


@dataclass(slots=True)
class Where:
    """The file, and the line of each object that a document names: ("interface", "red/r1", "eth0") → 12."""

    source: str = ""
    lines: dict[Key, int | None] = field(default_factory=dict)


@dataclass(slots=True)
class _End:
    """What one end of a declared link says."""

    port: str
    line: int | None


class _Merge:
    """One document being laid over one state."""

    def __init__(self, parsed: Parsed, state: State, ids: Ids, files: Mapping[str, str]) -> None:
        self.parsed, self.old, self.ids, self.files = parsed, state, ids, files
        self.planes, self.tenants = dict(state.planes), dict(state.tenants)
        self.routers, self.links = dict(state.routers), _by_end(state.links)
        self.detached = set(state.detached)
        self.where = Where(parsed.source)

    def name(self, key: Key, line: int | None, words: str) -> None:
        """Note where an object is declared; a second declaration is an error."""
        if key in self.where.lines:
            raise self.parsed.error(line, f"{words} is declared twice, first on line {self.where.lines[key]}")
        self.where.lines[key] = line

    def run(self) -> State:
        for plane, place in self.parsed.planes():
            self._plane(plane, place)
        for tenant, place in self.parsed.tenants():
            self._tenant(tenant, place)
        parts = {(t.name, part.plane): part for t in self.tenants.values() for part in t.slices}
        routers = {
            name: in_slice(router, parts.get((router.tenant, router.plane))) for name, router in self.routers.items()
        }
        links = frozenset(link for known in self.links.values() for link in known.values())
        return State(self.planes, self.tenants, routers, links, frozenset(self.detached), self.old.sizes)

    def _plane(self, plane: PlaneSection, place: Place) -> None:
        self.name(("plane", plane.name), place.line(), f"plane {plane.name}")
        for path, problem in planes.problems(plane):
            raise self.parsed.error(place.line(*path), problem)
        self.planes[plane.name] = planes.plane_config(plane)
        self.detached.discard(plane.name)

    def _tenant(self, tenant: TenantSection, place: Place) -> None:
        self.name(("tenant", tenant.name), place.line(), f"tenant {tenant.name}")
        existing = self.tenants.get(tenant.name, TenantConfig(tenant.name))
        slices = {part.plane: part for part in existing.slices}
        for index, part in enumerate(tenant.slices):
            line = place.line("slices", index)
            self.name(("slice", tenant.name, part.plane), line, f"the slice of plane {part.plane}")
            known = slices.get(part.plane)
            slices[part.plane] = slice_config(part, self.ids.slice() if known is None else known.id)
        self.tenants[tenant.name] = TenantConfig(tenant.name, tuple(slices[plane] for plane in sorted(slices)))
        before = set(self.links.setdefault(tenant.name, {}).values())
        ends = self._links(tenant, place)
        for index, router in enumerate(tenant.routers):
            inner = Place(place.lines, (*place.path, "routers", index))
            self._router(tenant.name, router, inner, ends)
        self._move_ends(tenant.name, ends)
        self._drop_links(tenant, before)

    def _links(self, tenant: TenantSection, place: Place) -> dict[_EndName, _End]:
        """Take the declared links over and return what they say of each end's interface."""
        ends: dict[_EndName, _End] = {}
        known = self.links[tenant.name]
        for index, section in enumerate(tenant.links):
            line = place.line("links", index)
            link = link_config(tenant.name, section)
            for end in link.ends:
                if (end.router, end.interface) in ends:
                    raise self.parsed.error(line, f"interface {end.interface} of {end.router} is an end of two links")
                ends[end.router, end.interface] = _End(end.port, line)
            self.where.lines["link", link.name] = line
            for name in _ends_of(link):
                if (former := known.get(name)) is not None:
                    _drop(known, former)
            known |= dict.fromkeys(_ends_of(link), link)
        return ends

    def _router(self, tenant: str, section: RouterSection, place: Place, ends: dict[_EndName, _End]) -> None:
        full_name = f"{tenant}/{section.name}"
        self.name(("router", full_name), place.line(), f"router {full_name}")
        try:
            routing = routing_of(section, self.files)
        except KeyProblem as problem:
            raise self.parsed.error(place.line(problem.key), f"router {full_name}: {problem}") from None
        for key in section.guest.misplaced:
            line = place.line("guest", key)
            raise self.parsed.error(line, f"router {full_name}: {key} belongs to a guest of kind kvm; leave it out")
        guest = section.guest.config
        old = self.old.routers.get(full_name)
        if old is not None and (old.plane, old.guest.kind) != (section.plane, guest.kind):
            old = None  # another plane or kind of guest: another router, under a new id
        ids = {interface.name: interface.id for interface in old.interfaces} if old else {}
        interfaces = []
        for index, interface in enumerate(section.interfaces):
            line = place.line("interfaces", index)
            self.name(("interface", full_name, interface.name), line, f"interface {interface.name} of {full_name}")
            port = self._port(full_name, section, interface, line, ends)
            issued = ids.get(interface.name) or self.ids.interface()
            interfaces.append(interface_config(interface, issued, port, self.ids))
        self.routers[full_name] = RouterConfig(
            vrf_id=old.vrf_id if old else self.ids.vrf(),
            tenant=tenant,
            name=section.name,
            plane=section.plane,
            quota=old.quota if old else Quota(),
            interfaces=tuple(interfaces),
            hold_time_s=section.hold_time_s,
            source=section.route_source,
            guest=guest,
            routing=routing,
            placement=Placement(section.placement),
            share=section.share.config,
        )

    def _port(
        self,
        full_name: str,
        router: RouterSection,
        interface: InterfaceSection,
        line: int | None,
        ends: dict[_EndName, _End],
    ) -> str:
        end = ends.get((router.name, interface.name))
        if end is not None and interface.port is not None:
            raise self.parsed.error(
                line, f"interface {interface.name} of {full_name} has a port and is the end of a link; keep one"
            )
        if interface.port is not None:
            return interface.port
        if end is not None:
            return end.port
        name = router.name, interface.name
        if (link := self.links[full_name.partition("/")[0]].get(name)) is not None:
            return link.ends[_ends_of(link).index(name)].port
        raise self.parsed.error(
            line, f"interface {interface.name} of {full_name} has no port; give it one, or name it in a link"
        )

    def _move_ends(self, tenant: str, ends: dict[_EndName, _End]) -> None:
        """Put interfaces that a link names, also those of routers the document does not name, on the link's ports."""
        for (name, interface_name), end in ends.items():
            router = self.routers.get(f"{tenant}/{name}")
            found = [i for i in router.interfaces if i.name == interface_name] if router else []
            if router is None or not found:
                raise self.parsed.error(
                    end.line, f"the link's end {interface_name} of {tenant}/{name} does not exist"
                )
            moved = tuple(replace(i, port=end.port) if i.name == interface_name else i for i in router.interfaces)
            self.routers[router.full_name] = replace(router, interfaces=moved)

    def _drop_links(self, tenant: TenantSection, before: set[LinkConfig]) -> None:
        """Drop the links that an end left, and see that their other ends did not stay behind without a port."""
        own_ports = {(r.name, i.name) for r in tenant.routers for i in r.interfaces if i.port is not None}
        known = self.links[tenant.name]
        for link in set(known.values()):
            if not own_ports.isdisjoint(_ends_of(link)) or not all(self._exists(tenant, end) for end in link.ends):
                _drop(known, link)
        for link in sorted(before):
            for name, end in zip(_ends_of(link), link.ends, strict=True):
                if name not in own_ports and name not in known and self._exists(tenant, end):
                    raise self._left_behind(link, end)

    def _left_behind(self, link: LinkConfig, end: LinkEnd) -> SpecError:
        router = f"{link.tenant}/{end.router}"
        line = self.where.lines.get(("interface", router, end.interface), self.where.lines["tenant", link.tenant])
        return self.parsed.error(
            line,
            f"interface {end.interface} of {router} loses its link {link.name}; "
            "give it a port, name it in a link, or leave it out",
        )

    def _exists(self, tenant: TenantSection, end: LinkEnd) -> bool:
        router = self.routers.get(f"{tenant.name}/{end.router}")
        return router is not None and any(interface.name == end.interface for interface in router.interfaces)


def _ends_of(link: LinkConfig) -> list[_EndName]:
    return [(end.router, end.interface) for end in link.ends]


def _by_end(links: Iterable[LinkConfig]) -> dict[str, dict[_EndName, LinkConfig]]:
    """Return links by tenant and by each end; an interface is the end of one at most."""
    found: dict[str, dict[_EndName, LinkConfig]] = {}
    for link in links:
        found.setdefault(link.tenant, {}).update(dict.fromkeys(_ends_of(link), link))
    return found


def _drop(known: dict[_EndName, LinkConfig], link: LinkConfig) -> None:
    for name in _ends_of(link):
        del known[name]


def in_slice(router: RouterConfig, part: SliceConfig | None) -> RouterConfig:
    """Return a router with what its slice says; without one it keeps what was said last, and is refused."""
    if part is None or (router.quota, router.slice_id, router.slice_share) == (part.quota, part.id, part.share):
        return router
    return replace(router, quota=part.quota, slice_id=part.id, slice_share=part.share)


def slice_config(section: SliceSection, issued: int) -> SliceConfig:
    """Return a slice as the model has it."""
    ports = tuple(
        (port, frozenset(vlan for item in items for vlan in parse_vlans(item)))
        for port, items in sorted(section.ports.items())
    )
    limits = section.quota
    return SliceConfig(
        section.plane,
        ports,
        Quota(
            neighbors=limits.neighbors,
            sets=limits.sets,
            members=limits.members,
            punts_per_s=PuntRates(**limits.punts_per_s.model_dump()),
            hardware_ipv4_routes=limits.hardware_ipv4_routes,
            hardware_ipv6_routes=limits.hardware_ipv6_routes,
            **{name: getattr(limits, name) for name in section.said},
        ),
        section.said,
        section.overcommit,
        issued,
        section.share.config,
    )


def link_config(tenant: str, section: LinkSection) -> LinkConfig:
    """Return a link as the state has it."""
    one, other = sorted(LinkEnd(end.router, end.interface, end.port) for end in section.ends)
    return LinkConfig(tenant, (one, other))


def interface_config(section: InterfaceSection, issued: int, port: str, ids: Ids) -> InterfaceConfig:
    """Return an interface as the model has it."""
    return InterfaceConfig(
        id=issued,
        name=section.name,
        port=port,
        vlan=section.vlan_id,
        mac=parse_mac(section.mac) if section.mac is not None else ids.mac(issued),
        mtu=section.mtu,
        addresses=tuple(section.addresses),
        virtual_macs=tuple(parse_mac(mac) for mac in section.virtual_macs),
        admin_up=section.admin == "up",
    )


def merge(parsed: Parsed, state: State, ids: Ids, files: Mapping[str, str]) -> tuple[State, Where]:
    """Return the state after a document and where its objects stand; issues ids from ``ids``. SpecError by line."""
    merging = _Merge(parsed, state, ids, files)
    return merging.run(), merging.where
