"""What hangs at its start in a guest is named within its limit, with its log, and is up once it hangs no more."""

import json
import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from guest_net import FRR_ALWAYS, GuestBed, alive, guest_bed, processes

from controller.guests import netns
from controller.guests.base import GuestSpec, GuestStatus
from controller.guests.guest_json import Command
from controller.guests.netns import NetnsDriver
from controller.guests.suites import frr
from controller.model import Routing, Suite
from vrc.guest.children import END_LIMIT_S

pytestmark = pytest.mark.root

LIMIT_S = 2.0
BUSY_S = 15.0
"""What a busy machine may take longer."""
LATE = "did not answer within 2 s of its start"
BIRD = "router id 192.0.2.1;\nprotocol device {}\nprotocol kernel { ipv4 { export all; }; }\n"
BIRD += "protocol static { ipv4; route 10.5.0.0/24 blackhole; }\n"
FRR = Path("/usr/lib/frr")
PROGRAMS = {name: FRR / name for name in (*sorted(FRR_ALWAYS), "bgpd")} | {"bird": Path("/usr/sbin/bird")}
HANG, REAL = "/run/splitplane-hang", "/run/splitplane-real"
SCRIPT = f"""#!/bin/sh
name=${{0##*/}}
[ -e {HANG}/$name ] && exec sleep 600
exec {REAL}/$name "$@"
"""
ASKS_FOR = {
    "bgpd": "router bgp 65001",
    "ospfd": "router ospf",
    "ospf6d": "router ospf6",
    "isisd": "router isis one",
    "ripd": "router rip",
    "ripngd": "router ripng",
    "eigrpd": "router eigrp 1",
    "babeld": "router babel",
    "fabricd": "router openfabric one",
    "pimd": "interface eth0\n ip pim",
    "pim6d": "interface eth0\n ipv6 mld",
    "ldpd": "mpls ldp",
    "nhrpd": "nhrp nflog-group 1",
    "pbrd": "pbr-map one seq 1",
    "vrrpd": "interface eth0\n vrrp 1",
    "pathd": "segment-routing",
    "bfdd": "bfd",
}
"""A line for each daemon that is started for one, from which vtysh finds its way back to the top by `exit`."""


class HangingDriver(NetnsDriver):
    """Has programs of its guests replaced by a script that hangs while `hang` says so."""

    def __init__(self, bed: GuestBed, command: Command, *programs: Path) -> None:
        super().__init__(bed.hidden, command)
        self._flags = bed.base / "hang"
        self._flags.mkdir()
        script = bed.base / "script"
        script.write_text(SCRIPT)
        for path in (self._flags, script):
            path.chmod(0o755)
        self._binds = [[str(self._flags), HANG]]
        for program in programs:
            self._binds += [[str(program), f"{REAL}/{program.name}"], [str(script), str(program)]]

    def hang(self, name: str) -> None:
        """Have a program hang at each start from now on."""
        (self._flags / name).touch()

    def go_on(self, name: str) -> None:
        """Have it start as usual again."""
        (self._flags / name).unlink()

    def _config(self, spec: GuestSpec) -> dict[str, Any]:
        config = super()._config(spec)
        config["binds"] += self._binds
        config[spec.routing.suite]["start_limit_s"] = LIMIT_S
        return config


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_daemon_that_hangs_is_named_and_comes_up_by_itself(name: str) -> None:
    async with guest_bed() as bed:
        bed.driver = driver = HangingDriver(bed, bed.command, PROGRAMS[name])
        driver.hang(name)
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
        driver.go_on(name)
        status = await bed.settled(spec)
        assert (await driver.look_after(spec), driver.trouble(spec)) == ([], "")
        await bed.routed(spec, "10.5.0.0/24")
        if name == "bgpd":
            assert "65002" in bed.run(status, "vtysh", "-c", "show running-config bgpd").stdout
        pids = processes(status)
        assert "sleep" not in pids
        await driver.stop(spec)
        assert not [one for one, pid in pids.items() if alive(pid)]


async def test_each_daemon_that_a_text_asks_for_is_named_in_its_turn() -> None:
    assert ASKS_FOR.keys() == frr._ASKS_FOR.keys()
    names = [name for name in ASKS_FOR if (FRR / name).exists()]
    async with guest_bed() as bed:
        bed.driver = driver = HangingDriver(bed, bed.command, *(FRR / name for name in names))
        text = "".join(f"{ASKS_FOR[name]}\nexit\n" for name in names)
        assert frr.daemons_for(text)[2:] == tuple(names)
        spec = bed.spec(routing=Routing(text=text))
        log = driver.log_path(spec)
        first, *_ = names
        driver.hang(first)
        await driver.start(spec)
        status = await driver.status(spec)
        for name in names:
            if name != first:
                driver.hang(name)
                os.kill(processes(status)[name], signal.SIGKILL)
            status = await bed.settled(spec, partial(_hangs_alone, name))
            trouble = f"{name}: {LATE}; see vrctl logs red/r1"
            assert (await driver.look_after(spec), driver.trouble(spec)) == ([trouble], trouble)
            await bed.settled(spec, lambda _, name=name: f"vr-guest: {name} ended: {LATE}\n" in log.read_text())
            driver.go_on(name)
            status = await bed.settled(spec)


def _hangs_alone(name: str, status: GuestStatus) -> bool:
    """Tell whether one is shown as hanging, and all others are up."""
    return status.daemons[name] == f"failed: {LATE}" and _up(status) == set(status.daemons) - {name}


def _up(status: GuestStatus) -> set[str]:
    return {name for name, state in status.daemons.items() if state == "up"}


async def test_a_command_that_hangs_and_is_deaf_holds_up_nobody() -> None:
    """Nobody knows how to ask any program whether it is up; what waits for one has an end all the same."""
    script = "trap '' TERM; ip route add blackhole 10.5.0.0/24; exec sleep 600"
    deaf = {"name": "deaf", "argv": ["/bin/sh", "-c", script]}
    other = {"name": "other", "argv": ["/bin/sleep", "601"]}
    async with guest_bed() as bed:
        spec = bed.spec(routing=_command(deaf, other))
        status = await bed.started(spec)
        await bed.routed(spec, "10.5.0.0/24")
        begun = time.monotonic()
        await bed.driver.start(replace(spec, routing=_command(deaf | {"argv": ["/bin/sleep", "602"]}, other)))
        # Only the restart tells that the end was seen: a daemon that is killed stays "up" until it is reaped.
        restarts = status.restarts + 1
        await bed.settled(spec, lambda now: now.restarts == restarts and now.daemons["deaf"] == "up")
        assert time.monotonic() - begun < END_LIMIT_S + BUSY_S
        assert "vr-guest: deaf ended: killed by SIGKILL\n" in bed.driver.log_path(spec).read_text()


def _command(*daemons: dict[str, Any]) -> Routing:
    fields = {"user": "nobody", "files": {}, "daemons": [one | {"reload": "restart"} for one in daemons]}
    return Routing(Suite.COMMAND, json.dumps(fields))


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
