"""`vrctl move`, against a controller on fakes over a real Unix socket."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from operator_world import Controller

from controller.errors import StoreError
from controller.model import Placement
from controller.views import MoveView, PlaneView, RouterView
from controller.vrctl import move as moving

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
async def applied(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "EVERY_S", 0.0)
    controller.core.paired = {"s1"}
    await controller.apply(TEXT)


@pytest.mark.parametrize(
    ("to", "placement"),
    [(one.value, one) for one in Placement] + [("s1", Placement.HARDWARE), ("f1", Placement.SOFTWARE)],
)
async def test_a_place_is_a_placement_or_one_of_the_two_planes(
    vrctl: Vrctl, controller: Controller, to: str, placement: Placement
) -> None:
    status, out, err = await vrctl("move", "red/r1", "--to", to, "--no-wait")
    assert (status, err) == (0, "")
    assert ("nothing to change" if placement is Placement.AUTO else f"placement auto → {placement}") in out
    assert controller.views.router("r1").placement is placement
    assert (await vrctl("move", "red/r1", "--to", to, "--no-wait"))[1] == "nothing to change\n"


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


def on_the_way(*done: int, to: str = "hardware", before: str = "auto") -> list[MoveView]:
    """What a router says of its move when it is asked again and again."""
    return [MoveView(to, before, one, 2000) for one in done]


async def test_it_waits_and_says_what_holds_then(
    vrctl: Vrctl, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "LINE_EVERY_S", 0.0)
    controller.core.rows, controller.core.reason = 1200, "the rest for want of room"
    controller.core.moves = [None, *on_the_way(0, 100, 100, 1900)]
    status, out, err = await vrctl("move", "red/r1", "--to", "hardware")
    assert status == 0
    assert out.splitlines() == [
        "change router red/r1",
        "    placement auto → hardware",
        "red/r1: 1,199 of 1,200 routes in hardware; the rest for want of room",
    ]
    assert err.splitlines() == [
        "red/r1: 0 of 2,000 entries moved, on its way to hardware",
        "red/r1: 100 of 2,000 entries moved, on its way to hardware",
        "red/r1: 1,900 of 2,000 entries moved, on its way to hardware",
    ]


async def test_without_a_terminal_a_short_move_is_quiet(vrctl: Vrctl, controller: Controller) -> None:
    controller.core.moves, controller.core.reason = (
        [None, *on_the_way(0, 100)],
        "own addresses stay in hardware",
    )
    status, out, err = await vrctl("move", "red/r1", "--to", "software")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "red/r1: 2 of 3 routes in software; own addresses stay in hardware"


async def test_a_terminal_has_one_line_that_is_refreshed(
    vrctl: Vrctl, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    controller.core.moves = [None, *on_the_way(0, 1900)]
    err = (await vrctl("move", "red/r1", "--to", "hardware"))[2]
    assert "\n" not in err
    assert err.split("\r")[1:] == [
        "red/r1: 0 of 2,000 entries moved, on its way to hardware\x1b[K",
        "red/r1: 1,900 of 2,000 entries moved, on its way to hardware\x1b[K",
        "\x1b[K",
    ]


async def test_programs_get_one_value(vrctl: Vrctl, controller: Controller) -> None:
    status, out, _ = await vrctl("move", "red/r1", "--to", "hardware", "-o", "json")
    assert status == 0
    found = json.loads(out)
    assert found["changes"][0]["details"] == ["placement auto → hardware"]
    assert (found["now"]["placement"], found["now"]["routes"], found["now"]["hardware"]) == ("hardware", 3, 2)
    assert "now" not in json.loads((await vrctl("move", "r1", "--to", "auto", "--no-wait", "-o", "json"))[1])


async def test_waiting_ends_where_somebody_moves_it_elsewhere(
    vrctl: Vrctl, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.core.moves = [None, *on_the_way(0, 0, 0, 0)]
    (vrf_id,) = [i for i, one in controller.core.routers.items() if one.full_name == "red/r1"]

    def elsewhere(_: float) -> None:
        controller.core.routers[vrf_id] = replace(controller.core.routers[vrf_id], placement=Placement.SOFTWARE)

    monkeypatch.setattr("controller.vrctl.move.time.sleep", elsewhere)
    status, _, err = await vrctl("move", "red/r1", "--to", "hardware")
    assert (status, err) == (1, "vrctl: red/r1 was moved again, to software: vrctl get routers shows how far it is\n")


async def test_ctrl_c_ends_the_waiting_alone(
    vrctl: Vrctl, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("controller.vrctl.move.time.sleep", interrupt)
    controller.core.moves = [None, *on_the_way(0, 0)]
    status, _, err = await vrctl("move", "red/r1", "--to", "hardware")
    assert (status, err) == (130, "vrctl: red/r1: the move goes on; vrctl move red/r1 --abort takes it back\n")
    assert controller.views.router("r1").placement is Placement.HARDWARE


async def test_others_see_it_in_the_list_of_routers(vrctl: Vrctl, controller: Controller) -> None:
    controller.core.moves = [*on_the_way(1200)]
    head, moving, other = (line.split() for line in (await vrctl("get", "routers"))[1].splitlines())
    assert head[2] == "PLACEMENT"
    assert moving[2:5] == ["→", "hardware", "1,200/2,000"]
    assert other[:3] == ["red/r2", "s2", "netns"]
    controller.core.paired.clear()
    assert "PLACEMENT" not in (await vrctl("get", "routers"))[1]


async def test_a_place_has_to_be_given(vrctl: Vrctl) -> None:
    status, _, err = await vrctl("move", "red/r1")
    assert status == 2
    assert "give either --to with a place or --abort" in err
    assert (await vrctl("move", "red/r1", "--to", "auto", "--abort"))[0] == 2


async def test_an_abort_takes_back_the_placement_of_before(vrctl: Vrctl, controller: Controller) -> None:
    await vrctl("move", "red/r1", "--to", "software", "--no-wait")
    controller.core.moves = [*on_the_way(500, 500, to="software"), *on_the_way(300, to="auto")]
    status, out, err = await vrctl("move", "red/r1", "--abort")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "change router red/r1",
        "    placement software → auto",
        "    it was on its way to software: 500 of 2,000 entries moved",
        "red/r1: 2 of 3 routes in hardware",
    ]
    assert controller.views.router("r1").placement is Placement.AUTO


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ([], "router red/r1 is not being moved: its placement is auto; vrctl move --to changes it"),
        (on_the_way(5, to="auto"), "router red/r1 is on its way back to auto already"),
        (
            on_the_way(5, to="auto", before=""),
            "router red/r1 is on its way to auto again since its plane came back; it was there before, so there is "
            "nothing to take back",
        ),
    ],
)
async def test_what_cannot_be_aborted(vrctl: Vrctl, controller: Controller, moves: list[MoveView], said: str) -> None:
    controller.core.moves = list(moves)
    assert await vrctl("move", "red/r1", "--abort") == (1, "", f"vrctl: {said}\n")
    assert controller.views.router("r1").placement is Placement.AUTO


async def test_where_a_router_came_from_is_stored_until_it_is_there(
    vrctl: Vrctl, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stored() -> Placement | None:
        return controller.store.load().state.routers["red/r1"].came_from

    def full(*_: object) -> None:
        raise StoreError("database or disk is full")

    await vrctl("move", "red/r1", "--to", "software", "--no-wait")
    assert stored() is Placement.AUTO
    controller.core.moves = on_the_way(500, 500, to="software")
    await vrctl("move", "red/r1", "--to", "hardware", "--no-wait")
    assert stored() is Placement.AUTO
    controller.core.moves = on_the_way(500, to="hardware")
    await controller.convergence._end_moves()
    assert stored() is Placement.AUTO
    with monkeypatch.context() as patched:
        patched.setattr(controller.store, "commit", full)
        await controller.convergence._end_moves()
    (event,) = [event for event in controller.events.recent() if event.kind == "not-stored"]
    assert (event.subject, event.text) == ("red/r1", "database or disk is full")
    assert stored() is Placement.AUTO
    await controller.convergence._end_moves()
    assert stored() is None
    assert controller.views.router("r1").placement is Placement.HARDWARE


async def test_a_move_that_a_document_asks_for_is_known_and_aborted_as_any_other(
    vrctl: Vrctl, controller: Controller
) -> None:
    def stored() -> Placement | None:
        return controller.store.load().state.routers["red/r1"].came_from

    asked = TEXT.replace("{name: r1, plane: s1,", "{name: r1, plane: s1, placement: software,")
    await controller.apply(asked)
    assert stored() is Placement.AUTO
    await controller.apply(asked.replace("software,", "software, hold_time_s: 60,"))
    assert stored() is Placement.AUTO
    controller.core.moves = on_the_way(500, 500, to="software")
    assert (await vrctl("move", "red/r1", "--abort", "--no-wait"))[0] == 0
    assert controller.views.router("r1").placement is Placement.AUTO


async def test_a_move_that_waits_for_the_fallback_says_so(
    vrctl: Vrctl, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else of the router does, while the switch follows the routes."""
    view = await controller.core.plane_view("s1")
    assert view is not None
    away = replace(view, connected=False, reason="plane f1 is not connected")

    async def plane_view(_: str) -> PlaneView:
        return away

    monkeypatch.setattr(controller.core, "plane_view", plane_view)
    controller.core.moves = [None, *on_the_way(0, 0, 0)]
    status, _, err = await vrctl("move", "red/r1", "--to", "software", "--no-wait")
    assert (status, err) == (
        0,
        "vrctl: warning: red/r1: plane f1 is not connected; the move waits until it is back\n",
    )


async def test_the_newest_move_wins_and_says_so(vrctl: Vrctl, controller: Controller) -> None:
    await vrctl("move", "red/r1", "--to", "software", "--no-wait")
    controller.core.moves = [*on_the_way(500, to="software")]
    out = (await vrctl("move", "red/r1", "--to", "hardware", "--no-wait"))[1]
    assert "    it was on its way to software: 500 of 2,000 entries moved\n" in out
    (event,) = [one for one in controller.events.recent() if "software → hardware" in one.text]
    assert "it was on its way to software" in event.text


async def test_waiting_for_a_plane_says_so(
    vrctl: Vrctl, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "LINE_EVERY_S", 0.0)
    view = controller.core.router_view
    reasons = iter(
        [("up", ""), ("no-plane", "plane s1: not connected yet"), ("degraded", "plane f1 is not connected")]
    )

    def away(vrf_id: int) -> RouterView:
        state, reason = next(reasons, ("up", ""))
        return replace(view(vrf_id), state=state, reason=reason)

    monkeypatch.setattr(controller.core, "router_view", away)
    controller.core.moves = [None, None, *on_the_way(500, to="software")]
    status, _, err = await vrctl("move", "red/r1", "--to", "software")
    assert status == 0
    assert err.splitlines() == [
        "red/r1: waits: plane s1: not connected yet",
        "red/r1: 500 of 2,000 entries moved, on its way to software (plane f1 is not connected)",
    ]
