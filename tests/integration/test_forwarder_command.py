"""What an operator of vr-forwarder sees: status, dump, metrics, and one line where something is wrong."""

import contextlib
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from device_net import device_net
from openflow_net import VRF, via

from controller.planes.base import LOCAL
from lab.planes.forwarder import PROGRAM
from lab.private.forwarder import PrivateForwarder
from tests.unit.p4runtime.test_p4runtime_tls import issue, pem

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
MANUAL = ROOT / "docs" / "forwarder.md"
EMPTY = "/dev/null"


@pytest.fixture(scope="module")
def forwarder() -> Iterator[PrivateForwarder]:
    with PrivateForwarder() as found:
        yield found


def http(path: Path, what: str) -> tuple[str, str]:
    """Return the head and the body of what is served at a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.connect(str(path))
        asked.sendall(f"GET {what} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _, body = b"".join(iter(lambda: asked.recv(1 << 16), b"")).decode().partition("\r\n\r\n")
    return head, body


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run vr-forwarder where the bpffs that it may mount is gone with it."""
    command = ("unshare", "--mount", str(PROGRAM), *words)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


NOBODY = 65534
REFUSES = "the kernel's verifier refuses the XDP program: "
ITS_ALL = "it needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"


@pytest.fixture
def state() -> Iterator[Path]:
    """A state directory of nobody's, where nobody may enter."""
    with tempfile.TemporaryDirectory(prefix="sp-state-") as name:
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)


def run_with(state: Path, *capabilities: str) -> "subprocess.CompletedProcess[str]":
    """Run the daemon as nobody with these capabilities, in a network and with a bpffs that are gone with it."""
    only = ",".join(("-all", *(f"+{name}" for name in capabilities)))
    sets = (f"--{which}={only}" for which in ("bounding-set", "inh-caps", "ambient-caps"))
    user = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *sets)
    mount = ("sh", "-c", 'mount -t bpf -o mode=0777 bpf /sys/fs/bpf && exec "$@"', "sh")
    places = ("--state", str(state), "--listen", f"unix:{state}/p4rt.sock")
    command = ("unshare", "--mount", "--net", *mount, *user, str(PROGRAM), "--port", "1=lo", *places)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_watchdog_is_told_while_it_serves() -> None:
    mount = ("sh", "-c", 'ip link set lo up && mount -t bpf bpf /sys/fs/bpf && exec "$@"', "sh")
    unix = (socket.AF_UNIX, socket.SOCK_DGRAM)
    with tempfile.TemporaryDirectory(prefix="sp-state-") as state, socket.socket(*unix) as heard:
        heard.bind(f"{state}/notify")
        heard.settimeout(60)
        told = os.environ | {"NOTIFY_SOCKET": f"{state}/notify", "WATCHDOG_USEC": "300000"}
        command = ("unshare", "--mount", "--net", *mount, str(PROGRAM), "--port", "1=lo", "--state", f"{state}/own")
        with subprocess.Popen(command, env=told) as process:
            for _ in range(3):
                while (said := heard.recv(200)).startswith(b"STATUS="):
                    pass  # on a busy host it may be late
                assert said == b"READY=1\nWATCHDOG=1\nSTATUS=1 of 1 ports up, no controller is primary"
            process.terminate()
            while (said := heard.recv(200)).startswith((b"READY=1", b"STATUS=")):
                pass
            assert said == b"STOPPING=1"
        assert process.returncode == 0


def test_a_verifier_that_refuses_is_told_with_its_whole_log(state: Path) -> None:
    """Without CAP_PERFMON it does not take the program, as it fears for the kernel's addresses."""
    done = run_with(state, "bpf", "net_admin")
    log = state / "verifier.log"
    said = log.read_text().splitlines()
    assert said[0].endswith("-- BEGIN PROG LOAD LOG --")
    assert said[-1] == "-- END PROG LOAD LOG --"
    verdict = said[-3]
    assert done.returncode == 1
    assert done.stderr == f"vr-forwarder: {REFUSES}{verdict}; {ITS_ALL}; its whole log is in {log}\n"


def test_a_log_that_cannot_be_written_is_told_too(state: Path) -> None:
    (state / "verifier.log").mkdir()
    done = run_with(state, "bpf", "net_admin")
    assert done.stderr.endswith(f"; its log could not be written to {state}/verifier.log\n")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ((), f"the kernel does not load the XDP program: Operation not permitted; {ITS_ALL}"),
        (("net_admin",), f"the kernel does not load the XDP program: Operation not permitted; {ITS_ALL}"),
        (
            ("bpf", "net_admin", "perfmon"),
            "cannot open a packet socket: Operation not permitted; it needs CAP_NET_RAW",
        ),
    ],
)
def test_privileges_are_spoken_of_where_they_lack(state: Path, capabilities: tuple[str, ...], said: str) -> None:
    done = run_with(state, *capabilities)
    assert done.returncode == 1
    assert done.stderr.startswith(f"vr-forwarder: {said}")
    assert not (state / "verifier.log").exists()


def test_status_shows_ports_and_that_nobody_has_set_the_pipeline(forwarder: PrivateForwarder) -> None:
    text = forwarder.run("status").stdout
    assert "pipeline   not set" in text
    lines = takewhile(lambda line: line.split()[:1] != ["CORE"], text.splitlines())  # cores are as busy as they are
    numbered = [line.split() for line in lines if line.startswith(("  1 ", "  2 "))]
    assert numbered[:2] == [["1", "p1", "up", "native"], ["2", "p2", "up", "native"]]
    links = [[number, f"p{number}", "unknown", "-", "-", "none", "0"] for number in ("1", "2")]
    assert numbered[2:] == links
    status = forwarder.show("status")
    assert [(port["number"], port["interface"], port["up"], port["problem"]) for port in status["ports"]] == [
        (1, "p1", True, ""),
        (2, "p2", True, ""),
    ]
    assert status["pid"] == forwarder.pid


def test_dump_says_that_there_are_no_tables_yet(forwarder: PrivateForwarder) -> None:
    done = forwarder.run("dump")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "vr-forwarder: no controller has set the pipeline yet, so there are no tables\n"


def test_a_second_one_is_refused_by_name(forwarder: PrivateForwarder) -> None:
    done = forwarder.run("run", "--port", "1=p1")
    assert done.returncode == 2
    assert done.stderr.startswith("vr-forwarder: another vr-forwarder runs with the state directory /")
    assert done.stderr.count("\n") == 1


async def test_dump_shows_entries_as_people_write_them() -> None:
    async with device_net() as net:
        await net.install({"10.9.0.0/16": via(2), "2001:db8::/32": LOCAL})
        device = net.device
        lines = device.run("dump").stdout.splitlines()
        assert f"ipv4_route vrf_id={VRF} ipv4_dst=10.9.0.0/16 -> set_nexthop nexthop_id=2" in lines
        assert f"ipv6_route vrf_id={VRF} ipv6_dst=2001:db8::/32 -> punt_local" in lines
        (nexthop,) = [line for line in device.run("dump", "nexthop").stdout.splitlines() if "nexthop_id=2" in line]
        assert nexthop.endswith(f"neighbor_mac={device.hosts[1].mac}")
        routes = device.show("dump", "ipv4_route")
        assert routes == [
            {
                "table": "ipv4_route",
                "match": {"vrf_id": str(VRF), "ipv4_dst": "10.9.0.0/16"},
                "actions": [{"name": "set_nexthop", "parameters": {"nexthop_id": "2"}}],
                "counter": None,
            }
        ]
        done = device.run("dump", "route")
        assert done.stderr.startswith("vr-forwarder: there is no table `route`; there are ")


async def test_metrics_follow_the_packets() -> None:
    async with device_net() as net:
        await net.install({"10.9.0.0/16": via(2)})
        net.send(1, net.packet(1, "10.9.0.1"))
        await net.received(2, b"data")
        head, body = http(net.device.state / "control.sock", "/metrics")
        assert "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8" in head
        assert body.endswith("# EOF\n")
        lines = body.splitlines()
        assert 'vr_forwarder_sent_packets_total{router_interface="2"} 1' in lines
        assert 'vr_forwarder_table_entries{table="ipv4_route"} 1' in lines
        assert "vr_forwarder_p4runtime_primary 1" in lines
        types = [line.split()[2:4] for line in lines if line.startswith("# TYPE")]
        names = {name + {"counter": "_total", "info": "_info"}.get(kind, "") for name, kind in types}
        assert len(types) == len(names), "each family once"
        assert set(re.findall(r"vr_forwarder_\w+", MANUAL.read_text())) <= names


def test_a_flood_of_the_metrics_does_not_blind_status(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.sock"
    with PrivateForwarder(options=("--metrics", f"unix:{metrics}")) as forwarder, contextlib.ExitStack() as stack:
        refused = 0
        while not refused:
            one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            one.connect(str(metrics))
            one.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                refused = one.recv(100).startswith(b"HTTP/1.0 503")
        done = forwarder.run("status")
        assert (done.returncode, done.stderr) == (0, "")
        _, body = http(forwarder.state / "control.sock", "/metrics")
        (counted,) = [
            line for line in body.splitlines() if line.startswith("vr_forwarder_p4runtime_metrics_refused_total ")
        ]
        assert int(counted.split()[1]) >= 1


def test_nobody_but_its_user_reaches_the_plane(forwarder: PrivateForwarder) -> None:
    assert stat.S_IMODE(forwarder.state.stat().st_mode) == 0o700
    for name in ("p4rt.sock", "control.sock"):
        assert stat.S_IMODE((forwarder.state / name).stat().st_mode) == 0o600
    assert forwarder.show("status")["listening"] == [f"unix:{forwarder.state}/p4rt.sock"]


@pytest.fixture
def instance() -> Iterator[str]:
    """Of a process that ends at once: what it pins to be found by the next one is nobody's."""
    name = "test-wrong"
    yield name
    shutil.rmtree(Path("/sys/fs/bpf", name), ignore_errors=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "1=nosuch0"), "nosuch0"),
        (("--config", "/nonexistent.toml"), "cannot read the configuration /nonexistent.toml"),
        (("--listen", "9559"), "write HOST:PORT, [IPV6]:PORT or unix:PATH"),
        (("--tls-cert", "/nonexistent"), "TLS needs a certificate, its key and the authority of the controllers"),
        (("--listen", "127.0.0.1:9559"), "cannot listen on 127.0.0.1:9559 without TLS, because whoever reaches it"),
        (
            ("--listen", "127.0.0.1:9559", "--tls-cert", EMPTY, "--tls-key", EMPTY, "--tls-ca", EMPTY),
            f"the TLS file {EMPTY} holds no certificate; it has to be PEM",
        ),
    ],
)
def test_what_is_wrong_is_one_line(words: tuple[str, ...], said: str, tmp_path: Path, instance: str) -> None:
    done = run("run", "--state", str(tmp_path / "state"), "--instance", instance, *words)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("vr-forwarder: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    own = issue("edge")
    key.write_bytes(pem(own)[0])
    certificate.write_bytes(pem(own)[1])
    told = ("--tls-cert", str(certificate), "--tls-key", str(key), "--tls-ca", str(certificate))
    assert run("check", *told).stderr == ""
    key.write_bytes(pem(issue("edge"))[0])
    done = run("check", *told)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"vr-forwarder: the key {key} is not of the certificate {certificate}; ")
    key.write_bytes(pem(own)[1])
    assert run("check", *told).stderr.startswith(
        f"vr-forwarder: the TLS file {key} holds no key without a passphrase; "
    )


def test_status_of_none_says_so(tmp_path: Path) -> None:
    done = run("status", "--state", str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"vr-forwarder: no vr-forwarder answers at {tmp_path}/control.sock")


def test_the_documented_configuration_is_right() -> None:
    assert run("check", "--config", str(ROOT / "docs" / "vr-forwarder.toml")).stderr == ""
