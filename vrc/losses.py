"""Frames that did not pass between the controller and the guest's kernel, and what of that the controller is to hear.

    TAP ◄── write ── relay ◄── controller     refused by the TAP, counted here; dropped behind it, by the kernel
    TAP ──── read ─► relay ──► controller     not read in time, counted by the kernel; all else here

What the kernel counts is looked at now and then, and then told together with the rest.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

OF_THE_GUEST = 0
"""In the place of an interface: the guest sent it."""

DEVICES = "/proc/net/dev"

_HEAD_LINES, _RX_DROPPED, _TX_DROPPED = 2, 3, 11  # of /proc/net/dev
# What the kernel counts as rx_dropped, too: of what it is asked to take and refuses it says so.
_COUNTED_TWICE = ("interface_down", "refused")


def kernel_drops(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, rx_dropped and tx_dropped of each device of /proc/net/dev. What is written to a TAP it receives."""
    for line in text.splitlines()[_HEAD_LINES:]:
        name, _, numbers = line.partition(":")
        columns = numbers.split()
        yield name.strip(), int(columns[_RX_DROPPED]), int(columns[_TX_DROPPED])


def read_kernel_drops() -> str:
    """Read the counters of all devices of this network namespace; nothing where this process has no such /proc."""
    try:
        with open(DEVICES, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


class FrameLosses:
    """Losses by router interface (or `OF_THE_GUEST`) and reason (FrameLoss.Reason); ``due`` are to be told, and
    whoever tells them takes them out."""

    def __init__(self) -> None:
        self.due: Counter[tuple[int, str]] = Counter()
        self._fresh: Counter[tuple[int, str]] = Counter()
        self._seen: dict[str, tuple[int, int]] = {}  # rx_dropped and tx_dropped, by the name of a declared interface

    def add(self, interface_id: int, reason: str, frames: int = 1) -> None:
        """Count what was lost."""
        self._fresh[interface_id, reason] += frames

    def look(self, declared: Mapping[str, int], text: str) -> bool:
        """Take in what the kernel has counted since the last look (``text`` of /proc/net/dev) of the ``declared``
        interfaces, ids by name; return whether there is anything to be told.

        What a kernel has counted of an interface before the first look belongs to the VRC before this one.
        """
        seen: dict[str, tuple[int, int]] = {}
        for name, received, sent in kernel_drops(text):
            if (interface_id := declared.get(name)) is None:
                continue
            before = self._seen.get(name, (received, sent))
            if received < before[0] or sent < before[1]:  # another one of that name
                before = (0, 0)
            refused = sum(self._fresh[interface_id, reason] for reason in _COUNTED_TWICE)
            self.add(interface_id, "kernel", max(0, received - before[0] - refused))
            self.add(OF_THE_GUEST, "not_read", sent - before[1])
            seen[name] = received, sent
        self._seen = seen
        self.due += self._fresh  # leaves zeros out
        self._fresh.clear()
        return bool(self.due)
