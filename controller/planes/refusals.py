"""What the updates of a batch are refused as, and the refusals of one write, whatever the plane is."""

from dataclasses import dataclass, field

from controller.planes.base import (
    ROUTE_TABLE_NAME,
    Nexthop,
    NexthopGroup,
    Op,
    Policer,
    Refused,
    RouterInterface,
    RouteUpdates,
    Update,
)

UpdateKey = tuple[str, int, int, Op]  # table, vrf_id, id, op
RouteUpdateKey = tuple[str, int, bytes, Op]  # table, vrf_id, prefix key, op


def interface_key(update: Update[RouterInterface]) -> UpdateKey:
    """Return what an update of a router interface is refused as."""
    return "router_interface", update.entry.vrf_id, update.entry.id, update.op


def nexthop_key(update: Update[Nexthop]) -> UpdateKey:
    """Return what an update of a nexthop is refused as."""
    return "nexthop", 0, update.entry.id, update.op


def group_key(update: Update[NexthopGroup]) -> UpdateKey:
    """Return what an update of a nexthop group is refused as."""
    return "nexthop_group", 0, update.entry.id, update.op


def policer_key(update: Update[Policer]) -> UpdateKey:
    """Return what an update of a policer is refused as."""
    return "policer", update.entry.vrf_id, update.entry.vrf_id, update.op


def route_key(updates: RouteUpdates, position: int) -> RouteUpdateKey:
    """Return what one update of a column of routes is refused as."""
    return ROUTE_TABLE_NAME[updates.family], updates.vrf_id, updates.keys[position], updates.ops[position]


@dataclass(slots=True)
class Refusals:
    """The refusals of one call of `Plane.write`; of several of one entry the first counts."""

    refused: dict[tuple[str, int, bytes | int], Refused] = field(default_factory=dict)

    def refuse(self, update_key: UpdateKey | RouteUpdateKey, reason: str, full: bool = False) -> None:
        """Note why an update is refused, and whether for want of room."""
        table, vrf_id, key, op = update_key
        self.refused.setdefault((table, vrf_id, key), Refused(table, vrf_id, key, op, reason, full))

    def has_refused(self, update_key: UpdateKey | RouteUpdateKey) -> bool:
        """Tell whether an update of this entry is refused."""
        return update_key[:3] in self.refused
