"""Going over meters in slices."""

from controller.route_cache.incremental_scan import Slices


def test_a_trip_sees_every_key_once_whatever_changes_meanwhile() -> None:
    held = {1: dict.fromkeys((b"a", b"b", b"c")), 2: {}, 3: dict.fromkeys((b"d", b"e", b"f")), 4: {}}
    slices, seen = Slices(2), []
    assert slices.at_start
    assert slices.ended == 0
    while not seen or not slices.at_start:
        found = list(slices.next(held, lambda one: held.get(one, ())))
        assert sum(len(keys) for _, keys in found) <= 2
        assert len(found) <= 1  # to go on to another router costs as well
        seen += [(vrf_id, key) for vrf_id, keys in found for key in keys]
        held[3][b"g"] = held.setdefault(5, {})[b"h"] = None  # are seen by the next trip
        held.pop(2, None)
        assert slices.begun == 1
    assert sorted(seen) == [(1, b"a"), (1, b"b"), (1, b"c"), (3, b"d"), (3, b"e"), (3, b"f")]
    assert slices.ended == 1
    again = list(slices.next(held, held.__getitem__))
    while not slices.at_start:
        again += slices.next(held, held.__getitem__)
    assert {(3, b"g"), (5, b"h")} <= {(vrf_id, key) for vrf_id, keys in again for key in keys}
    assert (slices.at_start, slices.begun) == (True, 2)
    assert list(Slices(2).next([], held.__getitem__)) == []
