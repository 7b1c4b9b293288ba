"""The ports and VLANs that interfaces gave up, each until its plane has confirmed that it is gone from there.

They are found by router and by port: a plane that is away may have those of thousands of deleted routers, and every
router is compared with them every two seconds.
"""

from collections.abc import Iterable, Set
from dataclasses import replace
from typing import TypeVar

from controller.model import RouterConfig
from controller.spec.state import Attachment, Hold, State

_Key = TypeVar("_Key", int, Attachment)


def attachments_of(router: RouterConfig) -> dict[int, Attachment]:
    """Return a router's ports and VLANs by interface id."""
    return {i.id: Attachment(router.plane, i.port, i.vlan) for i in router.interfaces}


def given_up(before: State, after: State) -> list[Hold]:
    """Return the ports and VLANs that interfaces of ``before`` no longer have in ``after``."""
    now = {router.vrf_id: router for router in after.routers.values()}
    changed = [router for router in before.routers.values() if now.get(router.vrf_id) != router]
    kept = {router.vrf_id: attachments_of(now[router.vrf_id]) for router in changed if router.vrf_id in now}
    return [
        Hold(attachment, interface_id, router.vrf_id)
        for router in changed
        for interface_id, attachment in attachments_of(router).items()
        if kept.get(router.vrf_id, {}).get(interface_id) != attachment
    ]


class Holds:
    """What is held, and what that leaves a router."""

    def __init__(self, holds: Iterable[Hold]) -> None:
        self._by_router: dict[int, set[Hold]] = {}
        self._by_port: dict[Attachment, set[Hold]] = {}
        self.add(holds)

    def __bool__(self) -> bool:
        return bool(self._by_router)

    @property
    def routers(self) -> Set[int]:
        """The routers that gave something up, by vrf_id."""
        return self._by_router.keys()

    def of(self, vrf_id: int) -> frozenset[Hold]:
        """Return what a router gave up."""
        return frozenset(self._by_router.get(vrf_id, ()))

    def add(self, holds: Iterable[Hold]) -> None:
        """Hold more."""
        for hold in holds:
            self._by_router.setdefault(hold.vrf_id, set()).add(hold)
            self._by_port.setdefault(hold.attachment, set()).add(hold)

    def end(self, holds: Iterable[Hold]) -> None:
        """Hold these no more."""
        for hold in holds:
            _take(self._by_router, hold.vrf_id, hold)
            _take(self._by_port, hold.attachment, hold)

    def allowed(self, router: RouterConfig) -> RouterConfig:
        """Return a router without the interfaces whose port and VLAN another one still holds."""
        if not self._by_port:
            return router
        free = tuple(
            one
            for one in router.interfaces
            if all(
                hold.interface_id == one.id
                for hold in self._by_port.get(Attachment(router.plane, one.port, one.vlan), ())
            )
        )
        return router if len(free) == len(router.interfaces) else replace(router, interfaces=free)


def _take(known: dict[_Key, set[Hold]], key: _Key, hold: Hold) -> None:
    held = known.get(key, set())
    held.discard(hold)
    if not held:
        known.pop(key, None)
