"""What root of a guest does in it, one attack at a time: python3 - NAME SECONDS COUNTED < guest_root.py.

COUNTED is a descriptor of eventfd(2), to which each adds what it did: there it stays, whoever the kernel ends. It
needs nothing but the standard library, as all that a guest has for sure.
"""

import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_POPULATE, MAP_PRIVATE, mmap

_CHUNK_MIB = 16
LINES_AT_ONCE = 50
_LINE = b"logmsg informational " + b"x" * 400 + b"\0"
_ZEBRA = "/run/frr/zebra.vty"
_ANSWERED = b"\0\0\0"  # and one octet of the outcome: how a vty ends an answer (FRR, lib/vty.c)

Count = Callable[[int], None]


def fork_bomb(until: float, count: Count) -> None:
    """Fork whenever there may be one more process; half of those that may not end, and others take their places."""
    first = os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while time.monotonic() < until:
        try:
            if os.fork():
                count(1)
            else:
                random.seed()
        except OSError:
            if os.getpid() != first and random.random() < 0.5:
                os._exit(0)
    if os.getpid() != first:
        os._exit(0)


def memory_bomb(until: float, count: Count) -> None:
    """Take memory, MiB by MiB, until the kernel ends who has it, and again."""
    while time.monotonic() < until:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        held = []
        while time.monotonic() < until:
            try:
                held.append(mmap(-1, _CHUNK_MIB << 20, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE))
                count(_CHUNK_MIB)
            except OSError:
                time.sleep(0.01)
        os._exit(0)


def log_flood(until: float, count: Count) -> None:
    """Have zebra log lines, as whoever took it over has it."""
    with socket.socket(socket.AF_UNIX) as vty:
        vty.connect(_ZEBRA)
        vty.sendall(b"enable\0")
        awaited, answer = 1, b""
        while time.monotonic() < until:
            vty.sendall(_LINE * LINES_AT_ONCE)
            awaited += LINES_AT_ONCE
            while awaited:
                answer += vty.recv(1 << 16)
                while (end := answer.find(_ANSWERED)) >= 0 and len(answer) > end + len(_ANSWERED):
                    answer, awaited = answer[end + len(_ANSWERED) + 1 :], awaited - 1
            count(LINES_AT_ONCE)


COUNTED = {"fork-bomb": "processes", "memory-bomb": "MiB", "log-flood": "lines"}
"""What each counts."""
OF_ROOT = {"fork-bomb": fork_bomb, "memory-bomb": memory_bomb, "log-flood": log_flood}


def main() -> None:
    """Do one of them for so long."""
    name, seconds, counted = sys.argv[1:]
    OF_ROOT[name](time.monotonic() + float(seconds), lambda number: os.eventfd_write(int(counted), number))


if __name__ == "__main__":
    main()
