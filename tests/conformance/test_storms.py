"""A storm of punts in one router is policed there, and nobody else's, and no other class, loses a packet."""

import time

import pytest
from case import arrives
from entries import installed
from frames import ARP, ROUTER_ALERT, ipv4, ipv6, mac, tcp, udp
from wired import WiredPlane

from controller.planes.base import (
    GLEAN,
    LOCAL,
    Capability,
    Policer,
    PuntClass,
    PuntPlace,
    PuntReason,
    RouterInterface,
    same_rate,
)
from controller.planes.punt_class import punt_class

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOUD, QUIET = 1, 2
RATE = 20
BURST = 10
MAC, BROADCAST = mac("0200000000aa"), mac("ffffffffffff")
loud = RouterInterface(1, LOUD, 1, 0, MAC, 1500)
quiet = RouterInterface(2, QUIET, 1, 10, MAC, 1500)
quiet_of_loud = RouterInterface(3, LOUD, 1, 20, MAC, 1500)
ROUTES = {"10.9.0.1/32": LOCAL, "10.9.0.0/24": GLEAN, "2001:db8::/64": GLEAN}
POLICERS = [Policer(vrf, same_rate(RATE)) for vrf in (LOUD, QUIET)]
WORLD = installed([*POLICERS, loud, quiet], {LOUD: ROUTES, QUIET: ROUTES})
STORM = 400

STORMS = {
    "OSPF": (PuntReason.CONTROL, ipv4("224.0.0.5", ttl=1, protocol=89), mac("01005e000005")),
    "OSPFv3": (PuntReason.CONTROL, ipv6("ff02::5", "fe80::9", ttl=1, next_header=89), mac("333300000005")),
    "own addresses": (PuntReason.LOCAL, ipv4("10.9.0.1"), MAC),
    "ping": (PuntReason.LOCAL, ipv4("10.9.0.1", protocol=1), MAC),
    "BGP": (PuntReason.LOCAL, ipv4("10.9.0.1", protocol=6, payload=tcp(179, 40_000)), MAC),
    "BFD": (PuntReason.LOCAL, ipv4("10.9.0.1", ttl=255, payload=udp(50_000, 3784)), MAC),
    "glean": (PuntReason.GLEAN, ipv4("10.9.0.77"), MAC),
    "glean, IPv6": (PuntReason.GLEAN, ipv6("2001:db8::77"), MAC),
    "TTL": (PuntReason.TTL_EXPIRED, ipv4("10.9.0.77", ttl=1), MAC),
    "no route": (PuntReason.UNREACHABLE, ipv4("192.0.2.1"), MAC),
    "options without a route": (PuntReason.UNREACHABLE, ipv4("192.0.2.1", options=ROUTER_ALERT), MAC),
}
REQUEST = (PuntReason.CONTROL, bytes(28), BROADCAST)
OF_ALL_CLASSES = [REQUEST, *(STORMS[name] for name in STORMS if "IPv6" not in name and "without" not in name)]


def class_of(punt: tuple[PuntReason, bytes, bytes]) -> PuntClass:
    reason, packet, to = punt
    (frame,) = frames(loud, packet, to, 1)
    return punt_class(reason, frame)


def frames(at: RouterInterface, packet: bytes, to: bytes, count: int) -> list[bytes]:
    return [arrives(at, packet, to, ARP if packet == bytes(28) else None).frame] * count


@pytest.mark.parametrize("storm", STORMS.values(), ids=STORMS)
async def test_a_storm_stays_its_own_matter(wired: WiredPlane, storm: tuple[PuntReason, bytes, bytes]) -> None:
    wired.programmed = None
    began = time.monotonic()
    await wired.program(WORLD)
    reason, packet, to = storm
    wave = frames(loud, packet, to, STORM // 8)
    others = [each for each in OF_ALL_CLASSES if class_of(each) is not class_of(storm)]
    came_up: list[tuple[int, PuntReason]] = []
    for number in range(8):
        seen = await wired.observe(1, *wave, *frames(quiet, *REQUEST[1:], 1))
        came_up += [(interface, why) for interface, why, _ in seen.punts]
        assert seen.punted[LOUD, reason] == len(wave), "punts are counted before the policer"
        if number == 4:
            rest = [frame for each in others for frame in frames(loud, *each[1:], 1)]
            seen = await wired.observe(1, *rest)
            assert [(interface, why) for interface, why, _ in seen.punts] == sorted((1, each[0]) for each in others)
    assert came_up.count((2, PuntReason.CONTROL)) == 8, "the other router's ARP"
    most = 2 * RATE + RATE * (time.monotonic() - began)
    assert BURST <= came_up.count((1, reason)) <= most, "policed"


async def test_a_rate_of_zero_punts_nothing_of_its_class(wired: WiredPlane) -> None:
    wired.programmed = None
    rates = tuple(0 if each is PuntClass.LOCAL else RATE for each in PuntClass)
    world = installed([Policer(LOUD, rates), loud], {LOUD: ROUTES})
    await wired.program(world)
    seen = await wired.observe(1, *frames(loud, *STORMS["own addresses"][1:], 5), *frames(loud, *REQUEST[1:], 1))
    assert [(interface, why) for interface, why, _ in seen.punts] == [(1, PuntReason.CONTROL)]


@pytest.mark.parametrize("storm", ["ping", "BFD", "BGP", "OSPF", "TTL"])
async def test_a_storm_by_one_interface_leaves_another_its_share(wired: WiredPlane, storm: str) -> None:
    if Capability.PUNT_SHARES not in wired.plane.capabilities:
        pytest.skip(f"needs {Capability.PUNT_SHARES}, which {wired.kind} lacks: docs/planes.md, Capabilities")
    wired.programmed = None
    await wired.program(installed([POLICERS[0], loud, quiet_of_loud], {LOUD: ROUTES}))
    reason, packet, to = STORMS[storm]
    for _ in range(4):  # as many as a share has at once
        seen = await wired.observe(1, *frames(loud, packet, to, 50), *frames(quiet_of_loud, packet, to, 1))
        assert [interface for interface, _, _ in seen.punts].count(quiet_of_loud.id) == 1
        assert seen.punted[LOUD, reason] == 51


async def test_what_policers_drop_is_told_by_class(wired: WiredPlane) -> None:
    if Capability.LOST_PUNTS not in wired.plane.capabilities:
        pytest.skip(f"needs {Capability.LOST_PUNTS}, which {wired.kind} lacks: docs/planes.md, Capabilities")
    wired.programmed = None
    await wired.program(installed([*POLICERS, loud, quiet], {LOUD: ROUTES, QUIET: ROUTES}))
    before = await wired.plane.counters()
    seen = await wired.observe(1, *frames(loud, *STORMS["ping"][1:], 100), *frames(quiet, *REQUEST[1:], 1))
    after = await wired.plane.counters()
    dropped = 101 - len(seen.punts)
    assert dropped >= 50
    place = PuntPlace.POLICER
    by_interface = {key: count - before.lost_punts.get(key, 0) for key, count in after.lost_punts.items()}
    by_router = {key: count - before.lost_of_routers.get(key, 0) for key, count in after.lost_of_routers.items()}
    told = (by_interface, (loud.id, PuntClass.ICMP, place)), (by_router, (LOUD, PuntClass.ICMP, place))
    assert sum(lost.get(key, 0) for lost, key in told) == dropped
    assert sum(by_interface.values()) + sum(by_router.values()) == dropped, "and nothing of anybody else"
