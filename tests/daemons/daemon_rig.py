"""Virtual routers, each between two external ones, brought up together on one switch.

    n1  lo 192.0.2.1, 2001:db8:ff::1       virtual router          n2  lo 192.0.2.2, 2001:db8:ff::2
        eth0 10.1.0.2, 2001:db8:1::2 ───── eth0 .1  eth1 .1 ─────── eth0 10.2.0.2, 2001:db8:2::2

Every test shows that the neighbors are adjacent, that the plane has the routes to both loopbacks, that a ping between
them goes through it, that the guest's kernel forwarded none of that, and that no frame of the guest was refused.
"""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from machines import remember_accelerator
from marks import needs_bmv2
from rig import DEADLINE_S, Rig, interface, tenant, until
from rig_switches import Bmv2Switch, ForwarderSwitch, OvsSwitch, RigSwitch

from controller.guests.suites import frr
from lab import frr as lab_frr
from lab.bird import BirdDaemon
from lab.namespaces import Host, sh
from lab.private.forwarder import NATIVE_MTU
from lab.processes import descendants
from lab.readings import forwarded_datagrams

LIMIT_S = 120.0
"""For adjacencies and routes, on a machine that has other things to do."""
_OWN = (*lab_frr.PLACES, "/var/tmp")
_KEEPER = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
_SET_UP = "; ".join(
    (
        *(f"mkdir -p {place}; mount -t tmpfs tmpfs {place}; chown frr:frr {place}" for place in _OWN),
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
        "echo; exec sleep infinity",
    )
)
LOOPBACKS = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8:ff::1", "2001:db8:ff::2")}
BURST = 50
_LAST_LINES = 30
"""Shown of the log of a router that did not come up."""


class Neighbor:
    """An external router: FRR's daemons, or BIRD, on a host, with the kernel's own forwarding."""

    def __init__(self, rig: Rig, host: Host, number: int, text: str) -> None:
        self.host, self.number = host, number
        keeper = rig.spawn(host, *_KEEPER, "sh", "-ec", _SET_UP, stdout=subprocess.PIPE)
        assert keeper.stdout is not None
        assert keeper.stdout.readline(), "the neighbor has no place of its own"
        (self._pid,) = descendants(keeper.pid)
        for address in (f"192.0.2.{number}/32", f"2001:db8:ff::{number}/128"):
            host.ip("address", "add", address, "dev", "lo")
        self._bird: BirdDaemon | None = None
        if text.startswith("router id"):
            self._bird = BirdDaemon(rig.directory / f"bird-{host.link}", host.link, self._enter)
            self._bird.launch([text])
        else:
            lab_frr.start(self._root, lambda argv, _logs: self.run(*argv), text, frr.daemons_for(text))

    @property
    def _root(self) -> Path:
        return Path(f"/proc/{self._pid}/root")

    @property
    def _enter(self) -> tuple[str, ...]:
        return "nsenter", "--target", str(self._pid), "--net", "--mount", "--pid", "--"

    def run(self, *command: str) -> str:
        """Run a command beside the daemons; returns what it prints."""
        done = subprocess.run(
            (*self._enter, *command), capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def show(self, command: str) -> str:
        """Return what ``show …`` of vtysh or birdc prints."""
        if self._bird is not None:
            return self._bird.ask("show", *command.split())
        return self.run("vtysh", "-c", f"show {command}")

    def sees(self, command: str, *words: str, times: int = 1) -> None:
        """Wait until ``show …`` of vtysh or birdc has each of these words so often."""
        _until_shown(self.show, command, words, times)

    def kill(self, daemon: str) -> None:
        """End one of FRR's daemons as a fault would; its kernel goes on."""
        self.run("pkill", "-KILL", daemon)

    def start(self, daemon: str) -> None:
        """Start one of FRR's daemons again, as `lab.frr.start` did, and give it its part of the text."""
        self.run("sh", "-c", f"{lab_frr.BINARIES}/{daemon} -d -A 127.0.0.1 >/run/frr/{daemon}.out 2>&1")
        self.run("vtysh", "-b", "-d", daemon)

    def stop(self) -> None:
        """Have its daemons fall silent; its kernel goes on."""
        self.run("sh", "-c", "kill -STOP $(cat /run/frr/*.pid)")

    def go_on(self) -> None:
        """Undo `stop`."""
        self.run("sh", "-c", "kill -CONT $(cat /run/frr/*.pid)")


@dataclass
class Between:
    """The virtual router and its neighbors."""

    rig: Rig
    name: str
    n1: Neighbor
    n2: Neighbor
    declared: dict[str, Any]  # its tenant, as it was applied

    def show(self, command: str) -> str:
        """Return what ``show …`` of vtysh prints in the virtual router's guest."""
        return self.rig.ok("exec", self.name, "--", "vtysh", "-c", f"show {command}")

    def sees(self, command: str, *words: str, times: int = 1) -> None:
        """Wait until ``show …`` of vtysh in the guest has each of these words so often."""
        _until_shown(self._shown, command, words, times)

    def _shown(self, command: str) -> str:
        """Return what vtysh prints; where its daemon is not up yet, vtysh fails (FRR 10)."""
        done = self.rig.vrctl("exec", self.name, "--", "vtysh", "-c", f"show {command}")
        return done.stdout + done.stderr

    def forwards(self, *families: int) -> None:
        """Wait until the plane has the routes to both loopbacks, and prove that it is the plane that uses them."""
        for family in families:
            wanted = {f"{address}/{32 if family == 4 else 128}" for address in LOOPBACKS[family]}
            until(f"{wanted} in the plane", lambda wanted=wanted: wanted <= self._prefixes(), LIMIT_S, 0.2)
        self.forwards_to(*(LOOPBACKS[family][1] for family in families))

    def forwards_to(self, *addresses: str) -> None:
        """Wait until addresses behind the second neighbor answer the first one, by the plane and not by the guest."""
        for address in addresses:
            # The first packets resolve neighbors, which a guest's kernel does and the plane is told of.
            try:
                until(
                    "the plane forwards, not the guest", lambda address=address: self._by_the_plane(address), LIMIT_S
                )
            except AssertionError as problem:
                raise AssertionError(f"{problem}\n{self._ways(address)}") from None
        self.rig.verified()
        refused = [event for event in self.rig.show("events") if event["kind"] == "packet-out-refused"]
        assert not refused, refused

    def answered(self, address: str, count: int = BURST) -> int:
        """Return how many of ``count`` pings of an address from the first neighbor's loopback were answered."""
        ours, _ = LOOPBACKS[6 if ":" in address else 4]
        enter = ("nsenter", f"--net=/run/netns/{self.n1.host.namespace}", "--")
        ping = ("ping", "-n", "-c", str(count), "-i", "0.005", "-W", "3", "-I", ours, address)
        done = subprocess.run((*enter, *ping), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return done.stdout.count("bytes from")

    def route(self, prefix: str) -> dict[str, Any]:
        """Return the plane's route to a prefix, empty where there is none."""
        routes: list[dict[str, Any]] = self.rig.show("fib", self.name)
        return next((route for route in routes if route["prefix"] == prefix), {})

    def _by_the_plane(self, address: str) -> bool:
        before = self._forwarded()
        answered, forwarded = self.answered(address), self._forwarded() - before
        print(f"{address}: {answered} of {BURST} answered, {forwarded} forwarded by the guest")
        return (answered, forwarded) == (BURST, 0)

    def _ways(self, address: str) -> str:
        """Return what each router knows of the ways there and back."""
        ours, _ = LOOPBACKS[6 if ":" in address else 4]
        get = ("ip", "-6" if ":" in address else "-4", "route", "get")
        told = {
            f"n1 to {address}": lambda: self.n1.run(*get, address),
            f"n2 to {ours}": lambda: self.n2.run(*get, ours),
            "the guest": lambda: self.rig.ok("exec", self.name, "--", "ip", "route"),
            "its neighbors": lambda: self.rig.ok("exec", self.name, "--", "ip", "neigh"),
            "the plane": lambda: self.rig.ok("fib", self.name),
            "counters": lambda: self.rig.ok("counters", self.name),
            "events": lambda: self.rig.ok("events"),
        }
        said = []
        for what, tell in told.items():
            try:
                said.append(f"{what}:\n{tell()}")
            except AssertionError as problem:
                said.append(f"{what}: {problem}")
        return "\n".join(said)

    def _prefixes(self) -> set[str]:
        return {route["prefix"] for route in self.rig.show("fib", self.name)}

    def _forwarded(self) -> int:
        return forwarded_by(self.rig, self.name)


def _until_shown(show: Callable[[str], str], command: str, words: tuple[str, ...], times: int) -> None:
    said = ""

    def there() -> bool:
        nonlocal said
        said = show(command)
        return all(said.count(word) >= times for word in words)

    try:
        until(f"{words} in show {command}", there, LIMIT_S, 0.2)
    except AssertionError as problem:
        raise AssertionError(f"{problem}:\n{said}") from None


def forwarded_by(rig: Rig, router: str) -> int:
    """Return how many packets the kernel of a router's guest ("tenant/router") has forwarded."""
    counted = rig.ok("exec", router, "--", "cat", "/proc/net/snmp", "/proc/net/snmp6", text="")
    return forwarded_datagrams(counted)


@dataclass(frozen=True, slots=True)
class Net:
    """What one test wants: the texts of the virtual router and of its neighbors, FRR's or, at a neighbor, BIRD's.

    With ``in_text`` the virtual router's addresses stand in its text alone; ``unnumbered`` neighbors have none but
    their loopback's; ``router`` is more of the virtual router's document, as another suite without a text of FRR, and
    ``interface`` of its interfaces'.
    """

    text: str
    first: str
    second: str
    in_text: bool = False
    unnumbered: bool = False
    mtu: int = 1500
    router: Mapping[str, Any] = field(default_factory=dict)
    interface: Mapping[str, Any] = field(default_factory=dict)


def both(text: str, **values: tuple[str, str]) -> tuple[str, str]:
    """Return the text of each neighbor: ``{N}`` is its number, and ``{NAME}`` its one of ``values``."""
    first = second = text
    for name, (one, other) in {"N": ("1", "2"), **values}.items():
        first, second = first.replace(f"{{{name}}}", one), second.replace(f"{{{name}}}", other)
    return first, second


PLANES = ("forwarder", "ovs", pytest.param("bmv2", marks=needs_bmv2))


def switch_of(kind: str, nets: Mapping[str, Net]) -> RigSwitch:
    """Return a switch that has ports enough and takes their packets."""
    mtu = max(net.mtu for net in nets.values())
    if kind == "ovs":
        return OvsSwitch()
    if kind == "bmv2":
        return Bmv2Switch(2 * len(nets))
    return ForwarderSwitch(2 * len(nets), max(mtu, NATIVE_MTU))


@contextlib.contextmanager
def lab(nets: Mapping[str, Net], kind: str = "forwarder", limit_s: float = LIMIT_S) -> Iterator[dict[str, Between]]:
    """Bring all of them up at once, each a virtual router of its name between two neighbors, on one switch."""
    began = time.monotonic()
    with Rig(switch=lambda: switch_of(kind, nets)) as rig, ThreadPoolExecutor() as pool:
        if any("guest" in net.router for net in nets.values()):
            remember_accelerator(rig.state)
        hosts = {name: _hosts(rig, at, net) for at, (name, net) in enumerate(nets.items())}
        routers = [_router(name, net, hosts[name]) for name, net in nets.items()]
        ports = {host.link: ["untagged"] for pair in hosts.values() for host in pair}
        starting = {
            name: [
                pool.submit(Neighbor, rig, host, number, text)
                for number, (host, text) in enumerate(zip(hosts[name], (net.first, net.second), strict=True), 1)
            ]
            for name, net in nets.items()
        }
        declared = tenant("red", ports, *routers)
        rig.apply(declared)
        between = {
            name: Between(rig, f"red/{name}", *(one.result() for one in both), declared)
            for name, both in starting.items()
        }
        try:
            rig.up(*(net.name for net in between.values()), limit_s=limit_s)
        except AssertionError:
            for name in between:  # of a machine that did not come up, its console
                print(f"{name}:", *rig.vrctl("logs", f"red/{name}").stdout.splitlines()[-_LAST_LINES:], sep="\n")
            raise
        print(f"up after {time.monotonic() - began:.1f} s")
        yield between


def _hosts(rig: Rig, at: int, net: Net) -> list[Host]:
    hosts = []
    for number in (1, 2):
        host = rig.switch.host(2 * at + number, f"192.0.2.{number}/32" if net.unnumbered else f"10.{number}.0.2/24")
        if net.mtu > NATIVE_MTU:
            sh("ip", "-n", rig.switch.namespace, "link", "set", host.link, "mtu", str(net.mtu))
        host.ip("link", "set", "eth0", "mtu", str(net.mtu))  # OSPF and IS-IS compare it
        if not net.unnumbered:
            host.ip("address", "add", f"2001:db8:{number}::2/64", "dev", "eth0", "nodad")
        hosts.append(host)
    return hosts


def _router(name: str, net: Net, hosts: list[Host]) -> dict[str, Any]:
    interfaces = [
        interface(f"eth{at}", host, *(() if net.in_text else addresses(at + 1)), mtu=net.mtu, **net.interface)
        for at, host in enumerate(hosts)
    ]
    text = {"frr": net.text} if net.text else {}
    return {"name": name, "interfaces": interfaces, **text, **net.router}


def addresses(number: int) -> tuple[str, str]:
    """Return the virtual router's addresses towards a neighbor."""
    return f"10.{number}.0.1/24", f"2001:db8:{number}::1/64"
