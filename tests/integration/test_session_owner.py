"""A router's session socket is its guest's user's alone: no other user of the host gets to it."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from controller.guests.users import machine_uid, vrc_uid
from controller.sessions.sockets import SessionSockets

pytestmark = pytest.mark.root

CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('connected')"
NOBODY = 65534


@pytest.fixture
def directory() -> Iterator[Path]:
    """With a folder for each of two routers; whoever knows a name in it may look it up."""
    with tempfile.TemporaryDirectory(dir="/run", prefix="sp-sockets-") as name:
        Path(name).chmod(0o711)
        for vrf_id in (1, 2):
            Path(name, str(vrf_id)).mkdir(mode=0o755)
        yield Path(name)


def unused(*_: object) -> NoReturn:
    """Of a socket that nobody speaks to."""
    raise AssertionError


async def connects(uid: int, path: Path) -> bool:
    """Whether a user gets through to a socket."""
    user = ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups")
    command = (*user, "/usr/bin/python3", "-S", "-c", CONNECT, str(path))
    pipe = asyncio.subprocess.PIPE
    one = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    said, complaint = await one.communicate()
    assert said or b"PermissionError" in complaint, complaint
    return said == b"connected\n"


async def test_only_the_guest_s_own_user_connects(directory: Path) -> None:
    sockets = SessionSockets(directory, directory / "session.sock", unused, unused)
    try:
        for user, other in ((vrc_uid(1), vrc_uid(2)), (machine_uid(1), vrc_uid(1))):
            sockets.open(1, user)
            path = directory / "1" / "session.sock"
            found = path.stat()
            assert (found.st_mode & 0o777, found.st_uid) == (0o600, user)
            assert (path.parent.stat().st_uid, path.parent.stat().st_mode & 0o027) == (os.geteuid(), 0)
            assert await connects(user, path)
            for stranger in (other, NOBODY):
                assert not await connects(stranger, path)
    finally:
        sockets.close_all()
