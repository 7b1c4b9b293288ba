"""What the guest's kernel says about links and own addresses, and which of them are declared interfaces."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from wire import MAX_ADDRESSES

IFF_UP = 0x1
IFF_LOWER_UP = 0x10000

ELSEWHERE = -1
"""Instead of an interface id: a link that is up, and no interface of the router (lo, a tunnel, a bridge, a VLAN)."""

OwnAddress = tuple[bytes, int, bytes]
"""(address, prefix length, address of the other end or empty): a link may have an address with several of these."""


@dataclass(slots=True)
class Link:
    """One link of the guest's kernel; ``parent`` is the ifindex below a macvlan, ``master`` that of the bridge or VRF
    that it is a port of; else 0."""

    ifindex: int
    name: str
    flags: int
    mtu: int
    mac: bytes
    parent: int = 0
    kind: str = ""
    master: int = 0

    @property
    def admin_up(self) -> bool:
        """Whether it is administratively up."""
        return bool(self.flags & IFF_UP)

    @property
    def is_macvlan(self) -> bool:
        """Whether it is a macvlan on a link of this guest."""
        return bool(self.parent) and self.kind == "macvlan"

    @property
    def up(self) -> bool:
        """Whether it is administratively up and has carrier.

        Not IFF_RUNNING (RFC 2863), which Linux sets up to a second later: a guest that was started anew would for so
        long take down what its plane goes on to forward.
        """
        return self.flags & (IFF_UP | IFF_LOWER_UP) == IFF_UP | IFF_LOWER_UP


@dataclass(frozen=True, slots=True)
class InterfaceStatus:
    """A declared interface as it is: what InterfaceState reports."""

    id: int
    up: bool
    addresses: tuple[bytes, ...]


@dataclass(slots=True)
class Interfaces:
    """Links by ifindex, own addresses by ifindex, and the ids of declared interfaces by name; ``missing`` are ids
    of those that could not be made.

    A macvlan on a declared interface (VRRP) counts as that interface: its addresses are own addresses there, and
    routes and neighbors on it belong to it.
    """

    links: dict[int, Link] = field(default_factory=dict)
    addresses: dict[int, set[OwnAddress]] = field(default_factory=dict)
    declared: dict[str, int] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    version: int = 0  # grows with every change of these

    def id_of(self, ifindex: int) -> int:
        """Return the interface id a link belongs to, 0 where it is not ours."""
        link = self.links.get(ifindex)
        if link is not None and link.is_macvlan:
            link = self.links.get(link.parent)
        return self.declared.get(link.name, 0) if link is not None else 0

    def is_macvlan(self, ifindex: int) -> bool:
        """Tell whether a link is a macvlan on another one."""
        link = self.links.get(ifindex)
        return link is not None and link.is_macvlan

    def usable(self, ifindex: int) -> int:
        """Return the interface id of a link that is administratively up, or ELSEWHERE; 0 for others."""
        link = self.links.get(ifindex)
        return (self.id_of(ifindex) or ELSEWHERE) if link is not None and link.admin_up else 0

    def is_down(self, ifindex: int) -> bool:
        """Tell whether there is such a link and it is administratively down."""
        link = self.links.get(ifindex)
        return link is not None and not link.admin_up

    def is_dark(self, ifindex: int) -> bool:
        """Tell whether there is such a link and it is down or has no carrier."""
        link = self.links.get(ifindex)
        return link is not None and not link.up

    def find(self, name: str) -> Link | None:
        """Return the link of a name."""
        return next((link for link in self.links.values() if link.name == name), None)

    def macvlans(self, parent: int) -> Iterator[Link]:
        """Yield the macvlans on a link."""
        return (link for link in self.links.values() if link.is_macvlan and link.parent == parent)

    def statuses(self) -> dict[int, InterfaceStatus]:
        """Return every declared interface by id; one whose link does not exist is down."""
        ids = self.missing | set(self.declared.values())
        found = {interface_id: InterfaceStatus(interface_id, False, ()) for interface_id in ids}
        macvlans: dict[int, list[Link]] = {}
        for link in self.links.values():
            if link.is_macvlan and link.up:
                macvlans.setdefault(link.parent, []).append(link)
        for link in self.links.values():
            interface_id = self.declared.get(link.name, 0)
            if interface_id:
                own = {at for one in (link, *macvlans.get(link.ifindex, ())) for at in self._addresses(one)}
                found[interface_id] = InterfaceStatus(interface_id, link.up, tuple(sorted(own)))
        if found:
            first = found[min(found)]
            addresses = tuple(sorted({*first.addresses, *self._elsewhere()}))
            found[first.id] = replace(first, addresses=addresses)
        return {i: replace(one, addresses=one.addresses[:MAX_ADDRESSES]) for i, one in found.items()}

    def _addresses(self, link: Link) -> Iterator[bytes]:
        return (address for address, _, _ in self.addresses.get(link.ifindex, ()))

    def _elsewhere(self) -> Iterator[bytes]:
        """Yield the router's addresses on what is no interface (lo, dummies, bridges, tunnels): every interface takes
        packets for them (RFC 1122 section 3.3.4.2), so it does not matter with which they are reported. Those of a
        VRF are own addresses in it alone: elsewhere they may be somebody else's."""
        for link in self.links.values():
            if link.admin_up and not self.id_of(link.ifindex) and not self._in_vrf(link):
                for address in self._addresses(link):
                    if not ip_address(address).is_loopback:
                        yield address

    def _in_vrf(self, link: Link) -> bool:
        return any(one is not None and one.kind == "vrf" for one in (link, self.links.get(link.master)))
