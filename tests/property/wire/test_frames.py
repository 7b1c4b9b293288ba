"""Frames between a VRC and the controller, cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import MAX_FRAME_BYTES
from wire.frames import BadFrame, FrameReader, pack_frame

FRAMES = st.lists(st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, 255), st.binary(max_size=40)))


@given(FRAMES, st.integers(1, 30), st.integers(1, 3))
def test_what_is_sent_arrives_however_it_is_cut(frames, piece, most):
    octets = b"".join(pack_frame(interface_id, frame, reason) for interface_id, reason, frame in frames)
    reader, taken = FrameReader(), []
    for start in range(0, len(octets), piece):
        reader.feed(octets[start : start + piece])
        while some := reader.frames(most):
            assert len(some) <= most
            taken += some
    assert taken == frames
    assert len(reader) == 0


def test_the_preface_is_taken_once_it_is_whole():
    reader = FrameReader()
    reader.feed(b"abc")
    assert reader.octets(4) is None
    reader.feed(b"d" + pack_frame(7, b"frame", 2))
    assert reader.octets(4) == b"abcd"
    assert reader.frames(10) == [(7, 2, b"frame")]


def test_a_frame_that_is_too_long_is_none_and_what_came_before_it_is_taken():
    reader = FrameReader()
    reader.feed(pack_frame(1, bytes(MAX_FRAME_BYTES)) + pack_frame(1, bytes(MAX_FRAME_BYTES + 1)))
    assert reader.frames(10) == [(1, 0, bytes(MAX_FRAME_BYTES))]
    with pytest.raises(BadFrame, match=f"a frame of {MAX_FRAME_BYTES + 1} octets"):
        reader.frames(10)
