"""`vrctl move`, against a controller on fakes over a real Unix socket."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from operator_world import Controller

from controller.model import Placement

Vrctl = Callable[..., Awaitable[tuple[int, str, str]]]

TEXT = """\
version: 1
planes:
  - {name: s1, kind: fake, fallback: {plane: f1, port: s1-f1, peer_port: f1-s1}}
  - {name: f1, kind: fake}
  - {name: s2, kind: fake}
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [untagged]}}, {plane: s2, ports: {p1: [untagged]}}]
    routers:
      - {name: r1, plane: s1, interfaces: [{name: eth0, port: p1}]}
      - {name: r2, plane: s2, interfaces: [{name: eth0, port: p1}]}
"""


@pytest.fixture(autouse=True)
async def applied(vrctl: Vrctl, tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(TEXT)
    assert (await vrctl("apply", "-f", str(path)))[0] == 0


@pytest.mark.parametrize(
    ("to", "placement"),
    [(one.value, one) for one in Placement] + [("s1", Placement.HARDWARE), ("f1", Placement.SOFTWARE)],
)
async def test_a_place_is_a_placement_or_one_of_the_two_planes(
    vrctl: Vrctl, controller: Controller, to: str, placement: Placement
) -> None:
    status, out, err = await vrctl("move", "red/r1", "--to", to)
    assert (status, err) == (0, "")
    assert ("nothing to change" if placement is Placement.AUTO else f"placement auto → {placement}") in out
    assert controller.operations.router("r1").placement is placement
    assert (await vrctl("move", "red/r1", "--to", to))[1] == "nothing to change\n"


@pytest.mark.parametrize(
    ("router", "to", "said"),
    [
        (
            "r1",
            "s2",
            "router red/r1 cannot move to plane s2: its ports are on plane s1, and those of s2 are other wires; it "
            "moves between s1 and f1, or delete the router and declare it on s2 with ports of that plane",
        ),
        (
            "r2",
            "f1",
            "router red/r2 cannot move to plane f1: its ports are on plane s2, and those of f1 are other wires; "
            "delete the router and declare it on s1, whose fallback f1 is, with ports of that plane",
        ),
        (
            "r2",
            "software",
            "router red/r2 has no place to move to or from: plane s2 has no fallback; apply it with one first",
        ),
        (
            "r2",
            "s2",
            "router red/r2 has no place to move to or from: plane s2 has no fallback; apply it with one first",
        ),
        (
            "r1",
            "hardwear",
            "no placement or plane 'hardwear'; give hardware, software, auto or a plane (known: f1, s1, s2)",
        ),
        ("r1", "", "no placement or plane ''; give hardware, software, auto or a plane (known: f1, s1, s2)"),
        ("r9", "software", "no router 'r9'; see vrctl get routers"),
    ],
)
async def test_no_such_place_is_one_line_and_status_1(vrctl: Vrctl, router: str, to: str, said: str) -> None:
    assert await vrctl("move", router, "--to", to) == (1, "", f"vrctl: {said}\n")
