"""Whatever changes, is counted, refused and moved: hardware with its fallback forwards as the full table does."""

import copy
import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_changes import changes_between

from controller.model import Placement
from controller.planes.base import FALLBACK, Op
from controller.route_cache import rebalance
from controller.route_cache.cover import MAX_WRITES, Room
from controller.route_cache.fast_table import FastTable, PrefixLocation
from controller.route_cache.write_order import Changes, stages
from controller.routing.ranges import differences
from wire.columns import KEY_STRIDE

SLICES = {1: "red", 2: "red", 3: "blue"}
ROUTERS = tuple(SLICES)
DEFAULT = {family: bytes(stride) for family, stride in KEY_STRIDE.items()}
STEPS = 25


def wrong(full: Mapping[bytes, int], held: Mapping[bytes, int], family: int) -> list[object]:
    """Where hardware neither asks the full table nor does what it does."""
    return [one for one in differences([full, held], family) if one[2][1] != FALLBACK]


class World:
    """Three routers of two slices in one plane. What the plane holds follows by stages; it may refuse any write."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.family, self.now = chance.choice((4, 6)), 0.0
        self.fast = FastTable(self.family, chance.randint(3, 12), chance.randint(0, 2))
        self.full: dict[int, dict[bytes, int]] = {vrf_id: {} for vrf_id in ROUTERS}
        self.plane: dict[int, dict[bytes, int]] = {vrf_id: {} for vrf_id in ROUTERS}
        self.quota: dict[str, int] = {}
        self.slices = dict(SLICES)
        for vrf_id in ROUTERS:
            self.send(vrf_id, self.fast.add(vrf_id, self.slices[vrf_id]))

    def key(self, host: bool = False) -> bytes:
        """Prefixes that nest often: four bits at the top, and hosts with two bits at the bottom."""
        bits = 8 * (KEY_STRIDE[self.family] - 1)
        length = bits if host else self.chance.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, bits - 1, bits))
        address = self.chance.randrange(16) << (bits - 4) | self.chance.randrange(4)
        return (address >> (bits - length) << (bits - length)).to_bytes(bits // 8, "big") + bytes((length,))

    def send(self, vrf_id: int, changes: Changes, before: dict[bytes, int] | None = None) -> None:
        """Have the plane take the writes; ``before`` is the full table before the change, if it changed."""
        plane, target = self.plane[vrf_id], self.fast.entries(vrf_id)
        # Capacity and quota may have become less, and the default entry has room in any case.
        most = max(self.fast.capacity, sum(map(len, self.plane.values())))
        quota = self.quota.get(self.slices[vrf_id], self.fast.capacity)
        share = max(quota, self.held_by(self.slices[vrf_id]) + (DEFAULT[self.family] not in plane))
        assert changes == changes_between(plane, target)
        for updates in stages(vrf_id, self.family, changes):
            for op, key, action in zip(updates.ops, updates.keys, updates.actions, strict=True):
                if op is Op.DELETE:
                    del plane[key]
                else:
                    plane[key] = action
                assert self.right(vrf_id, before)
                assert sum(map(len, self.plane.values())) <= most
                assert self.held_by(self.slices[vrf_id]) <= share
        assert plane == target

    def held_by(self, slice_name: str) -> int:
        """Count what the plane holds of all routers of a slice, covers included."""
        return sum(len(self.plane[vrf_id]) for vrf_id in ROUTERS if self.slices[vrf_id] == slice_name)

    def right(self, vrf_id: int, before: dict[bytes, int] | None) -> bool:
        """Tell whether each address gets what the full table says, now or before."""
        plane, now = self.plane[vrf_id], self.full[vrf_id]
        if before is None:
            return not wrong(now, plane, self.family)
        found = differences((before, now, plane), self.family)
        return all(values[2] in (values[0], values[1], FALLBACK) for _, _, values in found)

    def change(self, vrf_id: int) -> None:
        pinned = self.chance.random() < 0.2
        changes: dict[bytes, int | None] = {}
        for _ in range(self.chance.randint(1, 2 if pinned else 10)):
            gone = not pinned and self.chance.random() < 0.3
            if gone and self.full[vrf_id]:
                changes[self.chance.choice(sorted(self.full[vrf_id]))] = None
            else:
                changes[self.key(pinned)] = self.chance.randint(1, 4)
        before = dict(self.full[vrf_id])
        for key, action in changes.items():
            if action is None:
                del self.full[vrf_id][key]
            else:
                self.full[vrf_id][key] = action
        spare = self.fast.capacity - self.fast.used
        writes = self.fast.change(vrf_id, changes, pinned)
        assert len(writes) <= MAX_WRITES * len(changes)
        assert sum(old is None for old, _ in writes.values()) <= max(0, spare)
        self.send(vrf_id, writes, before)

    def sample(self, vrf_id: int) -> None:
        self.now += 1
        found = [self.key(True) for _ in range(self.chance.randrange(6))]
        if self.full[vrf_id] and self.chance.random() < 0.5:
            found += self.chance.choices(sorted(self.full[vrf_id]), k=5)
        self.fast.sample(self.now, vrf_id, found * self.chance.randint(1, 3), 10)

    def count(self, vrf_id: int) -> None:
        self.now += 1
        list(self.fast.count(self.now, vrf_id, {key: self.chance.randrange(50) for key in self.plane[vrf_id]}))

    def rebalance(self, vrf_id: int, budget: int | None = None) -> None:
        del vrf_id
        self.now += self.chance.choice((1, 1, 30, 5000))
        budget = self.chance.choice((40, 40, 3, 1, 0)) if budget is None else budget
        self.fast.grow(self.now)
        spare = self.fast.capacity - self.fast.used
        if self.chance.random() < 0.3:
            self.who_is_not_looked_at_has_nothing_to_do(budget)
        moved = self.fast.rebalance(self.now, budget)
        assert sum(map(len, moved.values())) <= budget
        assert sum(old is None for one in moved.values() for old, _ in one.values()) <= max(0, spare)
        for one, changes in moved.items():
            self.send(one, changes)

    def who_is_not_looked_at_has_nothing_to_do(self, budget: int) -> None:
        one, other = copy.deepcopy(self.fast), copy.deepcopy(self.fast)  # both: sets of a copy have another order
        other._rebalance.work |= dict.fromkeys(other._routers)
        assert one.rebalance(self.now, budget) == other.rebalance(self.now, budget)

    def refuse(self, vrf_id: int) -> None:
        """The plane does not have one of the entries after all; then it follows to what is made of that."""
        entries = sorted(key for key, action in self.plane[vrf_id].items() if key[-1] or action != FALLBACK)
        if not entries:
            return
        key, full, used = self.chance.choice(entries), self.chance.random() < 0.2, self.fast.used
        changes = self.fast.refused(vrf_id, key, full)
        if full:
            assert self.fast.capacity <= self.fast.used <= used - (key[-1] > 0)
        assert self.fast.entries(vrf_id).get(key, FALLBACK) == FALLBACK
        self.send(vrf_id, changes)

    def set_up(self, vrf_id: int) -> None:
        """Another mode, quota, capacity or slice; or the router goes, entries and all, and comes back."""
        kind = self.chance.randrange(5)
        if kind == 0:
            self.fast.set_placement(vrf_id, self.chance.choice(list(Placement)))
        elif kind == 1:
            quota = self.quota[self.slices[vrf_id]] = self.chance.randint(0, 10)
            self.fast.limit(self.slices[vrf_id], quota)
        elif kind == 2:
            self.fast.resize(self.chance.randint(3, 12))
        elif kind == 3:
            name = self.chance.choice(list(SLICES.values()))
            self.fast.join(vrf_id, name, self.slices[vrf_id])
            self.slices[vrf_id] = name
        else:
            self.full[vrf_id] = {}
            changes = self.fast.remove(vrf_id)
            assert changes == changes_between(self.plane[vrf_id], {})
            self.plane[vrf_id] = {}
            self.fast.resize(max(self.fast.capacity, self.fast.used + 1))
            self.send(vrf_id, self.fast.add(vrf_id, self.slices[vrf_id]))

    def the_books_are_right(self) -> None:
        routers = self.fast._routers.values()
        assert self.fast._tracked == sum(len(one.soft) for one in routers)
        wanted = Counter[Room]()
        for one in routers:
            wanted[one.table.room] += 0 if one.placement is Placement.SOFTWARE else len(one.table.full) + 1
        assert all(room.wanted == wanted[room] for room in self.fast._slices.values())
        assert self.fast.used == sum(map(len, self.plane.values()))
        assert all(self.fast.used_by(name) == self.held_by(name) for name in self.slices.values())
        for vrf_id in ROUTERS:
            placed, plane, full = self.fast.counts(vrf_id), self.plane[vrf_id], self.full[vrf_id]
            forwarding = {key for key, action in plane.items() if action != FALLBACK}
            assert placed.routes == len(full)
            assert placed.covers == len(plane) - len(forwarding)
            assert placed.parts == len(forwarding - full.keys())
            assert placed.hardware == len(forwarding & full.keys())
            whole = {key for key in full if self.fast.where(vrf_id, key) is PrefixLocation.HARDWARE}
            assert whole == forwarding & full.keys()
            assert not wrong(full, plane, self.family)

    def quotas_are_kept(self) -> None:
        for name, quota in self.quota.items():
            routers = list(self.slices.values()).count(name)
            assert self.held_by(name) <= max(quota, routers)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_hardware_with_its_fallback_is_the_full_table(seed: int) -> None:
    play(seed)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_it_is_also_where_a_round_looks_at_few_entries(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rebalance, "HARD_SLICE", 2)
        patch.setattr(rebalance, "SOFT_SLICE", 2)
        play(seed)


def play(seed: int) -> None:
    """Have a world change at random, and look at it after every step."""
    world = World(seed)
    steps = [world.change, world.sample, world.count, world.rebalance, world.refuse, world.set_up]
    for step in world.chance.choices(steps, weights=(4, 5, 2, 6, 1, 1), k=STEPS):
        step(world.chance.choice(ROUTERS))
        world.the_books_are_right()
    for _ in range(8):
        world.rebalance(1, 40)
    world.quotas_are_kept()
