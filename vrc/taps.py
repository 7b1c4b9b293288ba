"""Takes the guest's TAPs into use as declared, and changes on them what a later declaration says.

The guest's first process makes them (vrc/guest/interfaces.py) and keeps them; they come without carrier, which
follows the plane's port from here on. A VRC that starts again finds link, carrier and addresses as before.
"""

import asyncio
import errno
import ipaddress
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from vrc.errors import KernelRefused, TapError
from vrc.interfaces import Interfaces, Link
from vrc.netlink.link_messages import Address
from vrc.netlink.requests import (
    ADDRESS_OF_DECLARATION,
    IFF_UP,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    RTM_DELADDR,
    RTM_DELLINK,
    RTM_NEWADDR,
    RTM_NEWLINK,
    address_request,
    link_request,
    macvlan_request,
)
from vrc.netlink.sockets import Rtnetlink
from vrc.packets import PacketRelay
from vrc.tun import open_queue, set_carrier
from wire import splitplane_pb2 as pb

log = logging.getLogger(__name__)

IFNAMSIZ = 16

_MULTICAST_PROBES = "3"  # as many as there are unicast ones, one a second


def _write_sysctl(name: str, value: str) -> None:
    with open(f"/proc/sys/{name}", "r+") as file:
        if file.read().strip() != value:
            file.seek(0)
            file.write(value)


@dataclass(slots=True)
class Tap:
    """A TAP in use, with what of the declaration was applied to it."""

    name: str
    fd: int
    ifindex: int
    declared: pb.Interface
    late: bool  # it came after the first declaration, while daemons may have been running
    ours: set[tuple[bytes, int]] = field(default_factory=set)  # addresses declared: (address, prefix length)


class Taps:
    """The declared TAPs of the guest. ``look`` refreshes `interfaces` from the kernel and returns every address."""

    def __init__(
        self,
        netlink: Rtnetlink,
        interfaces: Interfaces,
        relay: PacketRelay,
        look: Callable[[], Awaitable[list[Address]]],
    ) -> None:
        self.open: dict[str, Tap] = {}
        self.adopted: bool | None = None  # whether a VRC before this one had the interfaces in use
        self._netlink, self._interfaces, self._relay = netlink, interfaces, relay
        self._look = look
        self._declared: dict[str, pb.Interface] = {}
        self._unusable: dict[str, int] = {}  # links that have a declared name and cannot be opened: their ifindex
        self._turn = asyncio.Lock()

    @property
    def appeared(self) -> bool:
        """Whether a declared interface that was not there is there now, or another one in its place."""
        links = {link.name: link.ifindex for link in self._interfaces.links.values()}
        known = {name: tap.ifindex for name, tap in self.open.items()} | self._unusable
        return any(name in links and links[name] != known.get(name) for name in self._declared)

    def forget_gone(self) -> None:
        """Take in that TAPs went: one that is made in place of another may have the same ifindex."""
        for tap in self.open.values():
            if tap.ifindex not in self._interfaces.links:
                tap.ifindex = 0

    async def apply(self, declared: list[pb.Interface] | None = None) -> list[str]:
        """Make the guest's links as declared, or as they were declared last; return one line for each thing that
        could not be done. What is not there yet is no such thing: whoever makes it says why it is late."""
        async with self._turn:
            if declared is not None:
                self._declared = {interface.name: interface for interface in declared}
            return await self._apply(self._declared)

    async def _apply(self, wanted: dict[str, pb.Interface]) -> list[str]:
        problems: list[str] = []
        for name in set(self.open) - set(wanted):
            tap = self.open[name]
            await self._attempt(problems, self._shut(tap))
        await self._look()
        found = {name: link for name in wanted if (link := self._interfaces.find(name)) is not None}
        if self.adopted is None:
            self.adopted = any(link.up for link in found.values())
            late: set[str] = set()
        else:
            late = {name for name, link in found.items() if not self._has(name, link)}
        for name, link in found.items():
            await self._attempt(problems, self._ensure_open(wanted[name], link, name in late))
        self._interfaces.declared = {name: wanted[name].id for name in self.open}
        self._interfaces.missing = {interface.id for name, interface in wanted.items() if name not in self.open}
        self._interfaces.version += 1
        addresses = await self._look()
        for name, tap in list(self.open.items()):
            await self._attempt(problems, self._set_up(tap, wanted[name], addresses, problems))
            tap.declared = wanted[name]
        await self._look()  # the kernel may be long in telling of a carrier, and no session is to say that it is down
        return problems

    @staticmethod
    async def _attempt(problems: list[str], work: Awaitable[None]) -> None:
        try:
            await work
        except KernelRefused as error:
            if error.errno != errno.ENODEV:  # it went meanwhile: whoever makes it says so
                problems.append(str(error))
        except TapError as error:
            problems.append(str(error))

    def _has(self, name: str, link: Link) -> bool:
        return name in self.open and self.open[name].ifindex == link.ifindex

    async def _ensure_open(self, interface: pb.Interface, link: Link, late: bool) -> None:
        if self._has(interface.name, link):
            self._relay.attach(self.open[interface.name].fd, interface.id)
            return
        if interface.name in self.open:  # deleted in the guest, and made again
            self._close(self.open[interface.name])
        self._unusable[interface.name] = link.ifindex
        if link.kind != "tun":
            raise TapError(interface.name, "another kind of link of that name is in the guest")
        try:
            fd = open_queue(interface.name, carrier=link.up or not link.admin_up)
        except OSError as error:
            raise TapError(interface.name, error.strerror or str(error)) from error
        del self._unusable[interface.name]
        self.open[interface.name] = Tap(interface.name, fd, link.ifindex, pb.Interface(), late=late)
        self._relay.attach(fd, interface.id)

    async def _shut(self, tap: Tap) -> None:
        try:
            self._set_carrier(tap, False)
        finally:
            self._close(tap)

    def _close(self, tap: Tap) -> None:
        self._relay.detach(tap.fd)
        os.close(tap.fd)
        self.open.pop(tap.name, None)

    def close(self) -> None:
        """Close our queues; the guest's first process keeps the TAPs."""
        for tap in list(self.open.values()):
            self._close(tap)

    async def _set_up(self, tap: Tap, wanted: pb.Interface, addresses: list[Address], problems: list[str]) -> None:
        # A TAP that is new to this process came as the operator wished, or belonged to the last VRC: what is another
        # way now, was changed in the guest. Only what the plane relies on is set all the same.
        link = self._interfaces.links.get(tap.ifindex)
        if link is None:  # it went meanwhile
            return
        self._set_carrier(tap, wanted.port_up)
        mac = wanted.mac if link.mac != wanted.mac else b""
        changed_mtu = link.mtu > wanted.mtu or tap.declared.mtu not in (0, wanted.mtu)
        mtu = wanted.mtu if changed_mtu and link.mtu != wanted.mtu else 0
        if mac or mtu:
            await self._change_link(tap, link_request(tap.ifindex, mac=mac, mtu=mtu))
        wish_changed = bool(tap.declared.name) and tap.declared.admin_up != wanted.admin_up
        if wish_changed and link.admin_up != wanted.admin_up:
            up = IFF_UP if wanted.admin_up else 0
            await self._change_link(tap, link_request(tap.ifindex, flags=up, change=IFF_UP))
        await self._set_addresses(tap, wanted, addresses, problems)
        await self._set_virtual_macs(tap, wanted)
        self._ask_everybody(tap.name)

    async def _change_link(self, tap: Tap, body: bytes) -> None:
        await self._netlink.change(f"set up {tap.name}", RTM_NEWLINK, 0, body)

    def port_changed(self, interface_id: int, up: bool) -> None:
        """Mirror the state of a plane's port to the carrier of its TAP, now or when that is there. TapError."""
        for name, interface in self._declared.items():
            if interface.id == interface_id:
                interface.port_up = up
                if name in self.open:
                    self._set_carrier(self.open[name], up)

    @staticmethod
    def _set_carrier(tap: Tap, up: bool) -> None:
        try:
            set_carrier(tap.fd, up)
        except OSError as error:
            raise TapError(tap.name, f"carrier: {error.strerror}") from error

    async def _set_addresses(
        self, tap: Tap, wanted: pb.Interface, addresses: list[Address], problems: list[str]
    ) -> None:
        present = {(a.address, a.prefix_length): a for a in addresses if a.ifindex == tap.ifindex}
        tap.ours |= {at for at, a in present.items() if a.protocol == ADDRESS_OF_DECLARATION}
        declared = set()
        for text in wanted.addresses:
            try:
                interface = ipaddress.ip_interface(text)
                declared.add((interface.packed, interface.network.prefixlen))
            except ValueError as error:
                problems.append(f"{tap.name}: {error}")
        for address, bits in tap.ours - declared:
            tap.ours.discard((address, bits))
            await self._attempt(problems, self._change_address(tap, RTM_DELADDR, address, bits))
        for address, bits in declared - set(present):
            tap.ours.add((address, bits))
            await self._attempt(problems, self._change_address(tap, RTM_NEWADDR, address, bits))

    async def repeat_addresses(self) -> list[str]:
        """Have the kernel tell once more of the addresses of interfaces that came late: one that comes while zebra
        starts may be lost on it, and with it the connected route. Returns one line for each that it refused."""
        problems: list[str] = []
        for tap in [tap for tap in self.open.values() if tap.late]:
            for address, bits in sorted(tap.ours):
                what = f"repeat an address of {tap.name}"
                body = address_request(tap.ifindex, address, bits)
                change = self._netlink.change(what, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, body)
                await self._attempt(problems, change)
        return problems

    async def _change_address(self, tap: Tap, kind: int, address: bytes, bits: int) -> None:
        what = f"address {ipaddress.ip_address(address)}/{bits} of {tap.name}"
        flags = NLM_F_CREATE | NLM_F_EXCL if kind == RTM_NEWADDR else 0
        try:
            await self._netlink.change(what, kind, flags, address_request(tap.ifindex, address, bits))
        except KernelRefused as error:
            if error.errno not in (errno.EEXIST, errno.EADDRNOTAVAIL):
                raise

    async def _set_virtual_macs(self, tap: Tap, wanted: pb.Interface) -> None:
        macvlans = {link.mac: link for link in self._interfaces.macvlans(tap.ifindex)}
        for mac, link in macvlans.items():
            if mac not in wanted.virtual_macs and link.name.startswith(_macvlan_prefix(tap.name)):
                await self._netlink.change(f"remove {link.name}", RTM_DELLINK, 0, link_request(link.ifindex))
        names = {link.name for link in self._interfaces.links.values()}
        for mac in wanted.virtual_macs:
            if mac not in macvlans:
                name = _macvlan_name(tap.name, names)
                names.add(name)
                body = macvlan_request(tap.ifindex, name, mac)
                await self._netlink.change(f"make {name}", RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body)
                self._speak_arp(name, own_alone=True)
        self._speak_arp(tap.name, own_alone=bool(wanted.virtual_macs))

    @staticmethod
    def _speak_arp(name: str, *, own_alone: bool) -> None:
        """Let an interface answer and ask with its own addresses alone, or with any of the guest's (the default)."""
        try:
            for setting, value in (("arp_ignore", "1"), ("arp_announce", "2")):
                _write_sysctl(f"net/ipv4/conf/{name}/{setting}", value if own_alone else "0")
        except OSError as error:
            raise TapError(name, f"ARP settings: {error.strerror}") from error

    @staticmethod
    def _ask_everybody(name: str) -> None:
        """Have a neighbor that answers no unicast probe asked for by multicast before it is given up (RFC 7048).

        It is forwarded to meanwhile, so neither a busy machine nor a neighbor with a new MAC is taken for a failure.
        """
        for family in ("ipv4", "ipv6"):
            try:
                _write_sysctl(f"net/{family}/neigh/{name}/mcast_resolicit", _MULTICAST_PROBES)
            except FileNotFoundError:  # no IPv6 where the MTU is below 1,280
                continue
            except OSError as error:
                raise TapError(name, f"probes of {family} neighbors: {error.strerror}") from error


def _macvlan_prefix(parent: str) -> str:
    """Return what the names of our macvlans on a TAP begin with: room is left for two digits."""
    return f"{parent[: IFNAMSIZ - 5]}-v"


def _macvlan_name(parent: str, taken: set[str]) -> str:
    """Return the first free ``<parent>-v<N>``; TapError where none is."""
    for number in range(1, 100):
        name = f"{_macvlan_prefix(parent)}{number}"
        if name not in taken:
            return name
    raise TapError(parent, "no name is free for another virtual MAC")
