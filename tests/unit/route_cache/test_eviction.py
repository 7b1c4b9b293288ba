"""What leaves so that others have room."""

from dataclasses import dataclass
from typing import cast

import pytest

from controller.route_cache import eviction
from controller.route_cache.cover import CoveredTable, Room
from controller.route_cache.eviction import Candidate, Eviction, Evictions, Victims
from controller.route_cache.popularity import Estimates, Meter
from controller.route_cache.router import Router
from wire.columns import prefix_key

RED, BLUE = 1, 2
FREE, BESIDE = prefix_key("11.0.0.0/8"), prefix_key("12.0.0.0/8")
WIDE, INNER, OTHER, INMOST = (
    prefix_key(text) for text in ("10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16", "10.1.2.0/24")
)


class Slow:
    """Estimates that say what the slow mean has."""

    def of(self, meter: Meter) -> float:
        return meter.slow


@dataclass
class World:
    """A plane with one router, or with two in a slice each, whose entries are the victims of all rooms."""

    plane: Room
    routers: dict[int, Router]
    evictions: Evictions

    def plan(self, need: int, brings: float, most: int = 100, next_rates: tuple[float, ...] = ()) -> object:
        """Plan for a candidate that is no prefix of the world: the keys that leave, by eviction."""
        return self.plan_for(BESIDE, need, brings, most, next_rates)

    def plan_for(
        self, key: bytes, need: int, brings: float, most: int = 100, next_rates: tuple[float, ...] = ()
    ) -> object:
        candidate = Candidate((RED, key), brings, lambda entries, _: sum(next_rates[:entries]))
        planned = self.evictions.plan({self.plane: need}, most, candidate)
        return planned and [eviction.keys for eviction in planned]


def a_world(
    rates: dict[bytes, float], covers: tuple[bytes, ...] = (), more: dict[bytes, float] | None = None
) -> World:
    """A router with entries by what they bring, and with covers; ``more`` are the entries of a second one."""
    plane = Room(100, 0)
    routers, victims = {}, {plane: Victims()}
    for vrf_id, entries in ((RED, rates), (BLUE, more or {})):
        room = Room(50, 0, around=plane)
        room.begin()
        routers[vrf_id] = router = Router(vrf_id, CoveredTable(4, room))
        router.table.change(dict.fromkeys((*entries, *covers), 7))
        for key in entries:
            router.table.enter(key, router.table.uncovered(key) or [])
            router.hard[key] = Meter()
            router.hard[key].slow = entries[key]
        for key in covers if entries else ():
            around = router.table.hardware.above(key)
            if key in router.table.hardware and around in router.hard:
                router.hard[around].entries += 1
        victims[room] = Victims()
        for key, rate in entries.items():
            for one in room.chain:
                victims[one].note(rate / router.hard[key].entries, vrf_id, key)
    for heap in victims.values():
        heap.renew()
    estimates = dict.fromkeys(routers, cast(Estimates, Slow()))
    return World(plane, routers, Evictions(routers, estimates, victims, {}))


@pytest.mark.parametrize(("brings", "leaves"), [(125, None), (126, [[FREE]])])
def test_who_comes_brings_a_quarter_more(brings: float, leaves: object) -> None:
    assert a_world({FREE: 100}).plan(1, brings) == leaves


def test_those_that_bring_least_leave_first_and_as_many_as_are_needed() -> None:
    world = a_world({FREE: 30, INNER: 10, OTHER: 20})
    assert world.plan(0, 100) == []
    assert world.plan(1, 100) == [[INNER]]
    assert world.plan(2, 100) == [[INNER], [OTHER]]
    assert world.plan(3, 100) == [[INNER], [OTHER], [FREE]]


def test_nothing_leaves_where_not_enough_would() -> None:
    world = a_world({FREE: 30, INNER: 10, OTHER: 20})
    assert world.plan(4, 100) is None
    assert world.plan(3, 30) is None  # FREE brings too much
    assert world.plan(3, 100, most=2) is None
    assert world.plan(2, 30) == [[INNER], [OTHER]]  # all of them are victims as before


def test_without_a_candidate_all_leave_but_what_is_pinned() -> None:
    world = a_world({FREE: 30, INNER: 10})
    world.routers[RED].pinned.add(INNER)
    assert world.evictions.plan({world.plane: 1}, 100) == [Eviction(RED, [FREE], 1, 30)]
    assert world.evictions.plan({world.plane: 2}, 100) is None


def test_covers_are_free_with_what_needs_them() -> None:
    world = a_world({WIDE: 90}, covers=(INNER, INMOST))
    assert world.routers[RED].table.hardware.actions.keys() >= {WIDE, INNER}
    assert world.evictions.plan({world.plane: 2}, 100) == [Eviction(RED, [WIDE], 2, 90)]
    assert world.plan(2, 57) == [[WIDE]]
    assert world.plan(2, 56) is None  # 45 for each of the two


@pytest.mark.parametrize(
    ("brings", "next_rates", "leaves"),
    [(113, (), [[WIDE]]), (112, (), None), (70, (42,), None), (70, (43,), [[WIDE]]), (70, (30, 90), None)],
)
def test_room_that_one_leaves_counts_by_what_the_next_would_bring(
    brings: float, next_rates: tuple[float, ...], leaves: object
) -> None:
    assert a_world({WIDE: 90}, covers=(INNER, INMOST)).plan(1, brings, next_rates=next_rates) == leaves


@pytest.mark.parametrize(
    ("need", "brings", "next_rates", "leaves"),
    [
        (1, 126, (), [[WIDE]]),
        (1, 80, (58,), [[WIDE, INNER]]),
        (1, 80, (57, 20), None),
        (1, 80, (57, 26), [[WIDE, INNER, OTHER]]),
        (2, 80, (), [[WIDE, INNER]]),
        (3, 55, (), [[WIDE, INNER, OTHER]]),
        (3, 54, (), None),
    ],
)
def test_what_is_inside_leaves_with_what_is_around_it(
    need: int, brings: float, next_rates: tuple[float, ...], leaves: object
) -> None:
    assert a_world({WIDE: 100, INNER: 10, OTHER: 20}).plan(need, brings, next_rates=next_rates) == leaves


@pytest.mark.parametrize(("need", "leaves"), [(3, [[WIDE, INNER], [FREE]]), (4, None)])
def test_what_brings_more_than_who_comes_stays(need: int, leaves: object) -> None:
    assert a_world({WIDE: 40, INNER: 10, OTHER: 90, FREE: 30}).plan(need, 45) == leaves


def test_after_what_was_around_it_an_entry_leaves_alone() -> None:
    world = a_world({WIDE: 10, INNER: 20, FREE: 15})
    assert world.plan(3, 60) == [[WIDE], [FREE], [INNER]]


@pytest.mark.parametrize("need", [1, 2])
def test_the_default_entry_frees_its_covers_alone(need: int) -> None:
    default = prefix_key("0.0.0.0/0")
    world = a_world({default: 100, INNER: 10, OTHER: 90}, covers=(FREE, prefix_key("11.1.0.0/16")))
    assert world.routers[RED].table.hardware.actions.keys() == {default, INNER, OTHER, FREE}
    leaves = [Eviction(RED, [default], 1, 100), Eviction(RED, [INNER], 1, 10)]
    assert world.evictions.plan({world.plane: need}, need + 1) == leaves[:need]
    assert world.evictions.plan({world.plane: need}, need) is None  # the default entry is written as well


@pytest.mark.parametrize(("brings", "leaves"), [(70, None), (71, [[WIDE, INNER]])])
def test_what_leaves_with_another_takes_its_own_covers_along(brings: float, leaves: object) -> None:
    """WIDE brings 100, INNER 70 with the cover INMOST: 170 for three entries, a quarter more are 212.5."""
    world = a_world({WIDE: 100, INNER: 70}, covers=(INMOST, prefix_key("10.1.2.0/28")))
    assert world.plan(3, brings) == leaves


@pytest.mark.parametrize(("most", "leaves"), [(3, [[WIDE, INNER, OTHER]]), (2, None)])
def test_what_leaves_at_once_is_bounded(most: int, leaves: object) -> None:
    assert a_world({WIDE: 100, INNER: 0, OTHER: 0}).plan(3, 50, most=most) == leaves


@pytest.mark.parametrize(("brings", "leaves"), [(51, None), (52, [[WIDE]])])
def test_a_candidate_counts_by_each_entry_that_it_takes(brings: float, leaves: object) -> None:
    """Covers are two, the candidate takes two of the three entries, and the next one would bring 10."""
    world = a_world({WIDE: 90}, covers=(INNER, INMOST, OTHER, prefix_key("10.2.2.0/24")))
    assert world.plan(2, brings, next_rates=(10,)) == leaves


def test_what_leaves_with_something_dear_leaves_after_others() -> None:
    world = a_world({WIDE: 100, INNER: 10, FREE: 30})
    assert world.plan(1, 200) == [[FREE]]
    assert world.evictions.plan({world.plane: 1}, 100) == [Eviction(RED, [FREE], 1, 30)]


def test_a_candidate_keeps_what_it_would_need_as_its_cover() -> None:
    world = a_world({INNER: 10, FREE: 30, INMOST: 5})
    world.routers[RED].table.full.update({WIDE: 7})
    assert world.plan_for(WIDE, 1, 100) == [[FREE]]  # INMOST leaves with INNER
    assert world.plan_for(WIDE, 2, 100) is None
    assert world.plan(1, 100, next_rates=(20,)) == [[INNER]]


def test_the_next_ones_count_without_those_that_take_more_without_what_leaves() -> None:
    world = a_world({INNER: 90}, covers=(INMOST, prefix_key("10.1.2.0/28")))
    world.routers[RED].table.full.update({WIDE: 7})
    asked = []
    candidate = Candidate((RED, BESIDE), 70, lambda entries, without: asked.append((entries, without)) or 0)
    assert world.evictions.plan({world.plane: 1}, 100, candidate) is None
    assert asked == [(1, {(RED, WIDE), (RED, INMOST)})]  # which would need a cover, which has been one


def test_the_next_ones_are_not_asked_where_nothing_is_left_for_them() -> None:
    """Each time their covers would be looked at."""
    world, asked = a_world({FREE: 100}), []
    candidate = Candidate((RED, BESIDE), 126, lambda entries, _: asked.append(entries) or 0)
    assert world.evictions.plan({world.plane: 1}, 100, candidate) == [Eviction(RED, [FREE], 1, 100)]
    assert asked == []


@pytest.mark.parametrize(("need", "leaves"), [(1, [[WIDE]]), (2, [[WIDE], [FREE]]), (3, None)])
def test_the_cover_that_a_candidate_is_itself_makes_no_room_for_it(need: int, leaves: object) -> None:
    world = a_world({WIDE: 10, FREE: 30}, covers=(INNER, INMOST))
    assert world.plan_for(INNER, need, 100) == leaves
    assert world.plan(3, 100) == [[WIDE], [FREE]]


def test_what_leaves_for_a_slice_makes_room_in_the_plane_too() -> None:
    world = a_world({FREE: 30, INNER: 20}, more={FREE: 10, INNER: 40})
    red = world.routers[RED].table.room
    needs = {red: 1, world.plane: 1}
    assert world.evictions.plan(needs, 100) == [Eviction(RED, [INNER], 1, 20)]
    assert world.evictions.plan(needs | {world.plane: 2}, 100) == [
        Eviction(RED, [INNER], 1, 20),
        Eviction(BLUE, [FREE], 1, 10),
    ]


def test_a_candidate_passes_over_no_more_than_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "_MOST_PASSED_OVER", 1)
    world = a_world({INNER: 10, OTHER: 20, FREE: 30})
    world.routers[RED].table.full.update({WIDE: 7})
    assert world.plan_for(WIDE, 1, 100) is None
    monkeypatch.setattr(eviction, "_MOST_PASSED_OVER", 2)
    assert world.plan_for(WIDE, 1, 100) == [[FREE]]


def test_the_first_victim_is_the_least_as_things_are_now() -> None:
    victims, rates = Victims(), {b"a": 1.0, b"b": 2.0, b"c": 3.0}
    for key, rate in rates.items():
        victims.note(rate, 1, key)
    assert victims.least(lambda _, key: rates[key]) is None  # the search is not complete
    victims.renew()
    assert victims.least(lambda _, key: rates[key]) == (1.0, 1, b"a")
    rates[b"a"] = 2.5
    assert victims.least(lambda _, key: rates[key]) == (2.0, 1, b"b")
    assert victims.least(lambda _, key: None if key == b"b" else rates[key]) == (2.5, 1, b"a")
    victims.pop()
    assert victims.least(lambda _, key: rates[key]) == (3.0, 1, b"c")
    victims.renew()
    assert victims.least(lambda _, key: rates[key]) is None
