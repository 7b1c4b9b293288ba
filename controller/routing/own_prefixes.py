"""The prefixes of one router that no daemon has to announce: its own addresses, and its neighbors on connected links.

A neighbor is on a link where the routes say so. Linux enters any address as one, whoever asks for its MAC with it as
the sender's: that of another link, with which hosts of two links ask by either, a service's that several hosts have,
or somebody else's altogether. None of these may take the packets of a route.
"""

from controller.planes.base import LOCAL, RouteKind, route_action
from controller.routing.resolve import Resolution
from controller.routing.rib import Rib
from wire.columns import family_of

NEIGHBOR_COST = 100
"""What it costs to look for the longest route to a neighbor, some 10 µs of IPv4, as in `table_pass`."""

_NOTED_AT_ONCE = 1_000
"""Neighbors that one message of routes has looked at; where it reaches more, it is all, which needs no list."""

_HOST_BITS = {4: 32, 16: 128}


class OwnPrefixes(dict[bytes, int]):
    """Host prefix → action: own addresses are LOCAL, resolved neighbors to whom a connected route leads a nexthop.

    Link-local addresses are never routes, as they mean another host on each link. Nor are neighbors for whose nexthop
    a quota has no room: packets to them are gleaned, as to those that are not resolved.
    """

    def __init__(self, resolution: Resolution, rib: Rib) -> None:
        super().__init__()
        self.over_quota: dict[bytes, str] = {}  # addresses of neighbors without a nexthop, and why
        self._resolution, self._rib = resolution, rib
        self._waiting: dict[bytes, None] = {}  # addresses to be looked at
        self._all = False  # all neighbors are

    def clear(self) -> None:
        """Want none any more."""
        super().clear()
        self.over_quota.clear()
        self._waiting.clear()
        self._all = False

    def is_local(self, key: bytes) -> bool:
        """Tell whether a prefix is an own address."""
        return self.get(key) == LOCAL

    def refresh(self, address: bytes) -> tuple[bytes, ...]:
        """Follow interfaces, neighbors and routes with what they say of an address; returns its prefix.

        That of an address that neither is one of these nor was stays as it is: until the routes have been told, an
        adopted one may be a neighbor's.
        """
        key = address + bytes((_HOST_BITS[len(address)],))
        resolution = self._resolution
        action: int | None = None
        self.over_quota.pop(address, None)
        if address in resolution.local:
            action = LOCAL
        elif not _link_local(address) and (interface_id := self._interface_to(address)):
            action = self._to_neighbor(interface_id, address)
        if action is not None:
            self[key] = action
        elif self.pop(key, None) is None:
            return ()
        return (key,)

    def follow(self, changed: list[bytes]) -> list[bytes]:
        """Have `refresh_waiting` look at the neighbors to whom another route may lead now that prefixes have changed;
        returns these."""
        moved, self._rib.connected_moved = self._rib.connected_moved, False
        if changed and self._resolution.neighbors.by_address:
            self._all = self._all or moved or self._reach_many(changed)
        return changed

    def _reach_many(self, changed: list[bytes]) -> bool:
        """Note the neighbors in prefixes that are longer than some connected one; True, at once, where these are too
        many to be noted here."""
        stride, joined = len(changed[0]), b"".join(changed)
        if len(joined) != stride * len(changed):
            alike = ([key for key in changed if len(key) == one] for one in {*map(len, changed)})
            return any(map(self._reach_many, alike))
        shortest = self._rib.shortest_connected(family_of(changed[0]))
        lengths = joined[stride - 1 :: stride]  # of all at once: in a full table few are longer
        if shortest is None or not lengths.translate(None, bytes(range(shortest + 1))):
            return False
        room = _NOTED_AT_ONCE
        for key in changed:
            if key[-1] > shortest:
                found = self._resolution.neighbors.within(key, room + 1)
                room -= len(found)
                if room < 0:
                    return True
                self._waiting.update(dict.fromkeys(found))
        return False

    def _interface_to(self, address: bytes) -> int:
        """Return the interface by which the routes lead to a neighbor, 0 where they lead elsewhere."""
        found = self._resolution.neighbors.by_address.get(address)
        one = self._rib.connected_to(address) if found else None
        if not found or one is None:
            return 0
        return next((member.interface_id for member in one.members if member.interface_id in found), 0)

    def _to_neighbor(self, interface_id: int, address: bytes) -> int | None:
        resolution, usage = self._resolution, self._resolution.usage
        if (interface_id, address) not in resolution.nexthops and usage.nexthops_for_neighbors <= 0:
            self.over_quota[address] = usage.full("nexthops")
            return None
        return route_action(RouteKind.NEXTHOP, resolution.nexthop(interface_id, address).id)

    def retry_over_quota(self) -> None:
        """Have `refresh_waiting` look at neighbors that a quota kept out."""
        self._waiting.update(dict.fromkeys(self.over_quota))

    @property
    def waits(self) -> bool:
        """Whether there is anything for `refresh_waiting`."""
        return self._all or bool(self._waiting)

    def refresh_waiting(self, cost: int) -> tuple[int, list[bytes]]:
        """Look at neighbors that wait for that, as far as that costs no more.

        Returns the cost that is not used up, and the prefixes that may have changed.
        """
        if self._all and cost > 0:
            self._all, self._waiting = False, dict.fromkeys(self._resolution.neighbors.by_address)
        changed: list[bytes] = []
        while self._waiting and cost > 0:
            cost -= NEIGHBOR_COST
            changed += self.refresh(self._waiting.popitem()[0])
        return cost, changed


def _link_local(address: bytes) -> bool:
    if len(address) == 4:
        return address[:2] == b"\xa9\xfe"
    return address[0] == 0xFE and address[1] & 0xC0 == 0x80
