"""Which ports of a plane its routers use, and who follows one that has changed.

A port with VLANs may have thousands of routers. The first follow at once, the others in turns of the event loop; a
change meanwhile begins anew, and whoever follows looks at the ports as they are then.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping

from controller.planes.base import Plane, PortState
from controller.shard.loop_share import LoopAccount, LoopShare

FOLLOW_AT_ONCE = 64
"""Routers that follow a port in one turn: a millisecond or two."""


class RouterPorts:
    """The ports of one plane; ``follow`` has routers, by vrf_id, take in their states."""

    def __init__(self, plane: Plane, follow: Callable[[list[int]], None]) -> None:
        self._plane, self._follow = plane, follow
        self._routers: dict[str, dict[int, None]] = {}  # vrf_ids by port
        self._used: dict[int, frozenset[str]] = {}  # ports by vrf_id
        self._states: dict[str, tuple[int, bool]] = {}
        self._names: dict[int, str] = {}  # by number
        self._known = False  # the two are as the plane has its ports
        self._changed: dict[str, Iterator[None]] = {}  # ports that some are still to follow
        self._more = asyncio.Event()

    def use(self, vrf_id: int, ports: frozenset[str]) -> None:
        """Note which ports a router uses from now on."""
        before = self._used.pop(vrf_id, frozenset())
        for port in before - ports:
            del self._routers[port][vrf_id]
            if not self._routers[port]:
                del self._routers[port]
        for port in ports - before:
            self._routers.setdefault(port, {})[vrf_id] = None
        if ports:
            self._used[vrf_id] = ports

    def states(self) -> Mapping[str, tuple[int, bool]]:
        """Return the plane's ports: name → number and whether it is up."""
        if not self._known:
            self._known, self._states, self._names = True, {}, {}
            for port in self._plane.ports.values():
                self._take(port)
        return self._states

    def _take(self, port: PortState) -> None:
        name = self._names.pop(port.number, port.name)
        if self._states.get(name, (port.number, False))[0] == port.number:
            self._states.pop(name, None)
        if port.present:
            self._names[port.number] = port.name
            self._states[port.name] = port.number, port.up

    def read_anew(self) -> None:
        """The plane has come or gone: its ports may be others."""
        self._known = False

    def changed(self, port: PortState) -> None:
        """Have the routers at a port follow it."""
        self._take(port)
        steps = self._steps(port.name)
        if next(steps, self) is None:
            self._changed[port.name] = steps
            self._more.set()
        else:
            self._changed.pop(port.name, None)

    def _steps(self, port: str) -> Iterator[None]:
        vrf_ids = list(self._routers.get(port, ()))
        for start in range(0, len(vrf_ids), FOLLOW_AT_ONCE):
            if start:
                yield
            self._follow(vrf_ids[start : start + FOLLOW_AT_ONCE])

    async def run(self, loop_share: LoopShare, account: LoopAccount) -> None:
        """Have the others follow as well, until cancelled."""
        while True:
            while not self._changed:
                await self._more.wait()
                self._more.clear()
            await loop_share.take(account, "ports that have changed", self._left())

    def _left(self) -> Iterator[None]:
        while self._changed:
            port, steps = next(iter(self._changed.items()))
            if next(steps, self) is self:
                del self._changed[port]
            yield
