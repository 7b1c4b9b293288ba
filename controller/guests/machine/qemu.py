"""Guests in virtual machines of this host: QEMU around the same enclosed guest that the namespace driver runs.

    DIRECTORY/                 0700, root
        guest.json             what the guest inside was started with, paths as they are there
        machine.json           what the machine around it was started with
        guest.pid  guest.lock  QEMU's process, as for guests in namespaces
        seed.img               the machine's second disk (seed.py)
        control.sock           the guest's control channel; console.sock, qmp.sock
        console.log            what the machine prints since it started; console.log.1 before that
        qemu.log               what QEMU itself complains about
        relay/                 locks and counter of the session link (relay.py)

QEMU is no child of the controller: it is found again by guest.pid, and spoken with over its sockets.
"""

import asyncio
import contextlib
import json
import shutil
import stat
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from controller.errors import GuestError
from controller.guests import control, handshake, launcher, limits, pidfile, startup
from controller.guests.base import BOOTING, BUSY, GuestSpec, GuestStatus, failing
from controller.guests.guest_files import make_directory, note_change, read_config, replace_file, write_config
from controller.guests.guest_json import (
    RELOAD_LIMIT_S,
    Place,
    enclosure_of,
    guest_config,
    section_changed,
    vrc_command,
)
from controller.guests.machine import console, image, monitor, relay, seed, terminal
from controller.guests.machine.accelerator import DEVICE, AcceleratorProbe
from controller.guests.machine.command_line import (
    QEMU,
    Accelerator,
    Sizes,
    machine_command,
)
from controller.guests.machine.console_log import CONSOLE_LOG, QEMU_LOG, bound_console, last_line, last_words
from controller.guests.machine.image_digests import ImageDigests
from controller.guests.machine.monitor import Monitor
from controller.guests.machine.readings import (
    CLOCK_TOLD_S,
    Machine,
    clock_step_s,
    digest,
    limits_of,
    machine_state,
    read_machine,
    write_machine,
)
from controller.guests.machine.relay import SLOTS
from controller.guests.shutdown import end_guest, ended
from controller.guests.suites import frr
from controller.guests.suites.choice import SUITES
from controller.guests.users import SETPRIV, as_user, machine_uid
from controller.model import GuestKind, RouterConfig, Routing, Suite

BOOT_LIMIT_S = 60.0
REPLACE_AFTER_S = 90.0
"""A machine that has been asked in vain for so long, or whose guest has, a change starts anew. A command may have its
channel for 60 s."""
STATUS_LIMIT_S = 3.0
STOP_LIMIT_S = 8.0
QUIT_LIMIT_S = 3.0
LOOK_EVERY_S = 10.0

# By the name of its descriptor in the launcher.
_SOCKETS = {"QMP": monitor.SOCKET, "CONTROL": handshake.SOCKET, "CONSOLE": console.SOCKET} | {
    f"TERMINAL{number}": terminal.socket_of(number) for number in range(terminal.TERMINALS)
}

# Inside a machine: where its first process puts what comes with the seed (vrc/machine/init.py).
_PLACE = Place(
    directory="/run/guest",
    session="/run/splitplane/session",
    identity="/run/seed/identity",
    code=(),
    hidden=("/run/seed", "/root", "/home"),
    app="/usr/lib/splitplane/app",
    ids=None,
)
_PYTHON = "/usr/bin/python3"
_ROOT = Path(launcher.__file__).parents[2]


@dataclass(slots=True)
class _Contact:
    """What this controller knows of one machine."""

    monitor: Monitor | None = None
    answered: int = 0  # pid of the machine whose guest has answered
    silent_since_s: float = inf  # when it was first asked in vain; since then it has not answered
    busy_since_s: float = inf  # when its guest was first asked in vain, though the machine answered
    looked_s: float = -inf
    refused: int = 0  # connections turned away, as last seen
    stepped_s: float = 0.0  # by how much its clock was put forward, where the operator is still to be told
    trouble: str | None = None  # None: not looked yet
    strays: control.Strays = field(default_factory=control.Strays)
    held: int = 0  # of these, how often reading was held, as last seen

    def heard(self, pid: int) -> None:
        """Note that the machine has answered, or (0) that it runs no more."""
        if pid != self.answered:
            self.busy_since_s = inf
        self.answered, self.silent_since_s = pid, inf

    def asked_in_vain(self) -> float:
        """Note that the machine did not answer; returns for how many seconds it has not."""
        now = time.monotonic()
        self.silent_since_s = min(self.silent_since_s, now)
        return now - self.silent_since_s

    def guest_asked_in_vain(self) -> float:
        """Note that the machine answered and its guest did not; returns for how many seconds it has not."""
        now = time.monotonic()
        self.busy_since_s = min(self.busy_since_s, now)
        return now - self.busy_since_s

    def guest_hangs(self) -> bool:
        """Tell whether its guest was asked in vain for so long that it has to be started anew."""
        return time.monotonic() - self.busy_since_s >= REPLACE_AFTER_S


class QemuDriver:
    """Runs guests in virtual machines; `hidden` are directories of the controller that no QEMU may see."""

    def __init__(
        self,
        image_directory: Path,
        probe: AcceleratorProbe,
        hidden: Sequence[Path] = (),
        policy: limits.Policy = limits.STRICT,
    ) -> None:
        self._image, self._probe, self._hidden, self._policy = image_directory, probe, tuple(hidden), policy
        # By directory; each is there for as long as somebody has it or waits for it.
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
        self._contacts: defaultdict[Path, _Contact] = defaultdict(_Contact)  # by directory
        self._reloads = control.Reloads(RELOAD_LIMIT_S[GuestKind.KVM], shared=True)
        self._digests = ImageDigests()

    async def check(self, router: RouterConfig) -> list[str]:
        """Tell before anything is stored whether a guest could start; GuestError says why not.

        Returns what the operator should know, a line each.
        """
        guest = router.guest
        own_image = self._image_of(guest.image, guest.memory_mib, router.full_name)
        remarks = await self._digests.check(own_image, router.full_name)
        seed.require_room(router.full_name, router.routing)
        await _check_text(router.full_name, router.routing)
        tried = frr.remarks_on(own_image.frr) if router.routing.suite is Suite.FRR and own_image.frr else []
        return remarks + tried

    async def start(self, spec: GuestSpec) -> None:
        """Start the machine, or adopt it and apply what changed; see GuestDriver.start.

        Returns once QEMU runs: the machine boots meanwhile, as its state says.
        """
        guest = spec.guest
        own_image = self._image_of(guest.image, guest.memory_mib, spec.router)
        wanted = Machine(guest.memory_mib, guest.vcpus, str(own_image.directory))
        config = guest_config(spec, _PLACE, vrc_command(spec, _PYTHON))
        async with self._lock(spec):
            running = self.running(spec)
            former = read_config(spec.directory) if running else None
            if section_changed(former, config):
                await _check_text(spec.router, spec.routing)
            identity = seed.read_identity(spec.identity, spec.router)
            seed.make_seed(config, identity, 0)  # too long a text would be taken, and the machine not start again
            if not spec.session.is_dir():
                raise GuestError(f"{spec.router}: {spec.session} is not a directory")
            machine = read_machine(spec.directory)
            if former is not None and machine is not None and wanted.same_as(machine):
                await self._meet(spec)
                if await self._changed_inside(spec, machine, former, config, identity):
                    return
            await self._stop(spec)
            await self._launch(spec, wanted, own_image, config, identity)

    async def stop(self, spec: GuestSpec) -> None:
        """End the machine and wait until QEMU is gone; its directory stays."""
        async with self._lock(spec):
            await self._stop(spec)

    async def delete(self, spec: GuestSpec) -> None:
        """Stop the machine and remove its directory and control groups."""
        async with self._lock(spec):
            await self._stop(spec)
            limits.remove(spec.directory)
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(spec.directory)
        self._contacts.pop(spec.directory, None)
        self._reloads.forget(spec.directory)

    async def status(self, spec: GuestSpec) -> GuestStatus:
        """Tell what runs: the state of ``machine``, then the daemons inside. A clock that is wrong is set."""
        pid = pidfile.find(spec.directory)
        if not pid:
            return GuestStatus(False, 0, {}, 0)
        contact, told = self._contacts[spec.directory], self._told(spec)
        state = ""
        try:
            limit_s, strays = STATUS_LIMIT_S, contact.strays
            async with control.conversation(spec.directory, spec.router, limit_s, shared=True, strays=strays) as talk:
                contact.heard(pid)
                machine = talk.machine
                state = machine_state(machine, spec.guest.memory_mib)
                if step_s := clock_step_s(machine, talk.asked_at_s, talk.answered_at_s):
                    with contextlib.suppress(control.Refusal):  # an image without that operation
                        await talk.ask({"op": "clock", "step_s": step_s})
                        if abs(step_s) >= CLOCK_TOLD_S:
                            contact.stepped_s = step_s
                inside = await talk.ask({"op": "status"})
        except GuestError as problem:
            states, restarts = self._unanswered(spec, pid, state, problem), 0
        else:
            contact.busy_since_s = inf
            daemons, restarts = control.states_inside(inside)
            states = {"machine": state} | daemons
        return GuestStatus(bool(self.running(spec)), pid, states | told, restarts)

    async def close(self) -> None:
        """Leave all monitors; the machines run on."""
        for contact in self._contacts.values():
            if (known := contact.monitor) is not None:
                contact.monitor = None
                await known.close()

    def running(self, spec: GuestSpec) -> int:
        """Return QEMU's process, 0 when it does not run."""
        return pidfile.find(spec.directory)

    async def last_words(self, spec: GuestSpec) -> str:
        """Why the machine ended: its kernel's panic, else what QEMU's monitor said, else QEMU's own complaint."""
        known = self._contacts.get(spec.directory, _Contact()).monitor
        return last_words(spec.directory, known.ended if known else "", spec.guest.memory_mib)

    async def look_after(self, spec: GuestSpec) -> list[str]:
        """Bound the console's log, stay in touch with the monitor, and see now and then what ails the machine.

        Its clock is looked at as often, and set where it is wrong.
        """
        bound_console(spec.directory)
        if not (pid := pidfile.find(spec.directory)):
            return []
        contact, now = self._contacts[spec.directory], time.monotonic()
        pause_s = LOOK_EVERY_S if contact.answered == pid else 0.0
        if now - contact.looked_s < pause_s or self._lock(spec).locked():
            return []
        contact.looked_s = now
        await self._meet(spec)
        before = contact.trouble
        daemons = (await self.status(spec)).daemons
        state = daemons.pop("machine", "")
        trouble = state.removeprefix("failed: ") if state.startswith("failed: ") else failing(spec, daemons)
        if contact.answered == pid or trouble:
            contact.trouble = trouble
        found = [trouble] if trouble and trouble != before else []
        stepped_s, contact.stepped_s = contact.stepped_s, 0.0
        if stepped_s:
            found.append(f"its clock was {abs(stepped_s):.1f} s {'behind' if stepped_s > 0 else 'ahead'} and was set")
        if contact.strays.held > contact.held:
            told = f"{contact.strays.octets} octets so far, at most {control.STRAY_PER_S} of them are read a second"
            found.append(f"it says what nobody asked for on its control channel: {told}")
        contact.held = contact.strays.held
        refused, known = _refusals(spec.directory), contact.refused
        contact.refused = refused
        if refused > known:
            found.append(f"{refused - known} connections beyond {SLOTS} at once on its session link were refused")
        return found

    def trouble(self, spec: GuestSpec) -> str:
        """What ails the machine, as last seen."""
        contact = self._contacts.get(spec.directory, _Contact())
        if contact.trouble is not None:
            return contact.trouble
        pid = pidfile.find(spec.directory)
        boots = pid and contact.answered != pid and pidfile.age_s(pid) < BOOT_LIMIT_S
        return "its machine is booting" if boots else ""

    def session_uid(self, vrf_id: int) -> int:
        """QEMU's."""
        return machine_uid(vrf_id)

    def label(self, spec: GuestSpec) -> str:
        """The kind, and whether the machine is emulated."""
        machine = read_machine(spec.directory)
        return "kvm (emulated)" if machine is not None and machine.accelerator == Accelerator.TCG else "kvm"

    def exec_argv(self, spec: GuestSpec, pid: int, argv: list[str]) -> list[str]:
        """Return the command that runs ``argv`` inside, over the control channel."""
        here = str(spec.directory.absolute())
        return [sys.executable, "-P", "-m", "controller.guests.machine.exec_client", here, "--", *argv]

    def console_argv(self, spec: GuestSpec) -> list[str]:
        """Return the command that connects a terminal with the machine's console."""
        here = str(spec.directory.absolute())
        return [sys.executable, "-P", "-m", "controller.guests.machine.console", here]

    def log_path(self, spec: GuestSpec) -> Path:
        """What the machine prints on its console."""
        return spec.directory / CONSOLE_LOG

    # ── what is asked of it ──

    def _image_of(self, directory: str, memory_mib: int, router: str) -> image.Image:
        for program, package in ((QEMU, "qemu-system-x86"), (SETPRIV, "util-linux")):
            if not Path(program).exists():
                raise GuestError(f"{router}: {program} not found; apt-get install {package}")
        found = image.load(Path(directory) if directory else self._image.absolute(), router)
        image.require_memory(found, memory_mib, router)
        return found

    def _unanswered(self, spec: GuestSpec, pid: int, state: str, problem: GuestError) -> dict[str, str]:
        """The states of a machine, in ``state`` where it answered, whose guest did not tell those of its daemons."""
        why = str(problem).removeprefix(f"{spec.router}: ")
        if isinstance(problem, control.Silence) and not state:
            return {"machine": self._silent(spec, pid)}
        if not isinstance(problem, control.Silence | control.Refusal):
            return {"machine": f"failed: {why}"}
        if state != "up":  # that says why
            return {"machine": state}
        if isinstance(problem, control.Silence | control.Transient):
            if self._contacts[spec.directory].guest_asked_in_vain() < BOOT_LIMIT_S:
                return {"machine": BUSY}
            why = f"it has not answered for {BOOT_LIMIT_S:.0f} s"  # one line for all its ways not to
        return {"machine": state, "supervisor": f"failed: {why}"}

    def _silent(self, spec: GuestSpec, pid: int) -> str:
        """The state of a machine that does not answer just now."""
        contact = self._contacts[spec.directory]
        silent_s = contact.asked_in_vain()
        if contact.answered != pid and pidfile.age_s(pid) < BOOT_LIMIT_S:
            return BOOTING
        if contact.answered == pid or silent_s < BOOT_LIMIT_S:
            return BUSY  # requests are answered one after the other, and a command may take its time
        return f"failed: it has not answered for {BOOT_LIMIT_S:.0f} s; see vrctl logs {spec.router}"

    def _told(self, spec: GuestSpec) -> dict[str, str]:
        """What is worth telling besides: limits that are missing, connections turned away."""
        machine, refused = read_machine(spec.directory), _refusals(spec.directory)
        told = {"limits": f"without {', '.join(machine.missing)}"} if machine is not None and machine.missing else {}
        return told | ({"session link": f"up, {refused} connections beyond {SLOTS} refused"} if refused else {})

    async def _meet(self, spec: GuestSpec) -> None:
        """Connect to the monitor of a running machine that we do not know yet."""
        contact = self._contacts[spec.directory]
        if contact.monitor is None and self.running(spec):
            found = Monitor(spec.directory)
            if await found.connect():
                contact.monitor = found

    async def _changed_inside(
        self,
        spec: GuestSpec,
        machine: Machine,
        former: dict[str, Any],
        config: dict[str, Any],
        identity: dict[str, bytes],
    ) -> bool:
        """Bring a running guest to what is declared without a restart; tells whether that was possible."""
        renewed = machine.identity != digest(identity)
        if former == config and not renewed:
            return True
        if enclosure_of(former) != enclosure_of(config):
            return False
        contact, pid = self._contacts[spec.directory], pidfile.find(spec.directory)
        if contact.answered != pid:
            try:
                async with control.conversation(spec.directory, spec.router, STATUS_LIMIT_S, shared=True):
                    contact.heard(pid)
            except GuestError as error:
                silent_s = contact.asked_in_vain()
                boots = isinstance(error, control.Silence) and pidfile.age_s(pid) < BOOT_LIMIT_S
                if boots or silent_s >= REPLACE_AFTER_S:
                    return False  # started anew it has everything at once
                raise  # somebody else may have its channel
        if contact.guest_hangs():
            await self.status(spec)  # it may not have been asked since, as while a text was loaded
        if contact.guest_hangs():
            return False
        if renewed:  # first: the old one is refused by now, whatever the suite says of a text
            request = {name.removesuffix(".pem"): content.decode() for name, content in identity.items()}
            request["op"] = "identity"
            await control.ask(spec.directory, spec.router, request, handshake.LIMIT_S, shared=True)
            contact.busy_since_s = inf
            write_machine(spec.directory, replace(machine, identity=digest(identity)))
        if former != config:
            note_change(spec.directory, former)
            await self._reloads.reload(spec.directory, spec.router, config)
            contact.busy_since_s = inf
            write_config(spec.directory, config)
        return True

    # ── start and stop ──

    def _lock(self, spec: GuestSpec) -> asyncio.Lock:
        return self._locks.setdefault(spec.directory, asyncio.Lock())

    async def _launch(
        self,
        spec: GuestSpec,
        wanted: Machine,
        own_image: image.Image,
        config: dict[str, Any],
        identity: dict[str, bytes],
    ) -> None:
        await self._digests.check(own_image, spec.router)
        accelerator = await self._probe.choose(own_image)
        directory, sizes = spec.directory.absolute(), Sizes(wanted.memory_mib, wanted.vcpus)
        try:
            make_directory(directory, 0, 0, 0o700)
            replace_file(directory / "seed.img", seed.make_seed(config, identity, int(time.time())), 0, 0o600)
            with contextlib.suppress(FileNotFoundError):
                (directory / CONSOLE_LOG).replace(directory / f"{CONSOLE_LOG}.1")
            of_host = limits_of(sizes, self._policy.disk_bytes_per_s)
            group = limits.make(directory, of_host, cpus=self._policy.cpus)
            limits.require(group, self._policy, spec.router)
            started = replace(wanted, accelerator=accelerator.value, identity=digest(identity), missing=group.missing)
            write_machine(directory, started)
        except OSError as error:
            raise GuestError(f"{spec.router}: {error.filename}: {error.strerror}") from error
        write_config(directory, config)
        plan = json.dumps(self._plan(spec, accelerator, sizes, own_image, group)).encode()
        await startup.launch(directory, spec.router, "the machine", _ROOT, ["controller.guests.launcher"], plan)
        contact = self._contacts[spec.directory]
        contact.monitor = Monitor(spec.directory)
        if not await contact.monitor.connect():
            contact.monitor = None
            why = last_line(directory / QEMU_LOG) or "its monitor does not answer"
            await self._stop(spec)
            raise GuestError(f"{spec.router}: QEMU did not start: {why}")

    def _plan(
        self,
        spec: GuestSpec,
        accelerator: Accelerator,
        sizes: Sizes,
        own_image: image.Image,
        group: limits.Group,
    ) -> dict[str, Any]:
        directory, uid = spec.directory.absolute(), machine_uid(spec.vrf_id)
        groups = [_device_group()] if accelerator is Accelerator.KVM else []
        argv = machine_command(f"splitplane-{spec.vrf_id}", accelerator, sizes, own_image)
        return {
            "directory": str(directory),
            "uid": uid,
            "procs": list(group.procs),
            "session": str(spec.session.absolute()),
            "relay": str(directory / "relay"),
            "relay_program": str(Path(relay.__file__)),
            "hidden": list(map(str, self._hidden)),
            "sockets": _SOCKETS,
            "files": {
                "KERNEL": str(own_image.kernel),
                "INITRD": str(own_image.initrd),
                "ROOT": str(own_image.root),
                "SEED": str(directory / "seed.img"),
            },
            "console_log": str(directory / CONSOLE_LOG),
            "log": str(directory / QEMU_LOG),
            "argv": as_user(uid, groups, argv),
        }

    async def _stop(self, spec: GuestSpec) -> None:
        contact = self._contacts[spec.directory]

        async def ask(pidfd: int) -> None:
            if contact.answered == pidfile.find(spec.directory):
                with contextlib.suppress(GuestError):
                    await control.ask(spec.directory, spec.router, {"op": "stop"}, STOP_LIMIT_S, shared=True)
            if contact.monitor is not None:
                await contact.monitor.quit()
                await ended(pidfd, QUIT_LIMIT_S)

        await end_guest(spec.directory, spec.router, ask)
        await limits.empty(spec.directory)
        if contact.monitor is not None:
            await contact.monitor.close()
        contact.heard(0)
        contact.monitor, contact.refused, contact.trouble, contact.stepped_s = None, 0, None, 0.0
        for name in (pidfile.FILE, *_SOCKETS.values()):
            with contextlib.suppress(FileNotFoundError):
                (spec.directory / name).unlink()


async def _check_text(router: str, routing: Routing) -> None:
    """Check a text with this host's suite where it has one: the daemons themselves are the image's."""
    suite = SUITES[routing.suite]
    if suite.can_check():
        await suite.check(router, routing.text)
    else:
        suite.refuse_foreign(router, routing.text)


def _device_group() -> int:
    """The group that may use KVM."""
    return DEVICE.stat().st_gid


def _refusals(directory: Path) -> int:
    try:
        found = (directory / "relay/refused").lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
