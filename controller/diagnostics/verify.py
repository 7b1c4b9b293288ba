"""Proof that what was learned, what is desired and what is installed forward alike, over the whole address space.

Each of the three tables is turned into prefix → what happens to a packet, in terms that all three share (the egress
interfaces with the neighbors' MACs and weights, or the punt or drop), flattened into a function over addresses, and
compared with the others. Ids play no part, so two objects that forward alike are equal.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

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
from controller.routing.ranges import differences, flatten
from controller.routing.rib import NexthopSet
from controller.views import Difference, VerifyView

MAX_SHOWN = 20

PLAIN = {LOCAL: "local", GLEAN: "glean", UNREACHABLE: "unreachable", BLACKHOLE: "blackhole"}


class Describer:
    """Says what an action does, from nexthops and groups as one side knows them."""

    def __init__(self, fib: Fib, read: Installed | None = None) -> None:
        self._fib = fib
        self._nexthops = fib.desired_nexthops if read is None else read.nexthops
        self._groups = fib.desired_groups if read is None else read.groups
        self._cache: dict[int, str] = {}

    def action(self, action: int) -> str:
        """Return what a route action does; the same text for the same forwarding."""
        known = self._cache.get(action)
        if known is None:
            known = self._cache[action] = self._describe(action)
        return known

    def content(self, one: NexthopSet) -> str | None:
        """Return what the routes of a set should do, None where they are not to be installed."""
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


def learned_table(fib: Fib, learned: Mapping[bytes, NexthopSet]) -> dict[bytes, str]:
    """Return what the guest's routes, own addresses and neighbors ask for, less what is refused by name."""
    describer = Describer(fib)
    refused = fib.refused_routes
    sets: dict[NexthopSet, str | None] = {}
    table = {}
    for key, one in learned.items():
        if one not in sets:
            sets[one] = describer.content(one)
        value = sets[one]
        if value is not None and key not in refused:
            table[key] = value
    for key, action in fib.own_actions.items():
        if key not in refused and (action == LOCAL or key not in table):
            table[key] = describer.action(action)
    return table


def desired_table(fib: Fib) -> dict[bytes, str]:
    """Return what the FIB wants."""
    describer = Describer(fib)
    refused = fib.refused_routes
    table = {}
    for key in fib.learned.keys() | fib.own_actions.keys():
        action = fib.desired(key)
        if action is not None and key not in refused:
            table[key] = describer.action(action)
    return table


def installed_table(fib: Fib, read: Installed) -> dict[bytes, str]:
    """Return what the plane does, as read back; where it has a fallback, what the two do together."""
    describer = Describer(fib, read)
    routes = read.routes.get(fib.config.vrf_id, {})
    if read.hardware is not None:
        routes = together(read.hardware.routes.get(fib.config.vrf_id, {}), routes)
    return {key: describer.action(action) for key, action in routes.items()}


def together(hardware: Mapping[bytes, int], software: Mapping[bytes, int]) -> dict[bytes, int]:
    """Return the table that forwards as hardware and its fallback do.

    Each address goes as the hardware's longest match says, and where that is FALLBACK, as the software's. An address
    that the hardware has no match for is not routed, whatever the software has.
    """
    table = {}
    for size, bits in ((5, 32), (17, 128)):
        around: list[tuple[int, int | None, int | None]] = []  # last address, and what the two do, outermost first
        for key in sorted(key for key in hardware.keys() | software.keys() if len(key) == size):
            network = int.from_bytes(key[:-1], "big")
            while around and around[-1][0] < network:
                around.pop()
            _, first, then = around[-1] if around else (0, None, None)
            first, then = hardware.get(key, first), software.get(key, then)
            around.append((network | (1 << bits - key[-1]) - 1, first, then))
            action = then if first == FALLBACK else UNREACHABLE if first is None else first
            if action is not None:
                table[key] = action
    return table


def compare(
    learned: Mapping[bytes, str], desired: Mapping[bytes, str], installed: Mapping[bytes, str]
) -> tuple[list[Difference], int]:
    """Return the first differences and how many ranges differ in all."""
    found: list[Difference] = []
    total = 0
    for family in (4, 6):
        functions = [flatten(table, family) for table in (learned, desired, installed)]
        if functions[0] == functions[1] == functions[2]:
            continue
        for start, end, values in differences(functions, family):
            total += 1
            if len(found) < MAX_SHOWN:
                found.append(_difference(family, start, end, values))
    return found, total


def damage(fib: Fib, read: Installed) -> list[str]:
    """Return the router interfaces, nexthops, groups and policers that are missing or changed on the plane."""
    held: tuple[dict[int, Any], ...] = (read.router_interfaces, read.nexthops, read.groups, read.policers)
    found = []
    for table, installed in zip(fib.tables, held, strict=True):
        for entry_id, entry in table.desired.items():
            if entry_id in table.refused:
                continue
            if installed.get(entry_id) != entry or (table.table, entry_id) in read.damaged:
                found.append(f"{table.table} {entry_id}")
    return found


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


def verified(
    router: str, fib: Fib, learned: dict[bytes, NexthopSet], read: Installed, repaired: int = 0
) -> VerifyView:
    """Compare what a guest's kernel has, what is desired, and what was read back."""
    tables = learned_table(fib, learned), desired_table(fib), installed_table(fib, read)
    found, total = compare(*tables)
    damaged = damage(fib, read)
    return VerifyView(
        router=router,
        equal=not total and not damaged,
        routes=len(tables[0]),
        differences=found,
        total_differences=total,
        damaged=damaged,
        repaired=repaired,
        foreign=read.foreign,
        refused=len(fib.refused_routes),
    )
