"""The guest kernel's neighbors: which to report, and which to keep probed.

The guest never sees the transit traffic that would keep its neighbors fresh, so every neighbor that a plane uses is
set to NTF_EXT_MANAGED (kernel 5.16): the kernel then resolves it without traffic and goes on probing it. Pure: what
the kernel is to be asked is left in `asks`.

While the guest's packets do not reach the plane, because the controller is away, no neighbor can answer. The kernel
then gives them up one after the other, but the plane goes on forwarding to them: what was told before stays in force
until the kernel has tried again with packets that get through.

The kernel also keeps a neighbor for each multicast group that it sends to, and its tables are one for the whole host:
where others have filled them, it collects just these and can make none, so that no Hello is sent any more. Those that
routing protocols send to are therefore entered for good: such entries are neither collected nor counted.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from vrc.interfaces import Interfaces
from vrc.netlink.link_messages import NUD_NOARP, NUD_RESOLVED, KernelNeighbor
from vrc.netlink.requests import NUD_FAILED, NUD_PERMANENT

DEFAULT_LIMIT = 1024
_MOST_ASKS = 8192  # with which a neighbor over the limit is still asked to be deleted
_IPV4_GROUPS = (2, 5, 6, 9, 10, 13, 18)  # 224.0.0.N: all routers, OSPF, OSPF's DRs, RIP, EIGRP, PIM, VRRP
_IPV6_GROUPS = (1, 2, 5, 6, 9, 10, 13, 18, 0x10006)  # ff02::N: all nodes (RAs), the same, and Babel

Place = tuple[int, bytes]
"""(ifindex, address)"""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the kernel: keep a neighbor probed (or stop to), or, with ``managed`` None, delete it. ``create``
    asks for one that must not exist yet; a multicast group with its ``mac`` is entered for good."""

    ifindex: int
    address: bytes
    managed: bool | None
    create: bool = False
    mac: bytes = b""


def groups() -> Iterator[tuple[bytes, bytes]]:
    """Yield the multicast groups that routing protocols send to, with their MACs (RFC 1112 section 6.4, RFC 2464
    section 7)."""
    for number in _IPV4_GROUPS:
        yield bytes((224, 0, 0, number)), bytes((1, 0, 0x5E, 0, 0, number))
    for number in _IPV6_GROUPS:
        last = number.to_bytes(4, "big")
        yield b"\xff\x02" + bytes(10) + last, b"\x33\x33" + last


@dataclass(frozen=True, slots=True)
class Report:
    """What the controller is told of a neighbor: its MAC, or none and whether resolution failed."""

    mac: bytes = b""
    failed: bool = False


GONE = Report()


@dataclass(slots=True)
class Neighbors:
    """Neighbors on declared interfaces, at most ``limit`` of them, with what is still to be reported."""

    interfaces: Interfaces
    limit: int = DEFAULT_LIMIT
    over_limit: int = 0
    not_deleted: int = (
        0  # … of these, as there was too much to ask for: the kernel collects them, or tells of them again
    )
    in_doubt: Callable[[], bool] = lambda: False  # whether probes may not have got through of late
    asks: deque[Ask] = field(default_factory=deque)
    changed: dict[tuple[int, bytes], Report] = field(default_factory=dict)  # by (interface id, address)
    _known: dict[Place, KernelNeighbor] = field(default_factory=dict)
    _reports: dict[Place, tuple[int, Report]] = field(default_factory=dict)
    _reporting: dict[tuple[int, bytes], set[int]] = field(default_factory=dict)  # the ifindexes of these reports
    _gateways: set[Place] = field(default_factory=set)
    _gateway_refused: bool = False
    _asked: set[Place] = field(default_factory=set)
    _doubted: set[Place] = field(default_factory=set)  # given up by the kernel, not by us
    _with_groups: set[int] = field(default_factory=set)  # links, by ifindex

    def __len__(self) -> int:
        return len(self._known)

    def reports(self) -> dict[tuple[int, bytes], Report]:
        """Return everything there is to report, as for a new session."""
        return {key: self._joined(*key) for key in self._reporting}

    def observe(self, neighbor: KernelNeighbor) -> None:
        """Take in a neighbor as the kernel has it now."""
        place = (neighbor.ifindex, neighbor.address)
        interface_id = self.interfaces.id_of(neighbor.ifindex)
        if not interface_id or (neighbor.mac and neighbor.mac[0] & 1):
            return
        if place not in self._known and len(self._known) >= self.limit and not self._make_room(place, self._known):
            self._delete(place)
            return
        self._known[place] = neighbor
        self._report(place, interface_id, self._judge(place, neighbor))
        self._keep_probed(place, neighbor)

    def _make_room(self, place: Place, full: Iterable[Place]) -> bool:
        # A gateway is worth more than a host.
        if place not in self._gateways:
            return False
        victim = next((at for at in full if at not in self._gateways), None)
        if victim is None:
            return False
        self._delete(victim)
        self._drop(victim)
        return True

    def _delete(self, place: Place) -> None:
        self.over_limit += 1
        if len(self.asks) < _MOST_ASKS:  # whoever floods a link makes no end of these, unlike all others
            self.asks.append(Ask(*place, None))
        else:
            self.not_deleted += 1

    def _judge(self, place: Place, neighbor: KernelNeighbor) -> Report:
        before = self._reports.get(place, (0, GONE))[1]
        if neighbor.state & NUD_RESOLVED and neighbor.mac:
            self._doubted.discard(place)
            return Report(neighbor.mac)
        if neighbor.state & NUD_FAILED:
            if self.in_doubt():
                self._doubted.add(place)
                return before
            self._doubted.discard(place)
            return Report(failed=True)
        # One that is tried again stays as it was until the outcome is known.
        if before.mac and self.in_doubt():
            self._doubted.add(place)
        return before if before.failed or place in self._doubted else GONE

    def _report(self, place: Place, interface_id: int, report: Report) -> None:
        ifindex, address = place
        old_id = self._reports.get(place, (interface_id, GONE))[0]
        told = {one: self._joined(one, address) for one in (old_id, interface_id)}
        if self._reports.pop(place, None) is not None:
            self._reporting[old_id, address].discard(ifindex)
            if not self._reporting[old_id, address]:
                del self._reporting[old_id, address]
        if report != GONE:
            self._reports[place] = (interface_id, report)
            self._reporting.setdefault((interface_id, address), set()).add(ifindex)
        for one, before in told.items():
            if (now := self._joined(one, address)) != before:
                self.changed[one, address] = now

    def _joined(self, interface_id: int, address: bytes) -> Report:
        """Return what the links of one interface say together: itself, and its macvlans (VRRP), which come and go."""
        found = [(at, self._reports[at, address][1]) for at in self._reporting.get((interface_id, address), ())]
        of_macvlan = self.interfaces.is_macvlan
        return min(found, key=lambda one: (not one[1].mac, of_macvlan(one[0]), one[0]), default=(0, GONE))[1]

    def _keep_probed(self, place: Place, neighbor: KernelNeighbor) -> None:
        wanted = (
            place in self._gateways or place in self._doubted or bool(neighbor.state & NUD_RESOLVED and neighbor.mac)
        )
        if neighbor.state & (NUD_PERMANENT | NUD_NOARP) or neighbor.managed == wanted:
            return
        if not wanted:  # a host that is gone is not probed for ever
            self._asked.discard(place)
            self.asks.append(Ask(*place, False))
        elif place not in self._asked:
            self._asked.add(place)
            self.asks.append(Ask(*place, True))

    def retry(self) -> None:
        """Have those in doubt tried at once: packets get through again."""
        self.asks.extend(Ask(*place, True) for place in self._doubted)

    def lose(self, place: Place) -> None:
        """Take in that the kernel removed a neighbor; while in doubt, that is asked for anew and stays as told.

        The kernel collects one that it has given up, also a managed one before it is tried again.
        """
        doubted = bool(self._reports.get(place, (0, GONE))[1].mac) and self.in_doubt()
        self._known.pop(place, None)
        self._asked.discard(place)
        if (doubted or place in self._gateways) and self._ask_for(place, self._probed()) and doubted:
            self._doubted.add(place)
        else:
            self._forget(place)

    def _drop(self, place: Place) -> None:
        self._known.pop(place, None)
        self._asked.discard(place)
        self._forget(place)

    def _forget(self, place: Place) -> None:
        self._doubted.discard(place)
        if place in self._reports:
            self._report(place, self._reports[place][0], GONE)

    def want(self, gateways: set[Place]) -> None:
        """Have these gateways resolved and kept probed; earlier ones are kept as ordinary neighbors."""
        self._gateways = gateways
        full = self._probed()  # looked through once, however many gateways there are
        for place in gateways:
            neighbor = self._known.get(place)
            if neighbor is not None:
                self._keep_probed(place, neighbor)
            else:
                self._ask_for(place, full)

    def links_changed(self) -> None:
        """Have multicast groups entered on links that have come up: the kernel forgets them when one goes down."""
        up = {ifindex for ifindex in self.interfaces.links if self.interfaces.usable(ifindex) > 0}
        for ifindex in sorted(up - self._with_groups):
            self.asks.extend(Ask(ifindex, address, True, mac=mac) for address, mac in groups())
        self._with_groups = up

    def _probed(self) -> Iterator[Place]:
        return filter(self._asked.__contains__, list(self._known))

    def _ask_for(self, place: Place, full: Iterator[Place]) -> bool:
        # 169.254.0.0/16 gateways are zebra's own static neighbors (BGP unnumbered): never made by us.
        ifindex, address = place
        link_local = len(address) == 4 and address[:2] == b"\xa9\xfe"
        link = self.interfaces.links.get(ifindex)
        if link_local or place in self._asked or link is None or not link.up:
            return False
        if len(self._asked) >= self.limit and not self._make_room(place, full):
            self.over_limit += 1
            return False
        self._asked.add(place)
        self.asks.append(Ask(ifindex, address, True, create=True))
        return True

    def refused(self, ask: Ask) -> None:
        """Take in that the kernel did not do it: it may be asked again when things change, or by `want_again`."""
        place = (ask.ifindex, ask.address)
        if place not in self._known:
            self._asked.discard(place)
            self._forget(place)
            self._gateway_refused |= place in self._gateways

    def want_again(self) -> None:
        """Have the gateways resolved that the kernel has refused, as while its tables were full, once more."""
        if self._gateway_refused:
            self._gateway_refused = False
            self.want(self._gateways)

    def resync(self, dump: list[KernelNeighbor]) -> None:
        """Replace everything by a complete dump."""
        present = {(neighbor.ifindex, neighbor.address) for neighbor in dump}
        for place in [place for place in self._known if place not in present]:
            self.lose(place)
        for place in [place for place in self._known if not self.interfaces.id_of(place[0])]:
            self._drop(place)
        for neighbor in dump:
            self.observe(neighbor)
