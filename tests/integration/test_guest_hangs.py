"""What hangs at its start in a guest is named within its limit, with its log, and is up once it hangs no more."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from guest_net import FRR_ALWAYS, GuestBed, alive, guest_bed, processes

from controller.guests import netns
from controller.guests.base import GuestSpec, GuestStatus
from controller.guests.guest_json import Command
from controller.guests.netns import NetnsDriver
from controller.model import Routing, Suite

pytestmark = pytest.mark.root

LIMIT_S = 2.0
BUSY_S = 15.0
"""What a busy machine may take longer."""
LATE = "did not answer within 2 s of its start"
BIRD = "router id 192.0.2.1;\nprotocol device {}\nprotocol kernel { ipv4 { export all; }; }\n"
BIRD += "protocol static { ipv4; route 10.5.0.0/24 blackhole; }\n"
PROGRAMS = {name: f"/usr/lib/frr/{name}" for name in (*sorted(FRR_ALWAYS), "bgpd")} | {"bird": "/usr/sbin/bird"}
HANG, REAL = "/run/splitplane-hang", "/run/splitplane-real"
SCRIPT = """#!/bin/sh
[ -e {hang}/flag ] && exec sleep 600
exec {real}/{name} "$@"
"""


class HangingDriver(NetnsDriver):
    """Has one program of its guests replaced by a script that hangs while there is a flag."""

    def __init__(self, bed: GuestBed, command: Command, program: str) -> None:
        super().__init__(bed.hidden, command)
        self._program, self._folder = Path(program), bed.base / "hang"
        self._folder.mkdir()
        script = bed.base / "script"
        script.write_text(SCRIPT.format(hang=HANG, real=REAL, name=self._program.name))
        for path in (self._folder, script):
            path.chmod(0o755)
        self.flag = self._folder / "flag"
        self.flag.touch()
        here = str(self._program)
        self._binds = [[str(self._folder), HANG, False], [here, f"{REAL}/{self._program.name}", False]]
        self._binds += [[str(script), here, False]]

    def _config(self, spec: GuestSpec) -> dict[str, Any]:
        config = super()._config(spec)
        config["binds"] += self._binds
        config[spec.routing.suite]["start_limit_s"] = LIMIT_S
        return config


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_daemon_that_hangs_is_named_and_comes_up_by_itself(name: str) -> None:
    async with guest_bed() as bed:
        bed.driver = driver = HangingDriver(bed, bed.command, PROGRAMS[name])
        spec = bed.spec(routing=Routing(Suite.BIRD, BIRD)) if name == "bird" else bed.spec()
        await driver.start(spec)
        begun = time.monotonic()
        status = await bed.settled(spec, lambda status: status.daemons[name] == f"failed: {LATE}")
        assert time.monotonic() - begun < LIMIT_S + BUSY_S
        assert status.daemons["vrc"] == "up"
        # What the router's state says from then on.
        trouble = f"{name}: {LATE}; see vrctl logs red/r1"
        assert (await driver.look_after(spec), driver.trouble(spec)) == ([trouble], trouble)
        assert await driver.look_after(spec) == []
        log = driver.log_path(spec)
        await bed.settled(spec, lambda _: f"vr-guest: {name} ended: {LATE}\n" in log.read_text())
        if name in ("staticd", "bgpd"):  # the others do not wait for it
            await bed.settled(spec, lambda status: _up(status) == set(status.daemons) - {name})
        driver.flag.unlink()
        status = await bed.settled(spec)
        assert (await driver.look_after(spec), driver.trouble(spec)) == ([], "")
        await bed.settled(spec, lambda status: "10.5.0.0/24" in bed.run(status, "ip", "route").stdout)
        if name == "bgpd":
            assert "65002" in bed.run(status, "vtysh", "-c", "show running-config bgpd").stdout
        pids = processes(status)
        assert "sleep" not in pids
        await driver.stop(spec)
        assert not [one for one, pid in pids.items() if alive(pid)]


def _up(status: GuestStatus) -> set[str]:
    return {name for name, state in status.daemons.items() if state == "up"}


async def test_a_supervisor_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns, "LOOK_LIMIT_S", 0.5)
    async with guest_bed() as bed:
        spec = bed.spec()
        status = await bed.started(spec)
        os.kill(status.pid, signal.SIGSTOP)
        try:
            (trouble,) = await bed.driver.look_after(spec)
        finally:
            os.kill(status.pid, signal.SIGCONT)
        assert trouble == "supervisor: the guest did not answer status in 0.5 s; see vrctl logs red/r1"
        assert await bed.driver.look_after(spec) == []
        assert bed.driver.trouble(spec) == ""
