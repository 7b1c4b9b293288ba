"""A route source that falls silent is seen, brought back, and all routes follow."""

import pytest
from e2e_single import ROUTER, single
from rig import until

pytestmark = pytest.mark.root


def test_a_zebra_without_fpm_is_degraded_and_told_to_connect_again() -> None:
    with single("ip route 192.0.2.0/24 10.2.0.2\n") as one:
        rig = one.rig
        before = rig.router(ROUTER)["ipv4_routes"]
        one.guest("vtysh", "-c", "configure terminal", "-c", "no fpm address")
        one.guest("vtysh", "-c", "configure terminal", "-c", "ip route 198.51.100.0/24 10.2.0.2")
        until("it shows", lambda: rig.router(ROUTER)["state"] == "degraded")
        reason = rig.router(ROUTER)["reason"]
        assert reason.startswith("fpm: zebra does not send routes (no FPM connection)"), reason
        rig.up(ROUTER, routes=before + 1)
        rig.verified()
