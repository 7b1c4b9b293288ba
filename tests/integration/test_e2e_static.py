"""A router with nothing but `ip route` lines: they are forwarded, changed by difference, and come back with links."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_single import FAR, FAR6, ROUTER, Single, single
from rig import unbroken, until

pytestmark = pytest.mark.root

TEXT = """# both families
route add 192.0.2.0/24 via 10.2.0.2
-6 route add 2001:db8:ff::/48 via 2001:db8:2::2
"""


@pytest.fixture(scope="module")
def net() -> Iterator[Single]:
    with single(text={"ip": TEXT}) as found:
        yield found


def declared(net: Single, text: str = TEXT, **left: object) -> dict[str, Any]:
    """The tenant with another text, or with another left interface."""
    router = net.declared["routers"][0]
    first, *others = router["interfaces"]
    return net.declared | {"routers": [router | {"ip": text, "interfaces": [first | left, *others]}]}


def prefixes(net: Single) -> set[str]:
    return {one["prefix"] for one in net.rig.show("fib", ROUTER) if one["action"] != "local"}


async def test_routes_of_both_families_are_forwarded(net: Single) -> None:
    until("both", lambda: {"192.0.2.0/24", "2001:db8:ff::/48"} <= prefixes(net))
    assert await net.left.ping(FAR, 3) == 3
    assert await net.left.ping(FAR6, 3) == 3
    until("all is up", lambda: net.rig.api.get("routers", "red", "r1", "daemons") == {"vrc": "up", "ip": "up"})
    assert net.rig.process(ROUTER, "zebra") == 0
    net.rig.verified()


async def test_a_change_is_the_difference_and_what_stays_loses_nothing(net: Single) -> None:
    rig = net.rig
    more = (
        TEXT.replace("# both families", "route add blackhole 198.51.100.0/24") + "route add 203.0.113.0/24 dev lo\n"
    )
    with unbroken(rig, (net.left, FAR)):
        rig.apply(declared(net, more))
        until("the new ones", lambda: "198.51.100.0/24" in prefixes(net))
        rig.apply(declared(net))
        until("their end", lambda: "198.51.100.0/24" not in prefixes(net))
    rig.verified()


async def test_routes_come_back_with_their_link(net: Single) -> None:
    rig, text = net.rig, TEXT + "route add 203.0.113.0/24 via 10.1.0.2\n"
    rig.apply(declared(net, text))
    until("the route", lambda: "203.0.113.0/24" in prefixes(net))
    rig.apply(declared(net, text, admin="down"))
    until("its end", lambda: "203.0.113.0/24" not in prefixes(net))
    rig.apply(declared(net, text))
    until("the route again", lambda: "203.0.113.0/24" in prefixes(net))
    rig.apply(declared(net))
    rig.up(ROUTER)
    assert await net.left.ping(FAR, 3) == 3


async def test_a_guest_that_starts_anew_has_its_routes_again(net: Single) -> None:
    rig = net.rig
    before = rig.guest_pid(ROUTER)
    with unbroken(rig, (net.left, FAR)):  # the plane forwards for the hold time
        os.kill(before, signal.SIGKILL)
        until("its death is seen", lambda: f"guest-died {ROUTER}" in rig.ok("events"))
        rig.up(ROUTER)
        until("every route is learned anew", lambda: not any(one["stale"] for one in rig.show("routes", ROUTER)))
    assert rig.guest_pid(ROUTER) != before
    assert await net.left.ping(FAR, 3) == 3
