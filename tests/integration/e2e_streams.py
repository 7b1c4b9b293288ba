"""Numbered UDP packets in one direction, and what of them arrived where, in order."""

import subprocess
from itertools import pairwise

from rig import Rig

from lab.namespaces import Host

PORT = 7000

_SEND = """
import socket, sys, time
name, address, interval_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
number, due = 0, time.monotonic()
while True:
    try:
        sender.sendto(f"{name} {number}".encode(), (address, 7000))
    except OSError:
        pass
    number, due = number + 1, max(due + interval_s, time.monotonic())
    time.sleep(max(0, due - time.monotonic()))
"""
_RECEIVE = """
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
receiver.bind(("", 7000))
while True:
    print(receiver.recv(100).decode(), flush=True)
"""
_PYTHON = ("/usr/bin/python3", "-S", "-c")


def send(rig: Rig, host: Host, name: str, address: str, interval_s: float = 0.002) -> "subprocess.Popen[str]":
    """Begin to send packets that carry a name and a number."""
    return rig.spawn(host, *_PYTHON, _SEND, name, address, str(interval_s))


class Received:
    """What arrives on a host from now on."""

    def __init__(self, rig: Rig, host: Host) -> None:
        self._path = rig.directory / f"received-{host.namespace}"
        with self._path.open("w") as output:
            rig.spawn(host, *_PYTHON, _RECEIVE, stdout=output)

    def packets(self) -> list[tuple[str, int]]:
        """Return the packets so far: sender's name and number, in the order of arrival."""
        with self._path.open() as file:
            lines = [line.split() for line in file if line.endswith("\n")]
        return [(name, int(number)) for name, number in lines]

    def count(self, name: str) -> int:
        """Return how many packets of a sender have arrived."""
        return sum(sender == name for sender, _ in self.packets())

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of a sender's packets."""
        return [number for sender, number in self.packets() if sender == name]

    def turns(self) -> list[str]:
        """Return the senders in the order in which they took over from each other."""
        names = [name for name, _ in self.packets()]
        return names[:1] + [later for earlier, later in pairwise(names) if earlier != later]
