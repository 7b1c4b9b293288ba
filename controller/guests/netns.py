"""Guests in Linux namespaces: one process tree per router, closed in by the supervisor (vrc/supervisor.py).

    DIRECTORY/                 0700, root
        guest.json             what the guest was started with
        guest.pid              its first process: pid, start time, boot id
        guest.lock             locked by that process as long as it lives
        control.sock           its supervisor
        guest.log, guest.log.1
        etc/  run/             /etc/frr and /run/frr of the guest
        identity/              this router's certificate, readable by its VRC alone

A guest is no child of the controller: it is found again by guest.pid, and never by the pid alone.
"""

import asyncio
import contextlib
import grp
import importlib.util
import json
import os
import pwd
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from controller.errors import GuestError
from controller.guests import frr
from controller.guests.base import GuestSpec, GuestStatus
from controller.model import RouteSource

VRC_UID_BASE = 0x70000000
"""The VRC of router N runs as user and group VRC_UID_BASE + N: a range that neither Debian nor systemd gives out."""

LAUNCH_LIMIT_S = 30.0
CONTROL_LIMIT_S = 10.0
RELOAD_LIMIT_S = 120.0
STOP_LIMIT_S = 8.0
KILL_LIMIT_S = 20.0
_RUNS_ALREADY = 75  # exit status of the launcher
_MAX_REPLY_BYTES = 1 << 20
_PROGRAMS = (frr.SETPRIV, "/usr/bin/nsenter", "/usr/bin/python3")

SESSION_IN_GUEST = "/run/splitplane/session"
IDENTITY_IN_GUEST = "/run/splitplane/identity"
HOLDER_IN_GUEST = "/run/splitplane-guest/holder.sock"
_APP_IN_GUEST = "/run/splitplane/app"
_PREFIX_IN_GUEST = "/run/splitplane/python"

Command = Callable[[GuestSpec, str], Sequence[str]]
"""Makes the VRC's command from the spec and the path of the Python interpreter inside the guest."""


def vrc_uid(vrf_id: int) -> int:
    """The user that the VRC of a router runs as."""
    return VRC_UID_BASE + vrf_id


def vrc_command(spec: GuestSpec, python: str) -> list[str]:
    """The command of Splitplane's own VRC."""
    return [
        *(python, "-s", "-P", "-m", "vrc.agent", "--router", spec.router, "--source", spec.source.value),
        *("--session", f"unix:{SESSION_IN_GUEST}/session.sock", "--identity", IDENTITY_IN_GUEST),
        *("--holder", HOLDER_IN_GUEST),
    ]


class Refusal(GuestError):
    """The guest's supervisor answered, and what it answered is no."""


class NetnsDriver:
    """Runs guests in namespaces of this host; `hidden` are directories of the controller no guest may see."""

    def __init__(self, hidden: Sequence[Path] = (), command: Command = vrc_command) -> None:
        self._hidden, self._command = tuple(hidden), command
        self._locks: dict[Path, asyncio.Lock] = {}
        self._refused: dict[Path, tuple[dict[str, Any], str]] = {}  # what FRR refused last, and why

    async def start(self, spec: GuestSpec) -> None:
        """Start the guest, or adopt it and apply what changed; see GuestDriver.start."""
        config = self._config(spec)
        async with self._lock(spec):
            running = _find_pid(spec.directory) != 0
            former = _read_config(spec.directory) if running else None
            if former != config:
                await frr.check(spec.router, spec.frr)
            self._prepare(spec, config)
            if former == config:
                return
            if former is not None and _enclosure_of(former) == _enclosure_of(config):
                await self._reload(spec, config)
                return
            if running:
                await self._stop(spec)
            await self._launch(spec, config)

    async def stop(self, spec: GuestSpec) -> None:
        """Stop every process of the guest and wait until they are gone; its directory stays."""
        async with self._lock(spec):
            await self._stop(spec)

    async def delete(self, spec: GuestSpec) -> None:
        """Stop the guest and remove its directory; its namespaces and mounts end with its last process."""
        async with self._lock(spec):
            await self._stop(spec)
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(spec.directory)
        self._locks.pop(spec.directory, None)
        self._refused.pop(spec.directory, None)

    async def status(self, spec: GuestSpec) -> GuestStatus:
        """Tell what runs; a guest whose supervisor does not answer shows that as the state of ``supervisor``."""
        pid = _find_pid(spec.directory)
        if not pid:
            return GuestStatus(False, 0, {}, 0)
        try:
            reply = await _request(spec, {"op": "status"}, CONTROL_LIMIT_S)
        except GuestError as error:
            return GuestStatus(bool(_find_pid(spec.directory)), pid, {"supervisor": f"failed: {error}"}, 0)
        return GuestStatus(True, pid, dict(reply.get("daemons", {})), int(reply.get("restarts", 0)))

    def exec_argv(self, pid: int, argv: list[str]) -> list[str]:
        """Return the command that runs ``argv`` as root inside the guest whose first process is ``pid``."""
        flags = ["--mount", "--net", "--pid", "--ipc", "--uts"]
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
                flags.insert(0, "--user")
        return ["/usr/bin/nsenter", "--target", str(pid), *flags, "--", *argv]

    def log_path(self, spec: GuestSpec) -> Path:
        """The file that the guest's daemons, supervisor and VRC log to."""
        return spec.directory / "guest.log"

    # ── what the guest is started with ──

    def _config(self, spec: GuestSpec) -> dict[str, Any]:
        for program in _PROGRAMS:
            if not Path(program).exists():
                raise GuestError(f"{spec.router}: {program} not found; apt-get install util-linux python3")
        daemons = frr.daemons_for(spec.frr)
        frr.require_installed(daemons)
        hostname = spec.router.replace("/", "-")[:63]
        fpm = spec.source is RouteSource.FPM
        binds, python = _python_binds()
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
        environment |= {"PYTHONPATH": _APP_IN_GUEST, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        own = spec.directory.absolute()
        return {
            "router": spec.router,
            "hostname": hostname,
            "directory": str(own),
            "binds": [
                [str(spec.session.absolute()), SESSION_IN_GUEST, False],
                [str(own / "identity"), IDENTITY_IN_GUEST, False],
                [str(own / "etc"), "/etc/frr", False],
                [str(own / "run"), "/run/frr", True],
                *binds,
            ],
            "hidden": [*map(str, self._hidden), *_homes()],
            "vrc": {
                "uid": vrc_uid(spec.vrf_id),
                "argv": list(self._command(spec, python)),
                "environment": environment,
            },
            "frr": {
                "ids": _frr_ids(),
                "text": frr.compose(spec.frr, hostname, fpm),
                "daemons": list(daemons),
                "hold_time_s": spec.hold_time_s,
                "fpm": fpm,
            },
        }

    def _prepare(self, spec: GuestSpec, config: dict[str, Any]) -> None:
        uid, gid, _ = config["frr"]["ids"]
        vrc = config["vrc"]["uid"]
        own = spec.directory
        try:
            for path, owner, group, mode in (
                (own, 0, 0, 0o700),
                (own / "etc", 0, 0, 0o755),
                (own / "run", uid, gid, 0o755),
                (own / "identity", vrc, vrc, 0o500),
            ):
                path.mkdir(parents=True, exist_ok=True)
                os.chown(path, owner, group)
                path.chmod(mode)
            for name in ("cert.pem", "key.pem", "ca.pem"):
                _replace_file(own / "identity" / name, (spec.identity / name).read_bytes(), vrc, 0o400)
        except OSError as error:
            raise GuestError(f"{spec.router}: {error.filename}: {error.strerror}") from error
        if not spec.session.is_dir():
            raise GuestError(f"{spec.router}: {spec.session} is not a directory")

    def _lock(self, spec: GuestSpec) -> asyncio.Lock:
        return self._locks.setdefault(spec.directory, asyncio.Lock())

    # ── start and stop ──

    async def _launch(self, spec: GuestSpec, config: dict[str, Any]) -> None:
        _write_config(spec.directory, config)
        root = str(Path(_package("vrc")).parent)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-S", "-s", "-P", "-m", "vrc.supervisor", "--config", "guest.json"),
            cwd=spec.directory,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": root},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(LAUNCH_LIMIT_S):
                _, said = await process.communicate()
        except TimeoutError as error:
            process.kill()
            raise GuestError(f"{spec.router}: the guest did not start in {LAUNCH_LIMIT_S:.0f} s") from error
        if process.returncode == _RUNS_ALREADY:
            raise GuestError(f"{spec.router}: another controller is starting this guest; try again")
        if process.returncode:
            lines = said.decode(errors="replace").strip().splitlines()
            raise GuestError(f"{spec.router}: the guest did not start: {lines[-1] if lines else 'no reason given'}")

    async def _reload(self, spec: GuestSpec, config: dict[str, Any]) -> None:
        refused, why = self._refused.get(spec.directory, (None, ""))
        if refused == config:  # trying again would apply a part of it and take that back, each time
            raise GuestError(why)
        self._refused.pop(spec.directory, None)
        try:
            await _request(spec, {"op": "reload", "config": config}, RELOAD_LIMIT_S)
        except Refusal as refusal:
            self._refused[spec.directory] = (config, str(refusal))
            raise
        _write_config(spec.directory, config)

    async def _stop(self, spec: GuestSpec) -> None:
        pid = _find_pid(spec.directory)
        if pid:
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                pidfd = -1
            if pidfd >= 0:
                try:
                    if _find_pid(spec.directory) == pid:  # still the process whose descriptor this is
                        await self._end(spec, pidfd)
                finally:
                    os.close(pidfd)
        for name in ("guest.pid", "control.sock"):
            with contextlib.suppress(FileNotFoundError):
                (spec.directory / name).unlink()

    async def _end(self, spec: GuestSpec, pidfd: int) -> None:
        with contextlib.suppress(GuestError):
            await _request(spec, {"op": "stop"}, STOP_LIMIT_S)
        # The kernel kills whatever is left in the guest with its first process.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(pidfd, gone.set)
        try:
            async with asyncio.timeout(KILL_LIMIT_S):
                await gone.wait()
        except TimeoutError as error:
            raise GuestError(f"{spec.router}: the guest's processes do not end") from error
        finally:
            loop.remove_reader(pidfd)


def _find_pid(directory: Path) -> int:
    """Return the guest's first process, 0 when it does not run."""
    try:
        pid_text, start, boot = (directory / "guest.pid").read_text().split()
        fields = Path(f"/proc/{pid_text}/stat").read_text().rpartition(")")[2].split()
        alive = fields[0] not in "ZX" and fields[19] == start
        return int(pid_text) if alive and boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip() else 0
    except (OSError, ValueError, IndexError):
        return 0


async def _request(spec: GuestSpec, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Ask the guest's supervisor; GuestError where it refuses or does not answer within ``limit_s``."""
    try:
        # A socket's path has at most 107 octets, a directory's many more.
        directory = os.open(spec.directory, os.O_PATH)
        try:
            async with asyncio.timeout(limit_s):
                reader, writer = await asyncio.open_unix_connection(
                    f"/proc/self/fd/{directory}/control.sock", limit=_MAX_REPLY_BYTES
                )
                try:
                    writer.write(json.dumps(request).encode() + b"\n")
                    await writer.drain()
                    line = await reader.readline()
                finally:
                    writer.close()
        finally:
            os.close(directory)
        reply: dict[str, Any] = dict(json.loads(line))
        if not reply["ok"]:
            raise Refusal(f"{spec.router}: frr {reply['error']}")
    except TimeoutError as error:
        raise GuestError(f"{spec.router}: the guest did not answer {request['op']} in {limit_s:.0f} s") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GuestError(f"{spec.router}: the guest's supervisor cannot be asked: {error}") from error
    return reply


def _enclosure_of(config: dict[str, Any]) -> list[Any]:
    """The part of a guest's configuration that only a restart of the whole guest changes."""
    fields = [config.get(name) for name in ("router", "hostname", "directory", "binds", "hidden")]
    return [*fields, config["vrc"]["uid"], config["frr"]["ids"]]


def _read_config(directory: Path) -> dict[str, Any] | None:
    try:
        config: dict[str, Any] = json.loads((directory / "guest.json").read_text())
    except (OSError, ValueError):
        return None
    return config


def _write_config(directory: Path, config: dict[str, Any]) -> None:
    _replace_file(directory / "guest.json", json.dumps(config, indent=1).encode(), 0, 0o600)


def _replace_file(path: Path, content: bytes, owner: int, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == content:
            return
    new = path.with_name(path.name + ".new")
    with open(new, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        os.fchown(file.fileno(), owner, owner)
        os.fchmod(file.fileno(), mode)
        file.write(content)
    new.replace(path)


def _frr_ids() -> list[int]:
    try:
        user = pwd.getpwnam("frr")
        return [user.pw_uid, user.pw_gid, grp.getgrnam("frrvty").gr_gid]
    except KeyError as error:
        raise GuestError(f"FRR is not installed: {error.args[0]}; apt-get install frr") from error


def _package(name: str) -> str:
    found = importlib.util.find_spec(name)
    if not found or not found.submodule_search_locations:
        raise GuestError(f"the Python package {name} is not installed")
    return str(Path(found.submodule_search_locations[0]).absolute())


def _python_binds() -> tuple[list[list[Any]], str]:
    """Return what the VRC needs to run whatever the permissions above the checkout, and its interpreter's path."""
    binds: list[list[Any]] = [[_package(name), f"{_APP_IN_GUEST}/{name}", False] for name in ("vrc", "wire")]
    if sys.prefix == sys.base_prefix:
        return binds, sys.executable
    return [*binds, [sys.prefix, _PREFIX_IN_GUEST, False]], f"{_PREFIX_IN_GUEST}/bin/python"


def _homes() -> list[str]:
    """Home directories, except where the interpreter itself lives below one."""
    return [home for home in ("/root", "/home") if not Path(sys.base_prefix).is_relative_to(home)]
