"""The last thing that a bound lets in, and the first that it does not."""

import pytest

from controller.model import Quota
from controller.routing import repeated_keys
from controller.routing.repeated_keys import RepeatedKeys
from controller.routing.usage import MEMBER_OCTETS, SET_OCTETS, Pool, SliceUsage


@pytest.mark.parametrize(("octets", "refused"), [(0, False), (-1, True)])
def test_the_memory_quota_has_room_for_a_set_of_just_what_is_left(octets: int, refused: bool) -> None:
    members = 3
    memory = SET_OCTETS + members * MEMBER_OCTETS + octets
    usage = SliceUsage(Quota(memory=memory))
    assert usage.refuses_set(members, fresh=True) == (f"quota memory of {memory} octets" if refused else "")
    assert usage.refuses_set(members, fresh=False) == ""


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
