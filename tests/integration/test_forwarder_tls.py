"""vr-forwarder on TCP with TLS: only a controller that its authority has signed is spoken to, and it shows itself."""

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from openflow_net import Recorder

from controller.model import PlaneConfig, PlaneKind
from controller.planes.p4runtime.channel import Timing, TlsFiles
from controller.planes.p4runtime.plane import P4RuntimePlane
from lab.planes.forwarder import PROGRAM
from tests.unit.p4runtime.test_p4runtime_tls import Pair, issue, pem

pytestmark = pytest.mark.root

_OWN_BPFFS = ("unshare", "--mount", "sh", "-c", 'mount -n -t bpf bpf /sys/fs/bpf && exec "$@"', "sh")
_START_S = 60


def files(directory: Path, name: str, pair: Pair, authority: Pair) -> TlsFiles:
    """Write a certificate, its key and the authority's certificate."""
    found = TlsFiles(*(directory / f"{name}-{part}.pem" for part in ("ca", "cert", "key")))
    key, certificate = pem(pair)
    for path, content in ((found.ca, pem(authority)[1]), (found.cert, certificate), (found.key, key)):
        path.write_bytes(content)
    return found


@contextlib.contextmanager
def serving(directory: Path, tls: TlsFiles) -> Iterator[str]:
    """Run one without ports on loopback; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    shown = ("--tls-cert", str(tls.cert), "--tls-key", str(tls.key), "--tls-ca", str(tls.ca))
    command = (*_OWN_BPFFS, str(PROGRAM), "--state", str(directory / "state"), "--listen", address, *shown)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(directory / "notify.sock"))
        heard.settimeout(_START_S)
        process = subprocess.Popen(command, env=os.environ | {"NOTIFY_SOCKET": str(directory / "notify.sock")})
        try:
            assert heard.recv(100).startswith(b"READY=1")
            yield address
        finally:
            process.kill()
            process.wait()


async def news(address: str, tls: TlsFiles | None) -> Recorder:
    """What a plane `edge` tells first of the device."""
    config = PlaneConfig("edge", PlaneKind.P4RUNTIME, address=address, device_id=1)
    plane, heard = P4RuntimePlane(config, tls, timing=Timing(retry_s=0.02)), Recorder()
    await plane.start(heard)
    try:
        async with asyncio.timeout(_START_S):
            await heard.until(lambda: heard.connects or heard.disconnects)
    finally:
        await plane.close()
    return heard


async def test_both_sides_show_who_they_are(tmp_path: Path) -> None:
    authority = issue("test-ca")
    controller = files(tmp_path, "controller", issue("controller", authority), authority)
    stranger = files(tmp_path, "stranger", issue("stranger", issue("other-ca")), authority)
    with serving(tmp_path, files(tmp_path, "edge", issue("edge", authority), authority)) as address:
        assert (await news(address, controller)).connects == 1
        for wrong in (stranger, None):
            heard = await news(address, wrong)
            assert not heard.connects
            assert "not reachable" in heard.disconnects[0]
