"""A switch with room for a few routes, and vr-forwarder behind it: one plane to the tenants."""

import re
from collections.abc import Iterator
from functools import partial
from subprocess import DEVNULL

import pytest
from e2e_world import FAR, World, many, world
from rig import unbroken, until
from rig_switches import FALLBACK_SWITCHES, FallbackSwitch, OvsSwitch

from lab.namespaces import sh

pytestmark = pytest.mark.root

ROOM = 40
FEED = many(400)[::2]  # with holes between them, or they would be one entry
ROUTES = 5 + len(FEED)
"""IPv4 routes of red/r1: three connected, one static, one of the feeder's own, and its feed."""


@pytest.fixture(scope="module", params=FALLBACK_SWITCHES)
def running(request: pytest.FixtureRequest) -> Iterator[World]:
    with world(switch=partial(request.param, ipv4_route=ROOM, ipv6_route=ROOM), feed=FEED) as found:
        found.bird.announce("feed")
        found.rig.up("red/r1", routes=ROUTES)
        yield found


def placed(running: World, where: str, router: str = "red/r1") -> set[str]:
    """The prefixes of a router that are in hardware, or in software."""
    return {row["prefix"] for row in running.rig.show("fib", router, "--where", where)}


def place(running: World, placement: str) -> None:
    """Have red's routes move."""
    running.rig.ok("move", "red/r1", "--to", placement)


def test_what_has_no_room_in_hardware_is_in_software(running: World) -> None:
    rig = running.rig
    hardware, software = placed(running, "hardware"), placed(running, "software")
    assert hardware
    assert len(software) > len(FEED) - ROOM
    assert len(hardware | software) == len(hardware) + len(software)
    if isinstance(rig.switch, OvsSwitch):
        assert [line for line in rig.switch.flows() if "push_vlan" in line]
    rig.verified()
    view = {one["name"]: one for one in rig.show("get", "planes")}
    assert view["s1"]["entries"]["hardware ipv4_route"] <= ROOM
    assert view["s1"]["tables"]["ipv4_route"]["source"] == "given"
    assert view["f1"]["tables"]["ipv4_route"]["capacity"] == 1_048_576
    assert view["f1"]["reason"] == "fallback of s1"
    assert view["f1"]["connected"]


def test_traffic_takes_either_way_and_moves_without_loss(running: World) -> None:
    """Back and forth under pings: not one is lost, and each arrives with one hop less."""
    rig = running.rig
    with unbroken(rig, *running.ways):
        for placement in ("software", "hardware", "auto", "software", "auto"):
            place(running, placement)
            if placement == "software":
                until("red in software", lambda: not placed(running, "hardware") - own(running))
            rig.up("red/r1", routes=ROUTES)
            rig.verified()
    hops = sh("ip", "netns", "exec", running.red.left.namespace, "ping", "-c", "1", FAR)
    assert "ttl=63" in hops


def own(running: World) -> set[str]:
    """The router's own addresses, which stay in hardware."""
    return {f"10.{number}.0.1/32" for number in (1, 2, 3)}


def test_a_quota_of_hardware_is_kept_live(running: World) -> None:
    """The rest is in the forwarder, and no packet is lost on the way there or back."""
    rig, quota, red = running.rig, 12, running.declared["red"]

    def used() -> int:
        (view,) = [view for view in rig.show("get", "tenants") if view["name"] == "red"]
        return int(view["slices"][0]["used"]["hardware_ipv4_routes"])

    def declare(**limits: int | None) -> None:
        slices = [part | {"quota": limits} for part in red["slices"]]
        routers = [router | {"placement": "hardware"} for router in red["routers"]]
        rig.apply(red | {"slices": slices, "routers": routers})

    declare(hardware_ipv4_routes=None)
    until("many in hardware", lambda: used() > quota)
    with unbroken(rig, *running.ways):
        declare(hardware_ipv4_routes=quota)
        until("few in hardware", lambda: used() <= quota)
        assert rig.router("red/r1")["state"] == "up"
        assert re.search(rf"hardware_ipv4_routes \d+/{quota}\b", rig.ok("get", "tenants"))  # it follows the traffic
        rig.verified()
        declare(hardware_ipv4_routes=None)
        until("more in hardware", lambda: used() > quota)
    rig.apply(red)
    rig.verified()


def test_top_tells_what_takes_the_link(running: World) -> None:
    place(running, "software")
    until("red in software", lambda: not placed(running, "hardware") - own(running))
    ping = running.rig.spawn(running.red.left, "ping", "-q", "-i", "0.02", FAR, stdout=DEVNULL)

    def takes_the_link() -> bool:
        rows = running.rig.show("top", "--once", "--interval", "1")["routers"]
        (row,) = [row for row in rows if row["router"] == "red/r1"]
        return (row["packets_per_s"] or 0) > 10 and row["in_hardware"] < 0.2

    try:
        until("it takes the link", takes_the_link)
    finally:
        ping.kill()
        ping.wait()
        place(running, "auto")


def test_trace_shows_both_hops(running: World) -> None:
    place(running, "software")
    until("red in software", lambda: not placed(running, "hardware") - own(running))
    steps = running.rig.show("trace", "red/r1", FAR, "-i", "left")
    tables = [step["table"] for step in steps]
    assert tables.count("ipv4_route") == 2
    link = next(step for step in steps if step["table"] == "fallback_link")
    assert "to the fallback plane" in link["action"]
    place(running, "auto")


def test_counters_count_each_packet_once(running: World) -> None:
    place(running, "software")
    until("red in software", lambda: not placed(running, "hardware") - own(running))
    before = counted(running)
    sh("ip", "netns", "exec", running.red.left.namespace, "ping", "-q", "-c", "20", "-i", "0.02", FAR)

    def passed() -> list[int]:
        return [after - first for first, after in zip(before, counted(running), strict=True)]

    until("all counted", lambda: min(passed()) >= 20, every_s=0.5)  # Open vSwitch counts once a second
    assert max(passed()) < 30
    place(running, "auto")


def counted(running: World) -> list[int]:
    """Packets that came in and went out by two interfaces."""
    interfaces = running.rig.show("counters", "red/r1")["interfaces"]
    return [interfaces[name][way] for name in ("left", "right") for way in ("rx_packets", "tx_packets")]


def test_the_forwarder_dies_and_comes_back(running: World) -> None:
    """Only red has routes in software alone, which the kernel goes on forwarding; the switch has all of blue's."""
    rig = running.rig
    forwarder = rig.switch.forwarder
    with unbroken(rig, *running.ways):
        forwarder.kill()
        until("the loss is seen", lambda: rig.router("red/r1")["state"] == "degraded")
        reason = "plane f1 is not connected: routes that are in software alone stay as they were until it is back"
        assert rig.router("red/r1")["reason"].startswith(reason)
        assert rig.router("blue/r1")["state"] == "up"
        forwarder.start()
        rig.up("red/r1", routes=ROUTES)
    rig.verified()


def test_the_controller_is_killed_and_adopts_both(running: World) -> None:
    rig = running.rig
    with unbroken(rig, *running.ways):
        rig.kill_controller()
        rig.start_controller()
        rig.up("red/r1", routes=ROUTES)
    rig.verified()


def test_a_switch_that_comes_back_empty_is_filled_again(running: World) -> None:
    rig = running.rig
    rig.switch.restart()
    rig.up("red/r1", "blue/r1")
    until("flows", lambda: placed(running, "hardware"))
    rig.verified()
    sh("ip", "netns", "exec", running.red.left.namespace, "ping", "-q", "-c", "3", "-W", "2", FAR)


@pytest.mark.parametrize("running", [pytest.param(FallbackSwitch, id="ovs")], indirect=True)  # BMv2 has no ovs-ofctl
def test_a_flow_changed_by_hand_is_found_and_repaired(running: World) -> None:
    rig = running.rig
    rig.switch.ovs.ofctl("del-flows", "br", "ip,nw_dst=192.0.2.0/24")
    rig.ok("verify", "--repair")
    rig.verified()


def test_nothing_is_left_of_a_router_on_either(running: World) -> None:
    rig = running.rig
    rig.ok("delete", "tenant", "red")
    rig.ok("delete", "tenant", "blue")
    if isinstance(rig.switch, OvsSwitch):
        assert not [line for line in rig.switch.flows() if "nw_dst=192.0.2.0" in line or "push_vlan" in line]
    assert rig.show("get", "routers") == []
