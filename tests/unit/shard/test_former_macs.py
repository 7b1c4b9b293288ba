"""A guest hears last of a MAC that its interface is to have, and may send from the former one until then."""

from dataclasses import replace

from worlds import World, interface, mac, router_config

from controller.model import InterfaceConfig, RouterConfig
from controller.shard.punt_relay import FORMER_MACS_S

VIRTUAL = bytes.fromhex("00005e00010a")


def declared(one: InterfaceConfig) -> RouterConfig:
    return replace(router_config(), interfaces=(one,))


def refusal(world: World, source: bytes) -> str | None:
    frame = bytes(6) + source + b"\x08\x00" + bytes(46)
    return world.router().host.packet_out(world.router(), 1, frame)


async def test_a_former_mac_is_taken_for_a_while_and_no_longer() -> None:
    world = World()
    await world.start(declared(interface(1, virtual_macs=(VIRTUAL,))))
    await world.settle()
    await world.shards.put_router(declared(interface(1, mac=mac(9))))
    await world.settle()
    sources = (mac(9), mac(1), VIRTUAL)
    assert [refusal(world, source) for source in sources] == [None, None, None]
    assert refusal(world, mac(2)) == "foreign_mac"
    world.clock.now += FORMER_MACS_S
    assert [refusal(world, source) for source in sources] == [None, "foreign_mac", "foreign_mac"]
    await world.close()


async def test_a_second_change_takes_no_mac_sooner_than_the_first_one_said() -> None:
    world = World()
    await world.start(declared(interface(1, virtual_macs=(VIRTUAL,))))
    await world.settle()
    await world.shards.put_router(declared(interface(1)))
    world.clock.now += FORMER_MACS_S / 2
    await world.shards.put_router(declared(interface(1, mac=mac(9))))
    await world.settle()
    sources = (mac(9), mac(1), VIRTUAL)
    assert [refusal(world, source) for source in sources] == [None, None, None]
    world.clock.now += FORMER_MACS_S / 2
    assert [refusal(world, source) for source in sources] == [None, None, "foreign_mac"]
    await world.close()


async def test_the_former_mac_of_an_interface_that_went_is_none_of_the_next_one() -> None:
    world = World()
    await world.start(declared(interface(1)))
    await world.settle()
    for one in (interface(1, mac=mac(9)), interface(2, mac=mac(8)), interface(1, mac=mac(7))):
        await world.shards.put_router(declared(one))
    await world.settle()
    assert [refusal(world, mac(number)) for number in (7, 1, 9)] == [None, "foreign_mac", "foreign_mac"]
    await world.close()
