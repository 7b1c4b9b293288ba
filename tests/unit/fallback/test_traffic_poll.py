"""Which routes are in hardware follows the traffic: from frames through two fake planes to what is written."""

from dataclasses import replace

import pytest
from pairs import PairWorld, learned, made, packet
from worlds import router_config

from controller.fallback.traffic_poll import TrafficPoll
from controller.model import Placement, RouterConfig
from controller.planes.base import Capability, Op, Update
from wire.columns import prefix_key

ROOM = 14
FAR = {f"20.{n}.0.0/16": 1 + n % 2 for n in range(0, 64, 2)}  # with holes between them
STEP_S = 5.0


def key(number: int) -> bytes:
    return prefix_key(f"20.{number}.0.0/16")


class Traffic:
    """Sends packets by prefix, lets time pass, and has the pair do what it would."""

    def __init__(self, world: PairWorld) -> None:
        self.world = world

    async def step(self, packets: dict[int, int]) -> None:
        """So many packets to each prefix within `STEP_S`."""
        for number, count in packets.items():
            for _ in range(count):
                self.world.hardware.inject(1, packet(f"20.{number}.0.1"))
        self.world.clock.now += STEP_S
        await self.world.pair.traffic_poll.measure()
        await self.world.pair.work()


async def flowing(*configs: RouterConfig, counted: bool = True) -> Traffic:
    world = await made(*configs, room=ROOM)
    if not counted:
        world.hardware.capabilities -= {Capability.ROUTE_COUNTERS}
    await learned(world, FAR)
    traffic = Traffic(world)
    await traffic.step({})
    return traffic


async def test_what_has_traffic_enters_hardware_by_itself():
    traffic = await flowing()
    world = traffic.world
    assert not world.forwarding() & {key(n) for n in range(64)}
    await traffic.step({4: 100, 8: 50})
    await traffic.step({4: 100, 8: 50})
    assert {key(4), key(8)} <= world.forwarding()
    before = world.pair.traffic_poll.traffic.sampled
    await traffic.step({4: 100})
    assert world.pair.traffic_poll.traffic.sampled == before, "it does not pass the software any more"
    assert len(world.sent) == 400


async def test_what_becomes_popular_takes_the_place_of_what_ends():
    traffic = await flowing()
    first, second = dict.fromkeys(range(0, 20, 2), 8), dict.fromkeys(range(30, 50, 2), 8)
    for _ in range(6):
        await traffic.step(first)
    held = traffic.world.forwarding()
    assert {key(n) for n in first} & held
    assert len([one for one in traffic.world.in_hardware() if len(one) == 5]) <= ROOM
    for _ in range(20):
        await traffic.step(second)
    now = traffic.world.forwarding()
    assert len({key(n) for n in second} & now) >= len({key(n) for n in first} & held)
    assert not {key(n) for n in first} & now


@pytest.mark.parametrize("packets", [{}, {0: 20, 2: 20}])
async def test_without_a_cause_nothing_is_written(packets):
    traffic = await flowing()
    for _ in range(10):
        await traffic.step(packets)
    world = traffic.world
    world.hardware.writes.clear()
    world.software.writes.clear()
    for _ in range(20):
        await traffic.step(packets)
    assert not world.hardware.writes
    assert not world.software.writes
    assert world.pair.routes.writes.idle


async def test_hardware_is_a_mode_that_fills_the_room_and_follows_the_traffic_beyond():
    traffic = await flowing(router_config(1, (1, 2), placement=Placement.HARDWARE))
    world = traffic.world
    full = {key(n) for n in range(64)} & world.forwarding()
    assert full
    missing = next(n for n in range(0, 64, 2) if key(n) not in full)
    for _ in range(6):
        await traffic.step({missing: 50})
    assert key(missing) in world.forwarding()


async def test_a_new_controller_leaves_in_hardware_what_is_there():
    traffic = await flowing()
    for _ in range(3):
        await traffic.step({4: 100, 8: 50})
    world = traffic.world
    held = world.in_hardware()
    world.pair._adopted = False
    world.hardware.writes.clear()
    await world.pair.read()
    await traffic.step({})
    await traffic.step({})
    assert world.in_hardware() == held
    assert not world.hardware.writes


async def test_hardware_that_lost_everything_gets_back_what_it_had():
    traffic = await flowing()
    for _ in range(3):
        await traffic.step({4: 100, 8: 50})
    world = traffic.world
    held = world.in_hardware()
    world.hardware.disconnect()
    world.hardware.entries = type(world.hardware.entries)()
    world.hardware.connect()
    await world.until(lambda: world.pair._adopted)
    await world.settle()
    await world.pair.work()
    assert world.in_hardware() == held


async def test_hardware_that_does_not_count_is_fed_by_samples_alone():
    traffic = await flowing(counted=False)
    for _ in range(3):
        await traffic.step({4: 100})
    assert key(4) in traffic.world.forwarding()
    assert traffic.world.pair.traffic_poll.traffic.rates[1].hardware is None


async def test_rates_tell_where_packets_go():
    traffic = await flowing()
    for _ in range(3):
        await traffic.step({4: 100})
    await traffic.step({4: 100, 6: 1})
    rates = traffic.world.pair.traffic_poll.traffic.rates[1]
    assert (rates.hardware, rates.software) == (20.0, 0.2)


async def test_a_sample_of_nobody_is_counted_and_ignored():
    traffic = await flowing()
    poll: TrafficPoll = traffic.world.pair.traffic_poll
    known = next(iter(traffic.world.software.entries.router_interfaces))
    one = prefix_key("20.4.0.1/32")
    traffic.world.software.sampler([(99, one), (known, one), (98, one)])
    assert poll.unknown == 2
    assert poll.traffic.sampled == 1


async def test_samples_are_of_the_router_and_family_of_each():
    traffic = await flowing()
    poll: TrafficPoll = traffic.world.pair.traffic_poll
    ours = next(iter(traffic.world.software.entries.router_interfaces.values()))
    poll.follow([Update(Op.INSERT, replace(ours, id=99, vrf_id=2))])
    poll.traffic.one_in = 25.0
    ipv4, other, ipv6 = prefix_key("20.4.0.1/32"), prefix_key("20.4.0.2/32"), prefix_key("2001:db8::1/128")
    traffic.world.software.sampler([(ours.id, ipv4), (99, ipv4), (ours.id, ipv6), (ours.id, other)])
    assert poll.traffic.take() == {(1, 4): [ipv4, other], (2, 4): [ipv4], (1, 6): [ipv6]}


async def test_nothing_is_read_while_a_plane_is_away():
    traffic = await flowing()
    traffic.world.software.set_port(1, "f1-s1", True, present=False)
    assert not traffic.world.pair.connected
    before = traffic.world.pair.traffic_poll.traffic.rates
    traffic.world.clock.now += STEP_S
    await traffic.world.pair.traffic_poll.measure()
    assert traffic.world.pair.traffic_poll.traffic.rates is before
