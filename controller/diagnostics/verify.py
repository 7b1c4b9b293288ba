"""Proof that what was learned, what is desired and what is installed forward alike, over the whole address space.

Each of the three tables is turned into prefix → what happens to a packet, in terms that all three share (the egress
interfaces with the neighbors' MACs and weights, or the punt or drop), and compared with the others, as functions over
addresses. Ids play no part, so two objects that forward alike are equal.

    learned, router, read-back ─► describing: what the three do, of each prefix ─► comparing: where they differ
                                  └ in steps, as long as the router is as it was ┘  └ in steps ┘

Others have the loop between two steps, and may change the router: what was described says nothing then (`changed`).
Once all is described it was so in one moment, whatever changes while it is compared.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from controller.fallback.pace import STEP_ROUTES, parts
from controller.planes.base import (
    BLACKHOLE,
    FALLBACK,
    GLEAN,
    LOCAL,
    UNREACHABLE,
    Installed,
    NexthopState,
    RouteKind,
    action_kind,
    action_value,
)
from controller.routing.fib import Fib
from controller.routing.ranges import Differences, Row, Values, in_order
from controller.routing.rib import NexthopSet, SetKind
from controller.routing.table_pass import KeyScan
from controller.views import Difference, VerifyView

MAX_SHOWN = 20

PLAIN = {LOCAL: "local", GLEAN: "glean", UNREACHABLE: "unreachable", BLACKHOLE: "blackhole"}


class Describer:
    """Says what an action does, from nexthops and groups as one side knows them."""

    def __init__(self, fib: Fib, read: Installed | None = None) -> None:
        self._fib = fib
        self._nexthops = fib.desired_nexthops if read is None else read.nexthops
        self._groups = fib.desired_groups if read is None else read.groups
        self._actions: dict[int, str] = {}
        self._sets: dict[NexthopSet, str | None] = {}

    def action(self, action: int) -> str:
        """Return what a route action does; the same text for the same forwarding."""
        known = self._actions.get(action)
        if known is None:
            known = self._actions[action] = self._describe(action)
        return known

    def content(self, one: NexthopSet) -> str | None:
        """Return what the routes of a set should do, None where they are not to be installed."""
        if one not in self._sets:
            self._sets[one] = self._content(one)
        return self._sets[one]

    def _content(self, one: NexthopSet) -> str | None:
        if not one.action:
            return None
        if action_kind(one.action) in (RouteKind.NEXTHOP, RouteKind.GROUP):
            return self._members([(int(nid), int(weight)) for nid, weight in one.content])  # type: ignore[misc,has-type]
        return self.action(one.action)

    def _describe(self, action: int) -> str:
        kind, value = action_kind(action), action_value(action)
        if kind is RouteKind.NEXTHOP:
            return self._members([(value, 1)])
        if kind is RouteKind.GROUP:
            group = self._groups.get(value)
            if group is None:
                return f"group {value}, which is missing"
            return self._members([(member.nexthop_id, member.weight) for member in group.members])
        return PLAIN.get(action, f"unknown action {action:#x}")

    def _members(self, pairs: list[tuple[int, int]]) -> str:
        single = len(pairs) == 1
        return ", ".join(sorted(self._member(nid, None if single else weight) for nid, weight in pairs))

    def _member(self, nexthop_id: int, weight: int | None) -> str:
        nexthop = self._nexthops.get(nexthop_id)
        if nexthop is None:
            return f"nexthop {nexthop_id}, which is missing"
        if nexthop.state is NexthopState.GLEAN:
            return "glean"
        interface = self._fib.interfaces.get(nexthop.router_interface_id)
        name = f"interface {nexthop.router_interface_id}" if interface is None else interface.config.name
        if nexthop.state is NexthopState.DROP:
            return f"drop on {name}"
        return f"{name} {nexthop.mac.hex(':')}" + ("" if weight is None else f" weight {weight}")


class Verification:
    """Compares what a guest's kernel has, what is desired, and what was read back.

    ``learned`` and what was ``read`` are of the moment in which this is made. They are emptied, as freeing all routes
    of a router at once takes long.
    """

    def __init__(self, fib: Fib, learned: dict[bytes, NexthopSet], read: Installed) -> None:
        self.routes = 0
        self.damaged: list[str] = []
        self.differences: list[Difference] = []
        self.total_differences = 0
        self._fib, self._learned, self._read = fib, learned, read
        self._refused = len(fib.refused_routes)
        self._moment = fib.moment()
        self._rows: list[dict[bytes, Values[str]]] = []  # what the three do, of all prefixes; in parts
        self._values: dict[Values[str], Values[str]] = {}  # each once

    @property
    def changed(self) -> bool:
        """Whether the router has changed since this was made."""
        return self._fib.moment() != self._moment

    def describing(self) -> Iterator[None]:
        """Describe the three tables, in steps, until that is done or the router has changed."""
        for _ in chain(self._describing(), self._damage()):
            yield
            if self.changed:
                return

    def comparing(self) -> Iterator[None]:
        """Compare, in steps, what was described."""
        taken = (list(self._rows.pop().items()) for _ in range(len(self._rows)))  # and freed, a part at a time
        if all(values.count(values[0]) == len(values) for values in self._values):
            yield from (None for _ in taken)
            return
        families = yield from in_order(taken)
        for family, rows in families.items():
            different = Differences[str](3, family, MAX_SHOWN - len(self.differences))
            for part in parts(rows):
                different.take(part)
                yield
            different.finish()
            self.differences += [_difference(family, *one) for one in different.found]
            self.total_differences += different.total

    def view(self, router: str, repaired: int) -> VerifyView:
        """Return what was found."""
        return VerifyView(
            router=router,
            equal=not self.total_differences and not self.damaged,
            routes=self.routes,
            differences=self.differences,
            total_differences=self.total_differences,
            damaged=self.damaged,
            repaired=repaired,
            foreign=self._read.foreign,
            refused=self._refused,
        )

    def _describing(self) -> Iterator[None]:
        """What the guest's routes, own addresses and neighbors ask for, what the FIB wants, and what the plane does;
        what is refused by name is neither asked for nor wanted."""
        fib, desired, installed = self._fib, Describer(self._fib), Describer(self._fib, self._read)
        own, refused, known = fib.own_actions, fib.refused_routes, self._values
        routes = self._read.routes.get(fib.config.vrf_id, {})
        if self._read.hardware is not None:
            software, routes = routes, {}
            yield from together(self._read.hardware.routes.get(fib.config.vrf_id, {}), software, routes)
        for part in self._taking(routes):
            rows: dict[bytes, Values[str]] = {}
            for key, one, there in part:
                asked = wanted = None
                if key not in refused:
                    if one is not None and not (key in own and (own[key] == LOCAL or one.kind is SetKind.CONNECTED)):
                        asked = desired.content(one)
                    if asked is None and key in own:
                        asked = desired.action(own[key])
                    action = fib.desired(key)
                    wanted = None if action is None else desired.action(action)
                does = None if there is None else installed.action(there)
                self.routes += asked is not None
                values = asked, wanted, does
                rows[key] = known.setdefault(values, values)
            self._rows.append(rows)
            yield

    def _taking(self, installed: dict[bytes, int]) -> Iterator[list[tuple[bytes, NexthopSet | None, int | None]]]:
        """Take each prefix once that any of the three has, with the set that it has in the guest, and the action that
        it has on the plane."""
        fib, learned, scan = self._fib, self._learned, KeyScan()
        of_rib = iter(lambda: fib.next_learned(scan, STEP_ROUTES), [])
        of_own = ([key for key in part if key not in fib.learned] for part in parts(list(fib.own_actions)))
        for keys in chain(of_rib, of_own):
            yield [(key, learned.pop(key, None), installed.pop(key, None)) for key in keys]
        while learned:
            left = [learned.popitem() for _ in range(min(len(learned), STEP_ROUTES))]
            yield [(key, one, installed.pop(key, None)) for key, one in left]
        while installed:
            stray = [installed.popitem() for _ in range(min(len(installed), STEP_ROUTES))]
            yield [(key, None, action) for key, action in stray]

    def _damage(self) -> Iterator[None]:
        """The router interfaces, nexthops, groups and policers that are missing or changed on the plane."""
        read = self._read
        held: tuple[dict[int, Any], ...] = (read.router_interfaces, read.nexthops, read.groups, read.policers)
        for table, installed in zip(self._fib.tables, held, strict=True):
            for part in parts(list(table.desired.items())):
                for entry_id, entry in part:
                    if entry_id in table.refused:
                        continue
                    if installed.get(entry_id) != entry or (table.table, entry_id) in read.damaged:
                        self.damaged.append(f"{table.table} {entry_id}")
                yield


def together(hardware: Mapping[bytes, int], software: Mapping[bytes, int], table: dict[bytes, int]) -> Iterator[None]:
    """Fill, in steps, the table that forwards as hardware and its fallback do.

    Each address goes as the hardware's longest match says, and where that is FALLBACK, as the software's. An address
    that the hardware has no match for is not routed, whatever the software has.
    """
    families = yield from in_order(_rows_of_both(hardware, software))
    for family, rows in families.items():
        bits = 32 if family == 4 else 128
        around: list[tuple[int, int | None, int | None]] = []  # last address, and what the two do, outermost first
        for part in parts(rows):
            for key, (in_hardware, in_software) in part:
                network = int.from_bytes(key[:-1], "big")
                while around and around[-1][0] < network:
                    around.pop()
                _, first, then = around[-1] if around else (0, None, None)
                first = first if in_hardware is None else in_hardware
                then = then if in_software is None else in_software
                around.append((network | (1 << bits - key[-1]) - 1, first, then))
                action = then if first == FALLBACK else UNREACHABLE if first is None else first
                if action is not None:
                    table[key] = action
            yield


def _rows_of_both(hardware: Mapping[bytes, int], software: Mapping[bytes, int]) -> Iterator[list[Row[int]]]:
    for part in parts(hardware):
        yield [(key, (hardware[key], software.get(key))) for key in part]
    for part in parts(software):
        yield [(key, (None, software[key])) for key in part if key not in hardware]


def longest_match(
    table: Mapping[bytes, object], family: int, address: int, lengths: Iterable[int] | None = None
) -> bytes | None:
    """Return the key of the longest matching prefix (RFC 1812 section 5.2.4.3); of ``lengths`` alone, longest first,
    where they are given.
    """
    size, bits = (4, 32) if family == 4 else (16, 128)
    for length in range(bits, -1, -1) if lengths is None else lengths:
        network = address >> (bits - length) << (bits - length)
        key = network.to_bytes(size, "big") + bytes((length,))
        if key in table:
            return key
    return None


def _difference(family: int, start: int, end: int, values: tuple[str | None, ...]) -> Difference:
    address = ipaddress.IPv4Address if family == 4 else ipaddress.IPv6Address
    learned, desired, installed = ("no route" if value is None else value for value in values)
    return Difference(str(address(start)), str(address(end)), learned, desired, installed)
