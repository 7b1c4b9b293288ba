"""Who is due when."""

from math import inf

from controller.shard.timer_wheel import SLOT_S, TimerWheel


def test_due_at_the_end_of_the_slot_and_once():
    wheel: TimerWheel[str] = TimerWheel()
    wheel.set("a", 10.0)
    wheel.set("b", 10.0 + SLOT_S / 2)
    assert wheel.pop_due(9.9) == []
    assert wheel.pop_due(10.0) == ["a"]
    assert wheel.pop_due(10.0 + SLOT_S) == ["b"]
    assert wheel.pop_due(1e9) == []


def test_a_time_replaces_the_one_before_and_haste_only_brings_it_forward():
    wheel: TimerWheel[str] = TimerWheel()
    wheel.set("a", 10)
    wheel.set("a", 20)
    assert wheel.pop_due(10) == []
    wheel.hasten("a", 30)
    wheel.hasten("a", 15)
    assert wheel.pop_due(14.9) == []
    assert wheel.pop_due(15) == ["a"]
    wheel.hasten("a", inf)
    wheel.hasten("a", 16)
    assert wheel.pop_due(16) == ["a"]


def test_who_is_forgotten_is_not_due():
    wheel: TimerWheel[str] = TimerWheel()
    wheel.set("a", 10)
    wheel.discard("a")
    wheel.discard("a")
    wheel.set("b", inf)
    assert wheel.pop_due(1e9) == []


def test_the_longest_waiting_come_first():
    wheel: TimerWheel[str] = TimerWheel()
    for name, at in (("c", 30), ("a", 10), ("b", 20)):
        wheel.set(name, at)
    assert wheel.pop_due(100) == ["a", "b", "c"]
