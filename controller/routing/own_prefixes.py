"""The prefixes of one router that no daemon has to announce: its own addresses and its neighbors."""

from controller.planes.base import LOCAL, RouteKind, route_action
from controller.routing.resolve import Resolution

_HOST_BITS = {4: 32, 16: 128}


class OwnPrefixes(dict[bytes, int]):
    """Host prefix → action: own addresses are LOCAL, resolved neighbors a nexthop.

    Link-local addresses are never routes, as they mean another host on each link.
    """

    def __init__(self, resolution: Resolution) -> None:
        super().__init__()
        self._resolution = resolution

    def is_local(self, key: bytes) -> bool:
        """Tell whether a prefix is an own address."""
        return self.get(key) == LOCAL

    def refresh(self, address: bytes) -> bytes:
        """Follow interfaces and neighbors with what they say of an address; returns its prefix."""
        key = address + bytes((_HOST_BITS[len(address)],))
        resolution = self._resolution
        action: int | None = None
        if address in resolution.local:
            action = LOCAL
        elif not _link_local(address) and (found := resolution.neighbors.by_address.get(address)):
            action = route_action(RouteKind.NEXTHOP, resolution.nexthop(next(iter(found)), address).id)
        if action is None:
            self.pop(key, None)
        else:
            self[key] = action
        return key


def _link_local(address: bytes) -> bool:
    if len(address) == 4:
        return address[:2] == b"\xa9\xfe"
    return address[0] == 0xFE and address[1] & 0xC0 == 0x80
