"""What is left of a declared state once something is deleted from it, and what has to stay for now. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.errors import Conflict, NoSuch
from controller.model import RouterConfig, names_of
from controller.spec.parse import Parsed
from controller.spec.state import State, Tombstone


def buried(before: State, after: State) -> list[Tombstone]:
    """Return the routers of ``before`` that are not in ``after``, by id."""
    kept = {router.vrf_id for router in after.routers.values()}
    return [Tombstone(router) for router in before.routers.values() if router.vrf_id not in kept]


def without_routers(state: State, names: set[str]) -> State:
    """Return a state without some routers and the links to them; Conflict where a link's other end would stay."""
    for link in state.links:
        ends = {f"{link.tenant}/{end.router}" for end in link.ends}
        if ends & names and not ends <= names:
            stays = (ends - names).pop()
            raise Conflict(f"{(ends & names).pop()} has a link to {stays}; apply {stays} without it, or delete both")
    links = frozenset(link for link in state.links if f"{link.tenant}/{link.ends[0].router}" not in names)
    return replace(state, routers={name: r for name, r in state.routers.items() if name not in names}, links=links)


def without_tenant(state: State, name: str) -> State:
    """Return a state without a tenant and everything of it."""
    if name not in state.tenants:
        raise NoSuch("tenant", name, "see vrctl get tenants")
    after = without_routers(state, {full for full, router in state.routers.items() if router.tenant == name})
    return replace(after, tenants={key: tenant for key, tenant in after.tenants.items() if key != name})


def without_plane(state: State, name: str) -> State:
    """Return a state without a plane; Conflict while a tenant has a slice of it."""
    if name not in state.planes:
        raise NoSuch("plane", name, "see vrctl get planes")
    users = [tenant.name for tenant in state.tenants.values() if any(part.plane == name for part in tenant.slices)]
    if users:
        raise Conflict(f"plane {name} is used by tenants {', '.join(sorted(users))}; delete them first, or detach it")
    for plane in state.planes.values():
        if plane.fallback is not None and plane.fallback.plane == name:
            raise Conflict(f"plane {name} is the fallback of {plane.name}; apply {plane.name} without it first")
    planes = {key: plane for key, plane in state.planes.items() if key != name}
    return replace(state, planes=planes, detached=state.detached - {name})


def without_document(state: State, parsed: Parsed) -> State:
    """Return a state without the routers a document names and without its tenants that have none left."""
    named = {f"{tenant.name}/{router.name}" for tenant, _ in parsed.tenants() for router in tenant.routers}
    after = without_routers(state, named & state.routers.keys())
    tenants = dict(after.tenants)
    for tenant, _ in parsed.tenants():
        if all(router.tenant != tenant.name for router in after.routers.values()):
            tenants.pop(tenant.name, None)
    return replace(after, tenants=tenants)


def stay(state: State, unconfirmed: Mapping[str, Sequence[RouterConfig]]) -> list[str]:
    """Return a line for each plane, of those that were to go, that waits for what was deleted on it or before it.

    ``unconfirmed`` has the deleted routers that each has not confirmed to be gone. A fallback has none of its own,
    and stays as long as the plane that it is behind.
    """
    waiting = {name: routers for name, routers in unconfirmed.items() if routers and name in state.planes}
    lines = [
        f"plane {name} stays until it has confirmed that {names_of(routers)} is gone; delete it then, "
        f"or with vrctl delete plane {name} --force"
        for name, routers in waiting.items()
    ]
    behind = {name: fallback.plane for name in waiting if (fallback := state.planes[name].fallback) is not None}
    lines += [
        f"plane {fallback} stays as the fallback of {name}; delete it after that"
        for name, fallback in behind.items()
        if fallback in unconfirmed
    ]
    return lines
