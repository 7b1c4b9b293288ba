"""A hostile tenant with root in its own guest: others do not notice, memory stays bounded, refusals are told.

    red/r1    hostile_root.py, with the router's own certificate
    blue/r1   forwards traffic of which no packet may be lost, and changes a route again and again meanwhile

What each attack cost blue is printed (pytest -s); what is asserted is that nothing was lost, and generous bounds.
"""

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e_world import FAR, OWN_ROUTES, World, world
from rig import AS_VRC, Rig, unbroken, until

from controller.routing.fib_state import SPARE_ROUTES
from controller.shard.punt_relay import PACKET_OUT_PER_S

pytestmark = pytest.mark.root

HOLD_S = 20
"""What an attacker said that the router itself does not repeat goes after this time."""
QUOTA = {"ipv4_routes": 2000, "ipv6_routes": 2000, "neighbors": 100}
BETWEEN_CHANGES_S = 0.3
"""A change is two vtysh and what asks for it: one after the other would take a core from the attacker."""
CHANGE_LIMIT_S = 2.0
GROWTH_MIB = 96
"""The controller may grow by this much: the spare routes and the nexthop sets of one router, and a few messages."""
APP, PYTHON = "/run/splitplane/app", "/run/splitplane/python/bin/python"  # in a guest
CHANGED = "198.18.0.0/24 10.2.0.2"
BLUE_ROUTES = 3


@dataclass
class Blue:
    """The router that is not attacked."""

    rig: Rig
    usual_s: float = 0.0

    def __post_init__(self) -> None:
        pid = str(self.rig.guest_pid("blue/r1"))
        self._enter = ("nsenter", "--target", pid, "--user", "--mount", "--net", "--pid", "--")

    def change(self) -> float:
        """Add a route and take it away; returns how long the slower one took to be confirmed by the plane."""
        return max(self._configure("ip route", 1), self._configure("no ip route", 0))

    def _configure(self, verb: str, more: int) -> float:
        vtysh = ("vtysh", "-c", "configure terminal", "-c", f"{verb} {CHANGED}")
        subprocess.run((*self._enter, *vtysh), stdin=subprocess.DEVNULL, check=True, capture_output=True)
        began = time.monotonic()
        until("blue's change", lambda: self._confirmed(BLUE_ROUTES + more), every_s=0.005)
        return time.monotonic() - began

    def _confirmed(self, routes: int) -> bool:
        view = self.rig.router("blue/r1")
        return view["ipv4_routes"] == routes and not view["pending"]


@dataclass
class Hostile:
    """A world in which red's guest is in hostile hands."""

    world: World
    blue: Blue

    @property
    def rig(self) -> Rig:
        return self.world.rig

    @property
    def counted(self) -> dict[str, int]:
        """What the controller counted of red's packets and streams."""
        counters: dict[str, int] = self.rig.api.get("routers", "red", "r1", "counters")["relayed"]
        return counters

    def told(self, *words: str) -> None:
        """Wait for one event to have all these words; what was held back is told within half a minute."""

        def found() -> bool:
            return any(all(word in line for word in words) for line in self.rig.ok("events").splitlines())

        until(f"an event with {words}", found, every_s=1)

    def counts(self, before: dict[str, int], least: float, *names: str) -> None:
        """Wait for counters to have grown by at least that much in all."""

        def grown() -> bool:
            return sum(increase(self, before, name) for name in names) >= least

        until(f"{names} counted {least:.0f} times", grown, every_s=0.2)

    def attack(self, name: str, *arguments: str) -> Any:
        """Run an attack to its end while blue lives on; returns what the attacker saw."""
        program, results = (Path(__file__).parent / "hostile_root.py").read_text(), list[Any]()
        python = ("env", f"PYTHONPATH={APP}", "GRPC_VERBOSITY=NONE", PYTHON, "-")
        memory = Memory(self.rig.controller_pid)

        def run() -> None:
            said = self.rig.ok("exec", "red/r1", "--", *AS_VRC, *python, name, "red/r1", *arguments, text=program)
            results.append(json.loads(said.splitlines()[-1]))

        attacker = threading.Thread(target=run)
        took_s = []
        with unbroken(self.rig, (self.world.blue.left, FAR)):
            attacker.start()
            while attacker.is_alive():
                took_s.append(self.blue.change())
                attacker.join(BETWEEN_CHANGES_S)
        assert results, f"{name} did not come to its end"
        grown_mib, typical_s = memory.grown_mib(), statistics.median(took_s)
        print(f"\n{name}: {results[0]}\n{name}: the controller grew by {grown_mib:.0f} MiB; {len(took_s)} changes:")
        times = f"{typical_s / self.blue.usual_s:.1f} times the usual"
        print(f"{name}: median {1000 * typical_s:.0f} ms, {times}, longest {1000 * max(took_s):.0f} ms")
        assert typical_s < CHANGE_LIMIT_S
        assert grown_mib < GROWTH_MIB
        return results[0]


class Memory:
    """The most that a process has had resident since this was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is what it is now (proc(5))
        self._before = self._mib("VmRSS")

    def grown_mib(self) -> float:
        """How far the peak is above what it was then."""
        return self._mib("VmHWM") - self._before

    def _mib(self, name: str) -> float:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    with world(hold_time_s=HOLD_S) as found:
        red = found.declared["red"]
        red["slices"][0]["quota"] = QUOTA
        found.rig.apply(red)
        blue = Blue(found.rig)
        blue.usual_s = statistics.median(blue.change() for _ in range(10))
        print(f"\nwithout an attack: median of 10 changes {1000 * blue.usual_s:.0f} ms")
        try:
            yield Hostile(found, blue)
        finally:
            found.rig.ok("delete", "tenant", "red")


def increase(hostile: Hostile, before: dict[str, int], name: str) -> int:
    return hostile.counted.get(name, 0) - before.get(name, 0)


def test_frames_that_are_not_its_own_are_refused_by_reason(hostile: Hostile) -> None:
    before, victim = hostile.counted, hostile.world.blue.left.mac.replace(":", "")
    watched = {ends.left.packet_socket(): ends.left for ends in (hostile.world.red, hostile.world.blue)}
    try:
        sent = hostile.attack("spoof", victim)["sent"]
        for reason, count in sent.items():
            hostile.counts(before, count, f"refused_{reason}")
            hostile.told("packet-out-refused red/r1", reason)
        for listener in watched:
            assert not [octets for octets in received(listener) if forged(octets, bytes.fromhex(victim))]
    finally:
        for listener in watched:
            listener.close()


BRIDGES = bytes.fromhex("0180c2000000")


def received(listener: Any) -> Iterator[bytes]:
    listener.setblocking(False)
    while True:
        try:
            octets, where = listener.recvfrom(65535)
        except BlockingIOError:
            return
        if where[2] != 4:  # PACKET_OUTGOING: the host's own
            yield octets


def forged(octets: bytes, victim: bytes) -> bool:
    is_foreign = octets[12:14] in (b"\x81\x00", b"\x88\xa8", b"\x88\x08")
    return octets[6:12] == victim or is_foreign or octets[:6] == BRIDGES or len(octets) > 1514


def test_a_flood_of_packet_outs_is_limited_and_counted(hostile: Hostile) -> None:
    before = hostile.counted
    flood = hostile.attack("flood")
    assert flood["ended"] == "ended"  # all that was sent has been read
    hostile.counts(before, flood["frames"], "from_guest", "refused_packet_out_rate", "drop_plane_congested")
    if flood["frames"] > PACKET_OUT_PER_S * (flood["seconds"] + 1):  # where the cores are busy, fewer are read
        hostile.told("packet-out-refused red/r1", "packet_out_rate")


def test_routes_far_beyond_the_quota_are_not_kept(hostile: Hostile) -> None:
    before = hostile.counted
    result = hostile.attack("routes")
    kept = QUOTA["ipv4_routes"] + SPARE_ROUTES
    assert result["announced"] > kept
    assert result["ended"] == "ended"  # all that was sent has been followed
    hostile.counts(before, result["announced"] - kept, "ipv4_routes_not_kept")
    assert hostile.rig.router("red/r1")["ipv4_routes"] <= kept
    hostile.told("routes-not-kept red/r1", "beyond quota ipv4_routes")


def test_what_costs_much_to_follow_does_not_hold_up_others(hostile: Hostile) -> None:
    result = hostile.attack("churn")
    assert result["rounds"] > 1
    assert not result["ended"]


def test_what_is_no_message_ends_its_stream_by_name(hostile: Hostile) -> None:
    before = hostile.counted
    ends = hostile.attack("malformed")
    words = {
        "octets that are no message": "64 octets that are no VrcMessage",
        "a message that is too long": "octets; at most",
        "another's name": "with the certificate of red/r1",
        "no Hello": "Hello comes first",
        "a route of an unknown set": "nexthop set 7, which is not defined",
        "a foreign interface": "is not one of router red/r1",
        "another method": "a stream that is not Control",
    }
    assert {name: text in ends[name] for name, text in words.items()} == dict.fromkeys(words, True), ends
    assert "still open" not in ends.values()
    hostile.counts(before, len(ends), "streams_refused")
    hostile.told("session-refused red/r1", "octets that are no VrcMessage")


def test_a_thousand_sessions_are_four_connections_and_a_few_streams(hostile: Hostile) -> None:
    before = hostile.counted
    hostile.attack("sessions")
    hostile.told("session-refused red/r1", "more than 4 connections at once")
    hostile.counts(before, 1, "streams_refused")
    hostile.told("session-refused red/r1", "streams at once, then")


def test_afterwards_everything_is_as_before(hostile: Hostile) -> None:
    rig = hostile.rig
    rig.up("red/r1", routes=OWN_ROUTES + 1)
    rig.verified()
    told = [line for line in rig.ok("events").splitlines() if "red/r1" in line]
    assert len(told) < 300
    assert all(line.isprintable() for line in told)
    errors = rig.log.read_text()
    assert "Traceback" not in errors, errors[-3000:]
