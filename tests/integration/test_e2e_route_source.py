"""A route source that falls silent is seen, brought back, and all routes follow."""

from collections.abc import Iterator

import pytest
from e2e_single import ROUTER, Single, single
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


BIRD = """router id 10.0.0.9;
protocol device {}
protocol kernel { ipv4 { export all; }; }
protocol static { ipv4; route 192.0.2.0/24 via 10.2.0.2; }
"""
WITHOUT = "router id 10.0.0.9; protocol device {} protocol static { ipv4; }"


@pytest.fixture(scope="module")
def bird() -> Iterator[Single]:
    with single(text={"bird": BIRD}) as found:
        found.guest("sh", "-c", f"echo '{WITHOUT}' >/tmp/without.conf")
        yield found


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ("disable kernel1", "(protocol kernel1 is down); it is enabled every 30 s"),
        ('configure "/tmp/without.conf"', "(a text without its protocol kernel is in force); its own is loaded"),
    ],
)
def test_a_bird_that_writes_no_routes_is_degraded_and_has_them_on_the_plane_again(
    bird: Single, order: str, why: str
) -> None:
    rig = bird.rig
    until("the route", lambda: is_forwarded(bird))
    bird.guest("birdc", *order.split())
    until("it is withdrawn", lambda: not is_forwarded(bird))
    until("it shows", lambda: rig.router(ROUTER)["reason"].startswith(f"kernel: BIRD writes no routes {why}"))
    assert rig.router(ROUTER)["state"] == "degraded"
    until("the route again", lambda: is_forwarded(bird))
    rig.up(ROUTER)
    rig.verified()


def is_forwarded(one: Single) -> bool:
    return any(route["prefix"] == "192.0.2.0/24" for route in one.rig.show("fib", ROUTER))
