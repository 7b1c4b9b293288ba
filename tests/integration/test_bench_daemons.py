"""How bench/daemons counts BFD sessions that went down."""

from bench.daemons import times_lost


def test_sessions_that_went_down_are_counted() -> None:
    assert [times_lost(2, now) for now in (2, 3, 5)] == [0, 1, 3]


def test_a_session_that_was_made_again_went_down_at_least_once() -> None:
    assert [times_lost(2, now) for now in (0, 1)] == [1, 2]
