"""What is declared comes to be; a port is free for others only when the plane confirmed that it is."""

import asyncio
import gc
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import pytest
from operator_world import Controller

from controller.errors import Conflict, GuestError, NoSuch, SpecError
from controller.fallback import pace
from controller.guests import fleet
from controller.model import RouterConfig
from controller.operations import convergence
from controller.operations.operations import Outcome
from controller.pki.authority import ROUTER_LIFETIME
from controller.spec.document import PlaneOptions
from controller.vrctl.listings import router_row

HEAD = "version: 1\nplanes: [{name: s1, kind: fake}]\ntenants:\n"
RED = """\
  - name: red
    slices: [{plane: s1, ports: {p1: [100]}}]
    routers: [{name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 100}]}]
"""
BLUE = """\
  - name: blue
    slices: [{plane: s1, ports: {p1: [200]}}]
    routers: [{name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 200}]}]
"""
HANDED_OVER = """\
  - {name: red, slices: [{plane: s1, ports: {p1: [101]}}], routers: [{name: r1, plane: s1}]}
  - name: blue
    slices: [{plane: s1, ports: {p1: [100]}}]
    routers: [{name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 100}]}]
"""


async def test_apply_brings_routers_and_guests_up(controller: Controller) -> None:
    outcome = await controller.apply(HEAD + RED)
    assert (outcome.waiting, outcome.failed) == ([], [])
    assert controller.attached() == {"red/r1": [("p1", 100)]}
    assert controller.guests.starts == ["red/r1"]
    assert controller.sessions.admitted == {1}


async def test_others_have_the_loop_while_guests_are_looked_at(controller: Controller, monkeypatch) -> None:
    monkeypatch.setattr(convergence, "WATCHED_AT_ONCE", 1)
    await controller.apply(HEAD + RED + BLUE)
    looked_at: list[str] = []

    async def watch(router: RouterConfig) -> None:
        asyncio.get_running_loop().call_soon(looked_at.append, "another")
        looked_at.append(router.full_name)

    monkeypatch.setattr(controller.convergence._guests, "watch", watch)
    await controller.convergence.look_after_guests()
    assert looked_at[:3] == ["red/r1", "another", "blue/r1"]


async def test_a_certificate_is_renewed_before_it_ends(controller: Controller, monkeypatch) -> None:
    monkeypatch.setattr(
        "controller.pki.authority.RENEW_BEFORE", ROUTER_LIFETIME + timedelta(days=1)
    )  # as if it ended soon
    await controller.apply(HEAD + RED)
    first = controller.serial(1)
    await controller.apply(HEAD + RED)
    assert controller.guests.starts == ["red/r1", "red/r1"]  # it was given the new one
    second = controller.serial(1)
    assert second != first
    assert not controller.pki.is_valid(first, 1)
    assert controller.pki.is_valid(second, 1)
    assert [event.kind for event in controller.events.recent(0)].count("certificate-renewed") == 1


async def test_applying_again_touches_nothing(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    before = list(controller.core.calls)
    assert (await controller.apply(HEAD + RED)).changes == []
    assert controller.core.calls == before
    assert controller.guests.starts == ["red/r1"]


async def test_a_round_makes_nothing_anew_of_what_is_as_declared(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one every two seconds, for all routers at once."""
    await controller.apply(HEAD + RED)
    made, directory_for = [], controller.sessions.directory_for
    monkeypatch.setattr(controller.sessions, "directory_for", lambda of: made.append(of) or directory_for(of))
    await controller.convergence.look_after_guests()
    await controller.convergence.converge(lambda _: None)
    assert made == []
    await controller.apply((HEAD + RED).replace("eth0", "eth1"))
    assert controller.guests.running_specs[1].interfaces[0].name == "eth1"
    assert made == [1]


async def test_a_refused_document_changes_nothing(controller: Controller) -> None:
    with pytest.raises(SpecError):
        await controller.apply(HEAD + RED.replace("vlan: 100", "vlan: 7"))
    assert controller.core.calls == []
    assert controller.store.load().state == controller.operations.state
    assert not controller.operations.state.planes


async def test_a_guest_that_could_not_start_is_refused_before_anything_is_stored(controller: Controller) -> None:
    controller.refused["red/r1"] = "FRR is not installed"
    with pytest.raises(GuestError, match="FRR is not installed"):
        await controller.apply(HEAD + RED)
    assert not controller.store.load().state.planes


async def test_what_should_be_known_of_a_guest_is_said_once_and_it_starts(controller: Controller) -> None:
    controller.remarks = ["FRR 11.0 was never tried"]
    outcome = await controller.apply(HEAD + RED)
    assert outcome.remarks == ["FRR 11.0 was never tried"]
    assert controller.guests.starts == ["red/r1"]
    assert (await controller.apply(HEAD + RED)).remarks == []


async def test_what_no_plane_forwards_is_said_and_kept_in_the_view(controller: Controller) -> None:
    asking = RED.replace("plane: s1, interfaces", 'plane: s1, frr: "hostname x\\nip pim\\n", interfaces')
    line = "no plane forwards what frr asks for in line 2 (multicast: ip pim)"
    assert (await controller.apply(HEAD + asking)).remarks == [f"red/r1: {line}"]
    (view,) = controller.views.router_views()
    assert view.remarks == [line]
    controller.core.said = ["its VRC speaks protocol 3, of the version before; restart the guest"]
    (view,) = controller.views.router_views()
    assert view.remarks == [*controller.core.said, line]
    assert router_row(asdict(view))["reason"] == "; ".join(view.remarks)
    controller.core.said = []
    assert (await controller.apply(HEAD + RED)).remarks == []
    (view,) = controller.views.router_views()
    assert view.remarks == []


async def test_what_a_guest_refuses_of_its_first_text_is_told(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LOAD_POLL_S", 0.0)
    refused = {"zebra": "up", "config": "failed: line 2: Specify remote-as first (bgpd): x"}
    controller.guests.states["red/r1"] = [{"zebra": "starting"}, {"zebra": "starting"}, refused]
    outcome = await controller.apply(HEAD + RED)
    assert outcome.failed == ["red/r1: frr line 2: Specify remote-as first (bgpd): x; see vrctl logs red/r1"]
    assert controller.operations.state.routers  # it is stored and runs with the rest
    assert (await controller.apply(HEAD + RED)).failed == []  # nothing was changed; the router's view tells it


async def test_a_guest_that_takes_long_is_not_waited_for(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LOAD_POLL_S", 0.0)
    monkeypatch.setattr(fleet, "LOAD_LIMIT_S", 0.05)
    controller.guests.states["red/r1"] = [{"zebra": "starting", "bgpd": "starting", "vrc": "up"}]
    outcome = await controller.apply(HEAD + RED)
    assert outcome.failed == []
    line = "red/r1: zebra is starting (and 1 more) after 0.05 s, and goes on; see vrctl logs red/r1"
    assert line in outcome.waiting


@pytest.mark.parametrize(("state", "limit_s"), [("booting", 0.02), ("up, busy", 30.0)])
async def test_what_a_machine_refuses_is_told_however_long_it_boots_or_is_busy(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, state: str, limit_s: float
) -> None:
    monkeypatch.setattr(fleet, "LOAD_POLL_S", 0.01)
    monkeypatch.setattr(fleet, "LOAD_LIMIT_S", limit_s)
    refused = {"machine": "up", "config": "failed: line 2: no"}
    controller.guests.states["red/r1"] = [{"machine": state}] * 4 + [refused]
    outcome = await controller.apply(HEAD + RED)
    assert outcome.failed == ["red/r1: frr line 2: no; see vrctl logs red/r1"]


async def test_a_guest_that_dies_while_it_loads_is_told(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await _loading(controller, monkeypatch)
    controller.guests.words = "its kernel panicked"
    controller.guests.running_specs.clear()
    await _asked(controller, running=False)
    await controller.convergence.look_after_guests()
    async with asyncio.timeout(30):
        assert (await waiting).failed == ["red/r1: its kernel panicked; see vrctl logs red/r1"]


async def test_a_guest_that_is_removed_while_it_loads_is_not_waited_for(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await _loading(controller, monkeypatch)
    await controller.operations.delete_router("red/r1")
    async with asyncio.timeout(30):
        assert (await waiting).failed == []


async def test_a_guest_that_cannot_be_asked_is_waited_for(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LOAD_POLL_S", 0.01)
    controller.guests.away = "vr-host is away"
    waiting = asyncio.create_task(controller.apply(HEAD + RED))
    await _asked(controller, running=True)
    controller.guests.away = ""
    controller.guests.states["red/r1"] = [{"zebra": "up", "config": "failed: line 2: no"}]
    async with asyncio.timeout(30):
        assert (await waiting).failed == ["red/r1: frr line 2: no; see vrctl logs red/r1"]

    monkeypatch.setattr(fleet, "LOAD_LIMIT_S", 0.02)
    controller.guests.away = "vr-host is away"
    outcome = await controller.apply(HEAD + RED.replace("plane: s1, int", "plane: s1, guest: {memory: 300M}, int"))
    assert (outcome.failed, outcome.waiting) == ([], ["red/r1: guest: vr-host is away"])


async def _loading(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[Outcome]:
    """Return an apply that waits for a guest whose daemons are starting."""
    monkeypatch.setattr(fleet, "LOAD_POLL_S", 0.01)
    controller.guests.states["red/r1"] = [{"zebra": "starting"}]
    waiting = asyncio.create_task(controller.apply(HEAD + RED))
    await _asked(controller, running=True)
    return waiting


async def _asked(controller: Controller, *, running: bool) -> None:
    """Wait until a guest's state is asked for while it does or does not run."""
    async with asyncio.timeout(30):
        while controller.guests.looked[-1:] != [running]:  # noqa: ASYNC110 - the fake tells nobody
            await asyncio.sleep(0)


async def test_a_machine_that_boots_for_long_is_not_called_refused(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LOAD_POLL_S", 0.01)
    monkeypatch.setattr(fleet, "LOAD_LIMIT_S", 0.05)
    silent = "it has not answered for 60 s; see vrctl logs red/r1"
    controller.guests.states["red/r1"] = [{"machine": "booting"}, {"machine": f"failed: {silent}"}]
    outcome = await controller.apply(HEAD + RED)
    assert outcome.failed == []
    assert f"red/r1: machine: {silent}" in outcome.waiting


async def test_a_vlan_is_taken_before_it_is_given(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    controller.core.calls.clear()
    await controller.apply(HEAD + HANDED_OVER)
    puts = [config.full_name for what, config in controller.core.calls if what == "put_router"]  # type: ignore[attr-defined]
    assert puts == ["red/r1", "blue/r1"]
    assert controller.attached() == {"red/r1": [], "blue/r1": [("p1", 100)]}
    assert controller.store.load().holds == ()


async def test_a_vlan_waits_for_an_unreachable_plane_also_across_a_restart(tmp_path: Path) -> None:
    first = Controller(tmp_path)
    await first.apply(HEAD + RED)
    first.core.unreachable.add("s1")
    outcome = await first.apply(HEAD + HANDED_OVER)
    assert first.attached() == {"red/r1": [], "blue/r1": []}
    assert "red/r1: plane s1 is not reachable" in outcome.waiting[0]
    first.store.close()

    second = Controller(tmp_path)
    second.core.unreachable.add("s1")
    await second.convergence.start()
    await second.convergence.converge(lambda _: None)
    assert second.attached() == {"red/r1": [], "blue/r1": []}
    second.core.unreachable.clear()
    await second.convergence.converge(lambda _: None)
    assert second.attached() == {"red/r1": [], "blue/r1": [("p1", 100)]}
    assert not second.convergence.unfinished


async def test_a_vlan_given_up_while_its_plane_is_detached_waits_for_the_plane_also_across_a_restart(
    tmp_path: Path,
) -> None:
    first = Controller(tmp_path)
    await first.apply(HEAD + RED)
    await first.operations.detach_plane("s1")
    first.store.close()

    second = Controller(tmp_path)
    second.core.unreachable.add("s1")
    await second.convergence.start()
    await second.apply("version: 1\n" + HEAD[HEAD.index("tenants") :] + HANDED_OVER)
    outcome = await second.operations.attach_plane("s1", PlaneOptions())
    assert second.attached() == {"red/r1": [], "blue/r1": []}
    assert any(line.startswith("red/r1: plane s1 is not reachable") for line in outcome.waiting)
    second.core.unreachable.clear()
    await second.convergence.converge(lambda _: None)
    assert second.attached() == {"red/r1": [], "blue/r1": [("p1", 100)]}
    assert not second.convergence.unfinished


async def test_two_interfaces_that_swap_ports_are_both_taken_away_first(controller: Controller) -> None:
    text = HEAD + RED.replace("[100]", "[100, 101]").replace(
        "vlan: 100}", "vlan: 100}, {name: eth1, port: p1, vlan: 101}"
    )
    await controller.apply(text)
    controller.core.calls.clear()
    await controller.apply(
        text.replace("vlan: 100", "vlan: x").replace("101}", "100}").replace("vlan: x", "vlan: 101")
    )
    taken, given = (config for what, config in controller.core.calls if what == "put_router")
    assert taken.interfaces == ()  # type: ignore[attr-defined]
    assert [i.vlan for i in given.interfaces] == [101, 100]  # type: ignore[attr-defined]


async def test_deleting_removes_plane_entries_guest_and_certificate(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    outcome = await controller.operations.delete_tenant("red")
    assert [(c.verb.value, c.kind, c.name) for c in outcome.changes] == [
        ("delete", "tenant", "red"),
        ("delete", "slice", "red@s1"),
        ("delete", "router", "red/r1"),
    ]
    assert (controller.core.routers, controller.guests.running_specs, controller.sessions.admitted) == (
        {},
        {},
        set(),
    )
    assert controller.store.load().tombstones == ()


async def test_a_list_has_each_router_once_though_some_are_deleted_between_two_pages(controller: Controller) -> None:
    await controller.apply(HEAD + RED + BLUE)
    routers, interfaces = controller.views.router_views(), controller.views.interface_views()
    shown = [next(routers).router, next(interfaces).router]
    assert shown == ["blue/r1", "blue/r1"]
    controller.core.unreachable.add("s1")
    for name in shown[0], "red/r1":
        await controller.operations.delete_router(name)
    assert [(view.router, view.state) for view in routers] == [("red/r1", "deleting")]
    assert list(interfaces) == []


async def test_a_router_on_an_unreachable_plane_is_deleted_when_it_connects(tmp_path: Path) -> None:
    first = Controller(tmp_path)
    await first.apply(HEAD + RED)
    first.core.unreachable.add("s1")
    outcome = await first.operations.delete_router("red/r1")
    assert "it is removed when the plane connects" in outcome.waiting[0]
    assert first.guests.running_specs == {}
    assert [view.state for view in first.views.router_views()] == ["deleting"]
    first.store.close()

    second = Controller(tmp_path)
    await second.convergence.start()
    assert second.attached() == {"red/r1": []}
    await second.apply("version: 1\ntenants: [{name: red, routers: [{name: r1, plane: s1}]}]")
    (router,) = second.operations.state.routers.values()
    assert router.vrf_id == 2
    assert list(second.core.routers) == [2]
    assert second.store.load().tombstones == ()


async def test_a_plane_in_use_is_not_deleted(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    with pytest.raises(Conflict, match="plane s1 is used by tenants red"):
        await controller.operations.delete_plane("s1", force=False)


async def test_a_plane_that_never_comes_back_can_be_forced_away(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    controller.core.unreachable.add("s1")
    await controller.operations.delete_tenant("red")
    with pytest.raises(Conflict, match="has not confirmed that red/r1 is gone"):
        await controller.operations.delete_plane("s1", force=False)
    await controller.operations.delete_plane("s1", force=True)
    assert not controller.convergence.unfinished
    assert controller.store.load().tombstones == ()


async def test_a_plane_that_is_connected_and_does_not_confirm_is_named(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: object) -> None:
        await asyncio.Event().wait()

    await controller.apply(HEAD + RED)
    monkeypatch.setattr(convergence, "CHANGE_S", 0.01)
    monkeypatch.setattr(controller.core, "put_router", hang)
    outcome = await controller.apply(HEAD + RED.replace("100", "9"))
    taken = "red/r1: plane s1 did not confirm what was taken from it in 0.01 s; see vrctl events"
    assert outcome.waiting[0] == taken
    monkeypatch.undo()
    monkeypatch.setattr(convergence, "CHANGE_S", 0.01)
    monkeypatch.setattr(controller.core, "remove_router", hang)
    outcome = await controller.operations.delete_tenant("red")
    assert outcome.waiting == ["red/r1: plane s1 did not confirm its removal in 0.01 s; see vrctl events"]
    monkeypatch.undo()
    await controller.convergence.converge(lambda _: None)
    assert not controller.convergence.unfinished


async def test_what_a_plane_refuses_to_give_up_stays_reserved_and_is_tried_again(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    controller.core.refusing.add("s1")
    outcome = await controller.apply(HEAD + HANDED_OVER)
    assert outcome.waiting == ["red/r1: plane s1 refused router_interface: busy; that is tried again"]
    reserved = "red/r1: plane s1 refused router_interface: busy; the ports it gave up stay reserved until it confirms"
    assert (await controller.convergence.converge(lambda _: None)).waiting == [reserved]
    assert controller.attached() == {"red/r1": [], "blue/r1": []}
    controller.core.refusing.clear()
    await controller.convergence.converge(lambda _: None)
    assert controller.attached() == {"red/r1": [], "blue/r1": [("p1", 100)]}
    controller.core.refusing.add("s1")
    outcome = await controller.operations.delete_tenant("blue")
    assert outcome.waiting == ["blue/r1: plane s1 refused router_interface: busy; that is tried again"]
    controller.core.refusing.clear()
    await controller.convergence.converge(lambda _: None)
    assert not controller.convergence.unfinished


async def test_a_detached_plane_keeps_its_routers_for_later(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    await controller.operations.detach_plane("s1")
    assert controller.core.planes == {}
    outcome = await controller.apply(HEAD.replace("planes: [{name: s1, kind: fake}]\n", "") + RED.replace("100", "9"))
    assert any("plane s1 is detached" in line for line in outcome.waiting)
    await controller.operations.attach_plane("s1", PlaneOptions())
    assert controller.attached() == {"red/r1": [("p1", 9)]}


@pytest.mark.parametrize("reconnected", [False, True])
async def test_a_router_deleted_while_its_plane_was_away_goes_with_the_plane_that_is_attached_again(
    controller: Controller, reconnected: bool
) -> None:
    await controller.apply(HEAD + RED + BLUE)
    controller.core.unreachable.add("s1")
    await controller.operations.delete_tenant("red")
    if reconnected:
        await controller.convergence.reconnect("s1")
    else:
        await controller.operations.detach_plane("s1")
        await controller.operations.attach_plane("s1", PlaneOptions())
    assert controller.attached() == {"blue/r1": [("p1", 200)], "red/r1": []}
    controller.core.unreachable.clear()
    await controller.apply(HEAD + BLUE.replace("200", "201"))
    assert controller.attached() == {"blue/r1": [("p1", 201)]}
    assert not controller.convergence.unfinished


async def test_a_guest_that_fails_is_told_and_tried_again(controller: Controller) -> None:
    controller.guests.failing["red/r1"] = "/usr/bin/nsenter not found"
    outcome = await controller.apply(HEAD + RED)
    assert outcome.failed == ["red/r1: /usr/bin/nsenter not found"]
    (view,) = controller.views.router_views()
    assert (view.state, view.reason) == ("degraded", "/usr/bin/nsenter not found")
    controller.guests.failing.clear()
    await controller.convergence.converge(lambda _: None)
    assert controller.guests.starts == ["red/r1"]


async def test_a_refused_change_that_is_taken_back_leaves_no_trouble(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    controller.guests.failing["red/r1"] = "frr line 2: Specify remote-as"
    assert (await controller.apply(HEAD + RED.replace("100", "9"))).failed
    controller.guests.failing.clear()
    await controller.apply(HEAD + RED)
    (view,) = controller.views.router_views()
    assert "Specify remote-as" not in view.reason


async def test_a_daemon_that_does_not_run_shows_in_its_router(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    trouble = "zebra: did not answer within 20 s of its start; see vrctl logs red/r1"
    controller.guests.troubles["red/r1"] = trouble
    (view,) = controller.views.router_views()
    assert (view.state, view.reason) == ("degraded", trouble)


async def test_a_guest_that_fails_is_no_failure_of_what_concerns_another_router(controller: Controller) -> None:
    controller.guests.failing["red/r1"] = "frr.conf line 3: unknown command"
    assert (await controller.apply(HEAD + RED)).failed
    outcome = await controller.apply(HEAD + BLUE)
    assert outcome.failed == []
    assert outcome.waiting == ["red/r1: frr.conf line 3: unknown command"]
    assert (await controller.apply(HEAD + RED)).failed == ["red/r1: frr.conf line 3: unknown command"]


async def test_a_guest_that_does_not_answer_holds_up_no_change_but_its_own(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    controller.guests.silent["red/r1"] = answer = asyncio.Event()
    changed = RED.replace("plane: s1, interfaces", 'plane: s1, frr: "hostname x", interfaces')
    waiting = asyncio.create_task(controller.apply(HEAD + changed))
    while len(controller.guests.starts) < 2:  # noqa: ASYNC110 - the fake tells nobody
        await asyncio.sleep(0)
    running = asyncio.create_task(controller.convergence.run())
    async with asyncio.timeout(30):
        outcome = await controller.apply(HEAD + BLUE)
        assert outcome.failed == []
        assert controller.guests.starts == ["red/r1", "red/r1", "blue/r1"]
        await controller.operations.delete_tenant("blue")
    assert not waiting.done()
    answer.set()
    assert (await asyncio.wait_for(waiting, 30)).failed == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_guest_that_does_not_answer_is_removed_all_the_same(controller: Controller) -> None:
    controller.guests.silent["red/r1"] = asyncio.Event()
    waiting = asyncio.create_task(controller.apply(HEAD + RED))
    while not controller.guests.starts:  # noqa: ASYNC110 - the fake tells nobody
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await controller.operations.delete_router("red/r1")
        assert controller.store.load().tombstones == ()
        await waiting


async def test_silent_guests_of_one_tenant_hold_up_no_other(controller: Controller) -> None:
    names = [f"r{number}" for number in range(fleet.STARTS_AT_ONCE)]
    silent = "".join(f"{{name: s{name}, plane: s1}}, " for name in names)
    many = RED.replace("    routers: [", f"    routers: [{silent}")
    await controller.apply(HEAD + many)
    controller.guests.silent = {f"red/s{name}": asyncio.Event() for name in names}
    changed = many.replace("plane: s1}, ", 'plane: s1, frr: "hostname x"}, ')
    before = len(controller.guests.starts)
    waiting = asyncio.create_task(controller.apply(HEAD + changed))
    while len(controller.guests.starts) < before + len(names):  # noqa: ASYNC110 - the fake tells nobody
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await controller.apply(HEAD + BLUE)
        await controller.apply(
            HEAD + BLUE.replace("plane: s1, interfaces", 'plane: s1, frr: "hostname y", interfaces')
        )
    for answer in controller.guests.silent.values():
        answer.set()
    await asyncio.wait_for(waiting, 30)


async def test_a_guest_that_died_is_started_again(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    controller.guests.running_specs.clear()
    await controller.convergence.look_after_guests()
    await controller.convergence.converge(lambda _: None)
    assert controller.guests.starts == ["red/r1", "red/r1"]


async def test_a_stop_amid_what_is_begun_leaves_nothing_that_nobody_awaits(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python warns of that."""
    await controller.apply(HEAD + RED + BLUE)
    controller.core.unreachable.add("s1")
    await controller.operations.delete_tenant("red")
    await controller.apply(HEAD + BLUE.replace("200", "201"))
    monkeypatch.setattr(pace, "SLICE_S", 0.0)  # each thing in a turn of its own
    before = asyncio.all_tasks()
    programmed = asyncio.create_task(controller.convergence.program(lambda _: None))
    while asyncio.all_tasks() <= before | {programmed}:  # noqa: ASYNC110 - until the first is begun
        await asyncio.sleep(0)
    programmed.cancel()
    await asyncio.wait([programmed])
    assert programmed.cancelled()
    await asyncio.sleep(0)
    del programmed
    gc.collect()


@pytest.mark.parametrize("turns", range(6))
async def test_a_stop_just_after_it_was_woken_ends_it(controller: Controller, turns: int) -> None:
    running = asyncio.create_task(controller.convergence.run())
    for _ in range(2):  # until it waits
        await asyncio.sleep(0)
    controller.convergence.wake()
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait([running])
    assert running.cancelled()


async def test_a_guest_that_died_in_a_change_is_told_and_started_again(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    controller.guests.running_specs.clear()
    controller.guests.words = "the machine is gone"
    await controller.apply(HEAD + RED.replace("100", "9"))
    told = [event.text for event in controller.events.recent(0) if event.kind == "guest-died"]
    assert told == ["the machine is gone"]
    assert controller.guests.starts == ["red/r1", "red/r1"]


async def test_a_link_keeps_one_of_its_routers_from_being_deleted_alone(controller: Controller) -> None:
    text = HEAD + (
        "  - name: red\n    slices: [{plane: s1}]\n    routers:\n"
        "      - {name: r1, plane: s1, interfaces: [{name: a}]}\n"
        "      - {name: r2, plane: s1, interfaces: [{name: b}]}\n"
        "    links:\n"
        "      - ends: [{router: r1, interface: a, port: pa}, {router: r2, interface: b, port: pb}]\n"
    )
    await controller.apply(text)
    with pytest.raises(Conflict, match="red/r1 has a link to red/r2"):
        await controller.operations.delete_router("red/r1")
    await controller.operations.delete_document(text, "t.yaml", lambda _: None, lambda: None)
    assert (controller.core.routers, dict(controller.operations.state.planes)) == ({}, {})


async def test_names_without_a_tenant_are_found_where_unique(controller: Controller) -> None:
    await controller.apply(HEAD + RED)
    assert controller.views.router("r1").full_name == "red/r1"
    with pytest.raises(NoSuch, match="no router 'r9'; see vrctl get routers"):
        controller.views.router("r9")
    await controller.apply(HEAD + HANDED_OVER)
    with pytest.raises(Conflict, match="ambiguous: blue/r1, red/r1"):
        controller.views.router("r1")
