"""Counters of a plane and the one behind it, as one."""

from controller.fallback.installed_entries import summed
from controller.planes.base import Counters, DropReason, PuntClass, PuntPlace, PuntReason


def test_what_either_has_punted_dropped_and_lost_is_added() -> None:
    local, glean, martian = (1, PuntReason.LOCAL), (1, PuntReason.GLEAN), (2, DropReason.MARTIAN)
    lost = (7, PuntClass.BGP, PuntPlace.POLICER)
    hard = Counters(punts={local: (1, 10)}, drops={martian: (2, 20)}, lost_punts={lost: 3})
    soft = Counters(punts={local: (4, 40), glean: (5, 50)}, drops={martian: (6, 60)}, lost_punts={lost: 8})
    both = summed(hard, soft)
    assert both.punts == {local: (5, 50), glean: (5, 50)}
    assert both.drops == {martian: (8, 80)}
    assert both.lost_punts == {lost: 11}
