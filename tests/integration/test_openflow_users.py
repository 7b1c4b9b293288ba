"""On plain TCP only processes of root, or of the controller's user, are switches of this host."""

import asyncio
import struct

import pytest

from controller.planes.openflow.server import OpenFlowListener

pytestmark = pytest.mark.root

NOBODY = 65534
HELLO = struct.pack("!BBHI", 4, 0, 8, 1)
SPEAK = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(s.recv(99))"


async def answer(listener: OpenFlowListener, uid: int) -> bytes:
    """What a process of a user is told by the listener first."""
    user = ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups")
    command = (*user, "/usr/bin/python3", "-S", "-c", SPEAK, str(listener.port))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    said, complaint = await process.communicate()
    return said or complaint


async def test_a_process_of_another_user_is_no_switch(caplog: pytest.LogCaptureFixture) -> None:
    listener = OpenFlowListener(port=0)
    await listener.start()
    try:
        assert repr(HELLO).encode() in await answer(listener, 0)
        assert repr(HELLO).encode() not in await answer(listener, NOBODY)
        assert listener.refused["untrusted_user"] == 1
        assert f"a process of user {NOBODY} of this host; switches here are root's" in caplog.text
    finally:
        await listener.close()
