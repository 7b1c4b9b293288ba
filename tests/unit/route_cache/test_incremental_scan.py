"""Going over meters in slices."""

from controller.route_cache.incremental_scan import Slices


def test_a_trip_sees_every_key_once_whatever_changes_meanwhile() -> None:
    held = {1: dict.fromkeys((b"a", b"b", b"c")), 2: {}, 3: dict.fromkeys((b"d", b"e"))}
    slices, seen = Slices(2), []
    assert slices.at_start
    while not seen or not slices.at_start:
        found = list(slices.next(held.items))
        assert sum(len(keys) for _, keys in found) <= 2
        seen += [(vrf_id, key) for vrf_id, keys in found for key in keys]
        held[2][b"f"] = None  # is seen by the next trip
    assert sorted(seen) == [(1, b"a"), (1, b"b"), (1, b"c"), (3, b"d"), (3, b"e")]
    assert any(vrf_id == 2 for _ in range(3) for vrf_id, _ in slices.next(held.items))
    assert list(Slices(2).next(dict[int, list[bytes]]().items)) == []
