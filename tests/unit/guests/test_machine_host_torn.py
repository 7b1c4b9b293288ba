"""The host's end of a machine's channels where somebody broke off in an answer, whose rest comes first."""

import asyncio
import base64
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.errors import GuestError
from controller.guests import control
from controller.guests.machine import terminal

REST = b'tput of a command", "id": "another"}\n'
Say = Callable[[dict[str, Any], int], bytes]


def machine(directory: Path, name: str, say: Say) -> threading.Thread:
    """A machine's end of a channel for one client; ``say`` has the octets to say to each request."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(directory / name))
    listener.listen()

    def serve() -> None:
        with listener, listener.accept()[0] as client, client.makefile("rb") as lines:
            for number, line in enumerate(filter(bytes.strip, lines)):
                client.sendall(say(json.loads(line), number))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def reply(request: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"ok": True, "id": request["id"]} | fields).encode() + b"\n"


async def test_the_rest_of_another_s_answer_is_skipped(tmp_path: Path) -> None:
    machine(tmp_path, "control.sock", lambda request, number: (b"" if number else REST) + reply(request))
    assert (await control.ask(tmp_path, "red/r1", {"op": "status"}, 5, shared=True))["ok"]


async def test_what_makes_no_sense_after_that_is_an_error(tmp_path: Path) -> None:
    machine(tmp_path, "control.sock", lambda request, number: REST + reply(request))
    with pytest.raises(GuestError, match=r"^red/r1: the guest's supervisor cannot be asked: "):
        await control.ask(tmp_path, "red/r1", {"op": "status"}, 5, shared=True)


async def test_a_machine_that_has_ended_its_channel_is_not_asked_again(tmp_path: Path) -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"\n"
        await reader.readline()
        writer.write_eof()
        heard.set_result(await reader.read())
        writer.close()

    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    async with await asyncio.start_unix_server(end, tmp_path / "control.sock"), asyncio.timeout(10):
        with pytest.raises(GuestError, match=r"^red/r1: the guest's supervisor cannot be asked: "):
            await control.ask(tmp_path, "red/r1", {"op": "status"}, 5, shared=True)
        assert await heard == b""


def run_inside(directory: Path) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "controller.guests.machine.exec_client", str(directory), "--", "true"]
    return subprocess.run(command, capture_output=True, timeout=30, stdin=subprocess.DEVNULL)


def done(request: dict[str, Any]) -> bytes:
    return reply(request, status=3, stdout=base64.b64encode(b"out\n").decode(), stderr="")


def test_a_command_s_output_comes_after_the_rest_of_another_s(tmp_path: Path) -> None:
    machine(tmp_path, "control.sock", lambda request, number: done(request) if number else REST + reply(request))
    ended = run_inside(tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"out\n", b"")


def test_an_answer_that_comes_in_pieces_is_heard(tmp_path: Path) -> None:
    def say(request: dict[str, Any], number: int) -> bytes:
        if number == 0:  # it takes its time for the rest, and is asked again meanwhile
            first.append(reply(request))
            return first[0][:10]
        return first[0][10:] if number == 1 else done(request)

    first: list[bytes] = []
    machine(tmp_path, "control.sock", say)
    ended = run_inside(tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"out\n", b"")


def test_a_terminal_is_given_after_the_rest_of_another_s_screen(tmp_path: Path) -> None:
    machine(tmp_path, terminal.socket_of(0), lambda request, number: (b"" if number == 1 else REST) + reply(request))
    with terminal._port(tmp_path) as channel:
        line = terminal._Line(channel)
        line.settle()
        with pytest.raises(terminal.TerminalError, match="makes no sense"):
            line.ask({"op": "terminal"})
