"""Guests of the namespace driver for tests: made below one directory, and nothing left of them afterwards."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from controller.guests.base import GuestSpec, GuestStatus
from controller.guests.guest_json import Command
from controller.guests.netns import NetnsDriver
from controller.model import RouteSource, Routing, Suite

BGP = "router bgp 65001\n neighbor 10.0.0.2 remote-as 65002\n!\nip route 10.5.0.0/24 Null0\n"
BGP_ONLY = Routing(text=BGP)
MGMTD = ("mgmtd",) if Path("/usr/lib/frr/mgmtd").exists() else ()
"""FRR has it from version 9 on."""
FRR_ALWAYS = {*MGMTD, "zebra", "staticd"}
"""The daemons of FRR in every guest."""
DEADLINE_S = 60.0
_FORKED = "a copy of vr-guest, before its exec"


def idle_vrc(_spec: GuestSpec, python: str) -> list[str]:
    return [python, "-S", "-c", "import signal; signal.pause()"]


class GuestBed:
    """A driver and the guests it made; the directories lie outside of /tmp, which every guest has its own of."""

    def __init__(self, base: Path, command: Command) -> None:
        self.base, self.hidden = base, (base / "state", base / "run")
        self.command = command
        self.driver = self.new_driver()
        self.specs: list[GuestSpec] = []

    def new_driver(self) -> NetnsDriver:
        """What a restarted controller would have."""
        return NetnsDriver(self.hidden, self.command)

    def spec(self, router: str = "red/r1", routing: Routing = BGP_ONLY, vrf_id: int | None = None) -> GuestSpec:
        vrf_id = len(self.specs) + 1 if vrf_id is None else vrf_id
        identity, session = self.base / f"state/pki/{vrf_id}", self.base / f"run/sessions/{vrf_id}"
        for directory in (identity, session):
            directory.mkdir(parents=True)
        for name in ("cert.pem", "key.pem", "ca.pem"):
            (identity / name).write_text(f"{name} of {router}")
            (identity / name).chmod(0o600)
        directory = self.base / "state" / ("guests-" + "x" * 90) / str(vrf_id)  # longer than a socket's path may be
        source = RouteSource.FPM if routing.suite is Suite.FRR else RouteSource.NETLINK
        spec = GuestSpec(vrf_id, router, source, routing, 30, directory, identity, session)
        self.specs.append(spec)
        return spec

    async def started(self, spec: GuestSpec) -> GuestStatus:
        await self.driver.start(spec)
        return await self.settled(spec)

    async def settled(self, spec: GuestSpec, until: Callable[[GuestStatus], bool] | None = None) -> GuestStatus:
        until, status = until or runs, None
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not until(status := await self.driver.status(spec)):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            log = self.driver.log_path(spec).read_text()[-3000:]
            raise AssertionError(f"never got there: {status}\n{log}") from None
        return status

    async def routed(self, spec: GuestSpec, prefix: str, *, without: str = "") -> GuestStatus:
        """Wait until the guest's kernel routes a prefix, and no longer another: a daemon is up before its routes are.

        From FRR 9 on mgmtd hands a text on to staticd after vtysh has ended, and staticd its routes to zebra then.
        """

        def there(status: GuestStatus) -> bool:
            routes = self.run(status, "ip", "route").stdout
            return runs(status) and prefix in routes and not (without and without in routes)

        return await self.settled(spec, there)

    def run(self, status: GuestStatus, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the guest, as an operator would."""
        inside = self.driver.exec_argv(self.specs[0], status.pid, list(argv))
        return subprocess.run(inside, capture_output=True, text=True, timeout=DEADLINE_S)


def processes(status: GuestStatus) -> dict[str, int]:
    """The guest's processes by name, as the host sees them; none that the supervisor has only just forked."""
    return {name: pid for name, pid in _found(status).items() if name != _FORKED}


def runs(status: GuestStatus) -> bool:
    """Whether all is up and has become its program: the VRC is up from its fork on, and is setpriv at first."""
    return set(status.daemons.values()) == {"up"} and not {_FORKED, "setpriv"} & _found(status).keys()


def _found(status: GuestStatus) -> dict[str, int]:
    supervisor = Path(f"/proc/{status.pid}")
    namespace, own_line = os.readlink(supervisor / "ns/net"), (supervisor / "cmdline").read_bytes()
    found = {"vr-guest": status.pid}
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or os.readlink(entry / "ns/net") != namespace:
                continue
            is_copy = (entry / "cmdline").read_bytes() == own_line
            if int(entry.name) != status.pid:
                found[_FORKED if is_copy else (entry / "comm").read_text().strip()] = int(entry.name)
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@asynccontextmanager
async def guest_bed(command: Command = idle_vrc) -> AsyncIterator[GuestBed]:
    base = Path(tempfile.mkdtemp(prefix="splitplane-test-", dir="/var/lib"))
    bed = GuestBed(base, command)
    try:
        yield bed
    finally:
        for spec in bed.specs:
            await bed.driver.delete(spec)
        shutil.rmtree(base)
