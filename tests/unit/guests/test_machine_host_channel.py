"""The host's end of a machine's channels: control requests, commands, the session relay, the console."""

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from controller.errors import GuestError
from controller.guests import control, handshake, pidfile
from controller.guests.base import BUSY, GuestSpec
from controller.guests.control import Silence
from controller.guests.machine import exec_client as inside
from controller.guests.machine import qemu, relay
from controller.guests.machine.accelerator import AcceleratorProbe
from controller.guests.machine.console import carry
from controller.guests.machine.qemu import QemuDriver
from controller.guests.machine.readings import Machine
from controller.model import RouteSource, Routing

Answer = Callable[[dict[str, Any]], list[bytes]]


def machine(directory: Path, answer: Answer) -> threading.Thread:
    """A machine that answers one client's requests on control.sock, each with lines."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(directory / "control.sock"))
    listener.listen(4)

    def serve() -> None:
        quiet = contextlib.suppress(OSError)  # the client may have heard enough
        with quiet, listener, listener.accept()[0] as client, client.makefile("rb") as lines:
            for line in lines:
                if line.strip():
                    for reply in answer(json.loads(line)):
                        client.sendall(reply + b"\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def to(request: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"id": request["id"], "ok": True, **fields}).encode()


async def test_replies_that_somebody_else_did_not_wait_for_are_dropped(tmp_path: Path) -> None:
    stale = [b"", b'{"id": "another", "ok": true, "free_mib": 1}', b'{"ok": true}']
    machine(tmp_path, lambda request: [*stale, to(request, free_mib=7)])
    reply = await control.ask(tmp_path, "red/r1", {"op": "machine"}, 5, shared=True)
    assert reply["free_mib"] == 7


async def test_a_request_begins_with_a_blank_line_that_ends_what_was_left_half_sent(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for op in ("machine", "reload"):
            assert await reader.readline() == b"\n"
            request = json.loads(await reader.readline())
            assert request["op"] == op
            writer.write(to(request) + b"\n")
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        assert (await control.ask(tmp_path, "red/r1", {"op": "reload"}, 5, shared=True))["ok"]


async def test_only_what_changes_nothing_is_said_again_until_the_machine_hears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hello(wanted: str) -> bytes:
        said.append(wanted)
        monkeypatch.setattr(control, "SETTLE_S", 30.0 if len(said) > 2 else 0.01)
        return handshake.hello(wanted)

    def answer(request: dict[str, Any]) -> list[bytes]:
        asked.append(request["op"])
        return [to(request)] if len(asked) > 2 else []

    said: list[str] = []
    asked: list[str] = []
    monkeypatch.setattr(control, "hello", hello)
    machine(tmp_path, answer)
    await control.ask(tmp_path, "red/r1", {"op": "identity"}, 5, shared=True)
    assert asked == ["machine", "machine", "machine", "identity"]


async def test_silence_is_told_from_a_refusal(tmp_path: Path) -> None:
    machine(tmp_path, lambda _: [])
    with pytest.raises(Silence, match=r"^red/r1: the guest did not answer machine in 0.1 s$"):
        await control.ask(tmp_path, "red/r1", {"op": "machine"}, 0.1, shared=True)


async def test_what_frr_refused_is_not_tried_again_until_it_changes(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(json.loads(await reader.readline()))
        bad = asked[-1]["config"] == {"text": "bad"}
        writer.write(b'{"ok": false, "error": "line 3: no"}\n' if bad else b'{"ok": true}\n')
        writer.close()

    reloads = control.Reloads(60.0)
    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        for _ in range(3):
            with pytest.raises(GuestError, match=r"^red/r1: frr line 3: no$"):
                await reloads.reload(tmp_path, "red/r1", {"text": "bad"})
        assert len(asked) == 1
        await reloads.reload(tmp_path, "red/r1", {"text": "good"})
        with pytest.raises(GuestError):
            await reloads.reload(tmp_path, "red/r1", {"text": "bad"})
        assert len(asked) == 3


async def test_what_a_guest_did_not_hear_is_tried_again(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        absent = b'{"ok": false, "absent": true, "error": "the guest does not run"}\n'
        writer.write(absent if len(asked) == 1 else b'{"ok": true}\n')
        writer.close()

    asked: list[bytes] = []
    reloads = control.Reloads(60.0)
    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        with pytest.raises(control.Absence, match=r"^red/r1: the guest does not run$"):
            await reloads.reload(tmp_path, "red/r1", {"text": "good"})
        await reloads.reload(tmp_path, "red/r1", {"text": "good"})
    assert len(asked) == 2


@pytest.mark.parametrize(
    "words",
    [
        "is being changed already; try again",
        "8 requests are unanswered already",
        "16 requests are under way already",
        "the guest's supervisor did not answer within 130 s; see the console",
        "the text cannot be written: No space left on device",
        "the text cannot be written: No space left on device; the former text stays; see vrctl logs",
        "frr-reload.py was killed by SIGKILL; see vrctl logs",
    ],
)
async def test_what_a_guest_could_not_take_just_then_is_tried_again(tmp_path: Path, words: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        no = json.dumps({"ok": False, "error": words}).encode()
        writer.write(no + b"\n" if len(asked) < 3 else b'{"ok": true}\n')
        writer.close()

    asked: list[bytes] = []
    reloads = control.Reloads(60.0)
    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        for _ in range(2):
            with pytest.raises(control.Transient, match=rf"^red/r1: frr {words}$"):
                await reloads.reload(tmp_path, "red/r1", {"text": "good"})
        await reloads.reload(tmp_path, "red/r1", {"text": "good"})
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("supervisor", "states"),
    [
        ("starting", {"machine": "starting"}),
        ("failed: its first process ended", {"machine": "failed: its first process ended"}),
        ("up", {"machine": "up", "supervisor": "failed: nobody there"}),
    ],
)
async def test_why_a_guest_in_a_machine_does_not_run_is_what_the_machine_says(
    tmp_path: Path, supervisor: str, states: dict[str, str]
) -> None:
    def answer(request: dict[str, Any]) -> list[bytes]:
        if request["op"] == "machine":
            return [to(request, supervisor=supervisor)]
        return [to(request, error="nobody there", absent=True).replace(b"true", b"false", 1)]

    pidfile.write(tmp_path, os.getpid())
    machine(tmp_path, answer)
    spec = GuestSpec(1, "red/r1", RouteSource.FPM, Routing(text="!"), 30, tmp_path, tmp_path, tmp_path)
    assert (await QemuDriver(tmp_path, AcceleratorProbe(tmp_path)).status(spec)).daemons == states


async def test_a_machine_with_too_much_to_answer_is_busy_and_not_failed(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> list[bytes]:
        if request["op"] == "machine":
            return [to(request, supervisor="up")]
        return [to(request, error="8 requests are unanswered already").replace(b"true", b"false", 1)]

    pidfile.write(tmp_path, os.getpid())
    machine(tmp_path, answer)
    spec = GuestSpec(1, "red/r1", RouteSource.FPM, Routing(text="!"), 30, tmp_path, tmp_path, tmp_path)
    assert (await QemuDriver(tmp_path, AcceleratorProbe(tmp_path)).status(spec)).daemons == {"machine": BUSY}


async def test_a_new_certificate_arrives_whatever_is_refused_of_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def ask(_: Path, router: str, request: dict[str, Any], _limit_s: float, *, shared: bool) -> dict[str, Any]:
        assert shared
        asked.append(request["op"])
        if request["op"] == "reload":
            raise control.Refusal(f"{router}: frr line 3: no")
        return {"ok": True}

    monkeypatch.setattr(control, "ask", ask)
    spec = GuestSpec(1, "red/r1", RouteSource.FPM, Routing(text="!"), 30, tmp_path, tmp_path, tmp_path)
    driver, started = QemuDriver(tmp_path, AcceleratorProbe(tmp_path)), Machine(256, 1, "image", identity="old")
    monkeypatch.setattr(qemu, "write_machine", lambda *_: None)
    former, config = ({"frr": {"ids": None, "text": text}, "vrc": {"uid": 1}} for text in ("!", "bad"))
    with pytest.raises(control.Refusal):
        await driver._changed_inside(spec, started, former, config, {"cert.pem": b"new"})
    assert asked == ["identity", "reload"]


@pytest.mark.parametrize(("wrong_s", "steps"), [(-100.0, [100.0]), (100.0, [-100.0]), (0.0, [])])
async def test_a_machine_s_clock_is_set_where_it_is_wrong_and_that_is_told_once(
    tmp_path: Path, wrong_s: float, steps: list[float]
) -> None:
    def answer(request: dict[str, Any]) -> list[bytes]:
        asked.append(request)
        ahead_s = wrong_s + sum(one["step_s"] for one in asked if one["op"] == "clock")
        return [to(request, time_s=time.time() + ahead_s, daemons={"vrc": "up"})]

    asked: list[dict[str, Any]] = []
    pidfile.write(tmp_path, os.getpid())
    first = machine(tmp_path, answer)
    spec = GuestSpec(1, "red/r1", RouteSource.FPM, Routing(text="!"), 30, tmp_path, tmp_path, tmp_path)
    driver = QemuDriver(tmp_path, AcceleratorProbe(tmp_path))
    status = await driver.status(spec)
    assert status.daemons == {"machine": "up", "vrc": "up"}
    assert [request["op"] for request in asked] == ["machine", *["clock"] * len(steps), "status"]  # on one connection
    told = [request["step_s"] for request in asked if request["op"] == "clock"]
    assert told == pytest.approx(steps, abs=0.5)

    # Whoever asked for the status came first: the operator is told of the step all the same.
    for expected in (len(steps), 0):
        await asyncio.to_thread(first.join)
        (tmp_path / "control.sock").unlink()
        first = machine(tmp_path, answer)
        driver._contacts[tmp_path].looked_s = -inf
        assert len([line for line in await driver.look_after(spec) if line.startswith("its clock was ")]) == expected


# -- commands --------------------------------------------------------------------------------------------------------


def run_inside(directory: Path, *argv: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "controller.guests.machine.exec_client", str(directory), "--", *argv]
    return subprocess.run(command, capture_output=True, timeout=30, **options)


def test_a_command_s_output_and_status_come_back(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> list[bytes]:
        if request["op"] == "machine":
            return [to(request)]
        asked.append(request)
        out, err = (base64.b64encode(text).decode() for text in (b"out\n", b"err\n"))
        return [b'{"id": "stale", "ok": true}', to(request, status=3, stdout=out, stderr=err)]

    asked: list[dict[str, Any]] = []
    machine(tmp_path, answer)
    done = run_inside(tmp_path, "vtysh", "-c", "show ip route", input=b"typed")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert asked[0]["argv"] == ["vtysh", "-c", "show ip route"]
    assert base64.b64decode(asked[0]["stdin"]) == b"typed"


def test_a_command_that_cannot_be_run_is_one_line(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> list[bytes]:
        refusal = {"id": request["id"], "ok": False, "error": "no such program"}
        return [to(request) if request["op"] == "machine" else json.dumps(refusal).encode()]

    machine(tmp_path, answer)
    done = run_inside(tmp_path, "nonsense", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (inside.FAILED, b"vrctl: nonsense: no such program\n")


def test_a_reply_that_is_nested_without_end_is_one_line(tmp_path: Path) -> None:
    machine(tmp_path, lambda request: [to(request) if request["op"] == "machine" else b"[" * 100_000])
    done = run_inside(tmp_path, "true", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (inside.FAILED, b"vrctl: true: its reply is nested too deeply\n")


def test_without_a_machine_a_command_is_one_line(tmp_path: Path) -> None:
    done = run_inside(tmp_path, "true", stdin=subprocess.DEVNULL)
    assert done.returncode == inside.FAILED
    assert done.stderr.count(b"\n") == 1


# -- the session relay -----------------------------------------------------------------------------------------------


def start_relay(directory: Path, path: Path) -> "tuple[socket.socket, subprocess.Popen[bytes]]":
    """Start a relay as QEMU does; returns the guest's end of its connection."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", relay.__file__, str(directory), str(path)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    theirs.close()
    ours.settimeout(10)
    return ours, process


def test_octets_pass_both_ways_and_the_end_of_one_way_is_not_the_end_of_the_other(tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "session.sock"))
        listener.listen(1)
        guest, process = start_relay(tmp_path, tmp_path / "session.sock")
        session, _ = listener.accept()

        def echo() -> None:
            with session, session.makefile("rb") as pieces:
                session.sendall(pieces.read())

        thread = threading.Thread(target=echo)
        thread.start()
        with guest, guest.makefile("rb") as pieces:
            guest.sendall(content)
            guest.shutdown(socket.SHUT_WR)
            assert pieces.read() == content
        thread.join(10)
    assert process.wait(10) == 0


def test_the_fifth_connection_is_closed_and_counted_and_a_freed_place_is_given_again(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "session.sock"))
        listener.listen(8)
        through, accepted = [], []
        for _ in range(4):  # one after the other, so that the ends of one connection are known
            through.append(start_relay(tmp_path, tmp_path / "session.sock"))
            accepted.append(listener.accept()[0])
        for expected in (1, 2):
            guest, process = start_relay(tmp_path, tmp_path / "session.sock")
            with guest:
                assert guest.recv(1) == b""
            assert process.wait(10) == 1
            assert (tmp_path / "refused").stat().st_size == expected
        accepted[0].close()
        through[0][0].close()
        assert through[0][1].wait(10) == 0
        guest, process = start_relay(tmp_path, tmp_path / "session.sock")
        again, _ = listener.accept()
        for end in (guest, again, *accepted, *(one for one, _ in through)):
            end.close()
        assert {one.wait(10) for one in (process, *(each for _, each in through))} == {0}


def test_while_the_controller_is_away_a_connection_is_closed_without_a_word_and_not_counted(tmp_path: Path) -> None:
    guest, process = start_relay(tmp_path, tmp_path / "session.sock")
    with guest:
        assert guest.recv(100) == b""
    assert process.wait(10) == 1
    assert not (tmp_path / "refused").exists()


def test_a_slot_is_a_lock_and_ends_with_its_holder(tmp_path: Path) -> None:
    taken = [relay.take_slot(str(tmp_path)) for _ in range(relay.SLOTS)]
    assert None not in taken
    assert relay.take_slot(str(tmp_path)) is None
    assert taken[2] is not None
    fcntl.flock(taken[2], fcntl.LOCK_UN)
    assert relay.take_slot(str(tmp_path)) is not None
    for slot in taken:
        assert slot is not None
        os.close(slot)


# -- the console -----------------------------------------------------------------------------------------------------


def test_a_console_carries_keys_until_the_escape_and_prints_what_comes() -> None:
    ours, theirs = socket.socketpair()
    keys, typed = os.pipe()
    shown, screen = os.pipe()
    theirs.sendall(b"login: ")
    os.write(typed, b"root\n\x1dlost")
    with ours, theirs:
        carry(ours, keys, screen)
        assert theirs.recv(100) == b"root\n"
    os.close(screen)
    with open(shown, "rb") as screen_text:
        assert screen_text.read() == b"login: "
    for end in (keys, typed):
        os.close(end)


def test_a_console_ends_with_its_machine() -> None:
    ours, theirs = socket.socketpair()
    keys, typed = os.pipe()
    theirs.close()
    with ours:
        carry(ours, keys, 1)
    for end in (keys, typed):
        os.close(end)


def test_a_console_whose_machine_dies_with_unread_keys_ends_without_a_traceback(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "console.sock"))
        listener.listen(1)
        command = [sys.executable, "-m", "controller.guests.machine.console", str(tmp_path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None
        machine, _ = listener.accept()
        process.stdin.write(b"keys")
        process.stdin.flush()
        machine.recv(1)
        machine.close()
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, b"Connected; Ctrl-] ends.\n")


# -- a machine in hostile hands --------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"[" * 100_000, b"x" * 100, b"7", b'{"ok": true, "id": [1]', b"\xff\xfe"])
async def test_what_is_no_reply_is_an_error_of_that_guest(tmp_path: Path, line: bytes) -> None:
    machine(tmp_path, lambda _: [line])
    with pytest.raises(GuestError, match=r"^red/r1: the guest's supervisor cannot be asked: ") as caught:
        await control.ask(tmp_path, "red/r1", {"op": "machine"}, 5, shared=True)
    assert str(caught.value).isprintable()


async def test_a_reply_without_end_is_given_up(tmp_path: Path) -> None:
    machine(tmp_path, lambda _: [b"x" * (2 * control.MAX_REPLY_BYTES)])
    with pytest.raises(GuestError):
        await control.ask(tmp_path, "red/r1", {"op": "machine"}, 5, shared=True)


async def test_replies_nobody_asked_for_do_not_hold_up_the_controller(tmp_path: Path) -> None:
    machine(tmp_path, lambda _: [b'{"id": "another"}'] * 20_000)
    with pytest.raises(Silence):
        await control.ask(tmp_path, "red/r1", {"op": "machine"}, 0.1, shared=True)


class Newlines:
    """A machine's end of a channel that says newlines for as long as anybody reads."""

    def __init__(self, directory: Path) -> None:
        self._path, self.read = directory / "control.sock", 0
        self._ended = threading.Event()

    def __enter__(self) -> "Newlines":
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._listener.listen(4)
        self._thread = threading.Thread(target=self._say)
        self._thread.start()
        return self

    def _say(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError), self._listener.accept()[0] as client:
                client.settimeout(0.05)
                while not self._ended.is_set():
                    with contextlib.suppress(TimeoutError):
                        self.read += client.send(b"\n" * 4096)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # which ends accept(2)
        self._listener.close()
        self._thread.join()


async def test_blank_lines_let_others_run_and_are_read_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def turns() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    count, strays = 0, control.Strays()
    monkeypatch.setattr(control, "STRAY_AT_ONCE", 100 * control.STRAY_LINE)
    monkeypatch.setattr(control, "STRAY_PER_S", control.STRAY_LINE)
    other = asyncio.create_task(turns())
    with Newlines(tmp_path), pytest.raises(Silence):
        async with control.conversation(tmp_path, "red/r1", 0.3, shared=True, strays=strays):
            pass
    other.cancel()
    lines = strays.octets // control.STRAY_LINE
    assert count > lines
    assert 100 <= lines < 110
    assert strays.held


async def test_a_machine_that_says_what_nobody_asked_for_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "STRAY_AT_ONCE", 10 * control.STRAY_LINE)
    monkeypatch.setattr(qemu, "STATUS_LIMIT_S", 0.1)
    pidfile.write(tmp_path, os.getpid())
    spec = GuestSpec(1, "red/r1", RouteSource.FPM, Routing(text="!"), 30, tmp_path, tmp_path, tmp_path)
    driver = QemuDriver(tmp_path, AcceleratorProbe(tmp_path))
    told = "it says what nobody asked for on its control channel: "
    with Newlines(tmp_path):
        while not any(line.startswith(told) for line in await driver.look_after(spec)):
            pass  # a conversation may end before the machine has had a core for its part


async def test_a_refusal_is_short_and_printable(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> list[bytes]:
        if request["op"] == "machine":
            return [to(request)]
        return [json.dumps({"id": request["id"], "ok": False, "error": "\x1b[2J" * 50_000}).encode()]

    machine(tmp_path, answer)
    with pytest.raises(GuestError) as caught:
        await control.ask(tmp_path, "red/r1", {"op": "status"}, 5, shared=True)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2 * control.MAX_ERROR
