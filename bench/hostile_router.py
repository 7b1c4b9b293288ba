"""The attackers of bench/hostile, and what is there for them: a hostile router, its hosts, a hostile machine.

host x ── x [ hostile/r ] y ── host y      the tenant is root in its guest and has its certificate
host k ── k [ machine/r ]                  the same in a virtual machine, there for the attack of one alone
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bench import machine_newlines
from bench.attacks import floods, guest_root
from bench.attacks.clients import OF_CLIENTS
from bench.attacks.floods import BEYOND, HOST, HOST_6, OF_HOSTS, ROUTER, ROUTER_6, SMALL_MTU, SWEPT
from bench.attacks.guest_root import OF_ROOT
from bench.attacks.messages import OF_ROUTERS
from bench.attacks.session import MOST_PREPARING_S, OF_CERTIFICATE
from bench.attacks.target import Target
from bench.rig import PLANE, WORK, Rig, interface, take_generated, tenant
from lab import generator, machine_root
from lab.commands import ended, last_lines, output
from lab.control import IMAGE, RUN, SOCKET, guest_logs
from lab.enclosure import STATE
from lab.guest_root import GuestRoot
from lab.network import NetworkError, checked, inside, wait_for
from lab.planes.bmv2 import OWN_SYSFS
from lab.planes.p4runtime import DeviceSwitch
from lab.processes import cpu_s, guest_processes

HOSTILE, MACHINE = "hostile/r", "machine/r"
UNANSWERED_RELOAD, CONTROL_NEWLINES, RANDOM_ACCESS = "unanswered-reload", "control-newlines", "random-access"
ATTACKS = (
    *(*OF_ROUTERS, UNANSWERED_RELOAD, CONTROL_NEWLINES, *OF_CERTIFICATE, *OF_CLIENTS),
    *(*OF_HOSTS, *OF_ROOT, RANDOM_ACCESS),
)
UP_S, RESTORED_S = 300.0, 150.0
"""How long a router may take to be up, and to be as before: the hold time of 120 s may have to pass."""

_HOP = "10.10.0.2"
_ROUTE = f"ip route {BEYOND} {_HOP}\n"
_TEXT, _MORE = f"ip route 192.0.2.0/24 blackhole\n{_ROUTE}", "ip route 192.0.3.0/24 blackhole\n"
_ACCESSED_MIB = 1024
_PREPARED_S = 10.0
_HOLD_S = 12.0  # longer than BGP's here
_ENDS_S = 60.0
_TARGET, _FRAMES = WORK / "target.json", WORK / "frames"
_VRCTL = (str(Path(sys.executable).parent / "vrctl"), "--socket", str(SOCKET))


class Attackers:
    """Whoever is hostile, on the rig's plane; made before the network starts."""

    def __init__(self, rig: Rig, flood_pps: float) -> None:
        """``flood_pps`` is the rate of floods, in frames/s."""
        self._rig, self._flood_pps = rig, flood_pps
        network = rig.network
        self._host = network.host("x", f"{HOST}/16", f"{HOST_6}/64", gateways=[ROUTER])
        hop = network.host("y", f"{_HOP}/24", gateways=["10.10.0.1"])
        for name, host in (("x", self._host), ("y", hop), ("k", network.host("k"))):
            network.wire(host, "eth0", network[PLANE], name)
        self.left_out: dict[str, str] = {}
        """Attacks that cannot be made here, and why."""
        if not (IMAGE / "image.json").exists():
            self.left_out[CONTROL_NEWLINES] = f"{IMAGE} has no image of a machine; run: make guest"
        if not isinstance(network[PLANE], DeviceSwitch):
            self.left_out["election-ids"] = "the switch does not speak P4Runtime"

    def tenant(self, text: str = _TEXT) -> dict[str, Any]:
        """Return the hostile tenant, for `Rig.apply`."""
        near = interface("x", "x", f"{ROUTER}/16", f"{ROUTER_6}/64")
        swept = SWEPT.replace(".0/", ".1/")
        far = interface("y", "y", "10.10.0.1/24", swept) | {"mtu": SMALL_MTU}
        return tenant("hostile", ["x", "y"], {"name": "r", "interfaces": [near, far], "frr": text})

    @staticmethod
    def _machine_tenant(text: str) -> dict[str, Any]:
        own = {"name": "r", "guest": {"kind": "kvm"}, "interfaces": [interface("k", "k", "10.9.0.1/16")], "frr": text}
        return tenant("machine", ["k"], own)

    def prepare(self) -> None:
        """Look up what attacks need, once the hostile router is up."""
        plane = self._rig.network[PLANE]
        device = plane.device if isinstance(plane, DeviceSwitch) else None
        directory = self._guest_directory(HOSTILE)
        control = Path(device.address.removeprefix("unix:")).parent / "control.sock" if device is not None else None
        target = Target(
            router=HOSTILE,
            socket=str(RUN / "sessions" / directory.name / "session.sock"),
            identity=str(directory / "identity"),
            openflow=("127.0.0.1", 6653),
            p4runtime=None if device is None else device.address,
            device_id=0 if device is None else device.device_id,
            api=str(SOCKET),
            control=str(control) if control is not None and control.exists() else None,
            guest=self._rig.guest_pid(HOSTILE),
        )
        if not Path(target.socket).exists():
            raise NetworkError(f"{HOSTILE} has no session socket at {target.socket}")
        target.write(_TARGET)
        self._take_floods()
        wait_for(f"{HOSTILE} forwards to {_HOP}", self._reaches_next_hop, RESTORED_S, 0.5)

    def _take_floods(self) -> None:
        """Have the switch's end of the host's cable take what the generator sends, in its own time."""
        take_generated(self._rig, "x")
        if self._rig.network.planes.polled:  # at the priority of a kernel thread: the host itself runs at nice 19
            checked([*OWN_SYSFS, "sh", "-c", "echo 1 > /sys/class/net/x/threaded"])

    def _reaches_next_hop(self) -> bool:
        return "bytes from" in output(inside(self._host, ["ping", "-n", "-c", "1", "-W", "1", _HOP]))

    @staticmethod
    def _guest_directory(router: str) -> Path:
        for config in STATE.glob("guests/*/guest.json"):
            if json.loads(config.read_text())["router"] == router:
                return config.parent
        raise NetworkError(f"{router} has no guest")

    # ── one attack ──

    @contextmanager
    def ready(self, name: str, restored: Callable[[], None]) -> Iterator[None]:
        """Have there what an attack needs while inside ``with``; ``restored`` waits for the modest ones."""
        with self._honest_vrc_stopped(name), self._machine(name, restored):
            if name == "claimed-groups":
                self._leave_unclaimed_groups(restored)
            yield

    def attack(self, name: str, seconds: float) -> str:
        """Attack for so long; returns what the attacker saw, and what was counted of its router. NetworkError."""
        before = self._counted()
        told = self._attack(name, seconds)
        return f"{told}; counted of {HOSTILE}: {dict(self._counted() - before)}"

    def _attack(self, name: str, seconds: float) -> str:
        if name == UNANSWERED_RELOAD:
            return self._unanswered_reload(seconds)
        if name == CONTROL_NEWLINES:
            return self._control_newlines(seconds)
        if name == RANDOM_ACCESS:
            with self.random_access(seconds) as accesses_per_s:
                pass
            return f"{accesses_per_s[0]:,.0f} reads and writes a second over {_ACCESSED_MIB} MiB"
        if name in OF_HOSTS:
            return self._flood(name, seconds)
        if name in OF_ROOT:
            return self._as_root(name, seconds)
        return self._as_client(name, seconds)

    def _counted(self) -> Counter[str]:
        """Return what the plane and the controller have counted of the hostile router's packets."""
        view = self._rig.api.get(f"routers/{HOSTILE}/counters")
        found = Counter({f"{name} {key}": n for name, one in view["interfaces"].items() for key, n in one.items()})
        for kind in ("punts", "relayed", "drops"):
            found.update({f"{kind} {name}": count for name, count in view[kind].items()})
        return Counter({name: count for name, count in found.items() if not name.endswith("_bytes")})

    def _as_client(self, name: str, seconds: float) -> str:
        command = [sys.executable, "-m", "bench.attacks", name, str(_TARGET), str(seconds)]
        log = WORK / f"attack-{name}.log"
        with log.open("wb") as out:
            attacker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            try:
                ended(f"the attack {name}", attacker, MOST_PREPARING_S + seconds + _ENDS_S, log)
            finally:
                attacker.kill()
                attacker.wait()
        if attacker.returncode:
            raise NetworkError(f"the attack {name} failed: {last_lines(log, 1)}", log)
        return last_lines(log, 1)[0]

    def _flood(self, name: str, seconds: float) -> str:
        """The host sends what the router has to look at."""
        flood = OF_HOSTS[name]
        macs = {(one["router"], one["name"]): one["mac"] for one in self._rig.api.get("interfaces")}
        link = floods.Link(
            *(bytes.fromhex(mac.replace(":", "")) for mac in (self._host.MAC("eth0"), macs[HOSTILE, "x"]))
        )
        _FRAMES.write_bytes(flood.heads(link))
        words = ("flood", "eth0", str(_FRAMES))
        refused = self._refused()
        with generator.conversation(self._host, *words, before=("nice", "-n", "19"), preferred=False) as sender:
            busy_s = cpu_s(sender.pid)
            frames, took_s = generator.sent(sender, flood.length, self._flood_pps, seconds)
            busy_s = cpu_s(sender.pid) - busy_s
        came_of = floods.CameOf(frames, took_s, busy_s, self._refused() - refused)
        return came_of.told(self._flood_pps)

    def _refused(self) -> int:
        """Return how many frames of the host the switch's end of its cable had no room for so far."""
        statistics = output(inside(self._host, ["ethtool", "-S", "eth0"]))
        lines = (line.strip().partition("_xdp_xmit_errors: ") for line in statistics.splitlines())
        return sum(int(count) for queue, _, count in lines if count)

    def _as_root(self, name: str, seconds: float) -> str:
        """Root of the guest runs a program in it."""
        counted = os.eventfd(0, os.EFD_NONBLOCK)
        try:
            words = ("/usr/bin/python3", "-", name, f"{seconds:g}", str(counted))
            root = GuestRoot(HOSTILE, self._guest_directory(HOSTILE))
            said = root.run(words, seconds + _ENDS_S, Path(guest_root.__file__).read_bytes(), [counted])
            with suppress(BlockingIOError):
                return f"{os.eventfd_read(counted):,} {guest_root.COUNTED[name]}{said}"
            raise NetworkError(f"the attack {name} did nothing{said}")
        finally:
            os.close(counted)

    @contextmanager
    def random_access(
        self, seconds: float, mib: int = _ACCESSED_MIB, core: int | None = None
    ) -> Iterator[list[float]]:
        """Root of the guest reads and writes so much memory at random for so long, from the begin of ``with`` on.

        How many times a second it did both is in the value afterwards. It runs on any core where none is given.
        """
        accesses_per_s: list[float] = []
        with ExitStack() as stack:
            program = os.open(generator.RANDOM_ACCESS, os.O_RDONLY)
            stack.callback(os.close, program)
            words = [f"/proc/self/fd/{program}", str(mib), f"{seconds:g}"]
            if core is not None:
                words = ["/usr/bin/taskset", "-c", str(core), *words]
            process = GuestRoot(HOSTILE, self._guest_directory(HOSTILE)).start(words, [program])
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            if process.stdout.readline() != b"begun\n":
                _, err = process.communicate()
                raise NetworkError(f"the attack {RANDOM_ACCESS} did not begin: {err.decode(errors='replace')[-200:]}")
            yield accesses_per_s
            out, err = process.communicate(timeout=seconds + _ENDS_S)
            if process.returncode:
                raise NetworkError(f"the attack {RANDOM_ACCESS} ended: {process.returncode} {err.decode()[-200:]}")
            accesses_per_s.append(int(out) / seconds)

    def _unanswered_reload(self, seconds: float) -> str:
        """The first process of the hostile guest stands still while its text changes: nobody answers the reload."""
        first = self._rig.guest_pid(HOSTILE)
        path = _document(self.tenant(_TEXT + _MORE))
        os.kill(first, signal.SIGSTOP)
        try:
            apply = subprocess.Popen(
                [*_VRCTL, "apply", "-f", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(seconds)
        finally:
            os.kill(first, signal.SIGCONT)
        ended("vrctl apply", apply, 150)
        return f"answered after {seconds:g} s"

    def _control_newlines(self, seconds: float) -> str:
        """Root of a machine says newlines where the controller waits for answers to what an operator wants."""
        directory = self._guest_directory(MACHINE)
        machine_root.run_program(directory, Path(machine_newlines.__file__), str(seconds))
        until = time.monotonic() + seconds
        texts = itertools.cycle((_MORE, ""))
        answers: Counter[str] = Counter()
        while (left_s := until - time.monotonic()) > 0:
            path = _document(self._machine_tenant(next(texts)))
            for words in (("apply", "-f", str(path)), ("exec", MACHINE, "--", "true")):
                answers[f"{words[0]}: {_answered(words, left_s)}"] += 1
        written: list[int] = []

        def told() -> bool:
            with suppress(NetworkError):  # the controller still has the only connection, for what it has begun
                written.append(int(machine_root.run(directory, "cat", str(machine_newlines.WRITTEN))))
            return bool(written)

        wait_for("how many newlines were written", told, RESTORED_S, 1)
        octets = written[0]
        if not octets:
            raise NetworkError(f"{MACHINE} could not say a single newline")
        return f"{octets} octets; {dict(answers)}"

    # ── before and after ──

    def _leave_unclaimed_groups(self, restored: Callable[[], None]) -> None:
        """Have the switch hold groups of the hostile router that were read back and that nobody claims."""
        self._as_client("many-groups", _PREPARED_S)
        controller = self._rig.controller
        controller.vrctl("plane", "detach", PLANE)
        controller.vrctl("plane", "attach", PLANE)
        time.sleep(_HOLD_S)  # a session that this cost is lost by then
        restored()

    @contextmanager
    def _honest_vrc_stopped(self, name: str) -> Iterator[None]:
        """Let the hostile router's own VRC stand still where an attack takes its place."""
        if name not in OF_ROUTERS and name not in OF_CERTIFICATE:
            yield
            return
        vrc = guest_processes(self._rig.guest_pid(HOSTILE))["vrc"]
        os.kill(vrc, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(vrc, signal.SIGCONT)

    @contextmanager
    def _machine(self, name: str, restored: Callable[[], None]) -> Iterator[None]:
        """Have the hostile machine there for the attack that is its own: emulated, it takes a part of a core."""
        if name != CONTROL_NEWLINES:
            yield
            return
        controller = self._rig.controller
        controller.vrctl("apply", "-f", str(_document(self._machine_tenant(""))))
        wait_for(MACHINE, lambda: self._at_rest(MACHINE), UP_S, 0.5)
        restored()
        yield
        controller.vrctl("delete", "tenant", "machine")

    def wait_restored(self) -> None:
        """Wait until the hostile router is its own again. NetworkError where it is not to be."""

        def honest() -> bool:
            return self._at_rest(HOSTILE) and self._rig.api.router(HOSTILE)["ipv4_routes"] < 100

        def seen() -> tuple[str, list[Path]]:
            view = self._rig.api.router(HOSTILE)
            shown = ", ".join(f"{key} {view[key]}" for key in ("state", "reason", "pending", "ipv4_routes"))
            return shown, guest_logs([HOSTILE])

        wait_for(f"{HOSTILE} as before", honest, RESTORED_S, 0.5, seen=seen)

    def _at_rest(self, router: str) -> bool:
        view = self._rig.api.router(router)
        return view["state"] == "up" and not view["pending"]


def _answered(words: Sequence[str], limit_s: float) -> str:
    """Run vrctl; returns what became of it."""
    try:
        done = subprocess.run([*_VRCTL, *words], capture_output=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return "no answer until the end"
    return "ok" if done.returncode == 0 else done.stderr.decode().strip()[-100:]


def _document(declared: dict[str, Any]) -> Path:
    """Write a document with that tenant alone."""
    path = WORK / "hostile.yaml"
    path.write_text(json.dumps({"version": 1, "tenants": [declared]}))
    return path
