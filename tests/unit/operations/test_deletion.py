"""What is deleted leaves nothing behind, whatever is under way, and waits for a plane as long as that is declared."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Sequence

import pytest
from operator_world import Controller

from controller.errors import Conflict, GuestError, PlaneUnreachable, StoreError
from controller.model import RouterConfig
from controller.operations.progress import Programmed, Report
from controller.pki.authority import Issued

TEXT = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [100]}}]
    routers: [{name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 100}]}]
"""


class _Slow:
    """Issues certificates when it is told to."""

    def __init__(self, controller: Controller) -> None:
        self._issue = controller.pki.issue
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def issue(self, routers: Sequence[RouterConfig]) -> Issued:
        self.asked.set()
        await self.go_on.wait()
        return await self._issue(routers)


@contextlib.asynccontextmanager
async def _deleted_meanwhile(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A router is deleted while its certificate is issued, which goes on at the end; neither change complains."""
    slow = _Slow(controller)
    monkeypatch.setattr(controller.pki, "issue", slow.issue)
    async with asyncio.timeout(30):
        applied = asyncio.create_task(controller.apply(TEXT))
        await slow.asked.wait()
        deleted = asyncio.create_task(controller.operations.delete_tenant("red"))
        while controller.convergence.unfinished or controller.operations.state.routers:  # noqa: ASYNC110
            await asyncio.sleep(0)  # which nobody tells
        yield
        slow.go_on.set()
        await deleted
        assert ((await applied).failed, (await applied).waiting) == ([], [])


async def test_a_router_that_is_deleted_while_its_certificate_is_issued(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _deleted_meanwhile(controller, monkeypatch):
        pass
    await controller.convergence.look_after_guests()
    await controller.convergence.converge(lambda _: None)
    assert (controller.guests.starts, controller.sessions.admitted) == ([], set())
    assert not controller.pki.identity(1).exists()
    assert controller.store.valid_serials([1]) == {}


@pytest.mark.parametrize("full", [OSError(errno.EROFS, "Read-only file system", "x"), StoreError("disk is full")])
async def test_what_stays_of_a_router_that_was_deleted_meanwhile_is_told_and_goes_at_the_next_start(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, full: Exception
) -> None:
    def fail(_: int) -> None:
        raise full

    async with _deleted_meanwhile(controller, monkeypatch):
        monkeypatch.setattr(controller.sessions if isinstance(full, OSError) else controller.pki, "revoke", fail)
    assert [one.subject for one in controller.events.recent() if one.kind == "certificate-not-revoked"] == ["red/r1"]
    assert controller.store.valid_serials([1])
    monkeypatch.undo()
    controller.store.close()
    again = Controller(controller.pki.directory.parent)
    await again.convergence.start()
    assert again.store.valid_serials([1]) == {}
    assert not again.pki.identity(1).exists()
    again.store.close()


async def test_a_guest_that_is_removed_while_it_is_asked_why_it_ended_is_not_told_to_have_died(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def last_words(_: object) -> str:
        asked.set()
        await answer.wait()
        return "out of memory"

    await controller.apply(TEXT)
    monkeypatch.setattr(controller.guests, "last_words", last_words)
    controller.guests.running_specs.clear()
    async with asyncio.timeout(30):
        looking = asyncio.create_task(controller.convergence.look_after_guests())
        await asked.wait()
        await controller.operations.delete_tenant("red")
        answer.set()
        await looking
    assert "guest-died" not in [one.kind for one in controller.events.recent()]


async def test_a_router_that_is_changed_while_its_certificate_is_issued_runs_as_declared(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = _Slow(controller)
    monkeypatch.setattr(controller.pki, "issue", slow.issue)
    async with asyncio.timeout(30):
        applied = asyncio.create_task(controller.apply(TEXT))
        await slow.asked.wait()
        changed = asyncio.create_task(controller.apply(TEXT.replace("plane: s1, int", "plane: s1, frr: x, int")))
        while controller.operations.state.routers["red/r1"].routing.text != "x":  # noqa: ASYNC110
            await asyncio.sleep(0)  # which nobody tells
        slow.go_on.set()
        assert ((await applied).failed, (await changed).failed) == ([], [])
    assert controller.guests.running_specs[1].routing.text == "x"
    assert controller.guests.starts == ["red/r1"]


async def test_a_plane_can_be_forced_away_while_it_hangs(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.apply(TEXT)
    controller.core.unreachable.add("s1")
    await controller.operations.delete_tenant("red")
    asked, answer = asyncio.Event(), asyncio.Event()

    async def remove(_: int) -> None:
        asked.set()
        await answer.wait()
        raise PlaneUnreachable("s1", "it stopped answering")

    monkeypatch.setattr(controller.core, "remove_router", remove)
    async with asyncio.timeout(30):
        background = asyncio.create_task(controller.convergence.program(lambda _: None))
        await asked.wait()
        forced = asyncio.create_task(controller.operations.delete_plane("s1", force=True))
        while controller.operations.state.planes:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        answer.set()
        assert (await forced).waiting == []
        await background
    assert not controller.convergence.unfinished
    assert controller.store.load().tombstones == ()


async def test_a_router_that_is_deleted_while_its_plane_is_detached_goes_with_that_plane(
    controller: Controller,
) -> None:
    await controller.apply(TEXT)
    await controller.operations.detach_plane("s1")
    await controller.operations.delete_tenant("red")
    await controller.operations.delete_plane("s1", force=True)
    assert not controller.convergence.unfinished
    assert controller.attached() == {}
    await controller.apply(TEXT.replace("red", "blue"))  # to another plane of that name, and on the same port
    assert list(controller.attached()) == ["blue/r1"]


async def test_a_plane_whose_deletion_is_refused_has_still_to_confirm(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.apply(TEXT)
    controller.core.unreachable.add("s1")
    await controller.operations.delete_tenant("red")

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(controller.audit.files, "append", full)
    with pytest.raises(StoreError, match="make room"):
        await controller.operations.delete_plane("s1", force=True)
    await controller.convergence.converge(lambda _: None)
    assert [one.plane_clean for one in controller.store.load().tombstones] == [False]
    with pytest.raises(Conflict, match="has not confirmed that red/r1 is gone"):
        await controller.operations.delete_plane("s1", force=False)


async def test_a_document_s_plane_that_has_still_to_confirm_is_said_to_stay(controller: Controller) -> None:
    await controller.apply(TEXT)
    controller.core.unreachable.add("s1")
    outcome = await controller.operations.delete_document(TEXT, "t.yaml", lambda _: None, lambda: None)
    assert [(change.kind, change.name) for change in outcome.changes][-1] == ("router", "red/r1")
    assert outcome.waiting[-1] == (
        "plane s1 stays until it has confirmed that red/r1 is gone; "
        "delete it then, or with vrctl delete plane s1 --force"
    )
    assert "s1" in controller.operations.state.planes


async def test_the_fallback_of_a_plane_that_stays_is_said_to_stay(controller: Controller) -> None:
    pair = "{name: s1, kind: fake, fallback: {plane: f1, port: p8, peer_port: p9}}, {name: f1, kind: fake}"
    text = TEXT.replace("{name: s1, kind: fake}", pair)
    await controller.apply(text)
    controller.core.unreachable.add("s1")
    outcome = await controller.operations.delete_document(text, "t.yaml", lambda _: None, lambda: None)
    first, second = outcome.waiting[-2:]
    assert first.startswith("plane s1 stays until it has confirmed that red/r1 is gone")
    assert second == "plane f1 stays as the fallback of s1; delete it after that"
    assert {"s1", "f1"} <= controller.operations.state.planes.keys()
    controller.core.unreachable.clear()
    await controller.convergence.converge(lambda _: None)
    assert (await controller.operations.delete_document(text, "t.yaml", lambda _: None, lambda: None)).waiting == []
    assert not controller.operations.state.planes


async def test_a_plane_that_has_still_to_confirm_becomes_no_fallback(controller: Controller) -> None:
    """It would not be asked any more, and the deleted router would wait for ever."""
    await controller.apply(TEXT)
    controller.core.unreachable.add("s1")
    await controller.operations.delete_tenant("red")
    pair = "version: 1\nplanes: [{name: s2, kind: fake, fallback: {plane: s1, port: p8, peer_port: p9}}]\n"
    with pytest.raises(Conflict, match="plane s1 has not confirmed that red/r1 is gone, and a fallback is not asked"):
        await controller.apply(pair)
    controller.core.unreachable.clear()
    await controller.convergence.converge(lambda _: None)
    assert (await controller.apply(pair)).waiting == []
    assert list(controller.core.planes) == ["s2"]


async def test_a_document_s_plane_that_confirms_too_late_is_said_to_stay(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.apply(TEXT)
    controller.core.unreachable.add("s1")
    program, rounds = controller.convergence.program, list[Report]()

    async def confirming(report: Report) -> Programmed:
        rounds.append(report)
        if len(rounds) == 2:  # of the planes, which is planned by then
            controller.core.unreachable.clear()
        return await program(report)

    monkeypatch.setattr(controller.convergence, "program", confirming)
    outcome = await controller.operations.delete_document(TEXT, "t.yaml", lambda _: None, lambda: None)
    assert [line for line in outcome.waiting if line.startswith("plane s1 stays until it has confirmed that red/r1")]
    assert "s1" in controller.operations.state.planes
    assert not controller.convergence.tombstones


async def test_a_plane_that_has_confirmed_is_not_asked_again_where_the_disk_does_not_take_the_rest(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.apply(TEXT)
    mark_clean = controller.store.mark_clean

    def full(vrf_id: int, *, plane: bool = False, guest: bool = False) -> None:
        if guest:
            raise StoreError("database or disk is full")
        mark_clean(vrf_id, plane=plane)

    monkeypatch.setattr(controller.store, "mark_clean", full)
    assert (await controller.operations.delete_tenant("red")).waiting == ["red/r1: database or disk is full"]
    assert [one.plane_clean for one in controller.store.load().tombstones] == [True]
    controller.core.unreachable.add("s1")
    assert (await controller.operations.delete_plane("s1", force=False)).failed == []
    monkeypatch.undo()
    await controller.convergence.converge(lambda _: None)
    assert not controller.convergence.unfinished
    assert controller.store.load().tombstones == ()


async def test_a_plane_that_has_confirmed_does_not_wait_for_guests(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: object) -> None:
        raise GuestError("vr-host is away")

    await controller.apply(TEXT)
    monkeypatch.setattr(controller.guests, "delete", away)
    assert (await controller.operations.delete_tenant("red")).waiting == ["red/r1: vr-host is away"]
    assert (await controller.operations.delete_plane("s1", force=False)).waiting == ["red/r1: vr-host is away"]
    monkeypatch.undo()
    await controller.convergence.converge(lambda _: None)
    assert controller.store.load().tombstones == ()
