"""The guest's first process makes its interfaces, whole when they appear, and keeps them while VRCs come and go."""

import asyncio
import json
import os
import signal
from dataclasses import replace

import pytest
from guest_net import DEADLINE_S, FRR_ALWAYS, GuestBed, guest_bed, processes

from controller.guests.base import GuestSpec, GuestStatus
from controller.model import InterfaceConfig, Routing, Suite

pytestmark = pytest.mark.root

ETH0 = InterfaceConfig(1, "eth0", "p1", 0, bytes.fromhex("02000000aa01"), 9000, ("10.1.0.1/24", "2001:db8:1::1/64"))
ETH1 = InterfaceConfig(2, "eth1", "p1", 7, bytes.fromhex("02000000aa02"), 1400, ("10.2.0.1/24",))

# A VRC that gives eth0 carrier as soon as it is up, and dies when killed. Carrier is read of what is up alone.
VRC = """
import signal
import time
from pathlib import Path
from vrc.tun import open_queue, set_carrier
flags = Path("/sys/class/net/eth0/flags")
while not (flags.exists() and int(flags.read_text(), 16) & 1):
    time.sleep(0.01)
set_carrier(open_queue("eth0", carrier=True), True)
print("carrier", flush=True)
signal.pause()
"""


def link(bed: GuestBed, status: GuestStatus, name: str) -> dict[str, object]:
    found = json.loads(bed.run(status, "ip", "-j", "-d", "address", "show", name).stdout)[0]
    found["addr"] = [f"{a['local']}/{a['prefixlen']}" for a in found["addr_info"] if a["scope"] == "global"]
    return found


async def test_interfaces_are_there_with_all_they_have_before_the_daemons() -> None:
    async with guest_bed() as bed:
        spec = replace(bed.spec(), interfaces=(ETH0, replace(ETH1, admin_up=False)))
        status = await bed.started(spec)
        for config, flags in ((ETH0, {"UP", "NO-CARRIER"}), (ETH1, set())):
            found = link(bed, status, config.name)
            assert (found["address"], found["mtu"]) == (config.mac.hex(":"), config.mtu)
            assert set(found["addr"]) == set(config.addresses)
            assert {"UP", "NO-CARRIER"} & set(found["flags"]) == flags
            assert bed.run(status, "sysctl", "-n", f"net.ipv6.conf.{config.name}.keep_addr_on_down").stdout == "1\n"
        known = json.loads(bed.run(status, "vtysh", "-c", "show interface eth0 json").stdout)["eth0"]
        assert (known["hardwareAddress"], known["mtu"]) == (ETH0.mac.hex(":"), ETH0.mtu)
        # zebra never took it for one with carrier: what it then writes the kernel refuses.
        assert (known["linkDowns"], "Network is down" in bed.driver.log_path(spec).read_text()) == (0, False)


async def test_static_routes_are_taken_at_the_first_attempt() -> None:
    """The route's gateway is on an interface, which is there when the suite starts."""
    async with guest_bed() as bed:
        routing = Routing(Suite.IP, "route add 10.9.0.0/24 via 10.1.0.2\n")
        spec = replace(bed.spec(routing=routing), interfaces=(ETH0,))
        status = await bed.started(spec)
        assert "10.9.0.0/24" in bed.run(status, "ip", "route").stdout
        assert "line 1" not in bed.driver.log_path(spec).read_text()


async def test_an_interface_survives_the_death_of_the_vrc() -> None:
    def command(_spec: GuestSpec, python: str) -> list[str]:
        return [python, "-s", "-P", "-c", VRC]

    async with guest_bed(command) as bed:
        spec = replace(bed.spec(), interfaces=(ETH0,))
        await bed.driver.start(spec)
        log = bed.driver.log_path(spec)
        status = await bed.settled(spec, lambda _: log.read_text().count("carrier") == 1)
        index = link(bed, status, "eth0")["ifindex"]
        os.kill(processes(status)["python"], signal.SIGKILL)
        assert bed.run(status, "cat", "/sys/class/net/eth0/carrier").stdout.strip() == "1"
        await bed.settled(spec, lambda _: log.read_text().count("carrier") == 2)
        assert link(bed, status, "eth0")["ifindex"] == index


async def test_an_interface_of_a_later_apply_appears_whole() -> None:
    async with guest_bed() as bed:
        spec = replace(bed.spec(), interfaces=(ETH0,))
        status = await bed.started(spec)
        daemons = {name: pid for name, pid in processes(status).items() if name in FRR_ALWAYS}
        argv = bed.driver.exec_argv(spec, status.pid, ["ip", "-o", "monitor", "link"])
        monitor = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        try:
            told = asyncio.create_task(monitor.stdout.readline())
            while not told.done():  # it does not say when it begins to listen
                bed.run(status, "ip", "link", "add", "mark0", "type", "bridge")
                bed.run(status, "ip", "link", "del", "mark0")
                await asyncio.wait({told}, timeout=0.05)
            spec = replace(spec, interfaces=(ETH1,))
            await bed.driver.start(spec)
            bed.run(status, "ip", "link", "add", "mark1", "type", "bridge")
            async with asyncio.timeout(DEADLINE_S):
                seen = (await monitor.stdout.readuntil(b"mark1")).decode()
        finally:
            bed.run(status, "pkill", "-x", "ip")  # what is in front of it ends with it
            await monitor.wait()
        new = [line for line in seen.splitlines() if "eth1" in line]
        assert new
        assert [line for line in new if "mtu 1400" not in line or ETH1.mac.hex(":") not in line] == []
        assert link(bed, status, "eth1")["addr"] == list(ETH1.addresses)
        assert "does not exist" in bed.run(status, "ip", "link", "show", "eth0").stderr
        found = processes(status)
        assert {name: found[name] for name in daemons} == daemons  # nothing was started again for it


async def test_what_cannot_be_made_is_named_and_made_once_it_can() -> None:
    async with guest_bed() as bed:
        spec = replace(bed.spec(), interfaces=(ETH0,))
        status = await bed.started(spec)
        # In the guest's way: made by its root.
        bed.run(status, "ip", "link", "add", "eth1", "type", "bridge")
        spec = replace(spec, interfaces=(ETH0, ETH1))
        await bed.driver.start(spec)
        why = "failed: eth1: another link of that name is in the guest; remove it, or rename one of the two"
        status = await bed.settled(spec, lambda status: status.daemons.get("interfaces") == why)
        assert (await bed.driver.look_after(spec))[0].startswith("interfaces: eth1: another link")
        bed.run(status, "ip", "link", "del", "eth1")
        await bed.settled(spec)
        assert link(bed, status, "eth1")["addr"] == list(ETH1.addresses)
        # What the guest deletes comes back.
        bed.run(status, "ip", "link", "del", "eth0")
        await bed.settled(spec, lambda _: "eth0" in bed.run(status, "ip", "-br", "link").stdout)
        assert link(bed, status, "eth0")["mtu"] == ETH0.mtu


async def test_the_suite_does_not_wait_for_ever() -> None:
    """An interface that cannot be made holds the daemons up for ten seconds; the router's state says why."""
    async with guest_bed() as bed:
        spec = replace(bed.spec(), interfaces=(ETH0, replace(ETH1, name="lo")))
        await bed.driver.start(spec)
        status = await bed.settled(spec, lambda status: status.daemons.get("interfaces") == "starting")
        assert "zebra" not in processes(status)
        assert link(bed, status, "eth0")["mtu"] == ETH0.mtu  # the others are there meanwhile
        status = await bed.settled(spec, lambda status: status.daemons["zebra"] == "up")
        assert status.daemons["interfaces"].startswith("failed: lo: ")
        # The declaration put right, nothing is left to say.
        await bed.driver.start(replace(spec, interfaces=(ETH0, ETH1)))
        await bed.settled(spec)
