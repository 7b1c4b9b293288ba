"""What the mirror is compared with: zebra's FPM into a sink that only counts, and one bundle of the same flows."""

import asyncio
import time
from pathlib import Path

from controller.guests.base import GuestSpec
from controller.guests.netns import NetnsDriver
from controller.model import RouteSource, Routing
from lab.bird import Bird
from lab.network import NetworkError, Node, checked, output, wait_for
from lab.prefixes import Announcement
from lab.private.ovs import PrivateOvs
from lab.processes import Meter, guest_processes

_SINK = Path(__file__).with_name("sink.py")
_WORK = Path("/run/bench/sink")


class FpmSink:
    """A guest as the controller's driver starts it, but with a counting sink where its VRC would be.

    Its one interface is the end of a veth pair instead of a TAP, so nothing of Splitplane is on the way.
    """

    def __init__(self, frr: str, routes: int) -> None:
        self._routes = routes
        self._driver = NetnsDriver(command=self._command)
        identity, session = _WORK / "identity", _WORK / "session"
        for directory in (identity, session):
            directory.mkdir(parents=True, exist_ok=True)
        for name in ("cert.pem", "key.pem", "ca.pem"):
            (identity / name).touch()
        places = _WORK / "guest", identity, session
        self._spec = GuestSpec(1, "bench/sink", RouteSource.FPM, Routing(text=frr), 120, *places)
        self.cpu_s: dict[str, float] = {}
        self.machine_s: dict[str, float] = {}
        self._pid = 0

    def _command(self, spec: GuestSpec, python: str) -> list[str]:
        return [python, "-I", "-c", _SINK.read_text(), str(self._routes)]

    def wire(self, feed: Node, ours: str, theirs: str) -> None:
        """Start the guest and connect it to the host that feeds it, with these addresses."""
        asyncio.run(self._driver.start(self._spec))
        # A zebra that starts while an interface comes from another namespace may miss it.
        wait_for("the sink's guest", self._started, 30)
        ends = ("type", "veth", "peer", "name", "eth0", "netns", str(self._pid))
        checked(["ip", "link", "add", "eth0", "netns", str(feed.pid), *ends])
        for pid, address in ((self._pid, ours), (feed.pid, theirs)):
            enter = ("nsenter", "-t", str(pid), "-n", "ip")
            checked([*enter, "address", "add", address, "dev", "eth0"])
            checked([*enter, "link", "set", "eth0", "up"])

    def _started(self) -> bool:
        status = asyncio.run(self._driver.status(self._spec))
        self._pid = status.pid
        return all(state == "up" for state in status.daemons.values())

    def measure(self, bird: Bird, announced: list[Announcement], timeout_s: float) -> float:
        """Return the seconds from BIRD's first announcement to the sink's last route; ends the guest."""
        try:
            bird.start(announced)
            bird.wait_established()
            wait_for("zebra's FPM connection", lambda: bool(self._said("zebra")), timeout_s)
            processes = guest_processes(self._pid)
            meter = Meter({name: processes[name] for name in ("zebra", "bgpd")})
            start_ns = time.monotonic_ns()
            bird.announce()
            wait_for("the sink's last route", lambda: bool(self._came()), timeout_s, 0.1)
            self.cpu_s, self.machine_s = meter.cpu_s(), meter.machine_s()
            return (self._came() - start_ns) / 1e9
        finally:
            bird.stop()
            asyncio.run(self._driver.delete(self._spec))

    def _came(self) -> int:
        """Return when the sink had all routes, 0 while it has not."""
        return next((moment for seen, moment in self._said("sink") if seen >= self._routes), 0)

    def _said(self, what: str) -> list[tuple[int, int]]:
        """Return (routes, CLOCK_MONOTONIC nanoseconds) of each line of the sink about something."""
        lines = self._driver.log_path(self._spec).read_text(errors="replace").splitlines()
        found = [line.partition(f"{what} at ")[2].split() for line in lines]
        return [(int(words[0]), int(words[1])) for words in found if len(words) == 2]


def bundle_s(bridge: str, table: int, wanted: int) -> float:
    """Return the seconds ``ovs-ofctl --bundle add-flows`` takes for a bridge's flows of one table, in a fresh switch.

    The fresh switch is another ovs-vswitchd, in a network namespace of its own, with the same groups.
    """
    flows = _dump(bridge, "dump-flows", f"table={table}")
    groups = _dump(bridge, "dump-groups")
    routes = [line for line in flows if "nw_dst=" in line]
    if len(routes) < wanted:
        raise NetworkError(f"{bridge} holds {len(routes)} routes in table {table}, {wanted} are expected")
    _WORK.mkdir(parents=True, exist_ok=True)
    (_WORK / "flows").write_text("\n".join(flows) + "\n")
    (_WORK / "groups").write_text("\n".join(_members_last(groups)) + "\n")
    with PrivateOvs() as switch:
        switch.add_bridge("s1", 1)
        switch.ofctl("add-groups", "s1", str(_WORK / "groups"))
        start = time.monotonic()
        switch.ofctl("add-flows", "s1", str(_WORK / "flows"), "--bundle")
        return time.monotonic() - start


def _dump(bridge: str, command: str, *rest: str) -> list[str]:
    said = output(["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "--no-names", command, bridge, *rest], 120)
    return [line.strip() for line in said.splitlines() if line.startswith(" ") and "=" in line]


def _members_last(groups: list[str]) -> list[str]:
    """Return groups so that each comes after those it refers to."""
    return sorted(groups, key=lambda line: "actions=group:" in line)
