"""A guest starts with real FRR, answers an operator, and leaves nothing behind."""

import asyncio
import dataclasses
import subprocess
from pathlib import Path

import pytest
from guest_net import FRR_ALWAYS, alive, guest_bed, processes

from controller.errors import GuestError
from controller.guests.suites import frr

pytestmark = pytest.mark.root


async def test_a_guest_runs_the_daemons_its_configuration_asks_for() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        status = await bed.started(spec)
        assert set(status.daemons) == {"vrc", "bgpd"} | FRR_ALWAYS
        await bed.routed(spec, "10.5.0.0/24")
        assert "10.5.0.0/24" in bed.run(status, "vtysh", "-c", "show ip route static").stdout
        assert "65002" in bed.run(status, "vtysh", "-c", "show running-config").stdout
        assert bed.run(status, "hostname").stdout.strip() == "red-r1"


def test_the_version_of_this_host_s_frr_is_known_and_was_tried() -> None:
    query = ["dpkg-query", "--show", "--showformat=${Version}", "frr"]
    packaged = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    found = asyncio.run(frr.version())
    assert found >= frr.TRIED[0]
    assert packaged.startswith(".".join(map(str, found)))
    assert asyncio.run(frr.remarks()) == []


async def test_the_kernel_of_a_guest_forwards_and_answers_as_a_router() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        bed.run(status, "ip", "tuntap", "add", "tap0", "mode", "tap")
        wanted = {
            "net.ipv4.conf.tap0.forwarding": "1",
            "net.ipv6.conf.tap0.forwarding": "1",
            "net.ipv4.conf.tap0.send_redirects": "0",
            "net.ipv4.conf.tap0.rp_filter": "0",
            "net.ipv4.icmp_errors_use_inbound_ifaddr": "1",
        }
        for key, value in wanted.items():
            path = "/proc/sys/" + key.replace(".", "/")
            assert (key, bed.run(status, "cat", path).stdout.strip()) == (key, value)
        assert bed.run(status, "ping", "-c1", "-W20", "127.0.0.1").returncode == 0


async def test_stop_ends_every_process_and_keeps_the_directory() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        status = await bed.started(spec)
        pids = processes(status)
        assert {"vr-guest", "zebra", "staticd", "bgpd"} <= set(pids)
        await bed.driver.stop(spec)
        assert [name for name, pid in pids.items() if alive(pid)] == []
        assert not (await bed.driver.status(spec)).running
        assert spec.directory.is_dir()


async def test_delete_leaves_no_process_mount_or_file() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        pids = processes(await bed.started(spec))
        await bed.driver.delete(spec)
        assert [name for name, pid in pids.items() if alive(pid)] == []
        assert not spec.directory.exists()
        assert str(bed.base) not in Path("/proc/self/mountinfo").read_text()


async def test_delete_of_a_guest_that_never_ran_is_no_error() -> None:
    async with guest_bed() as bed:
        await bed.driver.delete(bed.spec())


async def test_missing_frr_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        monkeypatch.setattr(frr, "BINARIES", tmp_path)
        with pytest.raises(GuestError, match=r"^FRR is not installed: .*/zebra not found; apt-get install frr$"):
            await bed.driver.start(spec)
        assert not spec.directory.exists()


async def test_a_session_directory_that_is_missing_is_named() -> None:
    async with guest_bed() as bed:
        spec = dataclasses.replace(bed.spec(), session=bed.base / "nowhere")
        with pytest.raises(GuestError, match=r"red/r1: .*/nowhere is not a directory"):
            await bed.driver.start(spec)
