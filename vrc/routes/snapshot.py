"""The kernel's own routes as columns, for verify: an independent picture of what the guest's daemons decided."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from vrc.errors import DumpInterrupted, MalformedNetlink
from vrc.netlink.route_messages import RTM_NEWROUTE, Batch
from vrc.netlink.sockets import DUMP_ATTEMPTS, Rtnetlink
from vrc.routes.nexthops import NexthopScope, NexthopSets
from vrc.routes.sources import dump_routes
from vrc.routes.system_routes import never_mirrored
from vrc.routes.table import Columns

_COLUMN_ROUTES = 4096


@dataclass(slots=True)
class _Picture:
    """Routes of one dump, packed: 9 octets for an IPv4 route rather than a hundred."""

    keys: dict[int, bytearray] = field(default_factory=lambda: {5: bytearray(), 17: bytearray()})
    ids: dict[int, "array[int]"] = field(default_factory=lambda: {5: array("I"), 17: array("I")})
    last: bytes = b""

    def add(self, batch: Batch, scope: NexthopScope) -> None:
        for kind, key, shape, _ in batch.changes:
            if not key:
                scope.change(kind, shape)
            elif kind == RTM_NEWROUTE and key != self.last and not never_mirrored(key):
                self.last = key  # routes of a prefix come together, the lowest metric first
                set_id = scope.bind(shape).set_id
                if set_id:
                    self.keys[len(key)] += key
                    self.ids[len(key)].append(set_id)


async def kernel_columns(
    netlink: Rtnetlink, sets: NexthopSets, usable: Callable[[int], int]
) -> AsyncIterator[Columns]:
    """Yield the routes of the guest's kernel whose interfaces are usable.

    The set ids are held until the iteration ends. DumpInterrupted where the table keeps changing, KernelRefused.
    """
    scope = NexthopScope(sets, usable, inline_first=True)
    try:
        picture = await _dump(netlink, scope)
        for stride, family in ((5, 4), (17, 6)):
            keys, ids = bytes(picture.keys[stride]), picture.ids[stride]
            for at in range(0, len(ids), _COLUMN_ROUTES):
                chunk = ids[at : at + _COLUMN_ROUTES].tolist()
                starts = range(at * stride, (at + len(chunk)) * stride, stride)
                yield Columns(family, [keys[start : start + stride] for start in starts], chunk)
    finally:
        scope.sweep(force=True)


async def _dump(netlink: Rtnetlink, scope: NexthopScope) -> _Picture:
    for _ in range(DUMP_ATTEMPTS):
        picture = _Picture()
        try:
            async for batch in dump_routes(netlink):
                picture.add(batch, scope)
        except DumpInterrupted:
            scope.sweep(force=True)  # what routes were bound to, by nexthops that may be others now
            await asyncio.sleep(0)
        except MalformedNetlink as error:
            raise DumpInterrupted(f"dump of routes: {error}") from error
        else:
            return picture
    raise DumpInterrupted("dump of routes: the kernel's table keeps changing")
