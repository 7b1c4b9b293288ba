"""What counts and samples come to: packets since the last time, and how many of them a sample stands for."""

from typing import Any

import pytest

from controller.fallback import pace
from controller.fallback import traffic as module
from controller.fallback.traffic import Traffic
from controller.planes.base import RouteCounts

A, B = b"\x0a\0\0\0\x08", b"\x0b\0\0\0\x08"
IPV4, IPV6 = bytes((192, 0, 2, 1, 32)), bytes(15) + b"\x01\x80"
VRF = {10: 1, 11: 1, 20: 2}


def measured(traffic: Traffic, *read: Any) -> dict[int, dict[bytes, int]]:
    return dict(one for one in traffic.measure(*read) if one is not None)


def counts(routes: dict[bytes, int], covers: dict[bytes, int] | None = None) -> RouteCounts:
    return RouteCounts({1: routes}, {1: covers or {}})


def test_packets_are_those_since_the_last_time() -> None:
    traffic = Traffic()
    assert measured(traffic, 0.0, counts({A: 1000}), {}, VRF) == {}
    assert measured(traffic, 5.0, counts({A: 1010, B: 7}), {}, VRF) == {1: {A: 10, B: 7}}
    assert measured(traffic, 10.0, counts({A: 4}), {}, VRF) == {1: {A: 4}}, "a new entry counts from 0"


def test_a_cover_that_becomes_an_entry_brings_no_packets_with_it() -> None:
    traffic = Traffic()
    measured(traffic, 0.0, counts({}, {A: 1000}), {}, VRF)
    assert measured(traffic, 5.0, counts({A: 1001}), {}, VRF) == {1: {A: 1}}


def test_a_sample_stands_for_what_was_sent_for_it() -> None:
    traffic = Traffic()
    measured(traffic, 0.0, counts({}), {10: 5000, 20: 100}, VRF)
    traffic.sample((1, 4), [IPV4] * 7)
    traffic.sample((1, 4), [IPV4] * 3)
    assert traffic.take() == {}, "nobody knows yet what they stand for"
    measured(traffic, 5.0, counts({}), {10: 5600, 11: 100, 20: 400, 99: 10**9}, VRF)
    assert traffic.one_in == 100
    assert traffic.take() == {(1, 4): [IPV4] * 10}
    assert traffic.take() == {}
    measured(traffic, 10.0, counts({}), {10: 5600, 11: 100, 20: 400}, VRF)
    assert traffic.one_in == 100, "without samples nothing new is known"
    traffic.sample((1, 6), [IPV6])
    measured(traffic, 15.0, counts({}), {10: 10, 11: 100, 20: 400}, VRF)
    assert traffic.one_in == (1000 / 4 + 10) / (10 / 4 + 1), "the counter began anew, and one sample says little"


def test_rates_are_by_router() -> None:
    traffic = Traffic()
    measured(traffic, 0.0, counts({A: 0}), {10: 0, 20: 0}, VRF)
    measured(traffic, 4.0, counts({A: 8}, {B: 50}), {10: 40, 20: 4}, VRF)
    assert (traffic.rates[1].hardware, traffic.rates[1].software) == (2.0, 10.0)
    assert (traffic.rates[2].hardware, traffic.rates[2].software) == (0.0, 1.0)
    traffic.begin()
    assert traffic.rates == {}


def test_what_waits_has_a_bound(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    traffic = Traffic()
    traffic.sample((1, 4), [IPV4, A])
    traffic.sample((1, 6), [IPV6] * 3)
    traffic.sample((2, 4), [IPV4])
    assert (traffic.sampled, traffic.overrun) == (6, 3)
    measured(traffic, 0.0, None, {10: 0}, VRF)
    traffic.sample((1, 4), [IPV4] * 4)
    measured(traffic, 5.0, None, {10: 100}, VRF)
    assert traffic.one_in == 25, "those without room are of the same packets"
    assert traffic.take() == {(1, 4): [IPV4, A], (1, 6): [IPV6]}
    traffic.sample((1, 4), [IPV4])
    assert traffic.take() == {(1, 4): [IPV4]}, "there is room again"


def test_what_was_read_is_gone_through_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STEP_ROUTES", 2)
    traffic, keys = Traffic(), [bytes((10, number, 0, 0, 16)) for number in range(10)]
    measured(traffic, 0.0, RouteCounts({1: dict.fromkeys(keys, 3), 2: {A: 1}}), {}, VRF)
    steps = list(traffic.measure(5.0, RouteCounts({1: dict.fromkeys(keys, 4), 2: {A: 9}}), {}, VRF))
    assert steps == [*[None] * 5, (1, dict.fromkeys(keys, 1)), None, (2, {A: 8})]
    assert traffic.rates[1].hardware == 2.0


def test_counting_that_begins_anew_ends_what_goes_through_the_former(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STEP_ROUTES", 1)
    traffic = Traffic()
    measured(traffic, 0.0, counts({A: 0, B: 0}), {}, VRF)
    steps = traffic.measure(5.0, counts({A: 10, B: 10}), {}, VRF)
    assert next(steps) is None
    traffic.begin()
    assert list(steps) == []
    assert traffic.rates == {}
