"""Asks for an interface's MAC address again and again and notes how long each answer takes; a program of its own.

arping.py INTERFACE OWN_ADDRESS WANTED_ADDRESS: until SIGTERM, then prints one JSON object. Runs at real-time priority
where it may, so that it measures the router and not how busy the machine is with itself.
"""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time

_INTERVAL_S = 0.02
_LOST_AFTER_S = 2.0
_ARP = 0x0806
_REPLY = struct.Struct("!6s6sHHHBBH6s4s6s4s")


def ask(interface: str, own: str, wanted: str) -> list[float]:
    """Return the seconds each request waited for its answer, infinite where none came."""
    running = True

    def stop(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    waits: list[float] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ARP)) as link:
        link.bind((interface, _ARP))
        mac = link.getsockname()[4]
        addresses = socket.inet_aton(own), socket.inet_aton(wanted)
        question = request(mac, *addresses)
        while running:
            sent = time.monotonic()
            link.send(question)
            waits.append(_await(link, addresses[1], sent + _LOST_AFTER_S) - sent)
            time.sleep(max(0.0, sent + _INTERVAL_S - time.monotonic()))
    return waits


def _await(link: socket.socket, wanted: bytes, deadline: float) -> float:
    """Return when the answer came."""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([link], [], [], left)[0]:
            frame, (_, _, direction, *_) = link.recvfrom(128)
            now = time.monotonic()
            if direction != socket.PACKET_OUTGOING and answers(frame, wanted):
                return now
    return float("inf")


def request(mac: bytes, own: bytes, wanted: bytes) -> bytes:
    """Return the frame that asks who has an IPv4 address (RFC 826)."""
    return _REPLY.pack(b"\xff" * 6, mac, _ARP, 1, 0x0800, 6, 4, 1, mac, own, bytes(6), wanted)


def answers(frame: bytes, wanted: bytes) -> bool:
    """Tell whether a frame says who has an IPv4 address."""
    fields = _REPLY.unpack_from(frame) if len(frame) >= _REPLY.size else None
    return fields is not None and fields[7] == 2 and fields[9] == wanted


def main() -> None:
    """Ask until told to stop, then say how it was."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    waits = sorted(ask(*sys.argv[1:4]))
    answered = [wait for wait in waits if wait != float("inf")]
    p99 = waits[min(len(waits) - 1, len(waits) * 99 // 100)]
    print(
        json.dumps(
            {
                "asked": len(waits),
                "unanswered": len(waits) - len(answered),
                "p99_ms": round(p99 * 1000, 2) if p99 != float("inf") else None,
                "worst_ms": round(answered[-1] * 1000, 2) if answered else None,
            }
        )
    )


if __name__ == "__main__":
    main()
