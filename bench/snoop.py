"""Counts the OpenFlow messages that the controller sends, as the switch sees them."""

import re
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

# All that programs the switch; what the controller sends besides (echo, packet-outs of the guests) is no cost of a
# failure. A flow inside a bundle is one ONFT_BUNDLE_ADD_MESSAGE.
_MESSAGE = re.compile(
    r"^(\S+ \S+): \w+_(FLOW_MOD|GROUP_MOD|METER_MOD|BARRIER_REQUEST|BUNDLE_ADD_MESSAGE|BUNDLE_CONTROL) "
)
_BARRIER = "BARRIER_REQUEST"


class Snoop:
    """`ovs-ofctl snoop` on a bridge, from its making until `stop`."""

    def __init__(self, bridge: str, out: Path) -> None:
        self._out = out
        with out.open("w") as file:
            argv = ["ovs-ofctl", "-O", "OpenFlow13", "--timestamp", "snoop", bridge]
            self._process = subprocess.Popen(argv, stdout=file, stderr=subprocess.STDOUT)

    @property
    def octets(self) -> int:
        """How much it has written; it grows while the controller sends."""
        return self._out.stat().st_size

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()

    def counts(self, down_s: float, recovered_s: float) -> dict[str, int | dict[str, int]]:
        """Return the messages from a link's failure until traffic flowed again, and those after; times since the
        epoch. Barriers are counted only in the first."""
        before: Counter[str] = Counter()
        after: Counter[str] = Counter()
        for line in self._out.read_text(errors="replace").splitlines():
            found = _MESSAGE.match(line)
            if found is None:
                continue
            when = datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()
            if when >= down_s - 0.001:
                (before if when <= recovered_s else after)[found[2].lower()] += 1
        return {
            "messages": sum(before.values()),
            "messages_after": sum(count for name, count in after.items() if name != _BARRIER.lower()),
            "sent": dict(before),
            "sent_after": dict(after),
        }
