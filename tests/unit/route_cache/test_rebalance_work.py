"""What a round costs depends on what there is to do, not on the routers that there are."""

from collections.abc import Callable

import pytest
from lines import counted

from controller.model import Placement
from controller.planes.base import FALLBACK
from controller.route_cache.fast_table import FastTable
from wire.columns import prefix_key

FEW, MANY = 20, 400
WALK = 4
"""Lines of a router that has no candidates, in the walk over them all."""
OTHER = 1  # its routes change
ROUTES = {prefix_key("10.0.0.0/8"): 1, prefix_key("10.1.0.0/16"): 2}
MORE = {prefix_key("20.0.0.0/8"): 3}


def a_plane(routers: int, capacity: int, placement: Placement) -> FastTable:
    """Return a table of so many routers that rests."""
    fast = FastTable(4, capacity)
    for vrf_id in range(1, routers + 1):
        fast.add(vrf_id, "red" if vrf_id == OTHER else "blue")
        fast.set_placement(vrf_id, placement)
        fast.change(vrf_id, ROUTES)
    for second in range(10):
        fast.rebalance(second, 1000)
    assert fast.rebalance(10, 1000) == {}
    return fast


def change(fast: FastTable) -> None:
    fast.change(OTHER, MORE)


def sample(fast: FastTable) -> None:
    fast.sample(11, OTHER, [prefix_key("10.1.2.3/32")] * 5, 10)


def place(fast: FastTable) -> None:
    fast.set_placement(OTHER, Placement.SOFTWARE)


def refuse(fast: FastTable) -> None:
    fast.refused(OTHER, prefix_key("10.1.0.0/16"), full=False)


def nothing(fast: FastTable) -> None:
    pass


@pytest.mark.parametrize("what", [change, sample, place, refuse, nothing])
@pytest.mark.parametrize(
    ("room", "placement"),
    [(1_000_000, Placement.AUTO), (0, Placement.AUTO), (0, Placement.SOFTWARE)],
    ids=["all has room", "all is full", "all is in software"],
)
def test_a_round_looks_at_routers_that_have_work(
    what: Callable[[FastTable], None], room: int, placement: Placement
) -> None:
    spent = []
    for routers in (FEW, MANY):
        fast = a_plane(routers, room or 2 * routers, placement)
        list(fast.count(10, OTHER, {}))  # or victims were looked for by and by, whatever changes
        while not fast._rebalance.hard.at_start:
            fast.rebalance(10, 1000)
        fast.rebalance(10, 1000)
        what(fast)
        with counted("route_cache") as lines:
            fast.rebalance(11, 1000)
        spent.append(lines.count)
    assert spent[1] <= 1.1 * spent[0] + WALK * (MANY - FEW)


def test_who_had_no_room_is_looked_at_where_there_is_more() -> None:
    fast = a_plane(FEW, 2 * FEW, Placement.AUTO)
    assert not fast.whole(OTHER)
    fast.resize(1000)
    for second in range(11, 20):
        fast.rebalance(second, 1000)
    assert all(fast.whole(vrf_id) for vrf_id in range(1, FEW + 1))
    fast.limit("red", 2)
    fast.rebalance(20, 1000)
    assert [fast.whole(vrf_id) for vrf_id in (OTHER, 2)] == [False, True]
    fast.limit("red", None)
    fast.rebalance(21, 1000)
    assert fast.whole(OTHER)


def test_who_is_gone_is_not_looked_at() -> None:
    fast = a_plane(FEW, 1000, Placement.HARDWARE)
    change(fast)
    fast.remove(OTHER)
    fast.change(2, MORE)
    fast.drop(2)
    assert fast.rebalance(11, 1000) == {}
    fast.add(OTHER, "red")
    fast.change(OTHER, MORE)
    fast.rebalance(12, 1000)
    assert fast.entries(OTHER) == {prefix_key("0.0.0.0/0"): FALLBACK, **MORE}
