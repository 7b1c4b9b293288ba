"""The planes that the conformance suite runs against, wired."""

import asyncio
import contextlib
import functools
import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from cables import PORTS, Cables, cables, near_end, plugged_into
from openflow_net import BRIDGE, DATAPATH_ID
from paired import LINK, LINK_PORT, PairedPlane, pair_of
from rig_switches import plug_in
from wired import AT_ONCE, Heard, WiredPlane

from controller.model import PlaneConfig, PlaneKind, PlanePort
from controller.planes.base import Plane
from controller.planes.fake import FakePlane
from controller.planes.openflow.plane import OpenFlowPlane
from controller.planes.openflow.server import OpenFlowListener
from controller.planes.p4runtime.plane import P4RuntimePlane
from lab.namespaces import namespace
from lab.private.bmv2 import PrivateBmv2
from lab.private.device import JUMBO
from lab.private.forwarder import NATIVE_MTU, PrivateForwarder
from lab.private.ovs import PrivateOvs


@functools.cache
def slots_each() -> int:
    """Return how many slots Open vSwitch has at least for each member of a group: seen with 3.1 and 3.5."""
    said = subprocess.run(("ovs-vswitchd", "--version"), capture_output=True, text=True, check=True).stdout
    found = re.search(r"\) (\d+)\.(\d+)", said)
    assert found, said
    return 1 if (int(found[1]), int(found[2])) < (3, 5) else 4


def exact_shares(weights: tuple[int, ...]) -> list[float]:
    """Return the shares that weights ask for."""
    return [weight / sum(weights) for weight in weights]


def slotted_shares(weights: tuple[int, ...]) -> list[float]:
    """Return the shares that Open vSwitch makes of weights: slots dealt one by one by the method of Webster."""
    needed = max(16, slots_each() * len(weights), -(-sum(weights) // min(weights)))
    slots = 1 << (needed - 1).bit_length()
    dealt = [0] * len(weights)
    for _ in range(slots):
        claims = [weight / (2 * own + 1) for weight, own in zip(weights, dealt, strict=True)]
        dealt[claims.index(max(claims))] += 1
    return [own / slots for own in dealt]


@contextlib.asynccontextmanager
async def wired_fake() -> AsyncIterator[WiredPlane]:
    heard = Heard()
    plane = FakePlane("fake", cables=heard.came_out)
    await plane.start(heard)
    for port in PORTS:
        plane.set_port(port, near_end(port), True)
    plane.connect()

    async def settle() -> None:
        """All of it happens at once."""

    def set_link(port: int, up: bool) -> None:
        plane.set_port(port, near_end(port), up)

    yield WiredPlane("fake", plane, heard, plane.inject, settle, exact_shares, set_link)
    await plane.close()


@contextlib.asynccontextmanager
async def wired_openflow() -> AsyncIterator[WiredPlane]:
    with _bridge() as (ovs, plugs):
        async with _connected(ovs) as (plane, heard):
            with plugs.listening(heard.came_out):
                yield WiredPlane("openflow", plane, heard, *_ends(ovs, plugs), counts_too_long_as_sent=True)


@contextlib.asynccontextmanager
async def wired_openflow_pair() -> AsyncIterator[PairedPlane]:
    with PrivateForwarder(1) as forwarder, _bridge() as (ovs, plugs):
        plug_in(forwarder, str(ovs.namespace), LINK)
        ovs.vsctl("add-port", BRIDGE, LINK, "--", "set", "interface", LINK, f"ofport_request={LINK_PORT}")
        async with _connected(ovs, forwarder) as (plane, heard):
            with plugs.listening(heard.came_out):
                wired = PairedPlane("openflow+forwarder", plane, heard, *_ends(ovs, plugs))
                wired.counts_too_long_as_sent = wired.counts_late = True
                wired.ovs = ovs
                wired.longest_frame = NATIVE_MTU + 14
                yield wired


@contextlib.contextmanager
def _bridge() -> Iterator[tuple[PrivateOvs, Cables]]:
    with PrivateOvs() as ovs, cables(str(ovs.namespace)) as plugs:
        ovs.add_bridge(BRIDGE, DATAPATH_ID)
        for port in PORTS:
            name = near_end(port)
            ovs.vsctl("add-port", BRIDGE, name, "--", "set", "interface", name, f"ofport_request={port}")
        yield ovs, plugs


def _ends(ovs: PrivateOvs, plugs: Cables) -> tuple[Any, ...]:
    async def settle() -> None:
        await _purge(ovs.directory / "ovs-vswitchd.ctl")

    return plugs.send, settle, slotted_shares, plugs.set_link


@contextlib.asynccontextmanager
async def _connected(ovs: PrivateOvs, behind: PrivateForwarder | None = None) -> AsyncIterator[tuple[Plane, Heard]]:
    server, heard = OpenFlowListener(sock=ovs.listening_socket()), Heard()
    plane: Plane = OpenFlowPlane("edge", DATAPATH_ID, server)
    plane = plane if behind is None else pair_of(plane, behind)
    await server.start()
    try:
        await plane.start(heard)
        ovs.set_controller(BRIDGE, f"tcp:127.0.0.1:{server.port}")
        await heard.until(lambda: plane.connected and all(port in plane.ports for port in PORTS))
        await heard.until(lambda: all(plane.ports[port].up for port in PORTS))
        yield plane, heard
    finally:
        await plane.close()
        await server.close()


@contextlib.asynccontextmanager
async def wired_bmv2() -> AsyncIterator[WiredPlane]:
    with PrivateBmv2(hosts_wanted=len(PORTS)) as bmv2, plugged_into(bmv2.hosts) as plugs:
        async with _wired_device("bmv2", bmv2.address, plugs) as wired:
            yield wired


@contextlib.asynccontextmanager
async def wired_bmv2_pair() -> AsyncIterator[WiredPlane]:
    alike = ("--no-hash-by-router",)  # as the hardware: a flow keeps its member when its prefix moves
    with namespace("sp-bmv2") as place, PrivateForwarder(1, options=alike) as forwarder:
        plug_in(forwarder, place, LINK)
        with PrivateBmv2(len(PORTS), place, more_ports={LINK_PORT: LINK}) as bmv2, plugged_into(bmv2.hosts) as plugs:
            async with _wired_device("bmv2+forwarder", bmv2.address, plugs, forwarder) as wired:
                wired.longest_frame, wired.at_once = NATIVE_MTU + 14, AT_ONCE // 4  # it sees every frame twice
                yield wired


@contextlib.asynccontextmanager
async def wired_forwarder() -> AsyncIterator[WiredPlane]:
    with PrivateForwarder(len(PORTS)) as forwarder, plugged_into(forwarder.hosts) as plugs:
        assert {port["mode"] for port in forwarder.show("status")["ports"]} == {"native"}
        async with _wired_device("forwarder", forwarder.address, plugs) as wired:
            wired.longest_frame = NATIVE_MTU + 14
            yield wired


@contextlib.asynccontextmanager
async def wired_generic_forwarder() -> AsyncIterator[WiredPlane]:
    with PrivateForwarder(len(PORTS), mtu=JUMBO, generic=True) as forwarder, plugged_into(forwarder.hosts) as plugs:
        assert {port["mode"] for port in forwarder.show("status")["ports"]} == {"generic"}
        async with _wired_device("forwarder_generic", forwarder.address, plugs) as wired:
            yield wired


@contextlib.asynccontextmanager
async def _wired_device(
    kind: str, address: str, plugs: Cables, behind: PrivateForwarder | None = None
) -> AsyncIterator[WiredPlane]:
    ports = [PlanePort(near_end(port), port) for port in PORTS]
    if behind is not None:
        ports.append(PlanePort(LINK, LINK_PORT))
    config = PlaneConfig("edge", PlaneKind.P4RUNTIME, address=address, device_id=1, ports=tuple(ports))
    plane: Plane = P4RuntimePlane(config)
    plane = plane if behind is None else pair_of(plane, behind)
    heard = Heard()
    await plane.start(heard)
    try:
        await heard.until(lambda: plane.connected)

        async def settle() -> None:
            """A write is in force when it is answered, and counters are exact."""

        make = WiredPlane if behind is None else PairedPlane
        with plugs.listening(heard.came_out):
            yield make(kind, plane, heard, plugs.send, settle, exact_shares, plugs.set_link)
    finally:
        await plane.close()


async def _purge(control: Path) -> None:
    """Make Open vSwitch forget its cached flows and credit what they counted: ovs-appctl revalidator/purge."""
    reader, writer = await asyncio.open_unix_connection(control)
    writer.write(json.dumps({"id": 0, "method": "revalidator/purge", "params": []}).encode())
    answer = b""
    async with asyncio.timeout(60):
        while not answer.endswith(b"}"):
            answer += await reader.read(4096)
    writer.close()
    await writer.wait_closed()
    assert json.loads(answer)["error"] is None


PLANES = {
    "fake": wired_fake,
    "forwarder": wired_forwarder,
    "forwarder_generic": wired_generic_forwarder,
    "openflow": wired_openflow,
    "bmv2": wired_bmv2,
    "openflow+forwarder": wired_openflow_pair,
    "bmv2+forwarder": wired_bmv2_pair,
}
PAIRS = tuple(kind for kind in PLANES if "+" in kind)
SINGLE = tuple(kind for kind in PLANES if kind not in PAIRS)
