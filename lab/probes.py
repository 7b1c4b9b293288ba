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

from mininet.node import Node

from lab.commands import NetworkError, ended, output, wait_for
from lab.network import inside
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

    def stop(self) -> Stream:
        """End it and return what it saw."""
        self._process.send_signal(signal.SIGINT)
        ended("ping", self._process, 60)
        with self._shown as shown:
            shown.seek(0)
            return Stream.read(shown.read(), self._interval_s)


def ping(host: Node, address: str, count: int = 3) -> int:
    """Return how many of ``count`` pings were answered."""
    # All at once: after the last one ping waits for one interval only, if any was answered, whatever -W says.
    paced = ["-c", str(count), "-l", str(count), "-i", "5", "-W", "1"]
    return answered(output(inside(host, ["ping", "-n", "-D", *paced, address])))


def traceroute(host: Node, address: str) -> list[str]:
    """Return the addresses that answered, hop by hop."""
    family = "-6" if ":" in address else "-4"
    return hops(output(inside(host, ["traceroute", family, "-n", "-w", "5", "-m", "12", address]), 60))


def iperf(client: Node, server: Node, address: str, seconds: int = 3) -> tuple[int, float]:
    """Return what TCP brought from client to server: octets, and Mbit/s."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    listener = subprocess.Popen(inside(server, ["iperf3", "-s", "-1"]), **quiet)
    try:
        wait_for("iperf3 listening", lambda: ":5201" in output(inside(server, ["ss", "-ltn"])), 20, 0.05)
        text = output(inside(client, ["iperf3", "-c", address, "-t", str(seconds), "-J"]), seconds + 20)
    finally:
        listener.terminate()
        ended("iperf3 of the server", listener)
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
    output(inside(sender, [sys.executable, "-c", _SPREAD, address, str(flows)]))
    expected = sum(before.values()) + flows
    wait_for(
        f"{flows} TCP flows to {address} arriving",
        lambda: sum(received(receiver, name) for name in interfaces) >= expected,
        timeout_s=20,
        every_s=0.1,
    )
    return {name: received(receiver, name) - before[name] for name in interfaces}
