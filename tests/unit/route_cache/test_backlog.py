"""What is still to enter hardware: longest first, found a slice at a time."""

import pytest

from controller.model import Placement
from controller.planes.base import FALLBACK
from controller.route_cache import rebalance
from controller.route_cache.backlog import Backlog
from controller.route_cache.fast_table import FastTable
from controller.route_cache.router import Router
from wire.columns import prefix_key

VRF = 1
WIDE, LONGER, LONGEST, FREE = map(prefix_key, ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "11.0.0.0/24"))


def test_the_longest_that_waits_comes_first() -> None:
    backlog = Backlog()
    assert (backlog.first, len(backlog)) == (None, 0)
    backlog.add([LONGER, LONGEST, WIDE, FREE])
    taken = []
    while backlog.first is not None:
        taken.append(backlog.pop())
    assert taken == [FREE, LONGEST, LONGER, WIDE]


def test_a_search_looks_at_as_many_as_it_may() -> None:
    backlog = Backlog()
    backlog.search([WIDE, LONGER, LONGEST])
    assert (backlog.searching, len(backlog), backlog.first) == (True, 3, None)
    backlog.look(lambda key: key != LONGER, 2)
    assert (backlog.searching, backlog.first) == (True, LONGEST)
    assert len(backlog) == 2
    backlog.look(lambda key: True, 2)
    assert not backlog.searching
    assert [backlog.pop(), backlog.pop(), backlog.first] == [LONGEST, WIDE, None]


def test_what_is_postponed_waits_again_once_all_was_looked_at() -> None:
    backlog = Backlog()
    backlog.search([WIDE, LONGEST])
    backlog.add([LONGER])
    backlog.postpone()
    assert (backlog.first, len(backlog)) == (None, 3)
    backlog.look(lambda key: True, 1)
    assert backlog.first == LONGEST
    backlog.pop()
    backlog.look(lambda key: False, 1)
    assert (backlog.first, len(backlog)) == (LONGER, 1)


def test_a_new_search_and_an_end_forget_what_was_found() -> None:
    backlog = Backlog()
    backlog.search([WIDE, LONGER])
    backlog.look(lambda key: True, 1)
    backlog.postpone()
    backlog.search([FREE])
    assert len(backlog) == 1
    backlog.clear()
    assert (len(backlog), backlog.searching, backlog.first) == (0, False, None)


def test_a_router_that_fits_again_and_again_is_searched_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant has its table fit by one route, and not by the next: each time all of it was looked at in one go."""
    monkeypatch.setattr(rebalance, "SEARCH_SLICE", 50)
    routes = {bytes((20, number >> 8, number & 255, 0, 24)): 1 for number in range(1000)}
    fast = FastTable(4, 1001, reserve=0)
    fast.add(VRF, "red")
    fast.change(VRF, dict(routes))
    now = 0
    while len(fast.entries(VRF)) < 1001:
        now += 1
        fast.rebalance(now, 10_000)
        assert now < 100
    looked_at = 0

    def missing(router: Router, key: bytes) -> bool:
        nonlocal looked_at
        looked_at += 1
        return before(router, key)

    before = Router.missing
    monkeypatch.setattr(Router, "missing", missing)
    for _ in range(10):
        for change in ({FREE: 1}, {FREE: None}):
            now += 1
            fast.change(VRF, change)
            looked_at = 0
            fast.rebalance(now, 10_000)
            assert looked_at <= 120  # a slice, what waits, and what was changed


def test_what_has_entered_meanwhile_is_passed_over_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "SEARCH_SLICE", 50)
    fast = FastTable(4, 1000, reserve=0)
    fast.add(VRF, "red")
    fast.rebalance(1, 10_000)
    fast.change(VRF, {bytes((20, 0, number, 0, 24)): 1 for number in range(200)})
    backlog = fast._routers[VRF].backlog
    left = [len(backlog)]
    while left[-1]:
        fast.rebalance(2, 10_000)
        left.append(len(backlog))
        assert fast.unfinished
    assert left == [200, 150, 100, 50, 0]
    fast.rebalance(2, 10_000)
    assert not fast.unfinished


def test_no_cover_enters_for_what_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "SEARCH_SLICE", 1)
    fast = FastTable(4, 100, reserve=0)
    fast.add(VRF, "red")
    fast.set_placement(VRF, Placement.SOFTWARE)
    fast.change(VRF, {LONGEST: 3, LONGER: 2, WIDE: 1})  # the last is looked at first
    fast.rebalance(1, 100)
    fast.set_placement(VRF, Placement.HARDWARE)
    written: dict[bytes, int | None] = {}
    for now in range(2, 9):
        changes = {key: after for key, (_, after) in fast.rebalance(now, 100).get(VRF, {}).items()}
        assert FALLBACK not in changes.values()
        written |= changes
    assert written == {LONGEST: 3, LONGER: 2, WIDE: 1}
