"""What becomes of packets: forwarded by the switch, or answered by the guest's kernel as any router would."""

import re
from collections.abc import Iterator

import pytest
from e2e_single import FAR, FAR6, NARROW_MTU, ROUTER, Single, single
from rig import until

pytestmark = pytest.mark.root

FRR = """no ip forwarding
no ipv6 forwarding
ip route 192.0.2.0/24 10.2.0.2
ipv6 route 2001:db8:ff::/64 2001:db8:2::2
ip route 203.0.113.0/24 blackhole
ipv6 route 2001:db8:dead::/64 blackhole
ip route 203.0.114.0/24 reject
"""
TRANSIT = ("glean", "unreachable", "ttl_expired", "mtu_exceeded")


@pytest.fixture(scope="module")
def net() -> Iterator[Single]:
    with single(FRR) as found:
        until("the routes", lambda: "2001:db8:dead::/64" in found.rig.ok("fib", ROUTER))
        yield found


def punted(net: Single) -> int:
    """Packets that the guest was given to forward; its neighbors' own grow with time."""
    return sum(net.rig.show("counters", ROUTER)["punts"].get(reason, 0) for reason in TRANSIT)


@pytest.mark.parametrize("address", ["10.2.0.2", "2001:db8:2::2", FAR, FAR6])
async def test_transit_is_forwarded_by_the_switch_alone(net: Single, address: str) -> None:
    assert await net.left.ping(address, 3) == 3  # the first one may go through the guest
    before = punted(net)
    assert await net.left.ping(address, 40) == 40
    assert punted(net) - before < 10


async def test_an_operator_sees_which_routes_carry_traffic(net: Single) -> None:
    def carried() -> dict[str, int]:
        rows = net.rig.show("counters", ROUTER, "--routes")
        assert all((row["plane"], row["counted"]) == ("s1", "exact") for row in rows), rows
        return {row["prefix"]: row["packets"] for row in rows}

    assert await net.left.ping(FAR, 3) == 3  # the first one may go through the guest
    before = carried().get("192.0.2.0/24", 0)
    assert await net.left.ping(FAR, 40) == 40
    until("they are counted", lambda: carried().get("192.0.2.0/24", 0) >= before + 40)


@pytest.mark.parametrize("address", ["10.1.0.2", "2001:db8:1::2"])
async def test_and_the_other_way(net: Single, address: str) -> None:
    assert await net.right.ping(address, 5) == 5


async def test_the_attachment_is_tagged(net: Single) -> None:
    (entry,) = [one for one in net.rig.show("fib", ROUTER) if one["prefix"] == "192.0.2.0/24"]
    assert entry["nexthops"] == [f"right {net.right.mac} port trunk2 vlan 100 weight 1"]


@pytest.mark.parametrize(("address", "router"), [(FAR, "10.1.0.1"), (FAR6, "2001:db8:1::1")])
async def test_traceroute_shows_the_router(net: Single, address: str, router: str) -> None:
    status, text = await net.left.run("traceroute", "-n", "-q", "1", "-w", "20", "-m", "4", address)
    hops = re.findall(r"^ *\d+ +(\S+)", text, re.MULTILINE)
    assert (status, hops) == (0, [router, address]), text


async def test_a_packet_that_is_too_long_is_told_so(net: Single) -> None:
    _, text = await net.left.run("ping", "-n", "-c", "1", "-W", "20", "-M", "do", "-s", "1400", "10.3.0.2")
    assert f"From 10.1.0.1 icmp_seq=1 Frag needed and DF set (mtu = {NARROW_MTU})" in text
    _, text = await net.left.run("ping", "-n", "-c", "1", "-W", "20", "-M", "do", "-s", "1400", "2001:db8:3::2")
    assert f"From 2001:db8:1::1 icmp_seq=1 Packet too big: mtu={NARROW_MTU}" in text
    assert await net.left.ping("10.3.0.2", 3, "-M", "dont", "-s", "1450") == 3  # the guest's kernel fragments
    assert await net.left.ping("10.3.0.2", 3, "-M", "do", "-s", str(NARROW_MTU - 28)) == 3


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("198.18.0.1", "From 10.1.0.1 icmp_seq=1 Destination Net Unreachable"),
        ("203.0.114.1", "From 10.1.0.1 icmp_seq=1 Destination Host Unreachable"),
        ("2001:db8:5::1", "From 2001:db8:1::1 icmp_seq=1 Destination unreachable: No route"),
        ("10.2.0.99", "From 10.1.0.1 icmp_seq=1 Destination Host Unreachable"),
    ],
)
async def test_what_cannot_be_reached_is_told_so(net: Single, address: str, said: str) -> None:
    _, text = await net.left.run("ping", "-n", "-c", "1", "-W", "20", address)
    assert said in text


@pytest.mark.parametrize("address", ["203.0.113.1", "2001:db8:dead::1"])
async def test_a_blackhole_is_silent_and_counted(net: Single, address: str) -> None:
    before = net.rig.show("counters", ROUTER)["drops"]["blackhole"]
    _, text = await net.left.run("ping", "-n", "-c", "3", "-i", "0.05", "-W", "0.3", address)
    assert (" 0 received" in text, "From" in text) == (True, False)
    until("the drops", lambda: net.rig.show("counters", ROUTER)["drops"]["blackhole"] == before + 3)


@pytest.mark.parametrize("address", ["10.1.0.1", "10.2.0.1", "2001:db8:1::1", "2001:db8:3::1"])
async def test_own_addresses_answer(net: Single, address: str) -> None:
    assert await net.left.ping(address, 3) == 3


async def test_and_all_of_it_verifies(net: Single) -> None:
    net.rig.verified()
