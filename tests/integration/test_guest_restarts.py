"""What dies in a guest comes back: zebra with all the others, everything else alone."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest
from guest_net import BGP, FRR_ALWAYS, MGMTD, guest_bed, processes, runs

from controller.guests.base import GuestSpec, GuestStatus
from controller.model import Routing

pytestmark = pytest.mark.root


def restarted(count: int) -> Callable[[GuestStatus], bool]:
    return lambda status: status.restarts >= count and runs(status)


async def test_bgpd_dies_and_it_alone_comes_back_configured() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        before = processes(await bed.started(spec))
        os.kill(before["bgpd"], signal.SIGKILL)
        status = await bed.settled(spec, restarted(1))
        after = processes(status)
        assert after["bgpd"] != before["bgpd"]
        assert {name: after[name] for name in FRR_ALWAYS} == {name: before[name] for name in FRR_ALWAYS}
        assert "65002" in bed.run(status, "vtysh", "-c", "show running-config bgpd").stdout
        assert status.restarts == 1


async def test_zebra_dies_and_all_daemons_come_back_while_the_kernel_keeps_the_routes() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        await bed.started(spec)
        status = await bed.routed(spec, "10.5.0.0/24")
        before = processes(status)
        # A route only the kernel knows tells whether its table was ever wiped: -K sweeps it after 30 s, not now.
        assert bed.run(status, "ip", "route", "add", "blackhole", "10.66.0.0/16", "proto", "bgp").returncode == 0
        os.kill(before["zebra"], signal.SIGKILL)
        status = await bed.settled(spec, restarted(len(FRR_ALWAYS) + 1))
        after = processes(status)
        assert all(after[name] != before[name] for name in (*FRR_ALWAYS, "bgpd"))
        routes = bed.run(status, "ip", "route").stdout
        assert "10.66.0.0/16" in routes
        assert "10.5.0.0/24" in routes
        assert "65002" in bed.run(status, "vtysh", "-c", "show running-config bgpd").stdout


@pytest.mark.skipif(not MGMTD, reason="FRR before version 9 has no mgmtd")
async def test_mgmtd_dies_and_it_alone_comes_back_and_a_new_text_takes_effect() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        before = processes(await bed.started(spec))
        os.kill(before["mgmtd"], signal.SIGKILL)
        status = await bed.settled(spec, restarted(1))
        after = processes(status)
        assert [name for name in before if after[name] != before[name]] == ["mgmtd"]
        await bed.routed(spec, "10.5.0.0/24")
        # Without what mgmtd knows of staticd's routes a reload would say that all went well and leave the old one.
        changed = replace(spec, routing=Routing(text=BGP.replace("10.5.0.0/24", "10.6.0.0/24")))
        await bed.driver.start(changed)
        await bed.routed(changed, "10.6.0.0/24", without="10.5.0.0/24")


async def test_the_vrc_comes_back_and_the_daemons_do_not_notice() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        before = processes(await bed.started(spec))
        os.kill(before["python"], signal.SIGKILL)
        after = processes(await bed.settled(spec, restarted(1)))
        assert after["python"] != before["python"]
        assert after["zebra"] == before["zebra"]


async def test_a_vrc_that_only_dies_is_failed_by_name_with_its_last_words() -> None:
    def dying(_spec: GuestSpec, _python: str) -> list[str]:
        return ["/bin/sh", "-c", "echo no certificate >&2; exit 3"]

    def failed(status: GuestStatus) -> bool:
        return status.daemons.get("vrc", "").startswith("failed")

    async with guest_bed(dying) as bed:
        spec = bed.spec()
        await bed.driver.start(spec)
        status = await bed.settled(spec, failed)
        assert status.daemons["vrc"] == "failed: exit status 3: no certificate"
        assert status.daemons["zebra"] == "up"


async def test_a_guest_killed_as_a_whole_is_seen_and_starts_again() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        first = await bed.started(spec)
        os.kill(first.pid, signal.SIGKILL)
        await bed.settled(spec, lambda status: not status.running)
        second = await bed.started(spec)
        assert second.pid != first.pid
        await bed.routed(spec, "10.5.0.0/24")
