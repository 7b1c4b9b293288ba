"""Follows links, addresses and neighbors of the guest's kernel."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from errno import EEXIST
from ipaddress import ip_address

from vrc.errors import DumpInterrupted, KernelRefused, MalformedNetlink, VrcError
from vrc.interfaces import Interfaces
from vrc.neighbors import Ask, Neighbors
from vrc.netlink.link_messages import (
    Address,
    KernelNeighbor,
    Rule,
    decode_address,
    decode_link,
    decode_neighbor,
    decode_rule,
)
from vrc.netlink.requests import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    RTM_DELADDR,
    RTM_DELLINK,
    RTM_DELNEIGH,
    RTM_DELRULE,
    RTM_GETADDR,
    RTM_GETLINK,
    RTM_GETNEIGH,
    RTM_GETRULE,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWNEIGH,
    RTM_NEWRULE,
    family_dump,
    group_request,
    link_dump,
    neighbor_request,
)
from vrc.netlink.route_messages import messages
from vrc.netlink.sockets import (
    DUMP_ATTEMPTS,
    RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV4_RULE,
    RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_RULE,
    RTNLGRP_LINK,
    RTNLGRP_NEIGH,
    Monitor,
    Rtnetlink,
)

log = logging.getLogger(__name__)

AF_BRIDGE = 7
_GROUPS = (
    RTNLGRP_LINK,
    RTNLGRP_NEIGH,
    RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV4_RULE,
    RTNLGRP_IPV6_RULE,
)
_RETRY_S = 1.0
_KERNELS_RULES = (0, 32766, 32767)  # by their priorities: to the tables local, main and default


class GuestKernel:
    """Keeps `Interfaces` and `Neighbors` as the kernel has them.

    ``changed`` is called after anything changed, ``links_changed`` where a link went up, down or away,
    ``addresses_changed`` where an IPv4 address came or went, ``notify`` with what the operator should see.
    """

    def __init__(
        self,
        netlink: Rtnetlink,
        interfaces: Interfaces,
        neighbors: Neighbors,
        changed: Callable[[], None],
        links_changed: Callable[[], None],
        addresses_changed: Callable[[], None],
        notify: Callable[[str, str], None],
    ) -> None:
        self.malformed = 0
        self._netlink, self._interfaces, self._neighbors = netlink, interfaces, neighbors
        self._changed, self._links_changed, self._notify = changed, links_changed, notify
        self._addresses_changed = addresses_changed
        self._asks = asyncio.Event()
        self._lost = asyncio.Event()
        self._looking = asyncio.Lock()
        self._rules: set[Rule] = set()  # by which packets may leave the main table
        self._monitor = Monitor(_GROUPS, self._received, self._overrun)

    @property
    def overruns(self) -> int:
        """How often the kernel had to drop messages."""
        return self._monitor.overruns

    def close(self) -> None:
        """Stop following."""
        self._monitor.close()

    async def run(self) -> None:
        """Follow until cancelled."""
        self._monitor.start()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask())
            tasks.create_task(self._repair())

    async def _repair(self) -> None:
        told = False
        while True:
            await self._lost.wait()
            self._lost.clear()
            try:
                await self.look()
                await self.look_at_neighbors()
                # A link or address that went and came back is there as before, but routes went with it.
                self._addresses_changed()
                self._links_changed()
                told = False
            except VrcError as error:
                self._lost.set()
                if not told:
                    self._notify("dump-failed", f"{error}; trying on")
                told = True
                await asyncio.sleep(_RETRY_S)

    def _overrun(self) -> None:
        self._notify("overrun", "the kernel dropped link or neighbor messages; reading them all again")
        self._lost.set()

    async def look(self) -> list[Address]:
        """Read all links and addresses; return the addresses. KernelRefused."""
        async with self._paused():
            links = [decode_link(body) for body in await self._dump("links", RTM_GETLINK, RTM_NEWLINK, link_dump())]
            bodies = await self._dump("addresses", RTM_GETADDR, RTM_NEWADDR, family_dump(0, 8))
            addresses = [address for address in map(decode_address, bodies) if address is not None]
            before = {ifindex: (link.name, link.flags) for ifindex, link in self._interfaces.links.items()}
            self._interfaces.links = {link.ifindex: link for link in links}
            held, self._interfaces.addresses = self._interfaces.addresses, {}
            for address in addresses:
                self._add_address(address)
            self._interfaces.version += 1
            if held != self._interfaces.addresses:
                self._addresses_changed()
            if before != {link.ifindex: (link.name, link.flags) for link in links}:
                self._links_changed()
        self._changed()
        return addresses

    async def look_at_neighbors(self) -> None:
        """Read all neighbors. KernelRefused."""
        async with self._paused():
            bodies = await self._dump("neighbors", RTM_GETNEIGH, RTM_NEWNEIGH, family_dump(0, 12))
            self._neighbors.resync([one for one in map(decode_neighbor, bodies) if one is not None])
        self.neighbors_changed()

    async def look_at_rules(self) -> None:
        """Read the rules of policy routing, of which a kernel may know nothing."""
        with contextlib.suppress(KernelRefused):
            for body in await self._dump("rules", RTM_GETRULE, RTM_NEWRULE, family_dump(0, 12)):
                self._take_rule(RTM_NEWRULE, body)

    @contextlib.asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        """Take in what the kernel has said, and leave what it says until a dump is taken in, as that may be newer."""
        async with self._looking:
            self._monitor.catch_up()
            self._monitor.pause()
            try:
                yield
            finally:
                self._monitor.start()

    async def _dump(self, what: str, request: int, answer: int, body: bytes) -> list[bytes]:
        for _ in range(DUMP_ATTEMPTS):
            bodies: list[bytes] = []
            try:
                async for buffer in self._netlink.dump(f"dump of {what}", request, body):
                    bodies += [buffer[start:end] for kind, _, start, end in messages(buffer) if kind == answer]
                break
            except DumpInterrupted:
                continue
        return bodies  # the last attempt is as good as it gets: messages tell the rest

    def _received(self, buffer: bytes) -> None:
        try:
            for kind, _, start, end in messages(buffer):
                try:
                    self._take(kind, buffer[start:end])
                except MalformedNetlink as error:  # others are joined to it
                    self._count_malformed(error)
        except MalformedNetlink as error:  # where the next message begins is unknown
            self._count_malformed(error)
            self._lost.set()
        self.neighbors_changed()

    def _count_malformed(self, error: MalformedNetlink) -> None:
        self.malformed += 1
        log.warning("netlink: %s", error)

    def neighbors_changed(self) -> None:
        """Carry out what `Neighbors` asks for, soon."""
        if self._neighbors.asks:
            self._asks.set()
        self._changed()

    def _take(self, kind: int, body: bytes) -> None:
        if kind in (RTM_NEWNEIGH, RTM_DELNEIGH):
            neighbor = decode_neighbor(body)
            if neighbor is not None:
                self._take_neighbor(kind, neighbor)
        elif kind in (RTM_NEWADDR, RTM_DELADDR):
            address = decode_address(body)
            if address is not None:
                self._take_address(kind, address)
        elif kind in (RTM_NEWRULE, RTM_DELRULE):
            self._take_rule(kind, body)
        elif kind in (RTM_NEWLINK, RTM_DELLINK) and body[:1] != bytes((AF_BRIDGE,)):
            self._take_link(kind, body)

    def _take_neighbor(self, kind: int, neighbor: KernelNeighbor) -> None:
        if kind == RTM_NEWNEIGH:
            self._neighbors.observe(neighbor)
        else:
            self._neighbors.lose((neighbor.ifindex, neighbor.address))

    def _take_rule(self, kind: int, body: bytes) -> None:
        rule = decode_rule(body)
        if rule is None or rule[1] in _KERNELS_RULES:
            return
        if kind == RTM_DELRULE:
            self._rules.discard(rule)
            return
        if not self._rules:
            text = f"the guest's kernel has rule {rule[1]} (`ip rule`), and planes look into its main table alone"
            self._notify("policy-routing", text)
        self._rules.add(rule)

    def _take_address(self, kind: int, address: Address) -> None:
        self._interfaces.version += 1
        if kind == RTM_NEWADDR:
            self._add_address(address)
        if kind == RTM_DELADDR or address.duplicate:
            self._interfaces.addresses.get(address.ifindex, set()).discard(address.own)
        if kind == RTM_NEWADDR and address.duplicate:
            link = self._interfaces.links.get(address.ifindex)
            where = link.name if link is not None else f"ifindex {address.ifindex}"
            self._notify("duplicate-address", f"{ip_address(address.address)} of {where} is somebody else's, too")
        if len(address.address) == 4:
            self._addresses_changed()

    def _take_link(self, kind: int, body: bytes) -> None:
        link = decode_link(body)
        self._interfaces.version += 1
        links = self._interfaces.links
        old = links.get(link.ifindex)
        if kind == RTM_DELLINK:
            links.pop(link.ifindex, None)
            self._interfaces.addresses.pop(link.ifindex, None)
        else:
            links[link.ifindex] = link
        if (
            old is None
            or kind == RTM_DELLINK
            or (old.up, old.admin_up, old.name) != (link.up, link.admin_up, link.name)
        ):
            self._links_changed()

    def _add_address(self, address: Address) -> None:
        if not address.link_local and not address.duplicate:
            self._interfaces.addresses.setdefault(address.ifindex, set()).add(address.own)

    async def _ask(self) -> None:
        asks = self._neighbors.asks
        while True:
            while asks:
                await self._carry_out(asks[0])
                asks.popleft()  # only now: one under way when this ends is carried out by the next
            self._asks.clear()
            await self._asks.wait()

    async def _carry_out(self, ask: Ask) -> None:
        body = neighbor_request(ask.ifindex, ask.address, managed=ask.managed)
        flags = NLM_F_CREATE | NLM_F_EXCL if ask.create else NLM_F_REPLACE
        try:
            if ask.mac:
                body = group_request(ask.ifindex, ask.address, ask.mac)
                await self._netlink.change("enter group", RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, body)
            elif ask.managed is None:
                await self._netlink.change("delete neighbor", RTM_DELNEIGH, 0, body)
            else:
                await self._netlink.change("keep neighbor probed", RTM_NEWNEIGH, flags, body)
        except KernelRefused as error:
            if ask.create and error.errno == EEXIST:  # it came by itself meanwhile
                await self._carry_out(replace(ask, create=False))
                return
            self._neighbors.refused(ask)
            log.debug("%s of ifindex %d: %s", ask.address.hex(), ask.ifindex, error)
