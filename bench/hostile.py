"""bench/hostile: what routers that do nobody harm lose while one attacker does all it can, attack by attack.

    m1/r … m20/r     BGP and OSPF with external neighbors, transit, ARP, one route changed each second
    hostile/r        a router whose tenant is hostile, and clients that are: bench/attacks.py
    machine/r        the same in a virtual machine, there for the attack of one alone

Each attack is a JSON line on stderr as well, beside what the attacker saw. The last line of stdout is {"attacks":
[{"name", "sessions_lost", "transit_lost", "route_change_worst_ms", "arp_p99_ms", "loop_stall_max_ms"}]}, all of the
modest ones.
"""

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import machine_newlines
from bench.attacks import MOST_PREPARING_S, OF_OTHERS, OF_ROUTERS, Target
from bench.modest_routers import HOSTS, ModestRouters
from bench.rig import PLANE, STATE, WORK, Rig, interface, report, say, tenant
from bench.watched_controller import StallFile
from lab import machine_root
from lab.commands import ended, last_lines
from lab.control import IMAGE, RUN, SOCKET, Controller
from lab.enclosure import run_enclosed
from lab.network import NetworkError, checked, wait_for
from lab.planes.catalog import DEFAULT, PLANES
from lab.planes.p4runtime import DeviceSwitch
from lab.processes import guest_processes

NONE = "none"
UNANSWERED_RELOAD = "unanswered-reload"
CONTROL_NEWLINES = "control-newlines"
ATTACKS = (NONE, *OF_ROUTERS, UNANSWERED_RELOAD, CONTROL_NEWLINES, *OF_OTHERS)
HOSTILE, MACHINE = "hostile/r", "machine/r"
_TEXT, _MORE = "ip route 192.0.2.0/24 blackhole\n", "ip route 192.0.3.0/24 blackhole\n"
_BEFORE_S, _AFTER_S = 2.0, 1.0
_ENDS_S, _UP_S, _RESTORED_S = 60.0, 300.0, 150.0  # the hold time of 120 s may have to pass
_PREPARED_S = 10.0
_HOLD_S = 12.0  # longer than BGP's here
_STATE_MIB = 256
_VRCTL = (str(Path(sys.executable).parent / "vrctl"), "--socket", str(SOCKET))
_TARGET, _STALLS, _PROBES = WORK / "target.json", WORK / "stalls", WORK / "probes.log"


class UnderAttack:
    """Modest routers and a hostile one, in an enclosure of their own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        WORK.mkdir(parents=True, exist_ok=True)
        self._stalls = StallFile(_STALLS)
        watched = Controller([sys.executable, "-m", "bench.watched_controller", str(_STALLS)])
        self._rig = rig = Rig(PLANES[options.plane](), watched)
        self._modest = ModestRouters(rig, options.routers)
        for name in ("x", "k"):
            rig.network.wire(rig.network.host(name, "10.9.0.2/24"), "eth0", rig.network[PLANE], name)
        self._events = 0
        self._left_out: dict[str, str] = {}
        if not (IMAGE / "image.json").exists():
            self._left_out[CONTROL_NEWLINES] = f"{IMAGE} has no image of a machine; run: make guest"
        if not isinstance(rig.network[PLANE], DeviceSwitch):
            self._left_out["election-ids"] = "the switch does not speak P4Runtime"

    def run(self) -> dict[str, Any]:
        """Bring everything up, attack, and return what it cost the modest ones."""
        rig = self._rig
        # A file system of its own, as a host's disk is one: who fills it does not fill the machine's memory.
        STATE.mkdir(exist_ok=True)
        checked(["mount", "-n", "-t", "tmpfs", "-o", f"mode=755,size={_STATE_MIB}m", "tmpfs", str(STATE)])
        rig.network.start()
        rig.apply([*self._modest.tenants(), self._hostile(_TEXT)], _UP_S)
        say(f"{self._options.routers} routers are up; their neighbors start")
        self._modest.start_neighbors()
        self._write_target()
        found: list[dict[str, Any]] = []
        try:
            for name in self._options.attacks:
                if why := self._left_out.get(name):
                    say(f"{name}: left out: {why}")
                else:
                    self._attacked(name, found)
        except NetworkError as problem:
            if not found:
                raise
            names = [name for name in self._options.attacks if name not in self._left_out]
            left = ", ".join(names[len(found) :]) or "none"
            say(f"not as before the attack {found[-1]['name']}: {problem}; attacks left out: {left}")
        return {"attacks": found}

    @staticmethod
    def _hostile(text: str) -> dict[str, Any]:
        own = {"name": "r", "interfaces": [interface("x", "x", "10.9.0.1/16")], "frr": text}
        return tenant("hostile", ["x"], own)

    @staticmethod
    def _hostile_machine(text: str) -> dict[str, Any]:
        own = {"name": "r", "guest": {"kind": "kvm"}, "interfaces": [interface("k", "k", "10.9.0.1/16")], "frr": text}
        return tenant("machine", ["k"], own)

    def _write_target(self) -> None:
        plane = self._rig.network[PLANE]
        device = plane.device if isinstance(plane, DeviceSwitch) else None
        directory = self._guest_directory(HOSTILE)
        sockets = [str(SOCKET)]
        if (
            device is not None
            and (control := Path(device.address.removeprefix("unix:")).parent / "control.sock").exists()
        ):
            sockets.append(str(control))
        target = Target(
            router=HOSTILE,
            socket=str(RUN / "sessions" / directory.name / "session.sock"),
            identity=str(directory / "identity"),
            openflow=("127.0.0.1", 6653),
            p4runtime=None if device is None else device.address,
            device_id=0 if device is None else device.device_id,
            http=sockets,
            guest=self._rig.guest_pid(HOSTILE),
        )
        if not Path(target.socket).exists():
            raise NetworkError(f"{HOSTILE} has no session socket at {target.socket}")
        _TARGET.write_text(json.dumps(asdict(target)))

    @staticmethod
    def _guest_directory(router: str) -> Path:
        for config in STATE.glob("guests/*/guest.json"):
            if json.loads(config.read_text())["router"] == router:
                return config.parent
        raise NetworkError(f"{router} has no guest")

    def _attacked(self, name: str, found: list[dict[str, Any]]) -> None:
        """Attack once and add what the modest ones saw; returns when all are as before. NetworkError."""
        with self._honest_vrc_stopped(name), self._machine(name):
            if name == "claimed-groups":
                self._leave_unclaimed_groups()
            self._vrc_sessions_lost()
            before = self._modest.sessions_lost()
            with self._probing() as seen:
                time.sleep(_BEFORE_S)
                self._stalls.forget()
                told = self._attack(name)
                time.sleep(_AFTER_S)
                stall_s = self._stalls.longest_s()
        say(f"{name}: the attacker: {told}")
        lost = self._modest.sessions_lost() - before
        lost["vrc"] = self._vrc_sessions_lost()
        say(f"{name}: sessions lost: {dict(+lost)}; {seen}")
        result = {
            "name": name,
            "sessions_lost": lost.total(),
            "transit_lost": seen["lost"],
            "route_change_worst_ms": seen["route_change_worst_ms"],
            "arp_p99_ms": seen["arp_p99_ms"],
            "loop_stall_max_ms": round(1000 * stall_s, 1),
        }
        found.append(result)
        say(json.dumps(result))
        self._restore()

    def _attack(self, name: str) -> str:
        if name == NONE:
            time.sleep(self._options.seconds)
            return "nobody"
        if name == UNANSWERED_RELOAD:
            return self._unanswered_reload()
        if name == CONTROL_NEWLINES:
            return self._control_newlines()
        return self._run_attack(name, self._options.seconds)

    @staticmethod
    def _run_attack(name: str, seconds: float) -> str:
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

    def _unanswered_reload(self) -> str:
        """The first process of the hostile guest stands still while its text changes: nobody answers the reload."""
        first = self._rig.guest_pid(HOSTILE)
        path = _document(self._hostile(_TEXT + _MORE))
        os.kill(first, signal.SIGSTOP)
        try:
            apply = subprocess.Popen(
                [*_VRCTL, "apply", "-f", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(self._options.seconds)
        finally:
            os.kill(first, signal.SIGCONT)
        ended("vrctl apply", apply, 150)
        return f"answered after {self._options.seconds:g} s"

    def _control_newlines(self) -> str:
        """Root of a machine says newlines where the controller waits for answers to what an operator wants."""
        directory, seconds = self._guest_directory(MACHINE), self._options.seconds
        machine_root.run_program(directory, Path(machine_newlines.__file__), str(seconds))
        until = time.monotonic() + seconds
        texts = itertools.cycle((_TEXT + _MORE, _TEXT))
        answers: Counter[str] = Counter()
        while (left_s := until - time.monotonic()) > 0:
            path = _document(self._hostile_machine(next(texts)))
            for words in (("apply", "-f", str(path)), ("exec", MACHINE, "--", "true")):
                answers[f"{words[0]}: {self._answered(words, left_s)}"] += 1
        written: list[int] = []

        def told() -> bool:
            with suppress(NetworkError):  # the controller still has the only connection, for what it has begun
                written.append(int(machine_root.run(directory, "cat", str(machine_newlines.WRITTEN))))
            return bool(written)

        wait_for("how many newlines were written", told, _RESTORED_S, 1)
        octets = written[0]
        if not octets:
            raise NetworkError(f"{MACHINE} could not say a single newline")
        return f"{octets} octets; {dict(answers)}"

    @staticmethod
    def _answered(words: Sequence[str], limit_s: float) -> str:
        """Run vrctl; returns what became of it."""
        try:
            done = subprocess.run([*_VRCTL, *words], capture_output=True, check=False, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return "no answer until the end"
        return "ok" if done.returncode == 0 else done.stderr.decode().strip()[-100:]

    def _leave_unclaimed_groups(self) -> None:
        """Have the switch hold groups of the hostile router that were read back and that nobody claims."""
        self._run_attack("many-groups", _PREPARED_S)
        controller = self._rig.controller
        controller.vrctl("plane", "detach", PLANE)
        controller.vrctl("plane", "attach", PLANE)
        time.sleep(_HOLD_S)  # a session that this cost is lost by then
        self._modest.wait_restored(_RESTORED_S)

    @contextmanager
    def _honest_vrc_stopped(self, name: str) -> Iterator[None]:
        """Let the hostile router's own VRC stand still where an attack takes its place."""
        if name not in OF_ROUTERS and name != "reconnect-storm":
            yield
            return
        vrc = guest_processes(self._rig.guest_pid(HOSTILE))["vrc"]
        os.kill(vrc, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(vrc, signal.SIGCONT)

    @contextmanager
    def _machine(self, name: str) -> Iterator[None]:
        """Have the hostile machine there for the attack that is its own: emulated, it takes a part of a core."""
        if name != CONTROL_NEWLINES:
            yield
            return
        controller = self._rig.controller
        controller.vrctl("apply", "-f", str(_document(self._hostile_machine(_TEXT))))
        wait_for(MACHINE, lambda: self._at_rest(MACHINE), _UP_S, 0.5)
        self._modest.wait_restored(_RESTORED_S)
        yield
        controller.vrctl("delete", "tenant", "machine")

    @contextmanager
    def _probing(self) -> Iterator[dict[str, Any]]:
        """Probe the modest routers inside ``with``; what they saw is in the value afterwards."""
        seen: dict[str, Any] = {}
        with _PROBES.open("wb") as errors:
            command = [sys.executable, "-m", "bench.modest_probes", str(HOSTS)]
            probes = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        assert probes.stdout is not None
        try:
            if probes.stdout.readline() != b"begun\n":
                raise NetworkError(f"the probes ended: {last_lines(_PROBES, 1)}", _PROBES)
            yield seen
            probes.terminate()
            out, _ = probes.communicate(timeout=_ENDS_S)
            seen |= json.loads(out)
        finally:
            probes.kill()
            probes.wait()

    def _restore(self) -> None:
        """Wait until the hostile router is its own again and the modest ones are at rest."""

        def honest() -> bool:
            return self._at_rest(HOSTILE) and self._rig.api.router(HOSTILE)["ipv4_routes"] < 100

        wait_for(f"{HOSTILE} as before", honest, _RESTORED_S, 0.5)
        self._modest.wait_restored(_RESTORED_S)

    def _at_rest(self, router: str) -> bool:
        view = self._rig.api.router(router)
        return view["state"] == "up" and not view["pending"]

    def _vrc_sessions_lost(self) -> int:
        """Return how many sessions of modest routers' VRCs were lost since the last time this was asked."""
        events = self._rig.api.get(f"events?since={self._events}")
        if events:
            self._events = events[-1]["sequence"]
        lost = Counter(event["subject"] for event in events if event["kind"] == "vrc-lost")
        return sum(count for subject, count in lost.items() if subject not in (HOSTILE, MACHINE))


def _document(declared: dict[str, Any]) -> Path:
    """Write a document with that tenant alone."""
    path = WORK / "hostile.yaml"
    path.write_text(json.dumps({"version": 1, "tenants": [declared]}))
    return path


def program() -> int:
    """Measure, inside the enclosure."""
    options = _options()
    return report("hostile", lambda: UnderAttack(options).run(), options.keep)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__.splitlines()[0] if __doc__ else None)
    plane = os.environ.get("PLANE", DEFAULT)
    parser.add_argument("--plane", choices=PLANES, default=plane, help="what forwards (default: $PLANE, %(default)s)")
    parser.add_argument("--routers", type=int, default=20, metavar="N", help="that are modest (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=15, metavar="S", help="of each attack (default: 15)")
    parser.add_argument(
        "--attacks", nargs="*", choices=ATTACKS, default=ATTACKS, metavar="A", help=f"of: {', '.join(ATTACKS)}"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy all logs to DIR at the end")
    return parser.parse_args()


def main() -> int:
    """Check the command line, then measure inside an enclosure."""
    options = _options()
    if not 1 <= options.routers <= 100 or options.seconds <= 0:
        print("hostile: --routers are 1 to 100, --seconds more than 0", file=sys.stderr)
        return 2
    return run_enclosed("hostile", "bench.hostile", program, PLANES[options.plane]().missing)


if __name__ == "__main__":
    sys.exit(main())
