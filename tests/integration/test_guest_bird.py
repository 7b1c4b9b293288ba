"""A guest with BIRD: its privileges, changed texts, and what stays when it is killed."""

import asyncio
import dataclasses
import os
import signal
from pathlib import Path

import pytest
from guest_net import DEADLINE_S, FRR_ALWAYS, GuestBed, alive, guest_bed, processes

from controller.errors import GuestError
from controller.guests.base import GuestSpec, GuestStatus
from controller.guests.suites import bird
from controller.model import Routing, Suite

pytestmark = pytest.mark.root

HEAD = """router id 192.0.2.1;
protocol device {}
protocol kernel { graceful restart on; scan time 1; ipv4 { export all; }; }
"""
ONE = "protocol static { ipv4; route 10.5.0.0/24 blackhole; }\n"
CAPABILITIES = 1 << 10 | 1 << 12 | 1 << 13  # net_bind_service, net_admin, net_raw


def running(text: str) -> Routing:
    return Routing(Suite.BIRD, text)


def changed(spec: GuestSpec, text: str) -> GuestSpec:
    return dataclasses.replace(spec, routing=running(text))


def up(status: GuestStatus) -> bool:
    return status.daemons.get("bird") == "up"


async def has_routes(bed: GuestBed, spec: GuestSpec, *prefixes: str) -> None:
    """Wait until the guest's kernel has just these routes of BIRD."""

    def there(status: GuestStatus) -> bool:
        lines = bed.run(status, "ip", "route", "show", "proto", "bird").stdout.splitlines()
        return {line.split()[1] for line in lines} == set(prefixes)

    await bed.settled(spec, there)


async def test_bird_runs_as_its_own_user_with_three_capabilities_and_birdc_finds_it() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(routing=running(HEAD + ONE))
        status = await bed.started(spec)
        assert set(status.daemons) == {"vrc", "bird"}
        await has_routes(bed, spec, "10.5.0.0/24")
        shown = bed.run(status, "birdc", "show", "route")
        assert (shown.returncode, "10.5.0.0/24" in shown.stdout) == (0, True)
        fields = Path(f"/proc/{processes(status)['bird']}/status").read_text()
        state = dict(line.split(":\t", 1) for line in fields.splitlines())
        assert state["Uid"].split()[0] != "0"
        assert {int(state[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {CAPABILITIES}
        assert "bird: " in bed.driver.log_path(spec).read_text()


async def test_a_change_of_text_is_configured_without_a_restart() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(routing=running(HEAD + ONE))
        before = processes(await bed.started(spec))["bird"]
        spec = changed(spec, HEAD + ONE.replace("10.5", "10.6"))
        assert processes(await bed.started(spec))["bird"] == before
        await has_routes(bed, spec, "10.6.0.0/24")


async def test_a_bird_that_writes_no_routes_is_seen_and_told_to() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(routing=running(HEAD + ONE))
        status = await bed.started(spec)
        await has_routes(bed, spec, "10.5.0.0/24")
        bed.run(status, "birdc", "disable", "kernel1")
        await has_routes(bed, spec)
        why = "failed: BIRD writes no routes (protocol kernel1 is down); it is enabled every 30 s"
        await bed.settled(spec, lambda status: status.daemons.get("kernel") == why)
        await has_routes(bed, spec, "10.5.0.0/24")
        await bed.settled(spec)


async def test_what_bird_refuses_is_one_line_and_the_former_text_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unchecked(_router: str, _text: str) -> None:
        """As on a host without BIRD, whose guests are machines."""

    async with guest_bed() as bed:
        spec = bed.spec(routing=running(HEAD + ONE))
        status = await bed.started(spec)
        bad = changed(spec, HEAD + "protocol static { ipv5; }\n")
        with pytest.raises(GuestError, match=r"^red/r1: bird line 4: syntax error, unexpected .*: protocol static"):
            await bed.driver.start(bad)
        monkeypatch.setattr(bird, "check", unchecked)
        for _ in range(2):
            with pytest.raises(GuestError, match=r"^red/r1: bird line 4: syntax error, .*: protocol static"):
                await bed.driver.start(bad)
        kept = bed.run(status, "cat", "/etc/bird/bird.conf").stdout
        assert "10.5.0.0/24" in kept
        await has_routes(bed, spec, "10.5.0.0/24")


async def test_a_text_that_bird_does_not_start_with_is_shown_and_its_correction_starts_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unchecked(_router: str, _text: str) -> None:
        """As on a host without BIRD."""

    def failed(status: GuestStatus) -> bool:
        return status.daemons["bird"].startswith("failed: ")

    async with guest_bed() as bed:
        monkeypatch.setattr(bird, "check", unchecked)
        spec = bed.spec(routing=running(HEAD + "nonsense\n"))
        await bed.driver.start(spec)
        status = await bed.settled(spec, failed)
        assert "bird.conf:4:1 syntax error" in status.daemons["bird"]
        spec = changed(spec, HEAD + ONE)
        await bed.started(spec)
        await has_routes(bed, spec, "10.5.0.0/24")


async def test_bird_is_killed_and_the_kernel_s_routes_are_not_touched() -> None:
    """A route of BIRD's that nobody announces any more would go with the first scan, were it not for -R."""
    async with guest_bed() as bed:
        # A neighbor that never comes: the recovery lasts for the hold time.
        never = "protocol bgp { local as 1; neighbor 10.9.0.2 as 1; graceful restart on; ipv4 { import all; }; }\n"
        spec = dataclasses.replace(bed.spec(routing=running(HEAD + ONE + never)), hold_time_s=10)
        status = await bed.started(spec)
        await has_routes(bed, spec, "10.5.0.0/24")
        first = processes(status)["bird"]
        os.kill(first, signal.SIGSTOP)  # or its next scan might take the route away before it is killed
        stale = ("route", "add", "blackhole", "10.66.0.0/16", "proto", "bird", "metric", "32")
        assert bed.run(status, "ip", *stale).returncode == 0
        os.kill(first, signal.SIGKILL)
        status = await bed.settled(spec, lambda status: status.restarts == 1 and up(status))
        assert processes(status)["bird"] != first
        await has_routes(bed, spec, "10.5.0.0/24", "10.66.0.0/16")
        log = bed.driver.log_path(spec)
        await bed.settled(spec, lambda _: "Graceful restart started" in log.read_text())
        await bed.settled(spec, lambda _: "Graceful restart done" in log.read_text())
        await has_routes(bed, spec, "10.5.0.0/24")


async def test_another_suite_starts_the_guest_anew() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(routing=running(HEAD + ONE))
        first = await bed.started(spec)
        status = await bed.started(dataclasses.replace(spec, routing=Routing(text="ip route 10.7.0.0/24 Null0\n")))
        assert status.pid != first.pid
        assert set(status.daemons) == {"vrc"} | FRR_ALWAYS


async def test_bird_ends_with_its_guest() -> None:
    async with guest_bed() as bed:
        spec = bed.spec(routing=running(HEAD + ONE))
        pids = processes(await bed.started(spec))
        async with asyncio.timeout(DEADLINE_S):
            await bed.driver.stop(spec)
        assert not [name for name, pid in pids.items() if alive(pid)]
