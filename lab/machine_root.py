"""Root of a virtual machine, outside of its tenant's guest: what a tenant is who has taken over its own machine."""

import base64
import json
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller.guests.guest_files import short_path
from controller.guests.handshake import SOCKET
from controller.guests.machine.exec_client import Replies, settle
from lab.commands import NetworkError

_PYTHON = ("env", "PYTHONPATH=/usr/lib/splitplane/app", "GRPC_VERBOSITY=NONE", "/usr/bin/python3", "-s", "-P", "-")
LIMIT_S = 120.0


@contextmanager
def _channel(directory: Path) -> Iterator[tuple[socket.socket, Replies]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        with short_path(directory, SOCKET) as path:
            channel.connect(path)
        yield channel, settle(channel)


def run(directory: Path, *argv: str, stdin: bytes = b"") -> str:
    """Run a command as root in the namespaces of a machine's first process; returns what it prints.

    ``directory`` is the machine's own on the host. NetworkError, with what it complained of, where it fails.
    """
    wanted = secrets.token_hex(8)
    request = {"op": "exec", "id": wanted, "argv": argv, "in": "machine", "limit_s": LIMIT_S}
    try:
        with _channel(directory) as (channel, replies):
            channel.settimeout(LIMIT_S + 5)
            channel.sendall(json.dumps(request | {"stdin": base64.b64encode(stdin).decode()}).encode() + b"\n")
            reply = replies.to(wanted)
    except OSError as problem:
        raise NetworkError(f"{argv[0]}: the machine does not answer: {problem}") from None
    if not reply["ok"]:
        raise NetworkError(f"{argv[0]}: {reply['error']}")
    out, err = (base64.b64decode(reply[name]).decode(errors="replace") for name in ("stdout", "stderr"))
    if reply["status"]:
        raise NetworkError(f"{argv[0]}: status {reply['status']} {reply.get('note', '')}: {out[-500:]}{err}")
    return out


def run_program(directory: Path, program: Path, *arguments: str) -> Any:
    """Run a Python program of this host with the image's Python; returns the JSON on its last line. NetworkError."""
    return json.loads(run(directory, *_PYTHON, *arguments, stdin=program.read_bytes()).splitlines()[-1])
