"""kill -9 of zebra: nothing is withdrawn; after the hold time goes what the daemons did not bring back."""

import pytest
from vrc_guest import Controller, guest, interface

pytestmark = pytest.mark.root

HOLD_S = 8  # longer than zebra and staticd take to be up again beside other tests

BEFORE = """
ip route 10.50.0.0/24 10.1.0.2
ip route 10.51.0.0/24 10.1.0.2
ip route 10.51.0.0/24 10.2.0.2
ip route 10.52.0.0/24 10.2.0.2
"""
# Other routes in another order: zebra gives the nexthop ids of its first life to other nexthops.
AFTER = """
ip route 10.40.0.0/24 10.2.0.9
ip route 10.51.0.0/24 10.1.0.2
ip route 10.51.0.0/24 10.2.0.2
ip route 10.52.0.0/24 10.2.0.2
"""


async def test_zebra_killed_under_k() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"), interface(2, "10.2.0.1/24"), hold_time_s=HOLD_S)
    async with guest(controller) as g:
        await g.start_vrc()
        await controller.until(lambda: len(controller.interfaces) == 2)
        await g.start_zebra(f"-K{HOLD_S}")
        await g.start_daemon("staticd", BEFORE)
        await controller.until(lambda: len(controller.routes) == 5 and bool(controller.resync_ends))  # told
        kept = {prefix: controller.routes[prefix] for prefix in ("10.51.0.0/24", "10.52.0.0/24")}
        stale = controller.routes["10.50.0.0/24"]

        controller.writes.clear()
        await g.kill_zebra()
        await controller.until(lambda: "fpm-lost" in controller.notices)
        await g.start_zebra(f"-K{HOLD_S}")
        await g.start_daemon("staticd", AFTER)
        await controller.until(lambda: "10.40.0.0/24" in controller.routes)
        assert controller.routes["10.50.0.0/24"] == stale
        await controller.until(lambda: "10.50.0.0/24" not in controller.routes)
        touched = {prefix for prefix, _ in controller.writes}
        assert touched == {"10.40.0.0/24", "10.50.0.0/24"}  # what did not change was never touched
        assert {prefix: controller.routes[prefix] for prefix in kept} == kept
