"""What may be asked of a plane's cores and links: guarantees that can all be kept, and only where there are shares.

the whole of a plane ≥ what its slices are guaranteed, or, of a slice without a guarantee, its routers
             a slice ≥ what its routers are guaranteed
"""

from collections.abc import Collection, Iterator, Set

from controller.model import SHARE_WHOLE, USUAL_SHARE, RouterConfig, Share, SliceConfig, show_part
from controller.spec.reservations import slices_of
from controller.spec.state import State

Problem = tuple[tuple[str, ...], str]
"""Whose line to name, and what is wrong."""

_Asked = dict[tuple[str, ...], tuple[str, int]]
"""By whose line it is: a name and what it is guaranteed."""


def problems(state: State) -> Iterator[Problem]:
    """Walk over guarantees that cannot all be kept."""
    guaranteed: dict[tuple[str, str], list[RouterConfig]] = {}
    for router in state.routers.values():
        if router.share.guarantee:
            guaranteed.setdefault((router.tenant, router.plane), []).append(router)
    for plane in state.planes:
        asked: _Asked = {}
        for (tenant, _), part in slices_of(state, plane):
            routers = guaranteed.get((tenant, plane), [])
            yield from _in_slice(f"{tenant}@{plane}", part, routers)
            if part.share.guarantee:
                name = f"slice {tenant}@{plane}"
                asked["slice", tenant, plane] = name, part.share.guarantee
            else:
                asked |= {("router", one.full_name): (one.full_name, one.share.guarantee) for one in routers}
        if sum(guarantee for _, guarantee in asked.values()) > SHARE_WHOLE:
            yield _too_much(asked, f"plane {plane} has 100 % to guarantee")


def _in_slice(name: str, part: SliceConfig, routers: Collection[RouterConfig]) -> Iterator[Problem]:
    asked: _Asked = {("router", one.full_name): (one.full_name, one.share.guarantee) for one in routers}
    total = sum(guarantee for _, guarantee in asked.values())
    for word, room in (("guarantee", part.share.guarantee), ("ceiling", part.share.ceiling)):
        if room and total > room:
            yield _too_much(asked, f"slice {name} has a {word} of {show_part(room)}")
            return


def _too_much(asked: _Asked, room: str) -> Problem:
    largest = sorted(asked, key=lambda key: (-asked[key][1], key))
    shown = [f"{asked[key][0]} {show_part(asked[key][1])}" for key in largest[:3]]
    more = f" and {len(largest) - 3} more" if len(largest) > 3 else ""
    total = show_part(sum(guarantee for _, guarantee in asked.values()))
    return largest[0], f"{room}, and guarantees come to {total} ({', '.join(shown)}{more}); lower one"


def unsupported(before: State, after: State, without: Set[str]) -> Iterator[Problem]:
    """Walk over shares that a new state asks of planes ``without`` any. What the state before asks of them already is
    no fault of this change: they may have had shares then."""
    for plane in sorted(without & after.planes.keys()):
        for (tenant, _), part in slices_of(after, plane):
            old = before.slice_of(tenant, plane)
            if _is_new(part.share, None if old is None else old.share):
                yield ("slice", tenant, plane), lacking(plane, f"slice {tenant}@{plane}")
    for router in after.routers.values():
        known = before.routers.get(router.full_name)
        same_plane = known is not None and known.plane == router.plane
        if router.plane in without and _is_new(router.share, known.share if known and same_plane else None):
            yield ("router", router.full_name), lacking(router.plane, f"router {router.full_name}")


def _is_new(share: Share, before: Share | None) -> bool:
    return share not in (USUAL_SHARE, before)


def lacking(plane: str, whose: str) -> str:
    """Return what to say where a plane has no shares."""
    return f"plane {plane} has no shares, and so none for {whose}; leave share out, or use a plane that has them"
