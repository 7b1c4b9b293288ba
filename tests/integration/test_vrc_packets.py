"""Frames go both ways through a TAP, and the neighbor that answers is reported and kept probed."""

import contextlib
from collections.abc import Callable

import pytest
from vrc_guest import Controller, guest, interface

from wire.frames import Frame

pytestmark = pytest.mark.root

GUEST_MAC, HOST_MAC = bytes((2, 0, 0, 0, 0, 1)), bytes((2, 0, 0, 0, 0, 0xAA))
GUEST, HOST = bytes((10, 1, 0, 1)), bytes((10, 1, 0, 2))


def arp(operation: int, target_mac: bytes = bytes(6)) -> bytes:
    destination = target_mac if any(target_mac) else b"\xff" * 6
    head = bytes.fromhex("0001080006040000")[:7] + bytes((operation,))
    return destination + HOST_MAC + b"\x08\x06" + head + HOST_MAC + HOST + target_mac + GUEST


def is_arp(frame: Frame, operation: int) -> bool:
    octets = frame[2]
    return octets[12:14] == b"\x08\x06" and octets[21] == operation and octets[38:42] == HOST


async def ask(controller: Controller, until: Callable[[], bool]) -> None:
    """Ask for the guest's MAC, as a host does, until that has had its effect.

    For up to a second after carrier Linux drops what its stack sends. Its table of neighbors is one for all that runs
    on a machine: while another test has filled it, nobody new gets in.
    """
    for _ in range(60):
        await controller.send_frame(1, arp(1))
        with contextlib.suppress(AssertionError):
            return await controller.until(until, 1)
    raise AssertionError(f"ARP has no effect: {controller.__dict__}")


async def answered(controller: Controller) -> None:
    await ask(controller, lambda: any(is_arp(frame, 2) for frame in controller.frames))


async def test_arp_both_ways() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc()
        await controller.until(lambda: any(state.up for state in controller.interfaces.values()))

        await answered(controller)
        interface_id, _, reply = next(frame for frame in controller.frames if is_arp(frame, 2))
        assert interface_id == 1
        assert reply[:12] == HOST_MAC + GUEST_MAC
        # What asked is a neighbor now, reported, and the kernel is told to keep it probed.
        await ask(controller, lambda: (1, "10.1.0.2") in controller.neighbors)
        assert controller.neighbors[1, "10.1.0.2"].mac == HOST_MAC
        await g.until("ip", "neigh", "show", "10.1.0.2", has="managed")

        # Nothing answers any more: probes go out without any traffic, in the end to everybody, and then the failure
        # is reported; or that it is gone, for the kernel may collect one that has failed at once.
        controller.frames.clear()
        await controller.until(lambda: any(is_arp(frame, 1) for frame in controller.frames))
        await controller.until(lambda: not controller.neighbors[1, "10.1.0.2"].mac)
        asked = [frame[2][:6] for frame in controller.frames if is_arp(frame, 1)]
        assert asked[:6] == [HOST_MAC] * 3 + [b"\xff" * 6] * 3
        # A host that is gone is not probed for ever.
        await g.until("sh", "-c", "ip neigh show 10.1.0.2 | grep managed || echo not probed", has="not probed")


async def test_a_neighbor_that_the_kernel_collects_while_no_controller_is_there_is_told_again() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: any(state.up for state in controller.interfaces.values()))
        await ask(controller, lambda: (1, "10.1.0.2") in controller.neighbors)
        await g.until("ip", "neigh", "show", "10.1.0.2", has="managed")
        await controller.stop()
        await g.until("cat", str(g.directory / "vrc.log"), has="no session")
        await g.run("ip", "neigh", "del", "10.1.0.2", "dev", "eth0")
        await g.until("ip", "neigh", "show", "10.1.0.2", has="managed")
        again = Controller(interface(1, "10.1.0.1/24"))
        await again.start(g.directory)
        try:
            await again.until(lambda: len(again.resync_ends) == 1)
            assert again.neighbors[1, "10.1.0.2"].mac == HOST_MAC
        finally:
            await again.stop()


async def test_frames_that_cannot_be_written() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc()
        await controller.until(lambda: any(state.up for state in controller.interfaces.values()))
        for frame in (b"", b"x", b"x" * 20, b"\xff" * 9000, b"\xff" * 60000):
            await controller.send_frame(1, frame)
            await controller.send_frame(99, frame)
        await answered(controller)
