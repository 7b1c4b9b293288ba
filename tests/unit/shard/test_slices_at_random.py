"""Documents, routes and withdrawals of three tenants at random, on a plane that refuses what is beyond its table: it
never has to, and whoever is within a quota is refused nothing."""

import random

import pytest
from worlds import World, router_config

from controller.planes.fake import FakePlane
from controller.routing.rib import SetKind
from controller.spec.merge import merge
from controller.spec.parse import parse
from controller.spec.reservations import problems, share, slices_of
from controller.spec.state import Ids, State

ROOM = 240
TENANTS = ("red", "blue", "green")
PLANE = f"version: 1\nplanes: [{{name: s1, kind: fake, capacity: {{ipv4_route: {ROOM}}}}}]\ntenants:\n"


class Operator:
    """Applies documents as `Operations` does, and divides what they ask for."""

    def __init__(self, world: World) -> None:
        self.world, self.state = world, State()

    def apply(self, tenant: str, more: str) -> None:
        text = f"{PLANE}  - {{name: {tenant}, slices: [{{plane: s1{more}}}]}}\n"
        after, _ = merge(parse(text, "t.yaml"), self.state, Ids(), {})
        if list(problems(self.state, after, {"s1": self.world.shards.usage("s1")}, 0)):
            return
        self.state = after
        self.divide()

    def divide(self) -> None:
        shares = share(self.state, "s1", self.world.shards.usage("s1"))
        reserved = {tenant: part["ipv4_routes"] for tenant, part in shares.reserved.items()}
        pooled = {tenant for (tenant, _), part in slices_of(self.state, "s1") if part.overcommit}
        kept = sum(room for tenant, room in reserved.items() if tenant not in pooled)
        assert kept + shares.pool.get("ipv4_routes", 0) <= ROOM
        self.world.shards.limit("s1", shares, pooled)


def quota(chance: random.Random) -> str:
    neighbors = f"neighbors: {chance.randint(4, 12)}"
    routes = chance.choice(("", f", ipv4_routes: {chance.randint(0, ROOM)}"))
    return f", quota: {{{neighbors}{routes}}}" + chance.choice(("", "", ", overcommit: true"))


@pytest.mark.parametrize("seed", range(12))
async def test_nobody_within_a_quota_is_refused_because_of_another(make_world, seed: int) -> None:
    chance = random.Random(seed)
    configs = [router_config(number, (number,), tenant=name) for number, name in enumerate(TENANTS, 1)]
    world = await make_world(*configs, plane=FakePlane("s1", capacity=ROOM))
    operator = Operator(world)
    for name in TENANTS:
        operator.apply(name, ", quota: {neighbors: 8}")
    for number in (1, 2, 3):
        world.connect(number)
        world.router(number).define_set(1, SetKind.FORWARD, [(number, bytes((10, 0, number, 2)), 1)])
        await world.settle(number)
    for _ in range(40):
        number = chance.randint(1, 3)
        match chance.choice(("apply", "learn", "learn", "withdraw", "divide")):
            case "apply":
                operator.apply(TENANTS[number - 1], quota(chance))
            case "divide":
                operator.divide()
            case verb:
                first = chance.randint(0, 255)
                some = {f"20.{number}.{at & 255}.0/24": int(verb == "learn") for at in range(first, first + 90)}
                world.learn(some, number)
        for each in (1, 2, 3):
            await world.settle(each)
        for each, name in enumerate(TENANTS, 1):
            usage = world.shards.by_plane["s1"].usage_of(name)
            assert usage is not None
            reasons = set(world.router(each).fib.refused_routes.values())
            assert not [reason for reason in reasons if "is full" in reason]  # the plane had to refuse nothing
            if usage.pool is None and reasons and usage.ipv4_routes < usage.quota.ipv4_routes:
                world.router(each).fib.retry_refused()  # as is done every 30 s
                await world.settle(each)
                assert not world.router(each).fib.refused_routes or (usage.ipv4_routes >= usage.quota.ipv4_routes)
        assert sum(len(world.installed(each)) for each in (1, 2, 3)) <= ROOM
