"""However changes, rounds and writes overtake each other: the hardware never has more than its room, or a quota."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fallback import pace
from controller.fallback import staged_writes as writes
from controller.fallback.hardware_routes import HardwareRoutes
from controller.model import Placement, Quota
from controller.planes.base import FALLBACK, LOCAL, Op, RouteKind, RouteUpdates, route_action
from controller.routing.ranges import differences

SLICES = {1: "red", 2: "red", 3: "blue"}
STEPS = 80
ACTIONS = [route_action(RouteKind.NEXTHOP, nexthop) for nexthop in (1, 2, 3)] * 2 + [LOCAL]


class World:
    """Three routers of two slices. Writes are under way for a while, and the hardware may be read back meanwhile."""

    def __init__(self, seed: int, room: int | None = None) -> None:
        chance = self.chance = random.Random(seed)
        self.room, self.quota = (chance.randint(6, 14), chance.choice((None, 4, 6))) if room is None else (room, None)
        self.routes = HardwareRoutes({4: self.room, 6: 100})
        self.full: dict[int, dict[bytes, int]] = {vrf_id: {} for vrf_id in SLICES}
        self.plane: dict[int, dict[bytes, int]] = {vrf_id: {} for vrf_id in SLICES}
        self.in_flight: list[RouteUpdates] = []
        self.now = 0.0
        for vrf_id, name in SLICES.items():
            self.routes.tables.share(vrf_id, name, Quota(hardware_ipv4_routes=self.quota))
            self.routes.place(vrf_id, chance.choice(list(Placement)))
            self.routes.tables.open(vrf_id)

    def key(self) -> bytes:
        length = self.chance.choice((1, 2, 3, 4, 8, 8, 16))
        address = self.chance.randrange(16) << 28
        return (address >> (32 - length) << (32 - length)).to_bytes(4, "big") + bytes((length,))

    def change(self) -> None:
        vrf_id = self.chance.choice(list(SLICES))
        full, columns = self.full[vrf_id], RouteUpdates(vrf_id, 4)
        for key in {self.key() for _ in range(self.chance.randint(1, 5))}:
            gone = key in full and self.chance.random() < 0.5
            action = 0 if gone else self.chance.choice(ACTIONS)
            columns.ops.append(Op.DELETE if gone else Op.MODIFY if key in full else Op.INSERT)
            columns.keys.append(key)
            columns.actions.append(action)
            if gone:
                del full[key]
            else:
                full[key] = action
        self.routes.tables.change(columns)

    def rebalance(self) -> None:
        self.now += 1
        self.routes.rebalance(self.now)

    def place(self) -> None:
        self.routes.place(self.chance.choice(list(SLICES)), self.chance.choice(list(Placement)))

    def send(self) -> None:
        """The hardware takes the writes of a stage in any order; their confirmation is under way."""
        if self.in_flight:
            return
        self.in_flight = self.routes.next_stage()
        for columns in self.in_flight:
            writes = list(zip(columns.ops, columns.keys, columns.actions, strict=True))
            self.chance.shuffle(writes)
            for op, key, action in writes if columns.family == 4 else ():
                if op is Op.DELETE:
                    del self.plane[columns.vrf_id][key]
                else:
                    self.plane[columns.vrf_id][key] = action
                self.nothing_has_too_much()

    def confirm(self) -> None:
        if self.in_flight:
            self.routes.confirm(self.in_flight, [])
            self.in_flight = []

    def adopt(self) -> None:
        """Both are read back, after the software was given all that there is, perhaps again before all was taken in;
        routers are placed meanwhile."""
        while not self.in_flight:
            held = {vrf_id: dict(entries) for vrf_id, entries in self.plane.items()}
            for _ in self.routes.adoption.adopt(held, self.full, SLICES):
                if self.chance.random() < 0.05:
                    self.place()
                if self.chance.random() < 0.02:
                    break
            else:
                return

    def complete(self) -> None:
        """All guests have repeated their routes: what the hardware has beside them is not lost, but withdrawn."""
        for vrf_id in SLICES:
            self.routes.adoption.complete(vrf_id)
        for _ in self.routes.adoption.thaw():
            pass

    def nothing_has_too_much(self) -> None:
        held = {vrf_id: len(entries) for vrf_id, entries in self.plane.items()}
        assert sum(held.values()) <= self.room
        if self.quota is not None:
            for name in ("red", "blue"):
                assert sum(held[vrf_id] for vrf_id, of in SLICES.items() if of == name) <= self.quota

    def play(self) -> None:
        """Let things happen in any order, and then come to rest."""
        steps = [self.change, self.rebalance, self.send, self.confirm, self.place, self.adopt, self.complete]
        for step in self.chance.choices(steps, weights=(5, 4, 6, 5, 1, 1, 1), k=STEPS):
            step()
        self.settle()

    def settle(self) -> None:
        self.complete()
        for _ in range(20):
            self.confirm()
            self.send()
            while self.in_flight:
                self.confirm()
                self.send()
            self.rebalance()


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_what_still_leaves_has_its_room_until_it_has_left(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writes, "STAGE_ROUTES", 4)
        patch.setattr(pace, "STEP_ROUTES", 2)
        world = World(seed)
        world.play()
    assert world.routes.writes.idle
    for vrf_id, full in world.full.items():
        assert world.routes.usage.installed(vrf_id, 4) == world.plane[vrf_id]
        assert not [one for one in differences([full, world.plane[vrf_id]], 4) if one[2][1] != FALLBACK]


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_where_there_is_room_a_router_in_hardware_leaves_nothing_to_the_software(seed: int) -> None:
    world = World(seed, room=1000)
    world.play()
    for vrf_id in SLICES:
        world.routes.place(vrf_id, Placement.HARDWARE)
    world.settle()
    for vrf_id, full in world.full.items():
        assert all(values == (None, FALLBACK) for *_, values in differences([full, world.plane[vrf_id]], 4))
