"""Makes one multi-queue TAP for each declared interface and sets it up; removes those no longer declared.

A TAP lives as long as one of its queues does: ours, and the detached one the supervisor holds. A VRC that starts
again finds the TAP and adds a queue to it; link, carrier and addresses are then as before.
"""

import errno
import fcntl
import ipaddress
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from vrc.errors import HolderError, KernelRefused, TapError
from vrc.holder import Holder
from vrc.interfaces import IFF_UP, Interfaces, Link
from vrc.netlink import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Rtnetlink
from vrc.packets import PacketRelay
from vrc.rtlinks import (
    ADDRESS_OF_DECLARATION,
    RTM_DELADDR,
    RTM_DELLINK,
    RTM_NEWADDR,
    RTM_NEWLINK,
    Address,
    address_request,
    link_request,
    macvlan_request,
)
from wire import splitplane_pb2 as pb

log = logging.getLogger(__name__)

_TUNSETIFF, _TUNGETFEATURES, _TUNSETOFFLOAD = 0x400454CA, 0x800454CF, 0x400454D0
_TUNSETQUEUE, _TUNSETCARRIER = 0x400454D9, 0x400454E2
_IFF_TAP, _IFF_NO_CARRIER, _IFF_MULTI_QUEUE, _IFF_DETACH_QUEUE, _IFF_NO_PI = 0x2, 0x40, 0x100, 0x400, 0x1000
_IFREQ = struct.Struct("16sH22x")
_INT = struct.Struct("=i")
IFNAMSIZ = 16

# Why: forwarding, as gleaned packets go through the guest; no redirects and no reverse path filter, since the plane
# forwards what the guest never sees; ICMP errors from the address a packet came in by (traceroute); addresses of
# IPv6 stay when a link is set down, as routing daemons expect.
SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv6/conf/all/forwarding": "1",
    "net/ipv6/conf/default/forwarding": "1",
    "net/ipv4/icmp_errors_use_inbound_ifaddr": "1",
    **{
        f"net/ipv4/conf/{scope}/{name}": "0"
        for scope in ("all", "default")
        for name in ("rp_filter", "send_redirects", "accept_redirects")
    },
    **{
        f"net/ipv6/conf/{scope}/{name}": value
        for scope in ("all", "default")
        for name, value in (("accept_ra", "0"), ("accept_redirects", "0"), ("keep_addr_on_down", "1"))
    },
}


def write_sysctls() -> list[str]:
    """Set the guest's sysctls; return those that could not be set, with why."""
    refused = []
    for name, value in SYSCTLS.items():
        try:
            _write_sysctl(name, value)
        except OSError as error:
            refused.append(f"{name.replace('/', '.')}: {error.strerror}")
    return refused


def _write_sysctl(name: str, value: str) -> None:
    with open(f"/proc/sys/{name}", "r+") as file:
        if file.read().strip() != value:
            file.seek(0)
            file.write(value)


def open_queue(name: str, *, carrier: bool) -> int:
    """Attach a queue to a TAP, making the TAP where there is none, and return its file descriptor. TapError."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        features = struct.unpack("=I", fcntl.ioctl(fd, _TUNGETFEATURES, bytes(4)))[0]
        flags = _IFF_TAP | _IFF_NO_PI | _IFF_MULTI_QUEUE
        if not carrier:
            flags |= _IFF_NO_CARRIER & features  # else it would flap up for a moment
        fcntl.ioctl(fd, _TUNSETIFF, _IFREQ.pack(name.encode(), flags))
        fcntl.ioctl(fd, _TUNSETOFFLOAD, 0)  # frames come with their checksums filled in, one packet each
    except OSError as error:
        os.close(fd)
        raise TapError(name, f"{error.strerror}; is another kind of link of that name in the guest?") from error
    return fd


def detach_queue(name: str, fd: int) -> None:
    """Let a queue take no more packets; the TAP stays as long as it is open. TapError."""
    try:
        fcntl.ioctl(fd, _TUNSETQUEUE, _IFREQ.pack(name.encode(), _IFF_DETACH_QUEUE))
    except OSError as error:
        raise TapError(name, f"detach: {error.strerror}") from error


@dataclass(slots=True)
class Tap:
    """A TAP of ours, with what of the declaration was applied to it."""

    name: str
    fd: int
    ifindex: int
    declared: pb.Interface
    ours: set[tuple[bytes, int]] = field(default_factory=set)  # addresses we set: (address, prefix length)


class Taps:
    """All TAPs of the guest. ``look`` refreshes `interfaces` from the kernel and returns every address."""

    def __init__(
        self,
        netlink: Rtnetlink,
        interfaces: Interfaces,
        relay: PacketRelay,
        holder: Holder,
        look: Callable[[], Awaitable[list[Address]]],
    ) -> None:
        self.open: dict[str, Tap] = {}
        self.adopted: bool | None = None  # whether every TAP of the first declaration was there before us
        self._netlink, self._interfaces, self._relay, self._holder = netlink, interfaces, relay, holder
        self._look = look

    async def apply(self, declared: list[pb.Interface]) -> list[str]:
        """Make the guest's links as declared; return one line for each thing that could not be done."""
        problems: list[str] = []
        held = await self._held(problems)
        wanted = {interface.name: interface for interface in declared}
        for name in (set(self.open) | held) - set(wanted):
            await self._attempt(problems, self._remove(name, name in held))
        await self._look()
        before = {name: self._interfaces.find(name) for name in wanted}
        for name, interface in wanted.items():
            await self._attempt(problems, self._ensure_open(interface, before[name], name in held))
        if self.adopted is None:
            self.adopted = all(link is not None for link in before.values())
        self._interfaces.declared = {name: wanted[name].id for name in self.open}
        self._interfaces.missing = {interface.id for name, interface in wanted.items() if name not in self.open}
        addresses = await self._look()
        for name, tap in self.open.items():
            await self._attempt(problems, self._set_up(tap, wanted[name], before[name], addresses, problems))
            tap.declared = wanted[name]
        return problems

    async def _held(self, problems: list[str]) -> set[str]:
        try:
            return await self._holder.names()
        except HolderError as error:
            problems.append(str(error))
            return set()

    @staticmethod
    async def _attempt(problems: list[str], work: Awaitable[None]) -> None:
        try:
            await work
        except (TapError, KernelRefused, HolderError) as error:
            problems.append(str(error))

    async def _ensure_open(self, interface: pb.Interface, link: Link | None, held: bool) -> None:
        tap = self.open.get(interface.name)
        if tap is not None and link is not None and link.ifindex == tap.ifindex:
            self._relay.attach(tap.fd, interface.id)
        else:
            if tap is not None:  # deleted in the guest
                self._close(tap)
            self._open(interface, link)
        if self._holder.path and (not held or link is None):
            await self._hold(interface)

    def _open(self, interface: pb.Interface, link: Link | None) -> None:
        if not 0 < len(interface.name.encode()) < IFNAMSIZ or "/" in interface.name:
            raise TapError(interface.name, "not a name of an interface")
        carrier = interface.port_up if link is None else link.up or not link.admin_up
        fd = open_queue(interface.name, carrier=carrier)
        ifindex = socket.if_nametoindex(interface.name)
        self.open[interface.name] = Tap(interface.name, fd, ifindex, pb.Interface())
        self._relay.attach(fd, interface.id)

    async def _hold(self, interface: pb.Interface) -> None:
        name = interface.name
        link = self._interfaces.find(name)
        spare = open_queue(name, carrier=interface.port_up if link is None else link.up or not link.admin_up)
        try:
            detach_queue(name, spare)
            await self._holder.hold(name, spare)
        finally:
            os.close(spare)

    async def _remove(self, name: str, held: bool) -> None:
        tap = self.open.pop(name, None)
        if tap is not None:
            self._close(tap)
        if held:
            await self._holder.drop(name)

    def _close(self, tap: Tap) -> None:
        self._relay.detach(tap.fd)
        os.close(tap.fd)
        self.open.pop(tap.name, None)

    def close(self) -> None:
        """Close our queues; what the holder has keeps the TAPs."""
        for tap in list(self.open.values()):
            self._close(tap)

    async def _set_up(
        self, tap: Tap, wanted: pb.Interface, before: Link | None, addresses: list[Address], problems: list[str]
    ) -> None:
        # `before` is the link this declaration found; a TAP of ours that is new to this process but not to the
        # kernel belonged to the last VRC: what the operator wished then is in force, unless the guest changed it.
        link = self._interfaces.links.get(tap.ifindex)
        if link is None:
            raise TapError(tap.name, "vanished while it was set up")
        self.set_carrier(tap, wanted.port_up)
        mac = wanted.mac if link.mac != wanted.mac else b""
        changed_mtu = before is None or link.mtu > wanted.mtu or tap.declared.mtu not in (0, wanted.mtu)
        mtu = wanted.mtu if changed_mtu and link.mtu != wanted.mtu else 0
        if mac or mtu:
            await self._change_link(tap, link_request(tap.ifindex, mac=mac, mtu=mtu))
        wish_changed = bool(tap.declared.name) and tap.declared.admin_up != wanted.admin_up
        if (before is None or wish_changed) and link.admin_up != wanted.admin_up:
            up = IFF_UP if wanted.admin_up else 0
            await self._change_link(tap, link_request(tap.ifindex, flags=up, change=IFF_UP))
        await self._set_addresses(tap, wanted, addresses, problems)
        await self._set_virtual_macs(tap, wanted)

    async def _change_link(self, tap: Tap, body: bytes) -> None:
        await self._netlink.change(f"set up {tap.name}", RTM_NEWLINK, 0, body)

    @staticmethod
    def set_carrier(tap: Tap, up: bool) -> None:
        """Mirror the state of the plane's port. TapError."""
        try:
            fcntl.ioctl(tap.fd, _TUNSETCARRIER, _INT.pack(up))
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

    async def repeat_addresses(self) -> None:
        """Have the kernel tell of our addresses once more: one that comes while zebra starts may be lost on it, and
        with it the connected route. KernelRefused."""
        for tap in list(self.open.values()):
            for address, bits in sorted(tap.ours):
                what = f"repeat an address of {tap.name}"
                body = address_request(tap.ifindex, address, bits)
                await self._netlink.change(what, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, body)

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
