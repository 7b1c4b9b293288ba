"""A topology brought up: its network, its controller, and the wait until everything has converged."""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from ruamel.yaml import YAML

from lab import frr
from lab.bird import logs as bird_logs
from lab.commands import wait_for, within
from lab.control import LOG, RUN, Controller, guest_logs
from lab.enclosure import STATE
from lab.network import Network, NetworkError
from lab.planes.base import Planes
from lab.planes.open_vswitch import daemon_logs, start_daemons
from lab.probes import ping
from lab.readings import NEIGHBOR_COMMANDS, neighbors, waiting

CONVERGE_LIMIT_S = 120.0
"""Machines take a minute to be up where several are emulated at once."""

BUILD_LIMIT_S = 300.0
"""For what Mininet starts; the commands of ours have shorter limits each."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Topology:
    """What a topology's module says of itself."""

    name: str
    spec: Path
    build: Callable[[Network], None]
    routers: tuple[str, ...]  # "tenant/router"
    sessions: Mapping[str, Mapping[str, int]]  # router or host → protocol → expected neighbors
    machines: tuple[str, ...]  # tenants whose guests are virtual machines where that is asked for
    ends: tuple[tuple[str, str], ...]  # host → address it must reach
    routes: Mapping[str, int] = field(default_factory=dict)  # router → IPv4 routes it must have learned
    paths: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # router → prefix → nexthops on its plane
    planes: Callable[[], Planes] | None = None  # its own; without them those of `--plane`
    sized: "Callable[[int], Topology] | None" = None  # the same with so many routes, for `--routes`


class Lab:
    """Everything of one topology, running; with ``machines``, its guests of such tenants are virtual machines."""

    def __init__(self, topology: Topology, planes: Planes, machines: bool = False) -> None:
        self.topology, self._machines = topology, machines
        self.network = Network(planes)
        self.controller = Controller()

    def bring_up(self, progress: Progress) -> None:
        """Start switches, hosts and controller, declare the planes and apply the specification."""
        progress("starting Open vSwitch")
        start_daemons()
        progress("starting switches, hosts and their routing daemons")
        with within(BUILD_LIMIT_S, f"{self.topology.name}'s switches and hosts", lambda: sorted(daemon_logs())):
            self.topology.build(self.network)
        progress("starting vr-controller")
        self.controller.start()
        progress(f"applying {self.topology.spec.name}")
        self.controller.declare(self.network.planes.declared())
        self.controller.vrctl("apply", "-f", str(self._with_machines() if self._machines else self.topology.spec))

    def _with_machines(self) -> Path:
        """Write the specification with its untrusted tenants in virtual machines; return where."""
        spec = self.topology.spec
        declared = YAML(typ="safe", pure=True).load(spec)
        for tenant in declared["tenants"]:
            for router in tenant["routers"]:
                router["frr_file"] = str(spec.parent / router["frr_file"])
                if tenant["name"] in self.topology.machines:
                    router["guest"] = {"kind": "kvm"}
        changed = RUN / spec.name
        changed.write_text(json.dumps(declared))  # JSON is YAML
        return changed

    def converge(self, progress: Progress, timeout_s: float = CONVERGE_LIMIT_S) -> float:
        """Wait until routers, sessions, paths and ends are all there; return how long it took, in seconds."""
        start = time.monotonic()
        # The hosts see most sessions from their end, and are quicker to ask than the routers, so these have all of
        # theirs by then. One is asked until it has them, and only then the next: each question starts a vtysh. A
        # session is up before the routes that it brings are, and an end answers by one path of several.
        names = sorted(self.topology.sessions, key=lambda name: "/" in name)
        sessions = [partial(self._sessions_missing, name) for name in names]
        steps: tuple[Callable[[], list[str]], ...]
        steps = (self.unsettled, *sessions, self._paths_missing, self.unsettled, self._ends_missing)
        for number, step in enumerate(steps):
            while missing := step():
                progress(f"waiting for {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""))
                if time.monotonic() > start + timeout_s:
                    raise self._not_converged(timeout_s, missing, steps[number + 1 :])
                time.sleep(0.5)
        return time.monotonic() - start

    def _not_converged(
        self, timeout_s: float, missing: list[str], later: Iterable[Callable[[], list[str]]]
    ) -> NetworkError:
        missing = [*missing, *(line for step in later for line in _asked(step))]
        text = f"not converged within {timeout_s:.0f} s; missing: {'; '.join(missing)}"
        seen = _asked(lambda: self._seen_of(missing))
        return NetworkError(text + (f"; seen: {'; '.join(seen)}" if seen else ""), *self.logs_of(missing))

    def happened(self, events: int = 8) -> list[str]:
        """Return the last events, a line each, for whoever looks for the reason of what was seen."""
        try:
            return self.controller.vrctl("events").splitlines()[-events:]
        except NetworkError as reason:
            return [str(reason)]

    def sessions_of(self, name: str) -> dict[str, int]:
        """Return how many neighbors a router ("tenant/router") or a host has, by protocol, up to the first whose
        daemon does not run.

        One vtysh is asked for all of them: it is slow to start in an emulated machine.
        """
        protocols = self.topology.sessions[name]
        return neighbors(protocols, self._vtysh(name, *(NEIGHBOR_COMMANDS[protocol] for protocol in protocols)))

    def _vtysh(self, name: str, *commands: str) -> str:
        if "/" in name:
            return self.controller.exec(name, *frr.vtysh(*commands))
        text: str = self.network[name].vtysh(*commands)
        return text

    def unsettled(self) -> list[str]:
        """Return the routers that are not up with every route learned and confirmed, and why."""
        views = self.controller.routers()
        found = []
        for router in self.topology.routers:
            view = views.get(router)
            wanted = self.topology.routes.get(router, 0)
            if view is None:
                found.append(f"router {router}")
            elif view["ipv4_routes"] < wanted:
                found.append(f"router {router} ({view['ipv4_routes']} of {wanted} routes)")
            elif view["state"] != "up" or view["pending"]:
                found.append(f"router {router} ({view['reason'] or view['state']}, {view['pending']} pending)")
        return found

    def wait_settled(self, timeout_s: float) -> None:
        """Wait until every router is up and all its routes are confirmed; NetworkError names those that are not."""
        wait_for("every router up", lambda: not self.unsettled(), timeout_s, 0.5, seen=self.seen_unsettled)

    def seen_unsettled(self) -> tuple[str, list[Path]]:
        """Return the routers that are not up, each with its state, and where it may be read why."""
        missing = self.unsettled()
        return "; ".join(missing), self.logs_of(missing)

    def logs_of(self, missing: Sequence[str]) -> list[Path]:
        """Return the controller's log, and those of the routers and neighbors that are named in what is missing."""
        words = _words(missing)
        hosts = [host for host in self.network.mininet.hosts if host.name in words]
        return [LOG, *guest_logs(words), *(log for host in hosts for log in host.logs())]

    def _sessions_missing(self, name: str) -> list[str]:
        wanted = self.topology.sessions[name]
        return [
            f"{protocol} of {name} ({have} of {wanted[protocol]})"
            for protocol, have in self.sessions_of(name).items()
            if have < wanted[protocol]
        ]

    def _seen_of(self, missing: Sequence[str]) -> list[str]:
        """Return what those that are named say of their BGP neighbors, and which of their interfaces are down."""
        named, found = _words(missing), []
        for name, sessions in self.topology.sessions.items():
            if name in named and "BGP" in sessions:
                found += [f"{name}: {line}" for line in waiting(self._vtysh(name, "show bgp neighbors json"))]
        for view in self.controller.get("interfaces"):
            if view["router"] in named and not (view["up"] and view["port_up"]):
                found.append(f"{view['router']}: interface {view['name']} is down")
        return found

    def _paths_missing(self) -> list[str]:
        found = []
        for router, paths in self.topology.paths.items():
            have = {entry["prefix"]: len(entry["nexthops"]) for entry in self.controller.fib(router)}
            found += [
                f"{prefix} of {router} ({have.get(prefix, 0)} of {wanted} nexthops)"
                for prefix, wanted in paths.items()
                if have.get(prefix, 0) < wanted
            ]
        return found

    def _ends_missing(self) -> list[str]:
        ends = self.topology.ends
        return [f"{address} from {host}" for host, address in ends if not ping(self.network[host], address, 1)]

    def keep_logs(self, directory: Path) -> None:
        """Copy the logs of controller, switch, guests and hosts to a directory that outlives the enclosure."""
        directory.mkdir(parents=True, exist_ok=True)
        found = [
            LOG,
            *daemon_logs(),
            *bird_logs(),
            *self.network.planes.logs(),
            *STATE.parent.glob("splitplane*/**/*.log"),
        ]
        for host in self.network.mininet.hosts:
            found += [*host.logs(), *host.logs("*.out")]
        for path in found:
            if path.is_file():
                shutil.copyfile(path, directory / str(path).strip("/").replace("/", "_"))


def _words(missing: Sequence[str]) -> set[str]:
    """Return the words of what is missing: names of routers and hosts are some of them."""
    return {word for line in missing for word in line.split()}


def _asked(step: Callable[[], list[str]]) -> list[str]:
    """Return what a step misses, also where that cannot be told."""
    try:
        return step()
    except NetworkError as problem:
        return [str(problem)]


@contextmanager
def spinner(console: Console, text: str) -> Iterator[Progress]:
    """Show what is being waited for, where the output is a terminal."""
    if not console.is_terminal:
        yield lambda step: None
        return
    with console.status(text) as status:
        yield lambda step: status.update(f"{text}: {step}")
