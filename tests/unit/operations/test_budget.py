"""More routers than the process has room for are refused by apply, with the figure."""

import resource
from pathlib import Path

import pytest
from operator_world import Controller

from controller.errors import Conflict
from controller.model import MAX_ROUTERS
from controller.operations import budget
from controller.operations.budget import Budget
from controller.sessions.sockets import CONNECTIONS

GIB = 1 << 30


def document(routers: int) -> str:
    listed = ", ".join(f"{{name: r{number}, plane: s1}}" for number in range(routers))
    return f"""\
version: 1
planes: [{{name: s1, kind: fake}}]
tenants: [{{name: red, slices: [{{plane: s1}}], routers: [{listed}]}}]
"""


def test_a_router_has_what_its_connections_take() -> None:
    assert 1 + 3 * CONNECTIONS <= budget.DESCRIPTORS_OF_ROUTER
    assert Budget(budget.MOST_DESCRIPTORS, 8 * GIB).most_routers == MAX_ROUTERS
    assert Budget(65_536, 8 * GIB).most_routers == 4032  # what the unit had


def test_the_unit_has_room_for_all() -> None:
    unit = (Path(__file__).parents[3] / "docs" / "vr-controller.service").read_text()
    (line,) = [line for line in unit.splitlines() if line.startswith("LimitNOFILE=")]
    assert int(line.partition("=")[2]) >= budget.MOST_DESCRIPTORS


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (
            Budget(1024 + 2 * 16, GIB),
            "3 routers need 1072 descriptors, and vr-controller may have 1056, for 2 routers",
        ),
        (
            Budget(65_536, (128 << 20) + (320 << 10)),
            "3 routers need 128 MiB of vr-controller, and it may have 128 MiB",
        ),
    ],
)
async def test_more_are_refused_and_what_is_there_is_not(controller: Controller, room: Budget, words: str) -> None:
    await controller.apply(document(2))
    controller.operations._room = room
    with pytest.raises(Conflict, match=words):
        await controller.apply(document(3))
    assert len(controller.operations.state.routers) == 2
    controller.operations._room = Budget(0, 0)
    await controller.apply(document(2).replace("slices: [{plane: s1}]", "slices: [{plane: s1, ports: {p1: [1]}}]"))


def test_the_process_takes_what_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])

    def permitted(_: int, wanted: tuple[int, int]) -> None:
        limits.append(wanted)

    def refused(_: int, wanted: tuple[int, int]) -> None:
        if wanted[1] > limits[-1][1]:
            raise ValueError("not allowed to raise maximum limit")
        limits.append(wanted)

    monkeypatch.setattr(resource, "setrlimit", refused)
    budget.raise_descriptors()
    assert (limits[-1], budget.of_process().descriptors) == ((4096, 4096), 4096)
    monkeypatch.setattr(resource, "setrlimit", permitted)
    budget.raise_descriptors()
    assert limits[-1] == (budget.MOST_DESCRIPTORS, budget.MOST_DESCRIPTORS)
    limits.append((1024, 1 << 20))
    budget.raise_descriptors()
    assert limits[-1] == (1 << 20, 1 << 20)


def test_the_smallest_control_group_counts(tmp_path: Path) -> None:
    inner = tmp_path / "system.slice" / "vr-controller.service"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (inner.parent / "memory.max").write_text(f"{GIB}\n")
    (tmp_path / "cgroup").write_text("0::/system.slice/vr-controller.service\n")
    assert min(budget._memory_of_groups(tmp_path / "cgroup", tmp_path)) == GIB
    assert min(budget._memory_of_groups(tmp_path / "none", tmp_path)) == float("inf")
