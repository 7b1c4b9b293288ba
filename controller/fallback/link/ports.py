"""The link between a hardware plane and its fallback: one VLAN for each router interface, the same both ways.

    hardware ── tagged with the VLAN of the interface that a packet came in by ──► fallback
    hardware ◄─ tagged with the VLAN of the interface that it leaves by ────────── fallback

Nothing of it is stored: after a restart the VLANs are read back with the router interfaces of the fallback, or of the
hardware where the fallback has lost its own. Given anew they could be another interface's on the hardware still, and
lead packets of one tenant into another's tables until both planes are written.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from controller.planes.base import FallbackLink, Plane, RouterInterface

FIRST_VLAN, LAST_VLAN = 2, 4093
"""VLANs that an interface may get (IEEE 802.1Q): 1 is many switches' default, 4095 is reserved."""

PROBE_VLAN = 4094
"""By which the link is proved to carry what it has to."""


@dataclass(frozen=True, slots=True)
class LinkPorts:
    """The ports of the two ends, by name."""

    hardware: str
    software: str


class LinkVlans:
    """VLANs by router interface id; one that was freed is used again as late as possible, for what is under way."""

    def __init__(self) -> None:
        self._by_interface: dict[int, int] = {}
        self._next = FIRST_VLAN

    def adopt(self, hardware: Iterable[RouterInterface], software: Iterable[RouterInterface]) -> None:
        """Take over what the router interfaces of both planes have; where they differ, the fallback's."""
        there = {one.id: one.vlan for one in software}
        taken = set(there.values())
        here = {one.id: one.fallback.vlan for one in hardware if one.fallback and one.fallback.vlan not in taken}
        self._by_interface = {i: vlan for i, vlan in (here | there).items() if FIRST_VLAN <= vlan <= LAST_VLAN}

    def __contains__(self, interface_id: int) -> bool:
        return interface_id in self._by_interface

    def of(self, interface_id: int) -> int | None:
        """Return an interface's VLAN, a free one where it has none yet; None where all are taken."""
        known = self._by_interface.get(interface_id)
        if known is not None:
            return known
        taken = set(self._by_interface.values())
        if len(taken) > LAST_VLAN - FIRST_VLAN:
            return None
        while self._next in taken:
            self._advance()
        issued = self._by_interface[interface_id] = self._next
        self._advance()
        return issued

    def free(self, interface_id: int) -> None:
        """Give back the VLAN of an interface that is gone from both planes."""
        self._by_interface.pop(interface_id, None)

    def keep(self, interface_ids: Collection[int]) -> None:
        """Give back the VLANs of all interfaces but these, which neither plane has."""
        self._by_interface = {i: vlan for i, vlan in self._by_interface.items() if i in interface_ids}

    def _advance(self) -> None:
        self._next = FIRST_VLAN if self._next == LAST_VLAN else self._next + 1


def on_hardware(declared: RouterInterface, port: int, vlan: int) -> RouterInterface:
    """Return a router interface as the hardware has it: with its way to the fallback and back."""
    return replace(declared, fallback=FallbackLink(port, vlan))


def on_software(declared: RouterInterface, port: int, vlan: int) -> RouterInterface:
    """Return a router interface as the fallback has it: attached to the link instead of to its own port."""
    return replace(declared, port=port, vlan=vlan, fallback=None)


def port_number(plane: Plane, port: str) -> int | None:
    """Return the number of a port, None where the plane has none of that name (now)."""
    return next((number for number, state in plane.ports.items() if state.name == port), None)
