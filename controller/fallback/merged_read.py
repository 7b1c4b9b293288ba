"""What a hardware plane and its fallback were read to hold, and have counted, as if one plane said it."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from controller.fallback.installed_entries import Barred
from controller.planes.base import (
    Counters,
    HardwareShare,
    Installed,
    Nexthop,
    NexthopGroup,
    Policer,
    RouterInterface,
)

E = TypeVar("E", Nexthop, NexthopGroup, Policer)
K = TypeVar("K")

Ends = tuple[RouterInterface, RouterInterface]
"""A router interface as the hardware and as the fallback are to have it."""


def merged(
    hard: Installed, soft: Installed, barred: Barred, ends: Callable[[RouterInterface], Ends | None]
) -> Installed:
    """Return what both hold as the FIB declares it; what they do not have alike is damaged.

    But for nexthops and groups that are ``barred`` from the hardware. ``ends`` tells how both are to have a router
    interface, None where that is not known.
    """
    found = Installed(routes=soft.routes, damaged=hard.damaged | soft.damaged, foreign=hard.foreign + soft.foreign)
    links = {i: one.fallback for i, one in hard.router_interfaces.items() if one.fallback is not None}
    found.hardware = HardwareShare(hard.routes, links)
    for interface_id in hard.router_interfaces.keys() | soft.router_interfaces.keys():
        here, there = hard.router_interfaces.get(interface_id), soft.router_interfaces.get(interface_id)
        either = here if here is not None else there
        assert either is not None
        found.router_interfaces[interface_id] = declared = replace(either, fallback=None)
        wanted = ends(declared)
        if wanted is not None and (here, there) != wanted:
            found.damaged.add(("router_interface", interface_id))
    _merge("policer", found.policers, hard.policers, soft.policers, found.damaged)
    _merge("nexthop", found.nexthops, hard.nexthops, soft.nexthops, found.damaged, barred.nexthops)
    _merge("nexthop_group", found.groups, hard.groups, soft.groups, found.damaged, barred.groups)
    return found


def _merge(
    table: str,
    found: dict[int, E],
    hard: dict[int, E],
    soft: dict[int, E],
    damaged: set[tuple[str, int]],
    barred: Iterable[int] = (),
) -> None:
    """Take entries of both; those that the two do not have alike are damaged, but for what the hardware refused."""
    found.update(hard | soft)
    without = set(barred)
    for entry_id in found:
        if soft.get(entry_id) != hard.get(entry_id) and not (entry_id in without and entry_id in soft):
            damaged.add((table, entry_id))


def summed(hard: Counters, soft: Counters) -> Counters:
    """Return the counters of both: an interface's are the hardware's, which sees every packet of it once."""
    _add(hard.punts, soft.punts)
    _add(hard.drops, soft.drops)
    return hard


def _add(counts: dict[K, tuple[int, int]], others: dict[K, tuple[int, int]]) -> None:
    for key, (packets, octets) in others.items():
        known = counts.get(key, (0, 0))
        counts[key] = (known[0] + packets, known[1] + octets)
