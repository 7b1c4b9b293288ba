"""What the loops of `vrc.netlink._loops` have to do, in plain Python: slow, and with nothing clever in it."""

import struct

from vrc.netlink.route_messages import RTM_DELROUTE, RTM_NEWROUTE, Change
from vrc.routes.nexthops import NexthopScope
from vrc.routes.system_routes import never_mirrored
from vrc.routes.table import RouteTable

Said = tuple[list[Change], int, int]
"""(changes, routes that are foreign (`Batch`), malformed messages)"""


def plain_scan(buffer: bytes) -> Said:
    """Decode netlink messages; ValueError behind those that can be found."""
    changes: list[Change] = []
    foreign = malformed = 0
    while buffer:
        length, kind, flags = struct.unpack_from("=IHH", buffer.ljust(8, b"\0"))
        if len(buffer) < 16 or not 16 <= length <= len(buffer):
            raise ValueError(changes, foreign, malformed)
        body = buffer[16:length]
        if kind in (RTM_NEWROUTE, RTM_DELROUTE):
            try:
                changes.append((kind, *_route(body), flags))
            except KeyError:
                foreign += 1
            except ValueError:
                malformed += 1
        elif kind in (104, 105):
            changes.append((kind, b"", body, flags))
        buffer = buffer[(length + 3) & ~3 :]
    return changes, foreign, malformed


def _route(body: bytes) -> tuple[bytes, bytes]:
    if len(body) < 12:
        raise ValueError
    size = {2: 4, 10: 16}[body[0]]
    if body[2:5] != bytes((0, 0, 254)) or body[9] & 2:  # RTM_F_CLONED
        raise KeyError
    shape, rest = body[2:12] + struct.pack("=HH", size + 4, 1), body[12:]
    usual = rest.removeprefix(struct.pack("=HHI", 8, 15, 254))
    if usual[:4] == shape[-4:] and len(usual) >= 4 + size and body[1] <= size * 8:
        address = usual[4 : 4 + size]
        if not int.from_bytes(address, "big") & (1 << size * 8 - body[1]) - 1:
            return address + body[1:2], shape + usual[4 + size :]  # what follows is looked at with the shape
    address = bytes(size)
    while len(rest) >= 4:
        length, kind = struct.unpack_from("=HH", rest)
        if not 4 <= length <= len(rest):
            raise ValueError
        value = rest[4:length]
        if kind & 0x3FFF == 1:
            address = value
        elif kind & 0x3FFF == 15:
            if value != struct.pack("=I", 254):
                raise KeyError
        else:
            shape += rest[: (length + 3) & ~3]
        rest = rest[(length + 3) & ~3 :]
    if len(address) != size or body[1] > size * 8:
        raise ValueError
    hosts = (1 << size * 8 - body[1]) - 1
    return (int.from_bytes(address, "big") & ~hosts).to_bytes(size, "big") + body[1:2], shape


def plain_apply(table: RouteTable, changes: list[Change], scope: NexthopScope) -> None:
    """Take changes into a table as `RouteTable.apply` has to."""
    routes, dirty = table._routes, table._dirty
    for kind, key, shape, _ in changes:
        old = routes.get(key)
        if kind == RTM_NEWROUTE:
            if never_mirrored(key):
                table.counters.ignored_prefix += 1
                continue
            binding = scope.bind(shape)
            if old is None and len(routes) >= table.limit:
                table.counters.full += 1
            elif old is not binding:
                before = old.set_id if old is not None else 0
                if before != binding.set_id:
                    dirty[len(key)][key] = binding.set_id
                if old is not None:
                    old.routes -= 1
                binding.routes += 1
                routes[key] = binding
        elif kind == RTM_DELROUTE:
            if old is not None:
                del routes[key]
                old.routes -= 1
                if old.set_id:
                    dirty[len(key)][key] = 0
            if table.withdrawn is not None:
                table.withdrawn.add(key)
        else:
            scope.change(kind, shape)
    table._repoint(scope.settle())
    scope.sweep()
