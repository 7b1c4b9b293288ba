"""What the loops of `controller.routing._routes` have to do, in plain Python."""

from collections.abc import Callable

from controller.planes.base import Op, RouteUpdates
from controller.routing.prefixes import Desired, PrefixTable, RouteTicket
from controller.routing.rib import Rib


def plain_replace(rib: Rib, family: int, keys: list[bytes], set_ids: list[int]) -> list[bytes]:
    """Apply one Routes message; KeyError, and nothing applied, where a set id is not defined."""
    sets = [rib.names[set_id] if set_id else None for set_id in set_ids]
    changed, left = [], []
    for key, new in zip(keys, sets, strict=True):
        old = rib.routes.get(key)
        if old is new:
            continue
        changed.append(key)
        rib.counts[family] += (new is not None) - (old is not None)
        if old is not None:
            old.routes -= 1
            left.append(old)
            del rib.routes[key]
        if new is not None:
            new.routes += 1
            rib.routes[key] = new
    if rib._repeated is not None:
        rib._repeated.add(keys)
    rib._loose.update(dict.fromkeys(one for one in left if not one.routes))
    return changed


def plain_take(
    table: PrefixTable, limit: int, desired: Desired, exempt: Callable[[bytes], bool]
) -> tuple[list[RouteUpdates], RouteTicket]:
    """Take prefixes off a queue as `PrefixTable.take` has to."""
    columns = {5: RouteUpdates(table._vrf_id, 4), 17: RouteUpdates(table._vrf_id, 6)}
    ticket, usage, quota = RouteTicket(), table._usage, table._usage.quota
    for key in list(table._queue)[:limit]:
        del table._queue[key]
        table._taken += 1
        have, want = table.installed.get(key), desired.decide(key)
        if have == want:
            table.refused.pop(key, None)
            continue
        if have is None:
            name = "ipv4_routes" if len(key) == 5 else "ipv6_routes"
            if getattr(usage, name) >= getattr(quota, name) and not exempt(key):
                table.refused[key] = f"quota {name} of {getattr(quota, name)}"
                continue
            table.refused.pop(key, None)
        else:
            ticket.released.append(have)
        table.find(key, want)
        if have is not None:  # its reference stays until the plane has confirmed the update
            table._references[have] = table._references.get(have, 0) + 1
            table.let_go.pop(have, None)
        column = columns[len(key)]
        column.ops.append(Op.DELETE if want is None else Op.INSERT if have is None else Op.MODIFY)
        column.keys.append(key)
        column.actions.append(want or 0)
    ticket.taken = table._taken
    return [column for column in columns.values() if column.keys], ticket
