"""Shares on vr-forwarder with its program in the kernel: kept while the process is dead, changed without a loss."""

import pytest
from device_net import DeviceNet, device_net
from openflow_net import VRF, via

from controller.model import Share
from controller.planes.p4runtime import shares
from controller.planes.shares import ShareEntries, ShareEntry, ShareKey

pytestmark = [pytest.mark.root, pytest.mark.asyncio]

ROUTER, OTHER, SLICE = ("router_share", VRF), ("router_share", VRF + 1), ("slice_share", 9)
ENTRIES: ShareEntries = {
    ROUTER: ShareEntry(Share(2, 100_000), 9),
    OTHER: ShareEntry(Share(7), 10),
    SLICE: ShareEntry(Share(1000, 200_000)),
}
CHANGES = 200


async def put(net: DeviceNet, entries: ShareEntries, known: set[ShareKey]) -> None:
    """Put shares as a plane would whose device says that it has them."""
    assert net.plane.channel is not None
    assert await shares.write_shares(net.plane.channel, entries, (), known) == {}


async def read(net: DeviceNet) -> ShareEntries:
    assert net.plane.channel is not None
    return await shares.read_shares(net.plane.channel)


async def test_they_outlive_the_process() -> None:
    async with device_net() as net:
        await put(net, ENTRIES, set())
        assert await read(net) == ENTRIES
        connects = net.heard.connects
        net.device.kill()
        net.device.start()
        await net.heard.until(lambda: net.heard.connects > connects and net.plane.connected)
        assert await read(net) == ENTRIES


async def test_a_share_that_changes_loses_no_packet_of_anybody() -> None:
    async with device_net() as net:
        await net.install({"10.9.0.0/16": via(2)})
        known: set[ShareKey] = set()
        await put(net, ENTRIES, known)
        came: list[int] = []
        for number in range(1, CHANGES + 1):
            net.send(1, *[net.packet(1, "10.9.0.1", 1000 + 4 * number + each) for each in range(2)])
            changed = Share(1 + number % 1000, number, 500_000 + number)
            await put(net, {ROUTER: ShareEntry(changed, 9 + number % 2), SLICE: ShareEntry(changed)}, known)
            net.send(1, *[net.packet(1, "10.9.0.1", 1000 + 4 * number + each) for each in range(2, 4)])
            came += [int.from_bytes((await net.received(2, b"data"))[34:36], "big") for _ in range(4)]
        assert came == list(range(1004, 1004 + 4 * CHANGES))
        assert (await read(net))[OTHER] == ENTRIES[OTHER]
