"""Link and admin state goes both ways between the plane's port and the guest's interface; neighbors may move."""

from collections.abc import Iterator

import pytest
from e2e_single import FAR, ROUTER, Single, single
from rig import until
from rig_switches import BRIDGE
from vrc_guest import MGMTD

from lab.namespaces import QUIETLY

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def net() -> Iterator[Single]:
    with single("ip route 192.0.2.0/24 10.2.0.2\nip route 198.51.100.0/24 10.2.0.2 right\n") as found:
        until("the route", lambda: "192.0.2.0/24" in prefixes(found))
        yield found


async def reaches(net: Single, count: int = 3) -> None:
    assert await net.left.ping(FAR, count) == count


def prefixes(net: Single) -> set[str]:
    return {one["prefix"] for one in net.rig.show("fib", ROUTER)}


def learned(net: Single) -> set[str]:
    return {one["prefix"] for one in net.rig.show("routes", ROUTER)}


async def test_a_port_that_goes_down(net: Single) -> None:
    """FRR sees it as it sees any link that loses carrier."""
    net.rig.ovs.ofctl("mod-port", BRIDGE, net.narrow.link, "down")
    until("no carrier", lambda: "NO-CARRIER" in net.guest("ip", "link", "show", "narrow"))
    until("its routes gone", lambda: "10.3.0.0/24" not in prefixes(net))
    assert (net.interface("narrow")["up"], net.interface("narrow")["port_up"]) == (False, False)
    # Linux keeps the connected route, as `linkdown`, and FRR 10.3 does not tell that it has withdrawn it.
    assert "10.3.0.0/24 dev narrow" in net.guest("ip", "route", "show", "table", "main")
    until("it is not learned", lambda: "10.3.0.0/24" not in learned(net))
    net.rig.verified()
    net.rig.ovs.ofctl("mod-port", BRIDGE, net.narrow.link, "up")
    until("carrier again", lambda: "NO-CARRIER" not in net.guest("ip", "link", "show", "narrow"))
    until("its routes", lambda: "10.3.0.0/24" in prefixes(net))
    assert await net.left.ping("10.3.0.2", 3) == 3
    net.rig.verified()


async def test_an_interface_declared_down(net: Single) -> None:
    narrow = net.declared["routers"][0]["interfaces"][2]
    narrow["admin"] = "down"
    net.rig.apply(net.declared)
    until("it is down", lambda: not net.interface("narrow")["up"])
    until("and in the guest", lambda: "state DOWN" in net.guest("ip", "link", "show", "narrow"))
    assert await net.left.ping("10.3.0.2", 1, *QUIETLY) == 0
    narrow["admin"] = "up"
    net.rig.apply(net.declared)
    until("it is up", lambda: net.interface("narrow")["up"])
    assert await net.left.ping("10.3.0.2", 5) >= 4


async def test_a_neighbor_that_changes_its_mac(net: Single) -> None:
    """The new one announces itself by asking for its gateway, as a host does that comes up."""
    await reaches(net)
    net.right.ip("link", "set", "eth0", "address", "02:00:00:00:00:77")
    net.right.ip("neigh", "flush", "dev", "eth0")
    assert await net.right.ping("10.2.0.1", 1) == 1
    until("the new MAC", lambda: "02:00:00:00:00:77" in net.rig.ok("neighbors", ROUTER))
    net.rig.becomes_equal()
    await reaches(net)
    net.rig.verified()


# The last but one, as the route is missing afterwards.
@pytest.mark.xfail(
    MGMTD,
    reason="FRR 10.3 with FPM, alone, never puts back a route of a mere gateway whose link was down: docs/frr.md",
    strict=True,
)
async def test_an_interface_taken_down_in_the_guest(net: Single) -> None:
    await reaches(net)
    net.guest("ip", "link", "set", "right", "down")
    until("it is down on the plane", lambda: not net.interface("right")["up"])
    assert net.interface("right")["port_up"]
    until("its routes gone", lambda: not prefixes(net) & {"10.2.0.0/24", "192.0.2.0/24"})
    _, text = await net.left.run("ping", "-n", "-c", "1", "-W", "20", FAR)
    assert "Destination Net Unreachable" in text
    assert await net.right.ping("10.2.0.1", 1, *QUIETLY) == 0
    net.rig.verified()
    net.guest("ip", "link", "set", "right", "up")
    until("it is up again", lambda: net.interface("right")["up"] and "192.0.2.0/24" in prefixes(net))
    await reaches(net)
    net.rig.verified()


async def test_a_route_that_names_its_interface_is_back_with_it(net: Single) -> None:
    """Also on FRR 10.3 (docs/frr.md)."""
    named = "198.51.100.0/24"
    net.guest("ip", "link", "set", "right", "down")
    until("the route gone", lambda: named not in prefixes(net))
    net.guest("ip", "link", "set", "right", "up")
    until("the route", lambda: named in prefixes(net) and named in net.guest("ip", "route", "show", "table", "main"))
