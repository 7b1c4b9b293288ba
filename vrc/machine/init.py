"""vr-machine: pid 1 of a virtual machine, which is a host for one guest and nothing else.

Standard library only. It mounts, reads the seed, and then keeps what the namespace driver keeps on a host:

    host                               machine
    session socket ◄── QEMU ◄── eth0 ◄── session relay ◄── session.sock, bind-mounted into the guest ◄── VRC
    control.sock   ◄── virtio port "splitplane.control" ◄── operations below ◄── control.sock of vr-guest
    terminalN.sock ◄── virtio port "splitplane.terminalN" ◄── a command on a terminal (vrc/machine/terminal.py)
    console.sock   ◄── ttyS0 ◄── what went wrong, what vr-guest logs, and a shell for who presses Enter

The tenant's daemons run in the guest, with namespaces of its own; the link to the session relay is not in there.

Operations; those of vr-guest (status, reload, stop, version: vrc/guest/supervisor.py) are passed on to it:

    {"op": "machine"}     {"ok": true, "version": 1, "memory_mib": 251, "free_mib": 120, "oom_kills": 0,
                           "uptime_s": 9.1, "time_s": 1800000000.25, "supervisor": "up", "restarts": 0,
                           "sessions": {"open": 1, "refused": 0, "failed": 0}}
    {"op": "exec", "argv": […], "stdin": base64, "limit_s": 60, "in": "guest"}      "in" may also be "machine"
                          {"ok": true, "status": 0, "stdout": base64, "stderr": base64, "note": "output cut at …"}
    {"op": "identity", "cert": PEM, "key": PEM, "ca": PEM}      {"ok": true} when the VRC starts again with them
    {"op": "clock", "step_s": -3.5}     {"ok": true} when the clock was put forward (or back) by so much
    {"op": "poweroff"}    {"ok": true}, and the machine ends

A seed that cannot be used is said on the console and as the state of ``supervisor``; the channel works all the same.
"""

import binascii
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from vrc.guest.children import reap
from vrc.guest.privileges import confining
from vrc.guest.reactor import Reactor
from vrc.guest.suites.choice import ids_of, section_of
from vrc.machine import system
from vrc.machine.control import ControlChannel, Operation, Refused, Reply
from vrc.machine.exec import Commands, Ended, ExecError, decode_base64, words_of
from vrc.machine.guest import ANSWER_LIMIT_S, DIRECTORY, KeptGuest, reload_limit_s
from vrc.machine.log import LogTail
from vrc.machine.relay import SessionRelay
from vrc.machine.seed import IDENTITY_FILES, Seed, SeedError, read_seed, write_identity
from vrc.machine.terminal import Terminal

VERSION = 1
SESSION = "/run/splitplane/session"
IDENTITY = "/run/seed/identity"
CONSOLE = "/dev/ttyS0"
STOP_LIMIT_S = 8.0
_MEMORY_LOOK_S = 1.0
_LAUNCHER = ("/usr/bin/python3", "-S", "-s", "-P", "-m", "vrc.guest.supervisor")
_PASSED_ON = ("status", "version")
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "TERM": "vt100"}
_GREETING = "\r\nPress Enter for a shell.\r\n"


class Console:
    """The serial console. Where its reader is too slow, lines are lost and counted: pid 1 never waits."""

    def __init__(self, path: str) -> None:
        self.lost, self.path, self.fd = 0, path, -1
        self.open()

    def open(self) -> None:
        """Open it (again: what is open is cut when a shell that has it as its terminal ends)."""
        if self.fd >= 0:
            os.close(self.fd)
        try:
            self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            self.fd = -1

    def say(self, line: str) -> None:
        """Write one line of our own."""
        self.show(f"vr-machine: {line}")

    def show(self, line: str) -> None:
        """Write one line."""
        try:
            os.write(self.fd, f"{line}\r\n".encode(errors="replace"))
        except OSError:
            self.lost += 1


class Machine:
    """Everything that the first process of a machine keeps."""

    def __init__(self, reactor: Reactor, console: Console) -> None:
        self._reactor, self._console = reactor, console
        self._commands = Commands(reactor)
        self._guest = KeptGuest(reactor, _LAUNCHER, console.say)
        self._confining = confining()
        self._relay: SessionRelay | None = None
        self._config: dict[str, Any] = {}
        self._problem = ""
        self._oom_kills = self._ended_for_memory = 0  # by the kernel, by this process
        self._channels: list[ControlChannel] = []
        self._terminals: list[Terminal] = []
        self._shell = 0
        self._ending = False
        reactor.on_signal(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            reactor.on_signal(number, self._end)
        reactor.on_signal(signal.SIGIO, self._host_changed)

    def serve(self, find_port: Callable[[str], str | None]) -> None:
        """Open the control channel, the terminals' and the console."""
        operations: dict[str, Operation] = dict.fromkeys(_PASSED_ON, self._pass_on)
        operations |= {"reload": self._reload, "stop": self._stop, "machine": self._tell, "exec": self._exec}
        operations |= {"identity": self._identity, "clock": self._step_clock, "poweroff": self._poweroff}
        port = find_port(system.CONTROL_PORT)
        if port is None:
            self._console.say(f"no virtio port called {system.CONTROL_PORT}: this machine cannot be asked anything")
        else:
            self._open_channel(port, operations, lambda: None)
        for number in range(system.TERMINALS):
            if port := find_port(f"{system.TERMINAL_PORT}{number}"):
                terminal = Terminal(self._reactor, self._enter_guest, _ENVIRONMENT)
                self._terminals.append(terminal)
                self._open_channel(port, {"machine": self._tell, **terminal.operations}, terminal.hang_up)
        self._watch_memory()
        self._offer_shell()

    def _open_channel(self, port: str, operations: Mapping[str, Operation], on_end: Callable[[], None]) -> None:
        fd = os.open(port, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        system.notify_by_signal(fd)
        self._channels.append(ControlChannel(self._reactor, fd, operations, on_end))

    def begin(self, seed_device: str) -> None:
        """Read the seed and start the guest; what is wrong is said and kept as the state of the supervisor."""
        try:
            seed = read_seed(seed_device)
        except SeedError as error:
            self._fail(f"seed: {error}")
            return
        try:
            self._prepare(seed)
        except (OSError, KeyError, TypeError, ValueError, OverflowError) as error:
            self._fail(f"the guest cannot be prepared: {error!r}")
            return
        self._guest.start()
        LogTail(self._reactor, f"{DIRECTORY}/guest.log", self._show_log)

    def _show_log(self, line: str) -> None:
        if not self._shell:  # whoever types in there reads the log's end afterwards
            self._console.show(line)

    def _fail(self, problem: str) -> None:
        self._problem = f"failed: {problem}"
        self._console.say(problem)

    def _prepare(self, seed: Seed) -> None:
        if system.correct_clock(seed.time_s):
            self._console.say("the clock was wrong and was set by the seed")
        socket.sethostname(seed.hostname)
        system.bring_up_network()
        self._config = own_ids(seed.guest)
        vrc_uid = self._config["vrc"]["uid"]
        for path, mode in ((DIRECTORY, 0o700), (SESSION, 0o755)):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, mode)
        write_identity(IDENTITY, seed.identity, vrc_uid)
        self._write_config()
        self._relay = SessionRelay(self._reactor, f"{SESSION}/session.sock", vrc_uid, seed.session, self._console.say)

    def _write_config(self) -> None:
        new = f"{DIRECTORY}/guest.json.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(self._config, file)
        os.replace(new, f"{DIRECTORY}/guest.json")

    # ── operations ──

    def _pass_on(
        self, request: dict[str, Any], reply: Reply, *, limit_s: float = ANSWER_LIMIT_S, patient: bool = False
    ) -> None:
        if self._problem:
            raise Refused(self._problem)
        passed = {name: value for name, value in request.items() if name != "id"}
        self._guest.ask(json.dumps(passed).encode(), reply, limit_s=limit_s, patient=patient)

    def _reload(self, request: dict[str, Any], reply: Reply) -> None:
        config = own_ids(request["config"])

        def applied(answer: dict[str, Any]) -> None:
            if answer["ok"]:  # a guest that is started again has the new one
                self._config = config
                try:
                    self._write_config()
                except OSError as error:  # the tenant's daemons may have filled /run
                    self._console.say(f"a guest that is started again will not have this change: {error.strerror}")
            reply(answer)

        limit_s = reload_limit_s(section_of(config)[1])
        self._pass_on({**request, "config": config}, applied, limit_s=limit_s, patient=True)

    def _stop(self, _request: dict[str, Any], reply: Reply) -> None:
        self._guest.stop(lambda: reply({"ok": True}), STOP_LIMIT_S)

    def _tell(self, _request: dict[str, Any], reply: Reply) -> None:
        total, free, kills = system.memory()
        reply(
            {
                "ok": True,
                "version": VERSION,
                "memory_mib": total,
                "free_mib": free,
                "oom_kills": kills + self._ended_for_memory,
                "uptime_s": round(system.uptime_s(), 1),
                "time_s": time.time(),
                "supervisor": self._problem or self._guest.state,
                "restarts": self._guest.restarts,
                "sessions": self._relay.counts if self._relay else {},
            }
        )

    def _exec(self, request: dict[str, Any], reply: Reply) -> None:
        try:
            argv = words_of(request["argv"])
            stdin = decode_base64(request.get("stdin") or "")
        except ExecError as error:
            raise Refused(f"exec: {error}") from error
        if request.get("in", "guest") == "machine":
            program = shutil.which(argv[0], path=_ENVIRONMENT["PATH"])
            if not program:
                raise Refused(f"exec: {argv[0]}: not found")
            argv = [program, *argv[1:]]
        else:
            argv = [*self._enter_guest(), *argv]

        def ended(end: Ended) -> None:
            out, err = (binascii.b2a_base64(data, newline=False).decode() for data in (end.stdout, end.stderr))
            note = {"note": end.note} if end.note else {}
            reply({"ok": True, "status": end.status, "stdout": out, "stderr": err, **note})

        try:
            self._commands.run(argv, _ENVIRONMENT, stdin, float(request.get("limit_s", 60)), ended)
        except ExecError as error:
            raise Refused(f"exec: {error}") from error

    def _enter_guest(self) -> list[str]:
        """Return what goes before a command that runs in the guest, as confined as what is there."""
        pid = self._guest.pid
        if not pid:
            raise Refused(f"the guest does not run ({self._problem or self._guest.state})")
        flags = ["--mount", "--net", "--pid", "--ipc", "--uts"]
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
                flags.insert(0, "--user")
        return ["/usr/bin/nsenter", "--target", str(pid), *flags, "--", *self._confining]

    def _identity(self, request: dict[str, Any], reply: Reply) -> None:
        if self._problem:
            raise Refused(self._problem)
        identity = {name: str.encode(request[name.partition(".")[0]]) for name in IDENTITY_FILES}
        uid = self._config["vrc"]["uid"]
        try:
            write_identity(IDENTITY, identity, uid)
        except OSError as error:
            raise Refused(f"identity: {error.strerror}") from error
        # The VRC reads its certificate when it connects, so it has to connect anew: vr-guest starts it again, and
        # holds its interfaces meanwhile.
        for pid in processes_of(uid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        reply({"ok": True})

    def _step_clock(self, request: dict[str, Any], reply: Reply) -> None:
        step_s = float(request["step_s"])
        try:
            system.step_clock(step_s)
        except OSError as error:
            raise Refused(f"clock: {error.strerror}") from error
        self._console.say(f"the clock was set {'forward' if step_s > 0 else 'back'} by {abs(step_s):.1f} s")
        reply({"ok": True})

    def _poweroff(self, _request: dict[str, Any], reply: Reply) -> None:
        reply({"ok": True})
        self._end()

    # ── events ──

    def _reap(self) -> None:
        for pid, exit_status in reap():
            if pid == self._shell:
                self._shell_ended()
            elif any(terminal.reaped(pid, exit_status) for terminal in self._terminals):
                continue
            elif not self._commands.reaped(pid, exit_status):
                self._guest.reaped(pid, exit_status)

    def _host_changed(self) -> None:
        for channel in self._channels:
            channel.resume()

    def _watch_memory(self) -> None:
        total, free, kills = system.memory()
        if kills > self._oom_kills:
            self._console.say(f"out of memory: the kernel killed a process; {total} MiB are too little")
            self._oom_kills = kills
        if system.is_scarce(total, free):
            self._end_largest(total)
        self._reactor.call_later(_MEMORY_LOOK_S, self._watch_memory)

    def _end_largest(self, total_mib: int) -> None:
        pid, name = system.largest_process({1, self._guest.pid})
        with contextlib.suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGKILL)
                self._ended_for_memory += 1
                self._console.say(f"out of memory: {name} was killed; {total_mib} MiB are too little")

    def _end(self) -> None:
        if self._ending:
            return
        self._ending = True
        self._console.say("ending")
        self._guest.stop(self._reactor.stop, STOP_LIMIT_S)

    # ── the console's shell ──

    def _offer_shell(self) -> None:
        if self._console.fd >= 0 and not self._ending:
            with contextlib.suppress(OSError):
                os.write(self._console.fd, _GREETING.encode())
            self._reactor.add_reader(self._console.fd, self._start_shell)

    def _start_shell(self) -> None:
        self._reactor.remove_reader(self._console.fd)
        with contextlib.suppress(OSError):
            os.read(self._console.fd, 4096)
        enter = []
        with contextlib.suppress(Refused):
            enter = self._enter_guest()
        where = "guest" if enter else "machine: the guest does not run"
        with contextlib.suppress(OSError):
            os.write(self._console.fd, f"This is the {where}. Leave with exit.\r\n".encode())
        argv = ["/usr/bin/setsid", "--ctty", *enter, "/bin/sh", "-i"]
        actions = [(os.POSIX_SPAWN_OPEN, fd, CONSOLE, os.O_RDWR, 0) for fd in (0, 1, 2)]
        try:
            self._shell = os.posix_spawn(argv[0], argv, _ENVIRONMENT, file_actions=actions)
        except OSError as error:
            self._console.say(f"no shell: {error}")
            self._shell_ended()

    def _shell_ended(self) -> None:
        self._shell = 0
        self._console.open()
        self._offer_shell()


def own_ids(config: dict[str, Any]) -> dict[str, Any]:
    """Return guest.json with the ids that its suite's user and groups have in this image.

    KeyError, TypeError or ValueError where it is none, or for a suite that the image does not have.
    """
    name, section = section_of(config)
    ids = ids_of(name, section)
    if ids is None:
        raise KeyError(f"the image has no user for {name}")
    return {**config, name: {**section, "ids": ids}}


def processes_of(uid: int) -> list[int]:
    """Return the processes of that user."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{entry}").st_uid == uid:
                found.append(int(entry))
    return found


def seed_device(command_line: str) -> str:
    """Return the disk that the kernel's command line names as the seed."""
    words = (word.partition("=") for word in command_line.split())
    return next((value for name, _, value in words if name == "splitplane.seed"), "/dev/vdb")


def main() -> int:
    """Be the first process of a machine; returns only where it is not."""
    if os.getpid() != 1:
        print("vr-machine: this is the first process of a virtual machine, and runs nowhere else", file=sys.stderr)
        return 2
    refused = system.mount_all()
    console = Console(CONSOLE)
    os.environ["PYTHONPATH"] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    system.stay_in_memory()
    reactor = Reactor()
    machine = Machine(reactor, console)
    for problem in refused:
        console.say(problem)
    _guarded(console, lambda: machine.serve(system.find_port))
    with open("/proc/cmdline") as file:
        machine.begin(seed_device(file.read()))
    _guarded(console, reactor.run)
    system.power_off()
    return 1


def _guarded(console: Console, work: Callable[[], None]) -> None:
    """The end of pid 1 is a kernel panic: where something is wrong with it, one line says what."""
    try:
        work()
    except Exception as error:  # noqa: BLE001
        console.say(f"ends: {error!r}")
        system.power_off()


if __name__ == "__main__":
    sys.exit(main())
