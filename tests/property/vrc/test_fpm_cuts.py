"""A stream of FPM frames that is cut anywhere."""

from hypothesis import given
from hypothesis import strategies as st
from netlink_bytes import by_nexthop, frame, route

from vrc.netlink.route_messages import RTM_DELROUTE, Batch
from vrc.routes.fpm import scan_frames

STREAM = frame(route("10.0.0.0/8", kind=RTM_DELROUTE), route("10.0.0.0/8", by_nexthop(1)))
STREAM += frame(route("11.0.0.0/8", by_nexthop(1)))


@given(st.integers(0, len(STREAM)))
def test_a_cut_stream_goes_on(cut: int) -> None:
    batch = Batch()
    done = scan_frames(STREAM[:cut], 0, 100, batch)
    assert scan_frames(STREAM[done:], 0, 100, batch) == len(STREAM) - done
    assert len(batch.changes) == 3
