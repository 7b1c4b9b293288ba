"""For how long after a VRC's start the daemons may still have routes to learn again."""

import pytest

from vrc import agent
from vrc.agent import Agent, Options

HOLD_S, YOUNG_S, OLD_S = 120.0, 5.0, 500.0


@pytest.mark.parametrize(
    ("source", "adopted", "zebra_s", "guest_s", "left_s"),
    [
        ("fpm", False, OLD_S, OLD_S, HOLD_S),
        ("fpm", True, OLD_S, OLD_S, 0.0),
        ("fpm", True, YOUNG_S, OLD_S, HOLD_S - YOUNG_S),
        ("fpm", True, None, OLD_S, HOLD_S),
        ("netlink", False, None, OLD_S, HOLD_S),
        ("netlink", True, None, OLD_S, 0.0),
        ("netlink", True, None, YOUNG_S, HOLD_S - YOUNG_S),  # it was started anew, and then its VRC was
    ],
)
async def test_they_have_the_hold_time_from_their_start_or_their_guest_s(
    monkeypatch: pytest.MonkeyPatch, source: str, adopted: bool, zebra_s: float | None, guest_s: float, left_s: float
) -> None:
    monkeypatch.setattr(agent, "process_age_s", {"zebra": zebra_s}.get)
    monkeypatch.setattr(agent, "guest_age_s", lambda: guest_s)
    one = Agent(Options("red/r1", "unix:/none", "/none", source, ("127.0.0.1", 0)))
    try:
        one.source.hold_s, one.taps.adopted = HOLD_S, adopted
        assert one._unsettled_s() == left_s
    finally:
        one.kernel.close()
        one.source.close()
        one.netlink.close()
