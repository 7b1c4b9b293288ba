"""What is done for all tenants at once looks at each of them once: meanwhile nothing else happens."""

import functools
import time
from collections.abc import Callable

import pytest
from operator_world import Controller

from controller.model import (
    MAX_ROUTERS,
    InterfaceConfig,
    PlaneConfig,
    PlaneKind,
    Quota,
    RouterConfig,
    SliceConfig,
    TenantConfig,
)
from controller.spec.check import check
from controller.spec.document import MAX_VLAN
from controller.spec.merge import Where
from controller.spec.state import State


@functools.cache
def of_many() -> State:
    """Return a state in which each tenant has one VLAN of a port, and a router."""
    tenants, routers = {}, {}
    for number in range(1, MAX_ROUTERS + 1):
        name, port, vlan = f"t{number}", f"p{number // MAX_VLAN}", number % MAX_VLAN + 1
        tenants[name] = TenantConfig(name, (SliceConfig("s1", ((port, frozenset({vlan})),), id=number),))
        interface = InterfaceConfig(number, "eth0", port, vlan, b"\2\x53\0" + number.to_bytes(3, "big"), 1500, ())
        router = RouterConfig(number, name, "r1", "s1", Quota(), (interface,), slice_id=number)
        routers[router.full_name] = router
    return State({"s1": PlaneConfig("s1", PlaneKind.FAKE)}, tenants, routers)


def checked(_: Controller) -> object:
    return check(of_many(), Where())


def read(controller: Controller) -> object:
    return controller.store.load().state == of_many()


def shown(controller: Controller) -> object:
    return {(view.name, *view.routers) for view in controller.views.tenant_views()} == {
        (name, "r1") for name in of_many().tenants
    }


@pytest.mark.parametrize(("work", "result", "limit_s"), [(checked, None, 1.0), (read, True, 1.6), (shown, True, 2.0)])
async def test_thousands_of_tenants_take_no_time_at_once(
    controller: Controller, work: Callable[[Controller], object], result: object, limit_s: float
) -> None:
    controller.convergence.commit(of_many(), controller.convergence.ids.copy())
    begun_s = time.process_time()
    assert work(controller) == result
    assert time.process_time() - begun_s < limit_s  # of looking at each beside each it is two to ten seconds
