"""What verify says of a router is of one moment, though others have the loop meanwhile, and may change the router."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle

import pytest
from worlds import FakeVrc, World, gateway, interface, mac, router_config, vrc_of

from controller.diagnostics import diagnostics, verify
from controller.errors import NoSuch, PlaneUnreachable
from controller.fallback import pace
from controller.planes.base import LOCAL, Op, Refused
from controller.routing.rib import SetKind
from controller.views import VerifyView
from wire.columns import prefix_key as key

ROUTES = {f"20.{number}.0.0/16": 1 + number % 2 for number in range(8)} | {"2001:db8::/32": 1}
MEMBERS = {1: (1,), 2: (2,), 3: (1, 2)}

Change = Callable[[World], object]


class Answering(FakeVrc):
    """Says of what the guest's kernel has that it is what was learned."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def request_snapshot(self, request_id: int) -> None:
        super().request_snapshot(request_id)
        asyncio.get_running_loop().call_soon(self._answer, request_id)

    def _answer(self, request_id: int) -> None:
        router = self._world.router()
        numbers = {one: number for number, one in router.fib.named_sets.items()}
        for route, one in router.fib.learned.items():
            router.snapshot_chunk(request_id, 4 if len(route) == 5 else 6, [route], [numbers[one]])
        router.snapshot_end(request_id, "")


class Interrupted:
    """Does something at one of the steps of each look, counted from the first of ``describing`` or of ``comparing``,
    once or whenever it comes to that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = {"describing": 0, "comparing": 0}
        self._does: tuple[str, int, Callable[[], object]] | None = None
        monkeypatch.setattr(diagnostics, "paced", self._paced)

    def at(self, which: str, step: int, does: Callable[[], object]) -> None:
        self._does = which, step, does

    async def _paced(self, steps: Iterator[None]) -> None:
        which = steps.__name__  # type: ignore[attr-defined]
        for number, _ in enumerate(steps):
            self.taken[which] += 1
            if self._does is not None and self._does[:2] == (which, number):
                self._does[2]()
            await asyncio.sleep(0)


@pytest.fixture
async def world(make_world, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(pace, "STEP_ROUTES", 1)
    monkeypatch.setattr(verify, "STEP_ROUTES", 1)
    monkeypatch.setattr(pace, "SLICE_S", 0.0)
    world = await make_world(router_config(1, (1, 2)))
    world.connect()
    router = world.router()
    router.open(Answering(world))
    for number in (1, 2):
        router.interface_states([(number, True, [bytes((10, 0, number, 1))])])
        list(router.neighbors([(number, gateway(number), mac(100 + number), False)]))
    for number, members in MEMBERS.items():
        router.define_set(number, SetKind.FORWARD, [(one, gateway(one), 1) for one in members])
    world.learn(ROUTES)
    router.resync_end(True)
    await world.settle()
    return world


async def looked(world: World) -> tuple[VerifyView, int]:
    """Verify; return also how often that looked."""
    before = len(vrc_of(world).snapshot_requests)
    view = await world.views.verify(1)
    return view, len(vrc_of(world).snapshot_requests) - before


async def test_others_have_the_loop_between_two_steps(world: World) -> None:
    async def turns() -> int:
        verifying, count = asyncio.ensure_future(world.views.verify(1)), 0
        while not verifying.done():
            await asyncio.sleep(0)
            count += 1
        assert verifying.result().equal
        return count

    few = await turns()
    more = {f"30.{2 * number}.0.0/16": 1 for number in range(50)}
    world.learn(more)
    await world.settle()
    assert await turns() == few + 2 * len(more)  # each is described, and freed
    for route in more:
        del world.plane.entries.routes[1][key(route)]
    view = await world.views.verify(1)
    assert (view.equal, view.total_differences) == (False, len(more))


def moved(world: World, number: int) -> None:
    list(world.router().neighbors([(1, gateway(1), mac(200 + number), False)]))


def relearned(world: World, number: int) -> None:
    world.learn({"20.3.0.0/16": 2 - number})


def withdrawn(world: World, number: int) -> None:
    world.learn({"20.3.0.0/16": 2 - 2 * number})


def renamed(world: World, number: int) -> None:
    former = world.router().config
    interfaces = (interface(1, name=f"wan{number}"), interface(2))
    world.router().configure(replace(former, interfaces=interfaces))


def failed(world: World, number: int) -> None:
    world.plane.set_port(1, "p1", not number)


def addressed(world: World, number: int) -> None:
    world.router().interface_states([(1, True, [bytes((10, 0, 1, 1 + 8 * number))])])


def there_and_back(world: World, number: int) -> None:
    failed(world, 1)
    failed(world, 0)


CHANGES = [moved, relearned, withdrawn, renamed, failed, addressed, there_and_back]


def lost(world: World, number: int) -> None:
    route = Refused("ipv4_route", 1, key("20.3.0.0/16"), Op.MODIFY, "lost")
    world.router().fib.refuse(route)


def full(world: World, number: int) -> None:
    (nexthop, *_) = world.router().fib.desired_nexthops
    world.router().fib.refuse(Refused("nexthop", 0, nexthop, Op.MODIFY, "full"))


@pytest.mark.parametrize("change", [*CHANGES, lost, full])
async def test_a_moment_is_over_with_any_change_before_it_is_written(
    world: World, change: Callable[[World, int], None]
) -> None:
    fib, writes = world.router().fib, len(world.plane.writes)
    moment = fib.moment()
    change(world, 1)
    assert fib.moment() != moment
    assert len(world.plane.writes) == writes


@pytest.mark.parametrize("change", CHANGES)
async def test_what_changes_while_it_is_described_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch, change: Callable[[World, int], None]
) -> None:
    interrupted, numbers = Interrupted(monkeypatch), cycle((1, 0))
    assert (await looked(world))[0].equal
    for step in range(interrupted.taken["describing"] - 1):  # one less where a route is withdrawn
        interrupted.at("describing", step, lambda: change(world, next(numbers)))
        with pytest.raises(PlaneUnreachable, match="change faster than they can be compared"):
            await world.views.verify(1)
        once = iter("1")
        interrupted.at("describing", step, lambda: [change(world, next(numbers)) for _ in once])  # noqa: B023
        view, looks = await looked(world)
        assert (view.equal, looks) == (True, 2)
        await world.settle()


@pytest.mark.parametrize("change", CHANGES)
async def test_what_changes_while_it_is_compared_does_not_matter(
    world: World, monkeypatch: pytest.MonkeyPatch, change: Callable[[World, int], None]
) -> None:
    interrupted = Interrupted(monkeypatch)
    assert (await looked(world))[0].equal
    interrupted.at("comparing", 1, lambda: change(world, 1))
    view, looks = await looked(world)
    assert (view.equal, looks) == (True, 1)


async def test_a_difference_is_not_hidden_by_what_comes_and_goes_between_two_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plane has one of two ways of a route, which is wrong; it would be right while the other one is down."""
    world.learn({"20.7.0.0/16": 3, "20.0.0.0/16": 1})
    await world.settle()
    there = world.plane.entries.routes[1]
    there[key("20.7.0.0/16")] = there[key("20.1.0.0/16")]
    interrupted, looks = Interrupted(monkeypatch), 0

    def number_of(prefix: str) -> int:
        return list(world.router().fib.learned).index(key(prefix))

    def fail_once() -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            failed(world, 1)
            interrupted.at("describing", number_of("20.7.0.0/16"), lambda: failed(world, 0))

    before = number_of("20.7.0.0/16") - 1
    interrupted.at("describing", before, fail_once)
    view = await world.views.verify(1)
    assert not view.equal
    assert [one.first for one in view.differences] == ["20.7.0.0"]


async def test_all_differences_are_counted_and_the_first_of_both_families_are_shown(world: World) -> None:
    more = {f"30.{2 * number}.0.0/16": 1 for number in range(18)} | {f"2001:db8:{2 * n}::/48": 2 for n in range(5)}
    world.learn(more)
    await world.settle()
    for route in more:
        del world.plane.entries.routes[1][key(route)]
    world.plane.entries.routes[1][key("40.0.0.0/8")] = LOCAL  # that nobody wants
    view = await world.views.verify(1)
    assert (view.equal, view.routes, view.total_differences) == (False, len(more) + len(ROUTES) + 2, 24)
    shown = [one.first for one in view.differences]
    assert shown == [*(f"30.{2 * number}.0.0" for number in range(18)), "40.0.0.0", "2001:db8::"]
    assert (view.differences[18].learned, view.differences[18].installed) == ("no route", "local")


async def test_a_router_that_is_gone_meanwhile_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted, removing = Interrupted(monkeypatch), []
    interrupted.at("describing", 1, lambda: removing.append(asyncio.ensure_future(world.shards.remove_router(1))))
    with pytest.raises(NoSuch, match="router"):
        await world.views.verify(1)
    await asyncio.gather(*removing)
