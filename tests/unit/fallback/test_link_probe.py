"""The link between a plane and its fallback is tried out with frames of full size, and nothing of that is left."""

from dataclasses import replace

import pytest
from pairs import LINK, PEER, PairWorld
from worlds import interface, router_config

from controller.fallback.link.ports import PROBE_VLAN, LinkVlans
from controller.fallback.link.probe import PROBE_INTERFACE, PROBE_VRF
from controller.planes.base import Op, Policer, PuntReason, RouterInterface, Update, WriteBatch, same_rate


async def started(world: PairWorld) -> PairWorld:
    await world.start(router_config(1, (1, 2)))
    await world.until(lambda: world.pair._adopted)
    return world


async def until_told(world: PairWorld, kind: str) -> str:
    await world.until(lambda: any(event.kind == kind for event in world.events.recent(0)))
    return next(event.text for event in reversed(world.events.recent(0)) if event.kind == kind)


def left_over(world: PairWorld) -> list[object]:
    """What a plane has of the probe."""
    held = [plane.entries for plane in (world.hardware, world.software)]
    return [one for one in held if PROBE_VRF in one.policers or PROBE_INTERFACE in one.router_interfaces]


async def test_a_link_that_carries_all_is_proved_without_a_trace() -> None:
    world = await started(PairWorld(probed=True))
    assert world.probe is not None
    await world.until(lambda: len(world.software.packets_out) > 1 and not left_over(world))
    await world.settle()
    assert world.probe.problem == ""
    assert world.pair.link_problem == ""
    assert {len(frame) for _, frame in world.hardware.packets_out} == {60, 1514}
    assert {(out.port, out.vlan) for out, _ in world.hardware.packets_out} == {(LINK, PROBE_VLAN)}
    assert {(out.port, out.vlan) for out, _ in world.software.packets_out} == {(PEER, PROBE_VLAN)}
    assert not world.sent


async def test_a_link_that_loses_long_frames_degrades_its_routers_until_it_does_not() -> None:
    world = PairWorld(probed=True)
    world.link_octets = 1517
    await started(world)
    problem = await until_told(world, "link-problem")
    assert problem == "the fallback link s1:s1-f1 – f1:f1-s1 loses frames of 1518 octets; raise its MTU to 1504"
    assert world.pair.link_problem == problem
    world.connect()
    world.router().resync_end(True)
    await world.settle()
    view = world.views.router_view(1)
    assert (view.state, view.reason) == ("degraded", problem)
    world.link_octets = 1518
    await until_told(world, "link-proved")
    assert world.views.router_view(1).state == "up"
    await world.until(lambda: not left_over(world))


async def test_a_larger_mtu_is_proved_at_once() -> None:
    world = await started(PairWorld(probed=True))
    await world.until(lambda: len(world.software.packets_out) > 1 and not left_over(world))
    await world.shards.put_router(
        replace(router_config(1, (1, 2)), interfaces=(interface(1), interface(2, mtu=3000)))
    )
    assert "loses frames of 3018 octets; raise its MTU to 3004" in await until_told(world, "link-problem")
    await world.shards.put_router(router_config(1, (1, 2)))
    await until_told(world, "link-proved")


@pytest.mark.parametrize(("deaf", "plane"), [("_from_hardware", "f1"), ("_from_software", "s1")])
async def test_the_direction_that_loses_frames_is_named(deaf: str, plane: str) -> None:
    world = PairWorld(probed=True)
    cable = getattr(world, deaf)
    short_only = lambda port, frame: cable(port, frame) if len(frame) < 100 else None  # noqa: E731
    side = world.hardware if deaf == "_from_hardware" else world.software
    side.cables = short_only
    await started(world)
    assert f"loses frames of 1518 octets towards {plane}; raise its MTU" in await until_told(world, "link-problem")


async def test_ports_that_are_not_connected_with_each_other_are_named() -> None:
    world = PairWorld(probed=True)
    world.wired = False
    await started(world)
    problem = await until_told(world, "link-problem")
    assert problem == "the fallback link s1:s1-f1 – f1:f1-s1 carries nothing; connect these two ports with each other"
    world.wired = True
    world.hardware.set_port(LINK, "s1-f1", True)
    await until_told(world, "link-proved")


async def test_one_round_of_silence_says_nothing() -> None:
    world = await started(PairWorld(probed=True))
    assert world.probe is not None
    await world.until(lambda: len(world.software.packets_out) > 1 and not left_over(world))
    world.wired = False
    assert not await world.probe.prove()
    assert world.probe.problem == ""
    world.wired = True
    assert await world.probe.prove()
    world.wired = False
    assert not await world.probe.prove()
    assert world.probe.problem == ""


async def test_a_plane_that_does_not_take_the_probe_is_used_all_the_same() -> None:
    world = PairWorld(probed=True)
    world.hardware.fault = lambda table, key, op: "no" if key in (PROBE_VRF, PROBE_INTERFACE) else None
    await started(world)
    assert world.probe is not None
    assert not await world.probe.prove()
    assert world.pair.link_problem == ""
    assert not world.software.packets_out


async def test_what_a_killed_controller_left_of_a_probe_is_no_entry_of_ours_and_goes() -> None:
    world = PairWorld(probed=True)
    for plane, port in ((world.hardware, LINK), (world.software, PEER)):
        plane.entries.policers[PROBE_VRF] = Policer(PROBE_VRF, same_rate(1))
        plane.entries.router_interfaces[PROBE_INTERFACE] = RouterInterface(
            PROBE_INTERFACE, PROBE_VRF, port, PROBE_VLAN, bytes(6), 9216
        )
        plane.entries.damaged.add(("router_interface", PROBE_INTERFACE))
    await started(world)
    read = await world.pair.read()
    assert not read.damaged
    assert PROBE_VRF not in read.policers
    assert PROBE_INTERFACE not in read.router_interfaces
    await world.until(lambda: len(world.software.packets_out) > 1 and not left_over(world))


async def test_a_frame_of_a_tenant_is_no_proof() -> None:
    world = PairWorld(probed=True)
    world.link_octets = 1000
    await started(world)
    assert world.probe is not None
    await until_told(world, "link-problem")
    forged = b"\xff" * 6 + bytes(1508)
    assert world.probe.hear(world.software, PROBE_INTERFACE, forged)
    assert not world.probe.hear(world.software, 1, forged)
    world.software.punt(PROBE_INTERFACE, PuntReason.CONTROL, forged)
    assert "loses frames" in world.pair.link_problem


async def test_a_plane_that_goes_away_under_a_probe_is_no_dead_link() -> None:
    world = await started(PairWorld(probed=True))
    assert world.probe is not None
    await world.until(lambda: len(world.software.packets_out) > 1 and not left_over(world))
    world.software.disconnect()
    assert not await world.probe.prove()
    assert world.probe.problem == ""
    world.software.connect()
    await world.until(lambda: world.pair._adopted and not left_over(world))


def test_no_interface_has_the_vlan_of_the_probe() -> None:
    vlans = LinkVlans()
    vlans.adopt([], [RouterInterface(1, 1, PEER, PROBE_VLAN, bytes(6), 1500)])  # as it was once given
    given = {vlans.of(number) for number in range(1, 4093)}
    assert given == set(range(2, 4094))
    assert PROBE_VLAN not in given
    assert vlans.of(4093) is None


async def test_without_interfaces_there_is_nothing_to_prove() -> None:
    world = PairWorld(probed=True)
    await world.start()
    await world.until(lambda: world.pair._adopted)
    assert world.probe is not None
    assert world.probe.mtu == 0
    one = RouterInterface(5, 1, 1, 0, bytes(6), 1400)
    await world.pair.write(WriteBatch(router_interfaces=[Update(Op.INSERT, one)]))
    assert world.probe.mtu == 1400
    await world.pair.write(WriteBatch(router_interfaces=[Update(Op.DELETE, one)]))
    assert world.probe.mtu == 0
