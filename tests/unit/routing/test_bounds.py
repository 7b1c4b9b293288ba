"""The last thing that a bound lets in, and the first that it does not."""

import re
from pathlib import Path

import pytest

from controller.model import Quota
from controller.routing import repeated_keys
from controller.routing.repeated_keys import RepeatedKeys
from controller.routing.usage import (
    MEMBER_OCTETS,
    NEIGHBOR_OCTETS,
    ROUTE_OCTETS,
    SET_OCTETS,
    Pool,
    SliceUsage,
)


@pytest.mark.parametrize(("octets", "refused"), [(0, False), (-1, True)])
def test_the_memory_quota_has_room_for_a_set_of_just_what_is_left(octets: int, refused: bool) -> None:
    members = 3
    memory = SET_OCTETS + members * MEMBER_OCTETS + octets
    usage = SliceUsage(Quota(memory=memory))
    assert usage.refuses_set(members, fresh=True) == (f"quota memory of {memory} octets" if refused else "")
    assert usage.refuses_set(members, fresh=False) == ""


@pytest.mark.parametrize(
    ("quota", "more", "refused"),
    [
        (Quota(sets=2), 1, "quota sets of 2"),
        (Quota(sets=3), 1, ""),
        (Quota(members=6), 3, "quota members of 6"),
        (Quota(members=7), 3, ""),
    ],
)
def test_the_first_set_beyond_a_quota(quota: Quota, more: int, refused: str) -> None:
    assert SliceUsage(quota, sets=2, members=4).refuses_set(more, fresh=False) == refused


def test_memory_counts_what_is_kept_and_every_route_once() -> None:
    usage = SliceUsage(Quota(), kept_sets=2, kept_members=5, neighbors=3)
    base = 2 * SET_OCTETS + 5 * MEMBER_OCTETS + 3 * NEIGHBOR_OCTETS
    usage.learned, usage.ipv4_routes, usage.ipv6_routes = 40, 30, 8  # three of them are the neighbors' own
    assert usage.memory == base + 40 * ROUTE_OCTETS
    usage.learned = 10
    assert usage.memory == base + 35 * ROUTE_OCTETS
    usage.quota = Quota(memory=base + 37 * ROUTE_OCTETS + 1)
    assert usage.routes_affordable() == 27  # what is read back may be repeated, and two more
    usage.quota = Quota(memory=base)
    assert usage.routes_affordable() == 25


def test_memory_counts_as_much_as_the_manual_says() -> None:
    manual = (Path(__file__).parents[3] / "docs/documents.md").read_text()
    (said,) = re.findall(
        r"^`memory` is counted, not measured: ([\d,]+) octets for a route, ([\d,]+) for a nexthop set, "
        r"([\d,]+) for each of its members, ([\d,]+) for a neighbor\.",
        manual,
        re.MULTILINE,
    )
    counted = (ROUTE_OCTETS, SET_OCTETS, MEMBER_OCTETS, NEIGHBOR_OCTETS)
    assert tuple(int(octets.replace(",", "")) for octets in said) == counted


def test_a_pool_counts_what_its_slices_have_from_when_they_join_it() -> None:
    pool, usage = Pool({"ipv4_routes": 100}), SliceUsage(Quota(ipv4_routes=50), ipv4_routes=20, nexthops=3)
    usage.join(pool)
    usage.add("ipv4_routes", 5)
    usage.add("nexthops", -1)
    assert pool.used == {"ipv4_routes": 25, "ipv6_routes": 0, "nexthops": 2, "groups": 0}
    assert (usage.room("ipv4_routes"), usage.room_beside("ipv4_routes")) == (25, 75)
    assert usage.room("nexthops") == usage.quota.nexthops - 2  # of which the pool says nothing
    pool.used["ipv4_routes"] += 60
    assert usage.room("ipv4_routes") == 15


def test_the_reason_is_the_pool_where_the_quota_is_not_used_up() -> None:
    usage = SliceUsage(Quota(ipv4_routes=50), ipv4_routes=49)
    assert usage.full("ipv4_routes") == "quota ipv4_routes of 50"
    usage.join(Pool({"ipv4_routes": 40}))
    assert usage.full("ipv4_routes") == "overcommitted ipv4_routes: 40 for all slices that overcommit"
    usage.add("ipv4_routes", 1)
    assert usage.full("ipv4_routes") == "quota ipv4_routes of 50"
    assert usage.full("nexthops") == f"quota nexthops of {usage.quota.nexthops}"


def test_a_reserved_table_has_what_is_reserved_for_own_addresses_too() -> None:
    usage = SliceUsage(Quota(ipv4_routes=50, neighbors=8), ipv4_routes=20, reserved={"ipv4_routes": 60})
    assert (usage.room_beside("ipv4_routes"), usage.room_beside("ipv6_routes")) == (
        40,
        usage.quota.ipv6_routes + 8,
    )


def test_own_addresses_have_all_of_the_pool_that_is_not_in_use() -> None:
    pool = Pool({"ipv4_routes": 100}, {"ipv4_routes": 10})
    red, blue = SliceUsage(Quota(ipv4_routes=90)), SliceUsage(Quota(ipv4_routes=90))
    for usage, count in ((red, 30), (blue, 50)):
        usage.join(pool)
        usage.add("ipv4_routes", count)
    assert (red.room("ipv4_routes"), red.room_beside("ipv4_routes")) == (10, 20)
    red.join(None)
    assert red.room_beside("ipv4_routes") == 90 + red.quota.neighbors - 30


@pytest.mark.parametrize("expected", [0, 8])
def test_repeated_keys_are_forgotten_in_parts(expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_keys, "_PART_BITS", 1)
    keys = [bytes((20, number, 0, 0, 16)) for number in range(100)]
    repeated = RepeatedKeys(expected)
    repeated.add(keys[:60])
    repeated.add(keys[50:])
    assert all(key in repeated for key in keys)
    assert b"\x1e\0\0\0\x10" not in repeated
    forgotten = [repeated.shrink()]
    while forgotten[-1]:
        forgotten.append(repeated.shrink())
    assert sum(forgotten) == len(keys)
    assert (len(forgotten) == 2) == (not expected)
