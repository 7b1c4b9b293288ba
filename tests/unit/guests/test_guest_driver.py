"""The namespace driver without a guest: how a running one is recognised, and what is asked of its supervisor."""

import asyncio
import contextlib
import fcntl
import json
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.errors import GuestError
from controller.events.untrusted_text import MAX_WORDS
from controller.guests import control, limits, startup, users
from controller.guests.base import GuestSpec
from controller.guests.guest_files import read_config, write_config
from controller.guests.machine.accelerator import AcceleratorProbe
from controller.guests.machine.qemu import QemuDriver
from controller.guests.machine.readings import Machine, digest
from controller.guests.netns import NetnsDriver
from controller.model import GuestConfig, RouteSource, Routing, Suite
from vrc.guest import supervisor
from vrc.guest.launch import EXIT_RUNS_ALREADY

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def spec(directory: Path) -> GuestSpec:
    return GuestSpec(7, "red/r1", RouteSource.FPM, Routing(text="!\n"), 30, directory, directory, directory)


def start_time(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


@pytest.mark.parametrize(
    ("start_offset", "boot", "running"), [(0, BOOT, True), (1, BOOT, False), (0, "another-boot", False)]
)
async def test_a_guest_is_its_pid_start_time_and_boot(
    tmp_path: Path, start_offset: int, boot: str, running: bool
) -> None:
    pid = os.getpid()
    (tmp_path / "guest.pid").write_text(f"{pid} {int(start_time(pid)) + start_offset} {boot}\n")
    status = await NetnsDriver().status(spec(tmp_path))
    assert (status.running, status.pid) == (running, pid if running else 0)


@pytest.mark.parametrize("content", ["", "1", "x y z", "-1 5 " + BOOT, "99999999 5 " + BOOT])
async def test_a_pid_file_that_makes_no_sense_is_no_guest(tmp_path: Path, content: str) -> None:
    (tmp_path / "guest.pid").write_text(content)
    assert not (await NetnsDriver().status(spec(tmp_path))).running


async def test_a_supervisor_that_does_not_answer_shows_as_failed(tmp_path: Path) -> None:
    (tmp_path / "guest.pid").write_text(f"{os.getpid()} {start_time(os.getpid())} {BOOT}\n")
    status = await NetnsDriver().status(spec(tmp_path))
    assert status.running
    assert status.daemons["supervisor"].startswith("failed: red/r1: the guest's supervisor cannot be asked")


async def test_a_daemon_s_last_words_are_short_and_printable_in_its_state(tmp_path: Path) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words = "failed: exit status 1: \x1b]52;c;cm0gLXJmIH4K\x07" + "x" * 10_000
        writer.write(json.dumps({"ok": True, "daemons": {"bgpd": words}, "restarts": 6}).encode() + b"\n")
        writer.close()

    (tmp_path / "guest.pid").write_text(f"{os.getpid()} {start_time(os.getpid())} {BOOT}\n")
    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        status = await NetnsDriver().status(spec(tmp_path))
    state = status.daemons["bgpd"]
    assert state.startswith("failed: exit status 1: ?]52;c;cm0gLXJmIH4K?xx")
    assert len(state) <= MAX_WORDS
    assert status.restarts == 6


@pytest.mark.parametrize("line", [b"", b"nonsense\n", b"[]\n", b"[1]\n", b'{"daemons": {}}\n', b'{"ok": false}\n'])
async def test_a_reply_that_makes_no_sense_is_an_error_and_no_crash(tmp_path: Path, line: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert json.loads(await reader.readline()) == {"op": "status"}
        writer.write(line)
        writer.close()

    (tmp_path / "guest.pid").write_text(f"{os.getpid()} {start_time(os.getpid())} {BOOT}\n")
    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        status = await NetnsDriver().status(spec(tmp_path))
    assert status.daemons["supervisor"].startswith("failed: ")


@pytest.mark.parametrize("suite", ["frr", "bird", "ip", "command"])
async def test_a_refusal_names_the_router_and_what_its_suite_said(tmp_path: Path, suite: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'{"ok": false, "error": "line 3: no"}\n')
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        with pytest.raises(GuestError, match=rf"^red/r1: {suite} line 3: no$"):
            await control.ask(tmp_path, "red/r1", {"op": "reload", "config": {suite: {}}}, 5)


async def test_a_guest_that_reads_nothing_holds_nobody_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen()
        request = {"op": "reload", "config": {"frr": {"text": "!" * (4 << 20)}}}  # more than a socket takes in
        async with asyncio.timeout(30):
            with pytest.raises(control.Silence, match=r"^red/r1: the guest did not answer reload in 0.05 s$"):
                await control.ask(tmp_path, "red/r1", request, 0.05)


@pytest.mark.parametrize("kind", [NetnsDriver, lambda: QemuDriver(Path(), AcceleratorProbe(Path()))])
async def test_one_at_a_time_changes_a_guest_also_once_it_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[], NetnsDriver | QemuDriver]
) -> None:
    async def stop(_: GuestSpec) -> None:
        inside.append(1)
        most.append(len(inside))
        for _ in range(10):  # turns of the event loop
            await asyncio.sleep(0)
        inside.pop()

    driver, inside, most = kind(), list[int](), list[int]()
    monkeypatch.setattr(driver, "_stop", stop)
    deleting, waiting = (asyncio.create_task(one(spec(tmp_path / "7"))) for one in (driver.delete, driver.stop))
    await deleting
    await asyncio.gather(waiting, driver.stop(spec(tmp_path / "7")))
    assert most == [1, 1, 1]


@pytest.mark.parametrize("kind", [NetnsDriver, lambda: QemuDriver(Path(), AcceleratorProbe(Path()))])
async def test_nothing_is_kept_for_who_asks_about_a_guest_that_does_not_run(
    tmp_path: Path, kind: Callable[[], NetnsDriver | QemuDriver]
) -> None:
    driver, gone = kind(), spec(tmp_path / "7")
    assert await driver.look_after(gone) == []
    assert not (await driver.status(gone)).running
    assert driver.trouble(gone) == ""
    await driver.last_words(gone)
    assert not (driver._seen if isinstance(driver, NetnsDriver) else driver._contacts)


async def test_a_guest_that_takes_more_memory_than_it_is_to_have_takes_its_text_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by control groups of version 1."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(json.loads(await reader.readline())["op"])
        writer.write(b'{"ok": true}\n')
        writer.close()

    driver, asked = NetnsDriver(), list[str]()
    smaller = replace(spec(tmp_path), routing=Routing(Suite.IP), guest=GuestConfig(memory_mib=128))
    config = driver._config(smaller)
    monkeypatch.setattr(driver, "_prepare", lambda *_: None)
    monkeypatch.setattr(limits, "lacking", lambda *_, **__: [])
    monkeypatch.setattr(limits, "make", lambda *_, **__: limits.Group((), ("memory",)))
    (tmp_path / "guest.json").write_text(json.dumps(config | {"hostname": "former"}))
    (tmp_path / "guest.pid").write_text(f"{os.getpid()} {start_time(os.getpid())} {BOOT}\n")
    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        with pytest.raises(GuestError, match=r"^red/r1: it takes more than memory: of 128M; restart it$"):
            await driver.start(smaller)
    assert (asked, read_config(tmp_path)) == (["reload"], config)


@pytest.mark.parametrize("first_said", [None, {"ok": False, "error": "line 3: no"}])
@pytest.mark.parametrize("kind", [NetnsDriver, lambda: QemuDriver(Path(), AcceleratorProbe(Path()))])
async def test_a_former_declaration_is_handed_over_again_where_the_next_one_was_not_taken(
    tmp_path: Path, first_said: dict[str, Any] | None, kind: Callable[[], NetnsDriver | QemuDriver]
) -> None:
    """The guest may have the next one all the same, where its answer was lost, or its interfaces alone."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            request = json.loads(line if line.strip() else b"{}")
            said: dict[str, Any] | None = {"ok": True}
            if request.get("op") == "reload":
                asked.append(request["config"])
                said = said if len(asked) > 1 else first_said
            if said is None:
                break
            if request:
                writer.write(json.dumps(said | {"id": request.get("id")}).encode() + b"\n")
        writer.close()

    async def change(wanted: dict[str, Any]) -> None:
        former = read_config(tmp_path)
        assert former is not None
        if isinstance(driver, NetnsDriver):
            if former != wanted:
                await driver._reload(spec(tmp_path), former, wanted)
        else:
            assert await driver._changed_inside(spec(tmp_path), machine, former, wanted, {})

    driver, asked, machine = kind(), list[object](), Machine(192, 1, "image", identity=digest({}))
    first, second = ({"frr": {"ids": None, "text": text}, "vrc": {"uid": 1}} for text in ("!", "new"))
    (tmp_path / "guest.pid").write_text(f"{os.getpid()} {start_time(os.getpid())} {BOOT}\n")
    write_config(tmp_path, first)
    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        with pytest.raises(GuestError):
            await change(second)
        for _ in range(2):
            await change(first)
    assert asked == [second, first]


def test_exec_enters_the_namespaces_of_the_guest_and_keeps_the_arguments() -> None:
    argv = NetnsDriver().exec_argv(spec(Path("/nowhere")), os.getpid(), ["vtysh", "-c", "show ip route"])
    assert argv[-4:] == ["--", "vtysh", "-c", "show ip route"]
    assert argv[2:5] == ["/usr/bin/nsenter", "--target", str(os.getpid())]
    assert "--user" not in argv  # entering one's own user namespace is an error


def test_each_vrc_has_a_user_of_its_own() -> None:
    assert users.vrc_uid(1) != users.vrc_uid(2)
    assert users.vrc_uid(0) > 65535


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Have the directory, as a guest that runs or is being started."""
    with open(directory / "guest.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


async def test_a_guest_that_somebody_else_is_starting_is_changed_once_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a vr-host that was killed, or it would be taken for one that was started as declared by now."""
    driver, first, second = NetnsDriver(), {"hostname": "first"}, {"hostname": "second"}
    write_config(tmp_path, first)
    monkeypatch.setattr(limits, "make", lambda *_, **__: limits.Group((), ()))
    monkeypatch.setattr(sys, "argv", ["vr-guest", "--config", f"{tmp_path}/guest.json"])
    with locked(tmp_path):
        with pytest.raises(GuestError, match=r"^red/r1: another controller is starting the guest; try again$"):
            await driver._launch(spec(tmp_path), second)
        assert read_config(tmp_path) == first
        assert supervisor.main() == EXIT_RUNS_ALREADY  # and has not read what may still change


async def test_what_a_guest_is_started_with_is_noted_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def launch(directory: Path, *_: object) -> None:
        noted.append(read_config(directory))
        with locked(tmp_path):
            pass

    noted: list[object] = []
    monkeypatch.setattr(limits, "make", lambda *_, **__: limits.Group((), ()))
    monkeypatch.setattr(startup, "launch", launch)
    await NetnsDriver()._launch(spec(tmp_path), {"hostname": "first"})
    assert noted == [{"hostname": "first"}]


async def test_a_launcher_that_hangs_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hanging.py").write_text(
        "import os, pathlib, time\n"
        "child = os.fork()\n"
        "pathlib.Path('child').write_text(str(child)) if child else None\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(startup, "LIMIT_S", 1.0)
    with pytest.raises(GuestError, match=r"^red/r1: the machine did not start in 1 s; see the logs in "):
        await startup.launch(tmp_path, "red/r1", "the machine", tmp_path, ["hanging"])
    child = int((tmp_path / "child").read_text())
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(child)
        select.select([fd], [], [], 10)
        os.close(fd)
    assert not Path(f"/proc/{child}").exists() or Path(f"/proc/{child}/stat").read_text().split()[2] == "Z"
