"""What the operator may ask of a router's placement, and in which words it is answered."""

from collections.abc import Mapping
from dataclasses import replace

from controller.errors import Conflict, NoSuch
from controller.model import Placement, RouterConfig
from controller.spec.state import State
from controller.views import MoveView


def placement_of(state: State, router: RouterConfig, to: str) -> Placement:
    """Return the placement that ``to`` names: one itself, or the router's plane or that plane's fallback.

    Conflict where there is no such place for it, NoSuch for a name that is unknown.
    """
    plane = state.planes[router.plane]
    known = to in set(Placement)
    if not known and to not in state.planes:
        known_planes = ", ".join(sorted(state.planes))
        raise NoSuch("placement or plane", to, f"give hardware, software, auto or a plane (known: {known_planes})")
    behind = plane.fallback.plane if plane.fallback is not None else None
    if not known and to not in (plane.name, behind):
        raise Conflict(
            f"router {router.full_name} cannot move to plane {to}: its ports are on plane {plane.name}, and those of "
            f"{to} are other wires; {_remedy(state, plane.name, behind, to)}"
        )
    if behind is None:
        raise Conflict(
            f"router {router.full_name} has no place to move to or from: plane {plane.name} has no fallback; "
            "apply it with one first"
        )
    if known:
        return Placement(to)
    return Placement.SOFTWARE if to == behind else Placement.HARDWARE


def _remedy(state: State, plane: str, behind: str | None, to: str) -> str:
    """Return what to do instead of moving to a plane that has nothing to do with the router's own."""
    front = next((one.name for one in state.planes.values() if one.fallback and one.fallback.plane == to), to)
    whose = "" if front == to else f", whose fallback {to} is,"
    declare = f"delete the router and declare it on {front}{whose} with ports of that plane"
    return declare if behind is None else f"it moves between {plane} and {behind}, or {declare}"


def placement_before(router: RouterConfig, move: MoveView | None) -> Placement:
    """Return where the routes of a router come from that is moved; Conflict where there is no way back to take."""
    name = f"router {router.full_name}"
    if move is None:
        raise Conflict(f"{name} is not being moved: its placement is {router.placement}; vrctl move --to changes it")
    if not move.before:
        raise Conflict(
            f"{name} is on its way to {move.to} again since its plane came back; it was there before, so there is "
            "nothing to take back"
        )
    if move.before == router.placement:
        raise Conflict(f"{name} is on its way back to {move.before} already")
    return Placement(move.before)


def placed_elsewhere(before: State, after: State) -> list[RouterConfig]:
    """Return the routers, as they were before, that are there still and have another placement."""
    both = ((before.routers.get(name), router) for name, router in after.routers.items())
    return [
        known
        for known, router in both
        if known is not None and known.vrf_id == router.vrf_id and known.placement is not router.placement
    ]


def with_origins(before: State, after: State, moves: Mapping[str, MoveView | None]) -> State:
    """Return a state in which each router that is moved has where it comes from, also if it was moved before that
    was over; ``moves`` are those under way of routers that are placed elsewhere."""
    routers = dict(after.routers)
    for name, router in after.routers.items():
        known = before.routers.get(name)
        if known is None or known.vrf_id != router.vrf_id:
            continue
        came_from = known.came_from
        if known.placement is not router.placement:
            move = moves[name]
            came_from = Placement(move.before) if move is not None and move.before else known.placement
        if router.came_from is not came_from:
            routers[name] = replace(router, came_from=came_from)
    return replace(after, routers=routers)


def cut_short(move: MoveView) -> str:
    """Return what becomes of a move in whose place another one comes."""
    return f"it was on its way to {move.to}: {move.done:,} of {move.total:,} entries moved"
