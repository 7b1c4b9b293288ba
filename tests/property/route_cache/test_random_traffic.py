"""Random packets of many prefixes: what is popular gets into hardware, what ends leaves, and a steady set settles."""

import random
from collections.abc import Iterable, Iterator, KeysView

import pytest

from controller.planes.base import FALLBACK
from controller.route_cache import rebalance
from controller.route_cache.fast_table import FastTable
from controller.route_cache.popularity import Estimates, Meter

VRF = 1


def flat(count: int) -> dict[bytes, int]:
    return {bytes((20, number >> 8, number & 255, 0, 24)): 1 for number in range(count)}


class World:
    """Prefixes with random packets, as many in hardware as there is room for."""

    def __init__(self, count: int, room: int, one_in: int, seed: int = 1) -> None:
        self.fast = FastTable(4, room + 1, reserve=0)
        self.fast.add(VRF, "red")
        self.fast.change(VRF, dict(flat(count)))
        self.keys, self.one_in, self.now = list(flat(count)), one_in, 0
        self.rates = dict.fromkeys(self.keys, 0.0)
        self._chance = random.Random(seed)

    def held(self) -> KeysView[bytes]:
        """What is in hardware, in the order of the table: that of a set is another one in each process."""
        return {key: action for key, action in self.fast.entries(VRF).items() if action != FALLBACK}.keys()

    def play(self, seconds: int) -> int:
        """Let time pass; return how many entries were written."""
        written = 0
        for _ in range(seconds):
            self.now += 1
            held = self.held()
            software = {key: rate / self.one_in for key, rate in self.rates.items() if key not in held}
            number = self._poisson(sum(software.values()))
            drawn = self._chance.choices(list(software), list(software.values()), k=number) if number else []
            self.fast.sample(self.now, VRF, drawn, self.one_in)
            list(self.fast.count(self.now, VRF, {key: self._poisson(self.rates[key]) for key in held}))
            written += sum(map(len, self.fast.rebalance(self.now, 1000).values()))
        return written

    def _poisson(self, mean: float) -> int:
        return max(0, round(self._chance.gauss(mean, mean**0.5))) if mean > 50 else self._few(mean)

    def _few(self, mean: float) -> int:
        count, passed = 0, self._chance.expovariate(1)
        while passed < mean:
            count, passed = count + 1, passed + self._chance.expovariate(1)
        return count


def test_one_sample_takes_nobodys_place() -> None:
    world = World(20, 5, one_in=100)
    world.rates.update(dict.fromkeys(world.keys[:5], 50.0))
    world.play(60)
    assert world.held() == set(world.keys[:5])
    world.rates.update(dict.fromkeys(world.keys[:5], 0.0))  # whatever comes brings more
    world.play(60)
    world.fast.sample(world.now, VRF, world.keys[10:11], 100)
    assert world.play(60) == 0
    world.fast.sample(world.now, VRF, world.keys[11:12] * 4, 100)
    assert world.play(1) > 0


def test_a_burst_that_ended_leaves_and_does_not_come_back() -> None:
    world = World(20, 1, one_in=1000)
    world.rates[world.keys[0]] = 5000.0
    world.play(300)
    assert world.held() == {world.keys[0]}
    world.rates.update({world.keys[0]: 0.0, world.keys[1]: 100.0})
    world.play(120)
    assert world.held() == {world.keys[1]}
    assert world.play(240) == 0


def test_a_steady_set_settles() -> None:
    world = World(2000, 100, one_in=100)
    world.rates = {key: 5000 / (rank + 1) for rank, key in enumerate(world.keys)}
    begun = world.play(120)
    world.play(480)
    assert world.play(120) < 30 < 200 <= begun  # a write in four seconds
    best = sum(sorted(world.rates.values())[-100:])
    assert sum(world.rates[key] for key in world.held()) > 0.985 * best


def test_a_set_that_changes_is_followed() -> None:
    world = World(2000, 100, one_in=100)
    world.rates = {key: 5000 / (rank + 1) for rank, key in enumerate(world.keys)}
    world.play(300)
    popular, other = world.keys[:20], world.keys[-20:]
    for one, another in zip(popular, other, strict=True):
        world.rates[one], world.rates[another] = world.rates[another], world.rates[one]
    world.play(30)
    assert set(other) <= world.held()
    world.play(60)  # the fast mean of the most popular one has to fall by a hundred times
    assert not world.held() & set(popular)


def test_a_round_looks_at_so_many_meters_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "HARD_SLICE", 20)
    monkeypatch.setattr(rebalance, "SOFT_SLICE", 30)
    world = World(1000, 200, one_in=10)
    world.rates = {key: 5000 / (rank + 1) for rank, key in enumerate(world.keys)}
    world.play(60)
    best = sum(sorted(world.rates.values())[-200:])
    assert sum(world.rates[key] for key in world.held()) > 0.95 * best
    seen, above = [0], Estimates.above

    def counting(
        self: Estimates, meters: Iterable[tuple[bytes, Meter]], floor: float
    ) -> Iterator[tuple[float, bytes]]:
        meters = list(meters)
        seen[0] += len(meters) if len(meters) > 1 else 0
        return above(self, meters, floor)

    monkeypatch.setattr(Estimates, "above", counting)
    list(world.fast.count(world.now, VRF, {}))
    for _ in range(20):
        seen[0] = 0
        world.fast.rebalance(world.now, 10)
        assert seen[0] <= 50 + 10, "both slices, and the candidates that found no victim in the round before"
