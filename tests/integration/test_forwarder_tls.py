"""vr-forwarder on TCP with TLS, its controller in another network namespace: only a controller gets through."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from controller.planes.p4runtime.channel import TlsFiles
from lab.namespaces import namespace, sh
from lab.planes.forwarder import PROGRAM
from tests.unit.p4runtime.test_p4runtime_tls import Pair, issue, pem

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
_OWN_BPFFS = ("unshare", "--mount", "sh", "-c", 'mount -n -t bpf bpf /sys/fs/bpf && exec "$@"', "sh")
_START_S, _RENEWAL_S = 60, 60
_HERE, _THERE = "192.0.2.1", "192.0.2.2"
BOTH_ENDS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)


def files(directory: Path, name: str, pair: Pair, authority: Pair) -> TlsFiles:
    """Write a certificate, its key and the authority's certificate."""
    found = TlsFiles(*(directory / f"{name}-{part}.pem" for part in ("ca", "cert", "key")))
    key, certificate = pem(pair)
    for path, content in ((found.ca, pem(authority)[1]), (found.cert, certificate), (found.key, key)):
        path.with_suffix(".new").write_bytes(content)
        path.with_suffix(".new").replace(path)
    return found


@contextlib.contextmanager
def cabled() -> Iterator[tuple[str, str]]:
    """Make namespaces for the forwarder and for the controller, with a cable between them."""
    with namespace() as here, namespace() as there:
        sh("ip", "-n", here, "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", there)
        for name, address in ((here, _HERE), (there, _THERE)):
            sh("ip", "-n", name, "address", "add", f"{address}/24", "dev", "v0")
            sh("ip", "-n", name, "link", "set", "v0", "up")
        yield here, there


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    with cabled() as names:
        yield names


@contextlib.contextmanager
def serving(name: str, directory: Path, tls: TlsFiles) -> Iterator[str]:
    """Run one without ports in a namespace; yields its address."""
    address = f"{_HERE}:9559"
    shown = ("--tls-cert", str(tls.cert), "--tls-key", str(tls.key), "--tls-ca", str(tls.ca))
    own = ("--state", str(directory / "state"), "--listen", address, *shown)
    command = ("ip", "netns", "exec", name, *_OWN_BPFFS, str(PROGRAM), *own)
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


def news(name: str, address: str, tls: TlsFiles | None = None) -> str:
    """What a controller in a namespace is told first of the device."""
    shown = () if tls is None else (tls.ca, tls.cert, tls.key)
    program = Path(__file__).with_name("p4rt_news.py")
    command = ("ip", "netns", "exec", name, sys.executable, str(program), address, *map(str, shown))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.check_output(command, env=environment, text=True, timeout=120).strip()


def test_only_a_controller_gets_through(tmp_path: Path, namespaces: tuple[str, str]) -> None:
    here, there = namespaces
    authority = issue("test-ca")
    controller = files(tmp_path, "controller", issue("vr-controller", authority, CLIENT), authority)
    others = {
        "another authority's": issue("vr-controller", issue("other-ca"), CLIENT),
        "a switch's": issue("edge", authority, CLIENT),
        "not for clients": issue("vr-controller", authority, BOTH_ENDS[:1]),
    }
    shown = files(tmp_path, "edge", issue("edge", authority, BOTH_ENDS), authority)
    with serving(here, tmp_path, shown) as address:
        assert news(there, address, controller) == "connected"
        for what, pair in others.items():
            assert "not reachable" in news(there, address, files(tmp_path, "other", pair, authority)), what
        assert "vr-forwarder needs TLS on TCP" in news(there, address)
        assert news(there, address, controller) == "connected"


def test_renewed_certificates_are_taken_without_a_restart(tmp_path: Path, namespaces: tuple[str, str]) -> None:
    here, there = namespaces
    old, new = issue("old-ca"), issue("new-ca")
    before = files(tmp_path, "before", issue("vr-controller", old, CLIENT), old)
    after = files(tmp_path, "after", issue("vr-controller", new, CLIENT), new)
    shown = files(tmp_path, "edge", issue("edge", old, BOTH_ENDS), old)
    with serving(here, tmp_path, shown) as address:
        assert news(there, address, before) == "connected"
        assert "not reachable" in news(there, address, after)
        files(tmp_path, "edge", issue("edge", new, BOTH_ENDS), new)
        limit_s = time.monotonic() + _RENEWAL_S
        while news(there, address, after) != "connected":
            assert time.monotonic() < limit_s
        assert "not reachable" in news(there, address, before)
