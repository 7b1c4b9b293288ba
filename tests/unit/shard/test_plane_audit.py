"""An audit compares what it reads as it comes, and takes nothing that is under way for damage."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from worlds import World, gateway, mac, router_config

from controller.errors import PlaneUnreachable
from controller.planes.base import LOCAL, Installed, Refused, WriteBatch
from controller.planes.shares import ShareEntries
from controller.routing import route_audit
from controller.routing.rib import SetKind
from controller.routing.route_audit import AuditedRoutes
from controller.shard import loop_share, mirror
from controller.shard.mirror import PlaneMirror
from wire.columns import prefix_key as key

COUNT = 300
ROUTES = {f"20.{i >> 8}.{i & 255}.0/24": 1 for i in range(COUNT)}
MakeWorld = Callable[..., Awaitable[World]]


@pytest.fixture
async def world(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(route_audit, "AUDITED_AT_ONCE", 10)
    monkeypatch.setattr(mirror, "TIDY_S", 0.01)  # from its start: or the first audit comes after a whole second
    world = await make_world(router_config())
    world.connect()
    world.router().define_set(1, SetKind.FORWARD, [(1, gateway(1), 1)])
    world.router().define_set(2, SetKind.FORWARD, [(2, gateway(2), 1)])
    world.learn(ROUTES)
    await world.settle()
    return world


def audited(world: World) -> PlaneMirror:
    return world.shards.by_plane["s1"].mirror


class SlowRead:
    """Has a plane answer once it is told to, with what it held when it was asked."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read, self.asked, self.go_on, self.found = world.plane.read, 0, asyncio.Event(), []
        monkeypatch.setattr(world.plane, "read", self)

    async def __call__(self, only: int | None = None, into: Any = None) -> Installed:
        self.asked += 1
        found = await self._read(only, into)
        self.found.append(found)
        await self.go_on.wait()
        return found


async def test_an_audit_of_all_copies_no_routes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowRead(world, monkeypatch)
    slow.go_on.set()
    assert await audited(world).audit() == {}
    (found,) = slow.found
    assert not any(found.routes.values())


@pytest.mark.parametrize("count", [1, 3, 256, COUNT])
def test_an_audit_takes_two_to_four_octets_a_prefix(count: int) -> None:
    routes = AuditedRoutes(dict.fromkeys(map(key, list(ROUTES)[:count]), LOCAL), set())
    assert 2 * count < len(routes._bits) <= 4 * count


async def test_an_audit_takes_routes_of_others_and_keeps_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nobodys = 99
    world.plane.entries.routes[nobodys] = dict.fromkeys(world.installed(), LOCAL)
    slow = SlowRead(world, monkeypatch)
    slow.go_on.set()
    assert await audited(world).audit() == {}
    assert slow.found[0].routes.setdefault(nobodys, {}) == {}


async def test_what_an_audit_finds_is_repaired_in_slices(world: World) -> None:
    wanted, there = dict(world.installed()), world.installed()
    for number in range(0, COUNT, 3):
        del there[key(f"20.{number >> 8}.{number & 255}.0/24")]
    there[key("20.0.1.0/24")] = LOCAL
    there[key("30.0.0.0/8")] = LOCAL
    repaired = 0
    for _ in range(20):  # a bit that two prefixes share hides one of them from one audit, hardly from all
        repaired += sum((await audited(world).audit()).values())
        await world.settle()
    assert repaired == COUNT // 3 + 2
    assert world.installed() == wanted


async def test_an_audit_looks_at_routers_in_turns(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands, all at once would hold up everybody else for a quarter of a second every five minutes."""
    monkeypatch.setattr(loop_share, "TURN_S", 0.0)
    world = await make_world(*(router_config(vrf_id, (vrf_id,)) for vrf_id in range(1, 5)))
    await world.until(lambda: audited(world).adopted)
    turns, looked = [0], []
    for router in world.shards.routers.values():
        looks = router.fib.repair_entries
        monkeypatch.setattr(
            router.fib, "repair_entries", lambda read, looks=looks: looked.append(turns[0]) or looks(read)
        )
    audit = asyncio.create_task(audited(world).audit())
    while not audit.done():
        await asyncio.sleep(0)
        turns[0] += 1
    assert len(set(looked)) == 4


async def test_an_audit_begins_in_turns(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """And knows what each router writes from its own turn on."""
    monkeypatch.setattr(loop_share, "TURN_S", 0.0)
    monkeypatch.setattr(route_audit, "BEGUN_AT_ONCE", 1)
    world = await make_world(*(router_config(vrf_id, (vrf_id,)) for vrf_id in range(1, 5)))
    await world.until(lambda: audited(world).adopted)
    turns, begun = [0], []
    for router in world.shards.routers.values():
        begins = router.fib.begin_audit
        monkeypatch.setattr(router.fib, "begin_audit", lambda begins=begins: begun.append(turns[0]) or begins())
    slow = SlowRead(world, monkeypatch)
    audit = asyncio.create_task(audited(world).audit())
    while not slow.asked:
        await asyncio.sleep(0)
        turns[0] += 1
    assert len(set(begun)) == 4
    slow.go_on.set()
    assert await audit == {}


async def test_to_read_one_router_back_is_no_work_for_others(make_world: MakeWorld) -> None:
    world = await make_world(*(router_config(vrf_id, (vrf_id,)) for vrf_id in range(1, 5)))
    await world.until(lambda: audited(world).adopted)
    _, written = await audited(world).read_back(2)
    assert written == {2: set()}
    assert await audited(world).audit(3) == {}


async def test_an_audit_ends_with_the_connection_that_it_read_by(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_share, "TURN_S", 0.0)
    whole = dict(world.installed())
    for lost in list(whole)[:100]:
        del world.installed()[lost]
    audit = asyncio.create_task(audited(world).audit())
    await world.until(lambda: world.router().fib.pending > 0)
    world.plane.disconnect()
    world.installed().update(whole)
    world.plane.connect()
    await world.until(lambda: audited(world).adopted)
    world.forget_writes()
    with pytest.raises(PlaneUnreachable):
        await audit
    await world.settle()
    assert world.route_writes() == 0


async def test_what_changes_while_an_audit_reads_is_no_damage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowRead(world, monkeypatch)
    audit = asyncio.create_task(audited(world).audit())
    await world.until(lambda: slow.asked)
    world.learn({text: number % 3 for number, text in enumerate(ROUTES)})  # withdrawn, as it was, other
    list(world.router().neighbors([(2, gateway(2), mac(99), False)]))
    await world.settle()
    wanted, changes = dict(world.installed()), world.route_writes()
    slow.go_on.set()
    assert await audit == {}
    await world.settle()
    assert (world.installed(), world.route_writes()) == (wanted, changes)


async def test_what_is_under_way_when_an_audit_begins_is_no_damage(world: World) -> None:
    world.plane.gate.clear()
    there = dict(world.installed())
    world.learn(dict.fromkeys(ROUTES, 2))
    await world.until(lambda: world.installed() != there)
    now = dict(world.installed())
    world.plane.entries.routes[1] = there  # it has not arrived
    audit = asyncio.create_task(audited(world).audit())
    for _ in range(10):
        await asyncio.sleep(0)
    world.plane.entries.routes[1] = now
    world.plane.gate.set()
    assert await audit == {}


async def test_writes_do_not_wait_for_an_audit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowRead(world, monkeypatch)
    await asyncio.sleep(0)
    world.clock.now += mirror.AUDIT_INTERVAL_S
    await world.until(lambda: slow.asked)
    world.learn(dict.fromkeys(ROUTES, 2))
    await world.settle()
    assert (slow.asked, slow.go_on.is_set()) == (1, False)
    slow.go_on.set()


async def under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, SlowRead]:
    """Have a plane take a change once the event that is returned is set, and let an audit come meanwhile, whose read
    answers at once."""
    read = SlowRead(world, monkeypatch)
    read.go_on.set()
    write, arrives, asked = world.plane.write, asyncio.Event(), asyncio.Event()

    async def slow(batch: WriteBatch) -> list[Refused]:
        asked.set()
        await arrives.wait()
        return await write(batch)

    monkeypatch.setattr(world.plane, "write", slow)
    world.learn(dict.fromkeys(ROUTES, 2))
    await asked.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    world.clock.now += mirror.AUDIT_INTERVAL_S
    await world.until(audited(world)._reading.locked)
    return arrives, read


async def test_what_is_under_way_when_its_time_comes_is_no_damage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrives, read = await under_way(world, monkeypatch)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not read.asked
    arrives.set()
    await world.until(lambda: read.asked)
    await world.settle()
    assert not [event for event in world.events.recent() if event.kind == "repaired"]


async def test_a_router_that_comes_while_an_audit_waits_is_not_audited(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrives, read = await under_way(world, monkeypatch)
    await world.shards.put_router(router_config(2, (4,), tenant="blue"))
    arrives.set()
    await world.until(lambda: read.asked)
    await world.until(lambda: not audited(world)._reading.locked())
    await world.settle(2)
    assert [event.text for event in world.events.recent() if event.level == "error"] == []


async def test_audits_and_comparisons_wait_for_each_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowRead(world, monkeypatch)
    first = asyncio.create_task(audited(world).read_back(1))
    await world.until(lambda: slow.asked)
    second = asyncio.create_task(audited(world).audit())
    world.learn(dict.fromkeys(ROUTES, 2))
    await world.settle()
    assert slow.asked == 1
    slow.go_on.set()
    _, written = await first
    assert written[1] >= set(map(key, ROUTES))
    assert await second == {}


async def test_an_audit_waits_until_it_is_known_what_the_plane_has(
    make_world: MakeWorld, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.router().resync_end(True)
    await world.settle()
    await world.close()
    before, read = dict(world.installed()), world.plane.read
    slow = SlowRead(world, monkeypatch)
    second = await make_world(router_config(), plane=world.plane)
    await second.until(lambda: slow.asked)
    monkeypatch.setattr(world.plane, "read", read)  # what is asked later is answered before
    audit = asyncio.create_task(audited(second).audit(1))
    for _ in range(20):
        await asyncio.sleep(0)
    slow.go_on.set()
    assert await audit == {}
    await second.settle()
    assert second.installed() == before


def test_numbers_tell_whether_all_was_read() -> None:
    installed = {bytes((20, number, 0, 0, 16)): number for number in range(100)}
    read = AuditedRoutes(installed, set())
    for one, action in installed.items():
        assert not read.whole
        read[one] = action
    assert read.whole
    assert not [one for one in installed if read.is_missing(one)]


async def test_what_was_refused_for_want_of_what_was_lost_is_back_with_it(world: World) -> None:
    """Somebody deletes routes, then the group of them, and an audit has read in between."""
    nexthops, there, wanted = world.plane.entries.nexthops, world.installed(), dict(world.installed())
    (one,) = [each for each in nexthops.values() if each.router_interface_id == 1]
    lost = key("20.0.1.0/24")
    del there[lost], nexthops[one.id]  # the nexthop after the audit had read it
    world.plane.fault = lambda table, route, op: (
        "no such nexthop" if table == "ipv4_route" and one.id not in world.plane.entries.nexthops else None
    )
    fib = world.router().fib
    fib.repair_routes({lost: None}, False)
    audited(world).wake()
    await world.settle()
    assert fib.refused_routes.keys() == {lost}
    assert await audited(world).audit() == {1: 1}
    await world.settle()
    assert world.installed() == wanted
    assert not fib.refused_routes


async def test_what_was_refused_waits_for_nothing_more_where_the_repair_is_written_first(world: World) -> None:
    """As while the shares of the plane are read."""
    nexthops, wanted, read_shares = world.plane.entries.nexthops, dict(world.installed()), world.plane.read_shares
    (one,) = [each for each in nexthops.values() if each.router_interface_id == 1]
    lost = key("20.0.1.0/24")
    del world.installed()[lost], nexthops[one.id]
    world.plane.fault = lambda table, route, op: (
        "no such nexthop" if table == "ipv4_route" and one.id not in world.plane.entries.nexthops else None
    )
    fib = world.router().fib
    fib.repair_routes({lost: None}, False)
    await world.settle()
    assert fib.refused_routes.keys() == {lost}

    async def slowly() -> ShareEntries | None:
        await world.until(lambda: one.id in nexthops and fib.idle)
        return await read_shares()

    world.plane.read_shares = slowly  # type: ignore[method-assign]
    assert await audited(world).audit() == {1: 1}
    await world.until(lambda: fib.idle)
    assert world.installed() == wanted
