"""Measurements from Mininet hosts: ping, traceroute, iperf3, captures, and how flows spread over links."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mininet.node import Node

from lab.commands import NetworkError, ended, output, wait_for
from lab.network import FrrHost, inside
from lab.readings import Stream, answered, hops

_CAPTURED_S = 20.0
"""How late tcpdump may tell of a packet on a busy machine."""

_SPREAD = """
import socket, sys, time
address, flows = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
for port in range(20000, 20000 + flows):
    with socket.socket(family, socket.SOCK_STREAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sender.bind(("", port))
        sender.setblocking(False)
        sender.connect_ex((address, 9))
    time.sleep(0.002)  # a BMv2 keeps 64 packets for a port, and loses more at once
"""


class RunningPing:
    """A ping that goes on until it is stopped."""

    def __init__(self, host: Node, address: str, interval_s: float = 0.02) -> None:
        self._interval_s = interval_s
        command = ["ping", "-D", "-n", "-i", str(interval_s), address]
        self._shown = tempfile.TemporaryFile("w+")  # noqa: SIM115 - a pipe would be full, and stop it, after 800 answers
        self._process = subprocess.Popen(inside(host, command), stdout=self._shown)
        self._title = f"{host.name}: ping {address}"

    def stop(self) -> Stream:
        """End it and return what it saw."""
        self._process.send_signal(signal.SIGINT)
        ended(self._title, self._process, 60)
        with self._shown as shown:
            shown.seek(0)
            return Stream.read(shown.read(), self._interval_s)


def ping(host: Node, address: str, count: int = 3) -> int:
    """Return how many of ``count`` pings were answered."""
    # All at once: after the last one ping waits for one interval only, if any was answered, whatever -W says.
    paced = ["-c", str(count), "-l", str(count), "-i", "5", "-W", "1"]
    return answered(output(inside(host, ["ping", "-n", "-D", *paced, address]), where=host.name))


def traceroute(host: Node, address: str) -> list[str]:
    """Return the addresses that answered, hop by hop."""
    family = "-6" if ":" in address else "-4"
    command = ["traceroute", family, "-n", "-w", "5", "-m", "12", address]
    return hops(output(inside(host, command), 60, where=host.name))


def iperf(client: Node, server: Node, address: str, seconds: int = 3) -> tuple[int, float]:
    """Return what TCP brought from client to server: octets, and Mbit/s."""
    with tempfile.TemporaryFile() as said:
        listener = subprocess.Popen(inside(server, ["iperf3", "-s", "-1"]), stdout=said, stderr=said)

        def listens() -> bool:
            if listener.poll() is not None:
                words = os.pread(said.fileno(), 1 << 16, 0).decode(errors="replace").strip()
                raise NetworkError(f"{server.name}: iperf3 -s ended: {words or listener.returncode}")
            return ":5201" in output(inside(server, ["ss", "-ltn"]), where=server.name)

        try:
            wait_for(f"{server.name}: iperf3 -s listening", listens, 20, 0.05)
            command = ["iperf3", "-c", address, "-t", str(seconds), "-J"]
            text = output(inside(client, command), seconds + 20, where=client.name)
        finally:
            listener.terminate()
            ended(f"{server.name}: iperf3 -s", listener)
    found = json.loads(text or "{}")
    if "error" in found or "end" not in found:
        raise NetworkError(f"iperf3 to {address}: {found.get('error', 'no result')}")
    received = found["end"]["sum_received"]
    return int(received["bytes"]), float(received["bits_per_second"]) / 1e6


@contextmanager
def capture(host: Node, expression: str) -> Iterator[Callable[[int], int]]:
    """Capture on all interfaces of a host; the value tells how many packets matched, once it has waited for some."""
    # Of a whole frame each, its buffer would hold eight packets, and lose the others that come at once.
    command = ["tcpdump", "-n", "-l", "-s", "128", "--immediate-mode", "-i", "any", expression]
    with tempfile.TemporaryFile() as shown, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(inside(host, command), stdout=shown, stderr=said)

        def listens() -> bool:
            text = os.pread(said.fileno(), 1 << 16, 0).decode(errors="replace")
            if process.poll() is not None:
                raise NetworkError(f"{host.name}: tcpdump {expression!r} did not start: {text.strip()}")
            return "listening on" in text

        def matched(expected: int) -> int:
            deadline = time.monotonic() + _CAPTURED_S
            while (seen := os.pread(shown.fileno(), 1 << 20, 0).count(b"\n")) < expected:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)
            return seen

        try:
            wait_for(f"{host.name}: tcpdump {expression!r} listening", listens, _CAPTURED_S, 0.02)
            yield matched
        finally:
            process.send_signal(signal.SIGINT)
            ended(f"{host.name}: tcpdump", process, 60)


def received(host: Node, interface: str) -> int:
    """Return how many packets an interface received."""
    (link,) = json.loads(output(inside(host, ["ip", "-j", "-s", "link", "show", "dev", interface])))
    return int(link["stats64"]["rx"]["packets"])


def spread(sender: Node, address: str, receiver: Node, interfaces: Sequence[str], flows: int) -> dict[str, int]:
    """Open TCP flows and return how many packets more each of the receiver's interfaces has got.

    TCP, because Open vSwitch's default group selection leaves UDP ports out of its hash.
    """
    before = {name: received(receiver, name) for name in interfaces}
    output(inside(sender, [sys.executable, "-c", _SPREAD, address, str(flows)]), where=sender.name)

    def more() -> dict[str, int]:
        return {name: received(receiver, name) - before[name] for name in interfaces}

    def seen() -> tuple[str, Sequence[Path]]:
        shown = ", ".join(f"{name} {count}" for name, count in more().items())
        return f"packets that {receiver.name} has got: {shown}", receiver.logs() if isinstance(
            receiver, FrrHost
        ) else []

    what = f"{flows} TCP flows from {sender.name} to {address} arriving at {receiver.name}"
    wait_for(what, lambda: sum(more().values()) >= flows, 20, 0.1, seen=seen)
    return more()
