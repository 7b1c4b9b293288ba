"""What is done for all tenants at once looks at each of them once: meanwhile nothing else happens."""

import functools
from collections.abc import Callable

import pytest
from growth import MUCH, TIMES, Growth
from operator_world import Controller

from controller.model import (
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
def of_many(count: int) -> State:
    """Return a state in which each tenant has one VLAN of a port, and a router."""
    tenants, routers = {}, {}
    for number in range(1, count + 1):
        name, port, vlan = f"t{number}", f"p{number // MAX_VLAN}", number % MAX_VLAN + 1
        tenants[name] = TenantConfig(name, (SliceConfig("s1", ((port, frozenset({vlan})),), id=number),))
        interface = InterfaceConfig(number, "eth0", port, vlan, b"\2\x53\0" + number.to_bytes(3, "big"), 1500, ())
        router = RouterConfig(number, name, "r1", "s1", Quota(), (interface,), slice_id=number)
        routers[router.full_name] = router
    return State({"s1": PlaneConfig("s1", PlaneKind.FAKE)}, tenants, routers)


def checked(_: Controller, state: State) -> bool:
    check(state, Where())
    return True


def read(controller: Controller, state: State) -> bool:
    return controller.store.load().state == state


def shown(controller: Controller, state: State) -> bool:
    views = controller.views.tenant_views()
    return [(view.name, *view.routers) for view in views] == [(name, "r1") for name in sorted(state.tenants)]


@pytest.mark.parametrize("work", [checked, read, shown])
async def test_no_tenant_is_looked_at_for_each_of_thousands(
    controller: Controller, work: Callable[[Controller, State], bool]
) -> None:
    growth = Growth()
    for count in (600, 600 * TIMES):
        state = of_many(count)
        await controller.convergence.commit(state, controller.convergence.ids.copy())
        for _ in range(3):
            with growth.of(count):
                assert work(controller, state)
    assert growth.times < MUCH
