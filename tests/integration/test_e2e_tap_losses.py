"""What is lost between a guest's VRC and its kernel is told, in both directions."""

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest
from rig import Rig, interface, tenant, until

pytestmark = pytest.mark.root

ROUTER = "red/r1"
PINGS = 20
TX_QUEUE = 1000
"""What a TAP holds until it is read (txqueuelen)."""
FLOOD = f"""
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range({3 * TX_QUEUE}):
    sender.sendto(b"", ("10.1.0.2", 9))
"""


class Net:
    """A router with one host."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.host = rig, rig.host(1, "10.1.0.2/24", "10.1.0.1")
        left = interface("left", self.host, "10.1.0.1/24")
        rig.apply(tenant("red", {self.host.link: ["untagged"]}, {"name": "r1", "interfaces": [left], "ip": ""}))
        rig.up(ROUTER)

    @contextlib.contextmanager
    def vrc_stopped(self) -> Iterator[None]:
        vrc = self.rig.process(ROUTER, "vrc.agent")
        os.kill(vrc, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(vrc, signal.SIGCONT)

    def dropped(self, reason: str) -> int:
        relayed: dict[str, int] = self.rig.show("counters", ROUTER)["relayed"]
        return relayed.get(f"vrc_drop_{reason}", 0)

    def lost_at_tap(self) -> int:
        rows = self.rig.show("top", "--once", "--interval", "0.5")["lost_punts"]
        at_tap = [row for row in rows if row["place"] == "tap"]
        assert all((row["interface"], row["punt_class"]) == ("left", "") for row in at_tap), at_tap
        return sum(row["packets"] for row in at_tap)


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with Rig() as rig:
        yield Net(rig)


async def test_what_a_tap_refuses_is_told_by_interface(net: Net) -> None:
    assert await net.host.ping("10.1.0.1", 1) == 1
    to_guest = net.rig.show("counters", ROUTER)["relayed"]["to_guest"]
    with net.vrc_stopped():
        # It hears of the interface and of the frames at once, and finds the interface down whatever it takes first.
        net.rig.ok("exec", ROUTER, "--", "ip", "link", "set", "left", "down")
        await net.host.run("ping", "-n", "-c", str(PINGS), "-i", "0.01", "-W", "0.1", "10.1.0.1")
        relayed = net.rig.show("counters", ROUTER)["relayed"]["to_guest"] - to_guest
        assert relayed >= PINGS
    until("they are told", lambda: net.dropped("interface_down") >= relayed)
    until("and by interface", lambda: net.lost_at_tap() == net.dropped("interface_down"))
    assert net.dropped("kernel") == 0, "it counts them as well"
    net.rig.ok("exec", ROUTER, "--", "ip", "link", "set", "left", "up")
    until("it is up again", lambda: net.rig.api.get("interfaces")[0]["up"])
    net.rig.up(ROUTER)


async def test_what_the_vrc_does_not_read_in_time_is_told(net: Net) -> None:
    assert await net.host.ping("10.1.0.1", 1) == 1
    lost_before = net.lost_at_tap()
    with net.vrc_stopped():
        net.rig.ok("exec", ROUTER, "--", "/usr/bin/python3", "-c", FLOOD)
    until("they are told", lambda: net.dropped("not_read") >= TX_QUEUE)
    assert net.lost_at_tap() == lost_before, "no punt"
