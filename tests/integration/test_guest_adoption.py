"""A restarted controller finds its guests again, and applies what changed meanwhile without a restart."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
from guest_net import BGP, guest_bed, processes

from controller.errors import GuestError
from controller.model import RouteSource, Routing

pytestmark = pytest.mark.root


async def test_a_new_driver_adopts_a_running_guest_and_changes_nothing() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        before = processes(await bed.started(spec))
        bed.driver = bed.new_driver()
        await bed.driver.start(spec)
        assert processes(await bed.settled(spec)) == before


async def test_two_controllers_that_start_one_guest_make_one() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        results = await asyncio.gather(bed.driver.start(spec), bed.new_driver().start(spec), return_exceptions=True)
        assert [problem for problem in results if problem and not isinstance(problem, GuestError)] == []
        assert None in results
        assert (await bed.settled(spec)).restarts == 0


async def test_a_pid_of_another_process_is_not_taken_for_the_guest() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        await bed.started(spec)
        await bed.driver.stop(spec)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        (spec.directory / "guest.pid").write_text(f"1 999999999999 {boot}")
        assert not (await bed.driver.status(spec)).running
        await bed.started(spec)


async def test_a_change_of_text_is_reloaded_and_starts_and_stops_daemons_as_needed() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        before = processes(await bed.started(spec))
        changed = dataclasses.replace(
            spec, routing=Routing(text=BGP.replace("10.5.0.0", "10.6.0.0") + "router ospf\n!\n")
        )
        status = await bed.started(changed)
        assert "ospfd" in status.daemons
        await bed.routed(changed, "10.6.0.0/24", without="10.5.0.0/24")
        status = await bed.started(spec)
        assert "ospfd" not in status.daemons
        after = processes(status)
        assert {name: after[name] for name in before} == before


async def test_a_text_as_it_lies_on_a_router_is_taken() -> None:
    text = "hostname core\nservice integrated-vtysh-config\nlog file frr.log\nrouter bgp 65001\nexit\nexit\nend\n"
    async with guest_bed() as bed:
        spec = bed.spec(routing=Routing(text=text))
        status = await bed.started(spec)

        def says(*argv: str) -> str:
            return bed.run(status, *argv).stdout

        assert says("hostname").strip() == "core"
        assert "\nfpm address 127.0.0.1\n" in says("vtysh", "-c", "show running-config")  # in spite of `exit`
        assert "frr.log" in says("ls", "/var/log/frr")
        renamed = dataclasses.replace(spec, routing=Routing(text=text.replace("core", "edge")))
        assert (await bed.started(renamed)).pid == status.pid
        assert says("hostname").strip() == "edge"
        prompt = says("sh", "-c", "echo end | script -qc vtysh /dev/null")
        assert "edge#" in prompt


async def test_a_change_of_source_restarts_the_daemons_and_not_the_guest() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        first = await bed.started(spec)
        before = processes(first)
        changed = dataclasses.replace(spec, source=RouteSource.NETLINK, hold_time_s=60)
        second = await bed.started(changed)
        zebra = processes(second)["zebra"]
        assert second.pid == first.pid
        assert zebra != before["zebra"]
        argv = Path(f"/proc/{zebra}/cmdline").read_text().split("\0")
        assert "-K60" in argv
        assert "dplane_fpm_nl" not in argv


async def test_what_only_a_daemon_refuses_is_one_line_and_the_former_text_stays() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        status = await bed.started(spec)

        def running() -> str:
            return bed.run(status, "vtysh", "-c", "show running-config").stdout

        await bed.settled(spec, lambda _: "10.5.0.0/24" in running())  # mgmtd ends its commit after vtysh has ended
        before = running()
        text = "router bgp 65001\n neighbor 10.0.0.9 timers 1 3\n neighbor 10.0.0.2 remote-as 65002\n!\n"
        bad = dataclasses.replace(spec, routing=Routing(text=text + "ip route 10.7.0.0/24 Null0\n"))
        for _ in range(2):
            with pytest.raises(
                GuestError, match=r"^red/r1: frr line 2: Specify remote-as .*: neighbor 10.0.0.9 timers"
            ):
                await bed.driver.start(bad)
        # The former text is put back after the answer.
        await bed.settled(spec, lambda _: running() == before)


async def test_a_text_beyond_frr_grammar_changes_nothing() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        before = processes(await bed.started(spec))
        bad = dataclasses.replace(spec, routing=Routing(text="router bgp 65001\n neighbr 10.0.0.2\n"))
        with pytest.raises(GuestError, match=r"^red/r1: frr line 2: unknown command: neighbr 10.0.0.2$"):
            await bed.driver.start(bad)
        assert processes(await bed.settled(spec)) == before
