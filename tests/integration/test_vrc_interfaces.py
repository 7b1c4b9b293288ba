"""Interfaces are used, changed and left alone in the guest as the controller says, and their state is told."""

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest
from vrc_guest import DEADLINE_S, Controller, guest, interface

from wire import splitplane_pb2 as pb

pytestmark = pytest.mark.root

VIRTUAL = bytes.fromhex("00005e00010a")


async def test_declaration_changes() -> None:
    controller = Controller(
        interface(1, "10.1.0.1/24", "2001:db8:1::1/64", mtu=9000, virtual_macs=[VIRTUAL]),
        interface(2, "10.2.0.1/24", admin_up=False),
    )
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(
            lambda: len(controller.interfaces) == 2 and len(controller.interfaces[1].addresses) == 2
        )
        assert not controller.interfaces[2].up
        link = await g.run("ip", "-d", "link", "show", "eth0")
        assert "02:00:00:00:00:01" in link
        assert "mtu 9000 " in link
        assert "multi_queue" in link
        assert "macvlan mode bridge" in await g.run("ip", "-d", "link", "show", "eth0-v1")
        assert await g.run("sysctl", "-n", "net.ipv4.ip_forward", "net.ipv4.conf.eth0.rp_filter") == "1\n0\n"

        # An address of the daemons stays, one of the declaration goes with it.
        await g.run("ip", "addr", "add", "10.7.0.1/24", "dev", "eth0")
        await g.run("ip", "addr", "add", "10.1.0.9/32", "dev", "eth0-v1")
        await g.run("ip", "link", "set", "eth0-v1", "up")
        own = {
            bytes((10, 1, 0, 1)),
            bytes((10, 7, 0, 1)),
            bytes((10, 1, 0, 9)),
            bytes.fromhex("20010db8" + "0001" + "0" * 18 + "01"),
        }
        await controller.until(lambda: set(controller.interfaces[1].addresses) == own)
        del controller.declaration.interfaces[0].addresses[0]
        controller.declaration.interfaces[0].virtual_macs.pop()
        controller.declaration.interfaces[0].mtu = 1400
        controller.declaration.interfaces[1].admin_up = True
        await controller.send(declaration=controller.declaration)
        await g.make_interfaces(controller.declaration.interfaces)
        await controller.until(
            lambda: (
                set(controller.interfaces[1].addresses) == own - {bytes((10, 1, 0, 1)), bytes((10, 1, 0, 9))}
                and controller.interfaces[2].up
            )
        )
        await g.until("ip", "link", "show", "eth0", has="mtu 1400 ")
        assert "does not exist" in await g.run("ip", "link", "show", "eth0-v1", check=False)

        # The plane's port goes down: carrier and state follow.
        await controller.send(port_states=pb.PortStates(states=[pb.PortState(interface_id=1, up=False)]))
        await controller.until(lambda: not controller.interfaces[1].up)
        await g.until("ip", "link", "show", "eth0", has="NO-CARRIER")
        await controller.send(port_states=pb.PortStates(states=[pb.PortState(interface_id=1, up=True)]))
        await controller.until(lambda: controller.interfaces[1].up)

        # The guest may lower the MTU, and a TAP deleted in the guest is made again and used again.
        await g.run("ip", "link", "set", "eth0", "mtu", "1300")
        await g.run("ip", "link", "del", "eth1")
        await controller.until(lambda: not controller.interfaces[2].up)
        await controller.until(lambda: controller.interfaces[2].up)
        assert "mtu 1300 " in await g.run("ip", "link", "show", "eth0")


async def test_groups_of_routing_protocols_are_entered_for_good() -> None:
    """Again after an interface was down, which has the kernel forget them."""
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: "10.1.0.0/24" in controller.routes)
        for _ in range(2):
            await g.until("ip", "neigh", "show", has="224.0.0.5 dev eth0 lladdr 01:00:5e:00:00:05 PERMANENT")
            await g.until("ip", "neigh", "show", has="ff02::1:6 dev eth0 lladdr 33:33:00:01:00:06 PERMANENT")
            await g.run("ip", "link", "set", "eth0", "down")
            await controller.until(lambda: not controller.interfaces[1].up)
            assert "224.0.0.5" not in await g.run("ip", "neigh", "show")
            await g.run("ip", "link", "set", "eth0", "up")
            await controller.until(lambda: controller.interfaces[1].up)


async def test_names_that_cannot_be() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        bad = [interface(2, name="lo"), interface(3, "10.3.0.1/33")]
        await g.make_interfaces([*controller.declaration.interfaces, bad[1]])
        controller.declaration.interfaces.extend(bad)
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: len(controller.interfaces) == 3 and controller.interfaces[1].up)
        await controller.until(lambda: controller.notices.count("interface") >= 2)  # and again with each change
        assert not controller.interfaces[2].up
        await controller.until(lambda: "10.1.0.0/24" in controller.routes)


async def test_an_interface_that_comes_later_is_whole_and_used() -> None:
    """The declaration may be there before the interface is."""
    first, second = interface(1, "10.1.0.1/24"), interface(2, "10.2.0.1/24", "2001:db8:2::1/64", mtu=9000)
    controller = Controller(first)
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: "10.1.0.0/24" in controller.routes)
        watch = await asyncio.create_subprocess_exec(
            "nsenter", "-t", str(g.pid), "-n", "ip", "-o", "monitor", "link", stdout=asyncio.subprocess.PIPE
        )
        await asyncio.to_thread(until_listening, watch.pid)
        controller.declaration.interfaces.append(second)
        await controller.send(declaration=controller.declaration)
        await controller.until(lambda: 2 in controller.interfaces)
        assert not controller.interfaces[2].up
        await g.make_interfaces([first, second])
        seen = await asyncio.wait_for(lines_until(watch.stdout, ("eth1", "LOWER_UP")), DEADLINE_S)
        watch.kill()
        await watch.wait()
        await controller.until(lambda: "2001:db8:2::/64" in controller.routes and controller.interfaces[2].up)
        told = [line for line in seen if "eth1" in line]
        assert [line for line in told if "mtu 9000" not in line or "02:00:00:00:00:02" not in line] == []


def until_listening(pid: int) -> None:
    """Wait until a process has a netlink socket that hears groups, beside the one that asks."""
    deadline = time.monotonic() + DEADLINE_S
    while not _hears(Path(f"/proc/{pid}")):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _hears(process: Path) -> bool:
    own = set()
    for fd in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it is being started: what it was opens and closes meanwhile
            own.add(os.readlink(fd))
    table = [line.split() for line in (process / "net/netlink").read_text().splitlines()[1:]]
    return any(int(line[3], 16) and f"socket:[{line[-1]}]" in own for line in table)


async def test_a_port_that_comes_up_before_its_interface_is_there() -> None:
    first, second = interface(1, "10.1.0.1/24"), interface(2, "10.2.0.1/24", port_up=False)
    controller = Controller(first)
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: "10.1.0.0/24" in controller.routes)
        controller.declaration.interfaces.append(second)
        await controller.send(declaration=controller.declaration)
        await controller.until(lambda: 2 in controller.interfaces)
        states = [pb.PortState(interface_id=2, up=True), pb.PortState(interface_id=1, up=False)]
        await controller.send(port_states=pb.PortStates(states=states))
        await controller.until(lambda: not controller.interfaces[1].up)
        await g.make_interfaces([first, second])
        await controller.until(lambda: controller.interfaces[2].up)


async def lines_until(stream: asyncio.StreamReader | None, words: tuple[str, ...]) -> list[str]:
    """Read lines up to the first that has all words."""
    assert stream
    lines = []
    async for line in stream:
        lines.append(line.decode())
        if all(word in lines[-1] for word in words):
            return lines
    raise AssertionError(f"no line with {words} in {lines}")
