"""Shares get onto a plane before anything else, follow what is declared, and are put right; who is over its share is
told."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from controller.model import Share
from controller.planes.base import Capability, Op
from controller.planes.fake import FakePlane
from controller.planes.shares import ShareEntry, ShareKey, ShareUse
from tests.unit.worlds import World, router_config

SLICE = Share(3, 400_000)
R1, R2, S7 = ("router_share", 1), ("router_share", 2), ("slice_share", 7)


def in_slice(vrf_id: int = 1, share: Share | None = None, slice_share: Share = SLICE, port: int = 1):  # type: ignore[no-untyped-def]
    return router_config(vrf_id, (port,), slice_id=7, slice_share=slice_share, share=share or Share())


async def running(*configs, plane: FakePlane | None = None) -> World:  # type: ignore[no-untyped-def]
    world = World(plane)
    await world.start(*configs)
    for config in configs:
        await world.settle(config.vrf_id)
    return world


async def test_a_router_has_its_share_and_its_slice_before_anything_else_is_written() -> None:
    plane = FakePlane("s1")
    plane.gate.clear()  # what else is written waits
    world = World(plane)
    await world.start(in_slice(share=Share(2)))
    await world.until(lambda: bool(plane.writes))
    assert plane.shares == {R1: ShareEntry(Share(2), 7), S7: ShareEntry(SLICE)}
    plane.gate.set()
    await world.close()


async def test_routers_of_a_slice_are_in_it_though_nobody_asked_for_a_share() -> None:
    world = await running(in_slice(slice_share=Share()))
    assert world.plane.shares == {R1: ShareEntry(Share(), 7)}
    await world.close()


async def test_a_share_that_changes_is_one_change_and_nothing_else_is_written() -> None:
    world = await running(in_slice(1), in_slice(2, port=2))
    world.plane.share_writes.clear()
    world.forget_writes()
    await world.shards.put_router(in_slice(1, Share(5, 0, 300_000)))
    await world.until(lambda: bool(world.plane.share_writes))
    await world.settle()
    assert world.plane.share_writes == [({R1: ShareEntry(Share(5, 0, 300_000), 7)}, set())]
    assert not world.plane.writes
    await world.close()


async def test_the_share_of_a_slice_goes_with_its_last_router() -> None:
    world = await running(in_slice(1), in_slice(2, port=2))
    await world.shards.remove_router(1)
    await world.until(lambda: R1 not in world.plane.shares)
    assert set(world.plane.shares) == {R2, S7}
    await world.shards.remove_router(2)
    await world.until(lambda: not world.plane.shares)
    await world.close()


class SlowPlane(FakePlane):
    """Has done what it confirms later."""

    confirms: asyncio.Event

    async def write_shares(
        self, put: Mapping[ShareKey, ShareEntry], gone: Collection[ShareKey]
    ) -> dict[ShareKey, str]:
        refused = await super().write_shares(put, gone)
        await self.confirms.wait()
        return refused


async def test_what_is_declared_while_the_plane_has_not_confirmed_is_not_lost() -> None:
    plane = SlowPlane("s1")
    plane.confirms = asyncio.Event()
    plane.confirms.set()
    world = await running(in_slice(1), in_slice(2, port=2), plane=plane)
    before = plane.shares[R1]
    plane.confirms.clear()
    plane.share_writes.clear()
    await world.shards.put_router(in_slice(1, Share(5)))
    await world.until(lambda: bool(plane.share_writes))
    await world.shards.put_router(in_slice(1))  # as it was, and as it was known to be
    plane.confirms.set()
    await world.until(lambda: plane.shares[R1] == before)
    plane.confirms.clear()
    plane.share_writes.clear()
    await world.shards.put_router(router_config(3, (3,), slice_id=8, slice_share=Share(4)))
    await world.until(lambda: bool(plane.share_writes))
    shares = world.shards.of_plane("s1").mirror.shares
    shares.drop(3)  # before anybody knows that it is there
    plane.confirms.set()
    await world.until(lambda: set(plane.shares) == {R1, R2, S7})
    await world.close()


async def test_what_is_read_back_is_adopted_and_only_differences_are_written() -> None:
    plane = FakePlane("s1")
    plane.shares = {R1: ShareEntry(Share(2), 7), S7: ShareEntry(Share(9)), ("router_share", 44): ShareEntry(Share(4))}
    world = await running(in_slice(share=Share(2)), plane=plane)
    assert plane.share_writes == [({S7: ShareEntry(SLICE)}, {("router_share", 44)})]
    assert plane.shares == {R1: ShareEntry(Share(2), 7), S7: ShareEntry(SLICE)}
    await world.close()


async def test_an_audit_puts_right_what_somebody_changed() -> None:
    world = await running(in_slice(share=Share(2)))
    wanted = dict(world.plane.shares)
    world.plane.shares[R1] = ShareEntry(Share(8), 7)
    del world.plane.shares[S7]
    world.plane.shares["slice_share", 99] = ShareEntry(Share(8))
    assert await world.shards.of_plane("s1").mirror.audit() == {1: 2, 0: 1}, "0: of a slice that is nobody's"
    await world.until(lambda: world.plane.shares == wanted)
    assert await world.shards.of_plane("s1").mirror.audit() == {}
    assert [event.kind for event in world.events.recent()].count("repaired") == 1
    await world.close()


async def test_a_share_that_the_plane_refuses_degrades_its_router_alone() -> None:
    def fault(table: str, key: bytes | int, op: Op) -> str | None:
        return "no room" if (table, key) == R1 and op is not Op.DELETE else None

    world = await running(in_slice(1, Share(2)), in_slice(2, port=2), plane=FakePlane("s1", fault=fault))
    for vrf_id in (1, 2):
        world.connect(vrf_id)
        world.router(vrf_id).resync_end(True)
    assert world.router(1).state == ("degraded", "plane s1 refused router_share: no room")
    assert world.router(2).state == ("up", "")
    world.plane.share_writes.clear()
    await world.shards.put_router(in_slice(1, Share(4)))  # another one is tried at once
    await world.until(lambda: bool(world.plane.share_writes))
    await world.until(lambda: world.router(1).state[0] == "degraded")
    world.plane.fault = lambda _table, _key, _op: None
    await world.shards.of_plane("s1").mirror.audit()  # what was refused is tried again, now and then
    await world.until(lambda: R1 in world.plane.shares)
    assert world.plane.shares[R1] == ShareEntry(Share(4), 7)
    assert world.router(1).state == ("up", "")
    await world.close()


@pytest.mark.parametrize("there", [True, False], ids=["still there", "gone meanwhile"])
async def test_a_share_that_the_plane_did_not_delete_degrades_its_router_until_it_has_gone(there: bool) -> None:
    def fault(table: str, key: bytes | int, op: Op) -> str | None:
        return "busy" if (table, key) == R1 and op is Op.DELETE else None

    world = await running(router_config(share=Share(2)), plane=FakePlane("s1", fault=fault))
    world.connect()
    world.router().resync_end(True)
    await world.shards.put_router(router_config())
    await world.until(lambda: world.router().state == ("degraded", "plane s1 refused router_share: busy"))
    assert world.plane.shares == {R1: ShareEntry(Share(2))}
    world.plane.fault = lambda _table, _key, _op: None
    if not there:
        world.plane.shares.clear()
    await world.shards.of_plane("s1").mirror.audit()
    await world.until(lambda: world.router().state == ("up", ""))
    assert not world.plane.shares
    await world.close()


@pytest.mark.parametrize("asks", [True, False])
async def test_a_plane_without_shares_gets_none_and_who_asks_for_one_is_degraded(asks: bool) -> None:
    plane = FakePlane("s1", capabilities=frozenset(Capability) - {Capability.SHARES})
    world = await running(in_slice(share=Share(2 if asks else 1), slice_share=Share()), plane=plane)
    assert world.shards.without_shares() == {"s1"}
    world.connect()
    world.router().resync_end(True)
    words = "plane s1 has no shares, and so none for router red/r1; leave share out, or use a plane that has them"
    assert world.router().state == (("degraded", words) if asks else ("up", ""))
    assert not plane.share_writes
    plane.disconnect()
    plane.capabilities = frozenset(Capability)  # another device, or a newer one
    plane.connect()
    await world.until(lambda: R1 in plane.shares)
    assert world.router().state == ("up", "")
    assert world.shards.without_shares() == set()
    await world.close()


async def test_who_is_over_its_share_for_some_seconds_is_told_once_and_when_it_is_over() -> None:
    world = await running(in_slice(1, Share(2)), in_slice(2, port=2))
    shares = world.shards.of_plane("s1").mirror.shares
    use = {1: ShareUse(1000, 0, 0), 2: ShareUse(1000, 7, 7)}

    def look(core: int, link: int) -> list[tuple[str, str, str]]:
        before = len(world.events.recent())
        use[1] = replace(use[1], over_share_core=use[1].over_share_core + core)
        use[1] = replace(use[1], over_share_link=use[1].over_share_link + link)
        shares.look(dict(use))
        return [(event.kind, event.subject, event.text) for event in world.events.recent()[before:]]

    assert look(0, 0) == []
    assert look(9, 0) == [], "a moment is nothing"
    (told,) = look(1200, 34)
    assert told == (
        "over-share",
        "red/r1",
        "1,200 packets over its share of a core and 34 of a link dropped in 5 s; "
        "it has weight 2 in a slice of weight 3, guarantee 40 %",
    )
    assert look(50, 0) == [], "it is known"
    assert look(0, 0) == [("within-share", "red/r1", "nothing of it is dropped any more")]
    assert look(0, 0) == []
    assert [look(9, 0), look(9, 0)[0][0]] == [[], "over-share"]
    await shares.adopt()
    assert [look(0, 0), look(9, 0)] == [[], []], "it is known across a connection"
    assert look(0, 0) == [("within-share", "red/r1", "nothing of it is dropped any more")]
    await world.close()
