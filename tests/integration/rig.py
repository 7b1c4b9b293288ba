"""The whole of Splitplane for end-to-end tests: a private switch, vr-controller, its guests, vrctl, and hosts.

    ┌ network namespace of the switch ─────────────────────────────┐      ┌ namespace of a host ┐
    │ Open vSwitch or BMv2 ── p1 ────────────────────────────── veth ┼──────┼ eth0   ping, bird   │
    │      │                                                       │      └─────────────────────┘
    │ vr-controller ── guests (namespaces of their own)            │
    └──────────────── in a PID namespace of their own ─────────────┘

The PID namespace's first process dies with the test, also by kill -9, and the kernel then ends the controller and all
guests. The switch and the hosts are rig_switches.py's.
"""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

import forks
from rig_switches import OPENFLOW, PLANE, OvsSwitch, RigSwitch

from controller.guests import limits
from controller.vrctl.cli import commands as vrctl_commands
from controller.vrctl.client import Client, Refused, Unreachable
from lab.bird import BirdDaemon
from lab.namespaces import Host, Private, sh, trusting
from lab.private.ovs import PrivateOvs
from lab.processes import descendants
from lab.readings import Stream

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
COMMAND_S = 240.0
"""For one vrctl: verify compares 100,000 routes, and repeats that while they change."""
_BECOME = 'id=$(stat -c %u /run/splitplane/identity); exec setpriv --reuid $id --regid $id --clear-groups "$@"'
AS_VRC = ("sh", "-c", _BECOME, "sh")
"""What root of a guest puts before a command that is to reach the session socket, or to say what only the VRC may."""
_ONE_AT_A_TIME = threading.Lock()  # there is one standard output, and one socket that vrctl asks
_ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "110"}

# With SIGCHLD ignored, which an exec keeps, the first process of the PID namespace leaves no zombies. Debian's sh
# does not ignore it, whatever trap says.
_FIRST_PROCESS = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--mount", "--fork", "--kill-child")
_FIRST_PROCESS = (*_FIRST_PROCESS, "--mount-proc", "sh", "-c", "echo; exec env --ignore-signal=CHLD sleep infinity")


def until(what: str, condition: Callable[[], object], limit_s: float = DEADLINE_S, every_s: float = 0.05) -> None:
    """Poll until a condition holds; AssertionError that names ``what`` after the deadline."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:.0f} s"
        time.sleep(every_s)


class Rig(Private):
    """One controller and one switch: ``with Rig() as rig``."""

    def __init__(self, *options: str, switch: Callable[[], RigSwitch] = OvsSwitch) -> None:
        self._options, self._make_switch = options, switch
        self._stack = contextlib.ExitStack()
        self._controller: forks.Forked | None = None

    def bring_up(self) -> None:
        """Start the switch and the controller, and let them find each other."""
        self.directory = self.make_directory("sp-rig-")
        self.state, self.run = self.directory / "state", self.directory / "run"
        self.log = self.directory / "vr-controller.log"
        self._stack.callback(self._remove_groups)
        self.switch = self._stack.enter_context(self._make_switch())
        self._start_first_process()
        self.api = Client(self.run / "api.sock")
        self.start_controller()
        self.switch.connect()

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        try:
            if kind is not None and issubclass(kind, AssertionError):
                self._tell_all()
        finally:
            super().__exit__()

    def _tell_all(self) -> None:
        """Print what an operator would look at, for whoever reads of a test that fails once in a hundred times."""
        questions = [("get", "planes", "-o", "json"), ("get", "routers"), ("top", "--once"), ("events",)]
        with contextlib.suppress(OSError, subprocess.SubprocessError, Unreachable, Refused):
            questions += [("fib", str(view["router"])) for view in self.api.get("routers")]
            for words in questions:
                said = self.vrctl(*words)
                print(f"$ vrctl {' '.join(words)}\n{said.stdout[-5000:]}{said.stderr}")

    # -- the controller ----------------------------------------------------------------------------------------------
    def _start_first_process(self) -> None:
        network = ("nsenter", f"--net=/run/netns/{self.switch.namespace}")
        first = subprocess.Popen((*network, *_FIRST_PROCESS), stdout=subprocess.PIPE)
        self._stack.callback(first.wait)
        self._stack.callback(first.kill)
        assert first.stdout is not None
        first.stdout.readline()
        first.stdout.close()
        (self.first,) = descendants(first.pid)
        self._first_parent = first

    def _remove_groups(self) -> None:
        """Groups are of no namespace: those of the guests that were killed stay."""
        numbers = {*map(str, range(1, 9)), *(place.name for place in self.state.glob("guests/*"))}
        places = [self.state / "guests" / number for number in numbers]  # of some the state is gone already
        # The kernel ends what was in the namespaces after their first process.
        until("control groups gone", lambda: all(limits.remove(place) for place in places))

    def start_controller(self) -> None:
        """Start vr-controller and wait until it serves its API."""
        self.run.mkdir(exist_ok=True)
        places = ("--state", str(self.state), "--run", str(self.run), "--openflow", OPENFLOW)
        inside = [Path(f"/proc/{self.first}/ns/{kind}") for kind in ("net", "pid", "mnt")]
        with open(os.devnull, "rb") as nothing, self.log.open("ab") as log:
            streams = nothing.fileno(), log.fileno(), log.fileno()
            self._controller = forks.start("vr-controller", (*places, *self._options), _ENVIRONMENT, streams, inside)
        self._stack.callback(self._controller.wait)
        self._stack.callback(self._controller.kill)
        until("the controller's API", self._serves)

    def _serves(self) -> bool:
        assert self._controller is not None
        assert self._controller.poll() is None, self.log.read_text()[-2000:]
        try:
            self.api.get("planes")
        except Unreachable:
            return False
        return True

    @property
    def controller_pid(self) -> int:
        """The daemon's own process."""
        assert self._controller is not None
        return self._controller.pid

    def kill_controller(self) -> None:
        """End the daemon as a power cut would."""
        assert self._controller is not None
        self._controller.kill()
        self._controller.wait()

    def power_cut(self) -> None:
        """Kill the switch, the controller and all guests at once; the state directory and the database stay."""
        assert self._controller is not None
        self._first_parent.kill()  # the kernel ends the whole PID namespace with it
        self._first_parent.wait()
        self._controller.wait()
        self.switch.kill()

    def power_on(self) -> None:
        """Start only what a host starts at boot: the switch and vr-controller."""
        shutil.rmtree(self.run, ignore_errors=True)  # /run is a tmpfs
        self._start_first_process()
        self.switch.restart()
        self.start_controller()

    @contextlib.contextmanager
    def without(self, directory: str) -> Iterator[None]:
        """Have the controller see a directory as empty."""
        inside = ("nsenter", "--target", str(self.first), "--mount", "--")
        sh(*inside, "mount", "-n", "-t", "tmpfs", "-o", "ro", "tmpfs", directory)
        try:
            yield
        finally:
            sh(*inside, "umount", "-n", directory)

    # -- the operator ------------------------------------------------------------------------------------------------
    def vrctl(self, *arguments: str, text: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Run vrctl as an operator would, but forked rather than started."""
        _, *words = self.command(*arguments)
        return forks.run("vrctl", *words, environment=_ENVIRONMENT, text=text, timeout_s=COMMAND_S)

    def command(self, *arguments: str) -> tuple[str, ...]:
        """Return vrctl's command line, to be run in `environment`."""
        return str(forks.BIN / "vrctl"), "--socket", str(self.run / "api.sock"), *arguments

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands."""
        return dict(_ENVIRONMENT)

    def ok(self, *arguments: str, text: str | None = None) -> str:
        """Return what vrctl prints; AssertionError with its own words, and the logs that it names, where it fails."""
        done = self.vrctl(*arguments, text=text)
        if done.returncode:
            named = [
                self.vrctl("logs", name).stdout[-3000:] for name in re.findall(r"see vrctl logs (\S+)", done.stderr)
            ]
            raise AssertionError(
                "\n".join((f"vrctl {' '.join(arguments)}: {done.stdout[-3000:]}{done.stderr}", *named))
            )
        return done.stdout

    def complaint(self, *arguments: str, text: str | None = None, status: int = 1) -> str:
        """Return the one line with which vrctl refuses."""
        done = self.vrctl(*arguments, text=text)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr.strip()

    def show(self, *arguments: str) -> Any:
        """Return what a command of vrctl says, as values.

        In this process: tests ask again and again, and even a fork takes 0.04 s of CPU.
        """
        said = io.StringIO()
        with _ONE_AT_A_TIME, contextlib.redirect_stdout(said):
            vrctl_commands()(
                ("--socket", str(self.run / "api.sock"), *arguments, "-o", "json"), standalone_mode=False
            )
        return json.loads(said.getvalue())

    def apply(self, *tenants: dict[str, Any]) -> str:
        """Declare the plane and tenants with `vrctl apply`."""
        return self.ok(
            "apply", "-f", "-", text=document(*tenants, plane=self.switch.declared, behind=self.switch.behind)
        )

    def router(self, name: str) -> dict[str, Any]:
        """Return the state of a router ("tenant/router")."""
        view: dict[str, Any] = self.api.get("routers", *name.split("/"))
        return view

    def up(self, *names: str, routes: int | None = None, limit_s: float = DEADLINE_S) -> None:
        """Wait until routers are up, everything is confirmed, and each has that many IPv4 routes."""

        def arrived() -> bool:
            try:
                views = {view["router"]: view for view in self.api.get("routers")}  # one question for all of them
            except (Unreachable, Refused):
                return False
            seen.update({name: views.get(name, {}) for name in names})
            return all(
                view.get("state") == "up" and not view["pending"] and routes in (None, view["ipv4_routes"])
                for view in seen.values()
            )

        seen: dict[str, dict[str, Any]] = {}
        try:
            until("routers up", arrived, limit_s)
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {seen}") from None

    def verified(self, *names: str) -> None:
        """`vrctl verify` finds learned, desired and installed equal."""
        for view in self.show("verify", *names):
            assert view["equal"], view

    def becomes_equal(self, limit_s: float = DEADLINE_S, every_s: float = 0.05) -> None:
        """`vrctl verify` comes to find them equal; AssertionError with what differs after the deadline."""
        views: list[dict[str, Any]] = []

        def equal() -> bool:
            views[:] = self.show("verify")
            return all(view["equal"] for view in views)

        try:
            until("all equal", equal, limit_s, every_s)
        except AssertionError as problem:
            differ = [view for view in views if not view["equal"]]
            raise AssertionError(f"{problem}: {differ}; {self.ok('events')}") from None

    def account(self) -> str:
        """Say what happened lately, and how much was punted and dropped, for whoever looks for a packet's fate."""
        happened = self.ok("events").splitlines()[-30:]
        counted = (self.ok("counters", name) for name in sorted(view["router"] for view in self.api.get("routers")))
        return "\n".join((*happened, *counted))

    # -- what can be looked at from outside --------------------------------------------------------------------------
    def guest_pid(self, name: str) -> int:
        """Return the first process of a router's guest, as this process sees it.

        It is looked for again where it is not found: a list of processes is no snapshot, and one whose parent ends
        meanwhile, as what starts a guest does, may be below nobody in it.
        """
        found: list[int] = []

        def found_it() -> bool:
            for config in self.state.glob("guests/*/guest.json"):
                if json.loads(config.read_text())["router"] == name:
                    inner = config.with_name("guest.pid").read_text().split()[0]
                    found[:] = [pid for pid in descendants(self.first) if _inner_pid(pid)[1:2] == [inner]]
                    return bool(found)
            raise AssertionError(f"router {name} has no guest")

        until(f"the first process of {name}", found_it)
        return found[0]

    def process(self, name: str, program: str) -> int:
        """Return the process of a router's guest whose command line has ``program`` in it, 0 where none runs."""
        for pid in descendants(self.guest_pid(name)):
            with contextlib.suppress(OSError):
                if program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return 0

    @property
    def ovs(self) -> PrivateOvs:
        """The Open vSwitch, for tests that are about OpenFlow."""
        assert isinstance(self.switch, OvsSwitch)
        return self.switch.ovs

    def flows(self, *match: str) -> list[str]:
        """Return the flows of the Open vSwitch, without cookies, counters and the numbers of meters."""
        assert isinstance(self.switch, OvsSwitch)
        return self.switch.flows(*match)

    # -- hosts -------------------------------------------------------------------------------------------------------
    def host(self, number: int, address: str, gateway: str = "", vlan: int = 0) -> Host:
        """Add a host with an address and a default route; it trusts a gateway that once answered."""
        host = self.switch.host(number, address, vlan)
        settings = [f"net/{name}={value}" for name, value in trusting("eth0").items()]
        sh("ip", "netns", "exec", host.namespace, "sysctl", "-qw", *settings)
        if gateway:
            host.ip("-6" if ":" in gateway else "-4", "route", "add", "default", "via", gateway)
        return host

    def spawn(self, host: Host, *command: str, **options: Any) -> "subprocess.Popen[str]":
        """Start a program on a host; it ends with the rig at the latest."""
        enter = ("nsenter", f"--net=/run/netns/{host.namespace}", "--")
        process = subprocess.Popen((*enter, *command), stdin=subprocess.DEVNULL, text=True, **options)
        self._stack.callback(_end, process)
        return process


def _end(process: "subprocess.Popen[Any]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _inner_pid(pid: int) -> list[str]:
    """Return a process's ids, from our PID namespace inwards."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return line.split()[1:]
    return []


# -- declarations ----------------------------------------------------------------------------------------------------


def document(
    *tenants: dict[str, Any], plane: dict[str, Any] | None = None, behind: tuple[dict[str, Any], ...] = ()
) -> str:
    """Return the text of a document that declares the plane, an OpenFlow one where it is not given, what is behind
    it, and these tenants; JSON is YAML."""
    plane = plane or {"name": PLANE, "kind": "openflow", "datapath_id": "0x1"}
    return json.dumps({"version": 1, "planes": [plane, *behind], "tenants": list(tenants)})


def tenant(name: str, ports: dict[str, list[Any]], *routers: dict[str, Any], **quota: int) -> dict[str, Any]:
    """Return a tenant with one slice."""
    return {
        "name": name,
        "slices": [{"plane": PLANE, "ports": ports} | ({"quota": quota} if quota else {})],
        "routers": [router | {"plane": PLANE} for router in routers],
    }


def interface(name: str, host: Host, *addresses: str, **more: Any) -> dict[str, Any]:
    """Return a router's interface on the untagged port of a host."""
    return {"name": name, "port": host.link, "addresses": list(addresses), **more}


# -- traffic ---------------------------------------------------------------------------------------------------------


_STATUS = re.compile(r"\d+/(\d+) packets, ")  # what ping says on SIGQUIT
LATE_S = 10.0
"""How late answers may be at the end, on a busy machine."""


class Traffic:
    """Pings with sequence numbers at a fixed rate, until `stop`."""

    def __init__(self, rig: Rig, host: Host, address: str, interval_s: float = 0.01) -> None:
        self._interval_s = interval_s
        self._path = rig.directory / f"ping-{host.namespace}-{address}"  # a pipe that nobody reads would stop it
        command = ("ping", "-n", "-D", "-i", str(interval_s), address)
        with self._path.open("w") as output:
            self._process = rig.spawn(host, *command, stdout=output, stderr=output)
        # Not before is it there, and able to tell its status.
        until(f"an answer of {address}", lambda: "bytes from" in self._path.read_text())

    def stop(self) -> Stream:
        """End it once all that was sent until now is answered, or late; returns what it saw."""
        self._process.send_signal(signal.SIGQUIT)
        until("ping's status", lambda: _STATUS.search(self._path.read_text()))
        (sent,) = map(int, _STATUS.findall(self._path.read_text()))
        with contextlib.suppress(AssertionError):
            until("the last answers", lambda: (seen := self._seen()).sent >= sent and not seen.lost, LATE_S)
        self._process.send_signal(signal.SIGINT)
        self._process.wait(DEADLINE_S)
        stream = self._seen()
        if stream.sent >= sent:  # what was sent later may be on its way
            return stream
        return Stream(sent, stream.lost + sent - stream.sent, inf, stream.lasted_s)

    def _seen(self) -> Stream:
        return Stream.read(self._path.read_text(), self._interval_s)


@contextlib.contextmanager
def unbroken(rig: Rig, *ways: tuple[Host, str], interval_s: float = 0.01) -> Iterator[None]:
    """Traffic from hosts to addresses; at the end not one packet may have been lost."""
    streams = {(host.link, address): Traffic(rig, host, address, interval_s) for host, address in ways}
    try:
        yield
    finally:
        seen = {way: stream.stop() for way, stream in streams.items()}
    assert all(stream.sent and not stream.lost for stream in seen.values()), f"{seen}\n{rig.account()}"


# -- a neighbor that speaks BGP --------------------------------------------------------------------------------------

# BIRD 2.0.12 forgets to run what sends its routes once a session is up, and sleeps for 3 s unless something wakes it,
# as its look at the interfaces does. Until bgpd (FRR 8.4), which restarts gracefully, has them, it takes a quarter of
# a core.
_BIRD = """router id {ours};
log "{log}" all;
protocol device {{ scan time 1; }}
{feeds}
protocol bgp session {{
    local {ours} as 65001;
    neighbor {theirs} as 65000;
    connect retry time 1; connect delay time 1; error wait time 1, 2;
    hold time 240; graceful restart on;
    ipv4 {{ import none; export filter {{ {hops}accept; }}; }};
}}
"""


class Bird(BirdDaemon):
    """A BIRD on a host that announces named sets of prefixes, each when it is told to."""

    def __init__(
        self, rig: Rig, host: Host, ours: str, theirs: str, elsewhere: Mapping[str, str], **feeds: list[str]
    ) -> None:
        """``elsewhere``: prefixes that are not behind this host, with their next hops."""
        super().__init__(rig.directory / f"bird-{host.link}", host.link, ("ip", "netns", "exec", host.namespace))
        text = "".join(
            f"protocol static {name} {{ disabled; ipv4;\n{''.join(f'route {p} blackhole;' for p in prefixes)} }}\n"
            for name, prefixes in feeds.items()
        )
        hops = "".join(f"if net = {prefix} then bgp_next_hop = {hop}; " for prefix, hop in elsewhere.items())
        self.launch([_BIRD.format(ours=ours, theirs=theirs, log=self.log, feeds=text, hops=hops)])
