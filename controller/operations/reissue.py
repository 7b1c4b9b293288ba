"""New ids for what a backup declares, where the controller that it is restored over has given them to somebody else.

Guests, certificates and entries of planes are known by ids alone: under the id of another tenant's router a restored
one would go on with that one's guest and whatever runs in it. Pure.
"""

from dataclasses import replace

from controller.model import InterfaceConfig, RouterConfig
from controller.spec.state import Ids, State
from controller.store.base import Snapshot


def reissued(restored: State, replaced: Snapshot, ids: Ids) -> State:
    """Return a backup's state whose routers and interfaces have no id that is another router's in ``replaced``.

    Routers of one name are the same one if they have one id as well: one that was declared anew is another. ``ids``
    issues what is new, and nothing that either of both has.
    """
    there = [*replaced.state.routers.values(), *(one.router for one in replaced.tombstones)]
    routers = {router.vrf_id: router.full_name for router in there}
    owners = {one.id: router.vrf_id for router in there for one in router.interfaces}
    owners |= {hold.interface_id: hold.vrf_id for hold in replaced.holds}
    ids.taken |= routers.keys()

    def apart(router: RouterConfig) -> RouterConfig:
        free = routers.get(router.vrf_id, router.full_name) == router.full_name
        vrf_id = router.vrf_id if free else ids.vrf()
        interfaces = tuple(
            one if owners.get(one.id, vrf_id) == vrf_id else _with_id(one, ids.interface(), ids)
            for one in router.interfaces
        )
        return replace(router, vrf_id=vrf_id, interfaces=interfaces)

    return replace(restored, routers={name: apart(router) for name, router in restored.routers.items()})


def _with_id(interface: InterfaceConfig, issued: int, ids: Ids) -> InterfaceConfig:
    """Return an interface with another id, and with that one's MAC where it declares none."""
    own = interface.mac == ids.mac(interface.id)
    return replace(interface, id=issued, mac=ids.mac(issued) if own else interface.mac)
