"""What is stored is written beside the loop, and what is known of it here changes together with it."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from operator_world import Controller

from controller.fallback import pace
from controller.operations.progress import Programmed, Report

DOCUMENT = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [1-9]}}]
    routers:
      - {name: r1, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 1}, {name: eth1, port: p1, vlan: 5}], frr: ""}
      - {name: r2, plane: s1, interfaces: [{name: eth0, port: p1, vlan: 2}], frr: ""}
"""
WRITES = (
    "commit", "release", "mark_clean", "add_certificates", "keep_certificates", "revoke_certificates",
    "add_plane_certificate", "revoke_plane_certificates",
)  # fmt: skip


async def test_the_loop_waits_for_no_disk(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    threads: dict[str, set[int]] = {name: set() for name in WRITES}

    def watch(name: str) -> None:
        write = getattr(controller.store, name)

        def watched(*given: Any, **named: Any) -> Any:
            threads[name].add(threading.get_ident())
            return write(*given, **named)

        monkeypatch.setattr(controller.store, name, watched)

    for name in WRITES:
        watch(name)
    await controller.apply(DOCUMENT)
    await controller.apply(DOCUMENT.replace("vlan: 2", "vlan: 3"))
    await controller.operations.plane_certificate("s1", [], str(tmp_path))
    await controller.operations.revoke_plane("s1", "")
    await controller.operations.delete_router("red/r1")
    assert [name for name, found in threads.items() if not found] == []
    assert [name for name, found in threads.items() if threading.get_ident() in found] == []


async def test_what_is_being_stored_is_not_taken_for_confirmed(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plane confirms what a router gave up before, while it is stored that this router gives up more."""
    await controller.apply(DOCUMENT)
    controller.core.unreachable.add("s1")
    await controller.apply(DOCUMENT.replace("vlan: 1}", "vlan: 3}"))
    controller.core.unreachable.clear()
    commit, release = controller.store.commit, controller.store.release
    written, go, amid = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def slow(*given: Any) -> None:
        commit(*given)
        loop.call_soon_threadsafe(written.set)
        assert go.wait(10.0)

    def watched(vrf_id: int) -> None:
        amid.append(not go.is_set())
        release(vrf_id)

    monkeypatch.setattr(controller.store, "commit", slow)
    monkeypatch.setattr(controller.store, "release", watched)
    change = asyncio.create_task(controller.apply(DOCUMENT.replace("vlan: 1}", "vlan: 3}").replace("5", "6")))
    await written.wait()
    confirmed = asyncio.create_task(controller.convergence.program(lambda _: None))
    await asyncio.wait([confirmed], timeout=0.2)  # which it would do at once, were it not for the other
    go.set()
    await asyncio.gather(change, confirmed)
    assert amid
    assert not any(amid)
    assert controller.attached()["red/r1"] == [("p1", 3), ("p1", 6)]
    assert controller.store.load().holds == ()


async def test_who_reads_waits_for_nobody_who_writes(controller: Controller) -> None:
    await controller.apply(DOCUMENT)
    (vrf_id,) = {one.vrf_id for one in controller.operations.state.routers.values() if one.name == "r1"}
    serial = controller.serial(vrf_id)
    with controller.store._transaction() as db:
        db.execute("DELETE FROM certificates")
        assert await asyncio.wait_for(asyncio.to_thread(controller.pki.is_valid, serial, vrf_id), 10.0)
    assert not controller.pki.is_valid(serial, vrf_id)


async def test_a_change_of_many_routers_leaves_turns_to_others(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "SLICE_S", 0.0)
    many = ", ".join(f"{{name: r{at}, plane: s1, interfaces: [{{name: eth0, port: p{at}}}]}}" for at in range(40))
    ports = ", ".join(f"p{at}: [untagged]" for at in range(40))
    text = DOCUMENT[: DOCUMENT.index("tenants")] + "tenants:\n"
    text += f"  - {{name: red, slices: [{{plane: s1, ports: {{{ports}}}}}], routers: [{many}]}}\n"
    turns, during = 0, []

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    program = controller.convergence.program

    async def watched(report: Report) -> Programmed:
        before = turns
        done = await program(report)
        during.append(turns - before)
        return done

    monkeypatch.setattr(controller.convergence, "program", watched)
    watching = asyncio.create_task(other())
    await controller.apply(text)
    watching.cancel()
    assert during[0] > 3 * 40
