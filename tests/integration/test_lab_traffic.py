"""The lab's generator and receiver over a wire: what is sent arrives once, in order, with its time; no noise does."""

import signal
import socket
import subprocess
import sys
import time
from array import array
from ipaddress import ip_address
from pathlib import Path

import pytest

from lab import traffic
from lab.commands import wait_for
from lab.namespaces import in_namespace, namespace, sh

pytestmark = pytest.mark.root


def enter(name: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", name, sys.executable, traffic.__file__, *words]


def test_both_families_arrive_with_their_times_and_noise_does_not(tmp_path: Path) -> None:
    prefixes, came = tmp_path / "prefixes", tmp_path / "came"
    prefixes.write_text("198.51.100.0/24\n2001:db8:7::/64\n")
    came.write_bytes(bytes(8))
    with namespace() as near, namespace() as far:
        sh("ip", "-n", near, "link", "add", "near0", "type", "veth", "peer", "name", "far0", "netns", far)
        for place, end in ((near, "near0"), (far, "far0")):
            sh("ip", "-n", place, "link", "set", end, "up")
        sh("ip", "-n", near, "address", "add", "192.0.2.1/24", "dev", "near0")
        sh("ip", "-n", far, "address", "add", "192.0.2.2/24", "dev", "far0")
        receiver = subprocess.Popen(enter(far, "receive", "1000", str(tmp_path / "in"), str(came), "far0"))
        sockets = Path(f"/proc/{receiver.pid}/net/packet")
        wait_for("the receiver", lambda: len(sockets.read_text().splitlines()) > 1, 30, 0.01)
        sh("ip", "netns", "exec", near, "ping", "-q", "-c", "3", "-i", "0.01", "192.0.2.2")  # noise
        words = ("1000", "near0", "02:00:00:00:00:02", str(tmp_path / "out"), str(came), str(prefixes), "8")
        begun = time.monotonic_ns()
        sender = subprocess.Popen(enter(near, "send", *words))
        wait_for("200 packets", lambda: int.from_bytes(came.read_bytes(), sys.byteorder) >= 200, 30, 0.01)
        sender.send_signal(signal.SIGTERM)
        assert sender.wait(10) == 0
        sent = array("q", (tmp_path / "out").read_bytes())
        wait_for("the rest", lambda: int.from_bytes(came.read_bytes(), sys.byteorder) == len(sent), 30, 0.01)
        receiver.send_signal(signal.SIGTERM)
        assert receiver.wait(10) == 0
    seen = array("q", (tmp_path / "in").read_bytes())
    assert list(seen[::3]) == list(range(len(sent)))  # each once, in order, and nothing else
    assert set(seen[2::3]) == {0}
    late = [arrived - left for left, arrived in zip(sent, seen[1::3], strict=True)]
    assert sent[0] > begun
    assert min(late) > -1_000_000  # two clocks, read one after the other
    assert max(late) < 1_000_000_000


def test_the_receiver_takes_both_families_and_no_other_packet() -> None:
    def ends() -> tuple[socket.socket, socket.socket]:
        out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        out.bind(("near0", 0))
        return out, traffic.listener()

    # Of each family: another type, protocol, port and payload.
    wrong = {
        "198.51.100.1": [(13, 0xAB), (23, 6), (37, 1), (42, 0)],
        "2001:db8::1": [(13, 1), (20, 6), (57, 1), (62, 0)],
    }
    with namespace() as place:
        sh("ip", "-n", place, "link", "add", "near0", "type", "veth", "peer", "name", "far0")
        for end in ("near0", "far0"):
            sh("ip", "-n", place, "link", "set", end, "up")
        out, listener = in_namespace(place, ends)
        with out, listener:
            listener.settimeout(10)
            made = [traffic.Flow.towards(ip_address(to), 0, bytes(6), b"\x02" + bytes(5)).frame(7) for to in wrong]
            for frame, changes in zip(made, wrong.values(), strict=True):
                for octet, value in changes:
                    noise = bytearray(frame)
                    assert noise[octet] != value
                    noise[octet] = value
                    out.send(noise)
                out.send(frame)
            taken = [listener.recv(256) for _ in range(2 * len(made))]  # each as it leaves and as it arrives
    assert sorted(taken) == sorted(made * 2)
