"""kill -9 of the VRC: its interfaces stay, the daemons see nothing, and the next VRC tells all from the kernel."""

import asyncio
import signal

import pytest
from vrc_guest import Controller, guest, interface

pytestmark = pytest.mark.root

STATIC = "ip route 10.50.0.0/24 10.1.0.2\nip route 10.51.0.0/24 10.1.0.2\nip route 10.51.0.0/24 10.2.0.2\n"


async def test_kill_and_restart() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"), interface(2, "10.2.0.1/24", port_up=False), hold_time_s=2)
    async with guest(controller) as g:
        await g.start_vrc()
        await controller.until(lambda: 1 in controller.interfaces and controller.interfaces[1].up)
        assert not controller.interfaces[2].up
        await g.start_zebra()
        await g.start_daemon("staticd", STATIC)
        await controller.until(lambda: "10.51.0.0/24" in controller.routes)
        await controller.until(lambda: controller.resync_ends[-1:] == [True])  # zebra connected, hold time over
        routes = dict(controller.routes)
        watch = await asyncio.create_subprocess_exec(
            "nsenter", "-t", str(g.pid), "-n", "ip", "-o", "monitor", "link", "address", "route",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip

        assert await g.stop_vrc(signal.SIGKILL) == -signal.SIGKILL
        await g.until("ip", "link", "show", "eth0", has="LOWER_UP")
        controller.routes.clear()
        controller.resync_ends.clear()
        controller.interface_history.clear()
        await g.start_vrc()
        await controller.until(lambda: controller.resync_ends == [True])  # nothing to wait for: zebra never stopped
        await controller.until(lambda: controller.routes == routes)
        assert len({hello.instance for hello in controller.hellos}) == 2
        assert [(state.id, state.up) for state in controller.interface_history] == [(1, True), (2, False)]

        controller.declaration.interfaces.pop()
        await controller.send(declaration=controller.declaration)
        await g.make_interfaces(controller.declaration.interfaces)
        await g.until("sh", "-c", "ip link show eth1 2>&1", has="does not exist")
        watch.kill()
        seen = (await watch.communicate())[0].decode().splitlines()
        # The first interface kept its carrier, its address and its routes all the time: zebra had nothing to see.
        assert [line for line in seen if "eth0" in line and ",UP,LOWER_UP>" not in line] == []


async def test_kill_in_the_middle_of_a_replay() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"), hold_time_s=60)
    async with guest(controller) as g:
        await g.start_vrc()
        await controller.until(lambda: 1 in controller.interfaces and controller.interfaces[1].up)
        batch = g.directory / "routes"
        prefixes = [f"11.{i >> 8}.{i & 255}.0/24" for i in range(30_000)]
        batch.write_text("".join(f"route add {prefix} via 10.1.0.2\n" for prefix in prefixes))
        await g.run("ip", "-batch", str(batch))
        await g.start_zebra()
        await controller.until(lambda: len(controller.routes) > 3000)
        await g.stop_vrc(signal.SIGKILL)
        assert controller.resync_ends == []  # zebra was not done
        await g.start_vrc()
        await controller.until(lambda: len(controller.resync_ends) == 1)
        assert set(controller.routes) == {"10.1.0.0/24", *prefixes}
        assert [way for _, way in controller.writes if not way] == []  # nothing was ever withdrawn
