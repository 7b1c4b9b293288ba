"""Which packets bench/fairness offers: each router its part, in its own routes, behind its own link."""

import struct
from collections import Counter
from pathlib import Path

import pytest

from bench.fairness_cases import CASES, Router, added_cost, rates
from bench.schedule import NOBODYS, Schedule
from lab.prefixes import Announcement

_TABLES = [[Announcement(16 << 24, 8, 0)], [Announcement(17 << 24, 8, 0)], [Announcement(18 << 24, 8, 0)]]


def _read(path: Path) -> list[tuple[int, int, int]]:
    """Return the destinations of a file: address, VLAN, entrance."""
    found = struct.iter_unpack("=4sHH", path.read_bytes())
    return [(int.from_bytes(address, "big"), vlan, entrance) for address, vlan, entrance in found]


def test_each_router_has_its_part_of_a_set(tmp_path: Path) -> None:
    schedule = Schedule(_TABLES, 2, 1)
    assert schedule.mixed([1.0, 0.0, 0.0], 4, nobodys=True) == (0, 4)
    assert schedule.mixed([2.0, 1.0, 1.0], 1024) == (4, 1024)
    found = _read(schedule.write(tmp_path / "destinations"))
    assert found[:4] == [(NOBODYS, 1, 0)] * 4
    assert Counter(vlan for _, vlan, _ in found[4:]) == {1: 512, 2: 256, 3: 256}
    assert {(vlan, address >> 24, at) for address, vlan, at in found[4:]} == {(1, 16, 0), (2, 17, 1), (3, 18, 0)}
    assert len({vlan for _, vlan, _ in found[4:40]}) == 3  # not one router after the other


def test_a_router_that_would_have_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="too few"):
        Schedule(_TABLES, 1, 1).mixed([1000.0, 1000.0, 1.0], 16)
    with pytest.raises(ValueError, match="power of two"):
        Schedule(_TABLES, 1, 1).mixed([1.0, 1.0, 1.0], 12)


def test_what_is_offered_costs_the_load() -> None:
    routers = (Router(0.25), Router(0.75), Router(part=0.1))
    costs = [1e-6, 2e-6, 4e-6]
    found = rates(routers, costs, 2.0)
    assert sum(rate * cost for rate, cost in zip(found, costs, strict=True)) == pytest.approx(2.0)
    assert found[1] / found[0] == pytest.approx(3.0)
    assert found[2] * costs[2] == pytest.approx(0.1)
    with pytest.raises(ValueError, match="parts alone"):
        rates(routers, costs, 0.05)


def test_costs_are_raised_to_a_level_and_a_ratio() -> None:
    assert added_cost([3.0, 3.0], 10.0, 0.0) == 7.0
    assert added_cost([3.0, 3.0], 1.0, 0.0) == 0.0
    more = added_cost([7.0, 3.0], 4.0, 1.4)
    assert (7.0 + more) / (3.0 + more) == pytest.approx(1.4)
    assert added_cost([3.0, 3.0], 1.0, 1.4) == 0.0  # nothing makes equal ones unequal


@pytest.mark.parametrize("name", CASES)
def test_cases_offer_what_their_loads_say(name: str) -> None:
    case = CASES[name]
    assert name == case.name
    for load in case.loads:
        assert sum(rates(case.routers, [1.0] * len(case.routers), load)) == pytest.approx(load)
    assert all(router.slice in {0, *case.slices} for router in case.routers)
