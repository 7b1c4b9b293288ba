"""Ports of a plane: up without a device, and as a device of the host says with one."""

from collections.abc import Callable, Iterable
from typing import ClassVar

import pytest
from openflow_net import Recorder

from controller.model import PlanePort
from controller.planes.base import PortState
from controller.planes.p4runtime.plane import P4RuntimePlane
from tests.unit.p4runtime.edge import QUICK, config_of
from tests.unit.p4runtime.server import Device


class Links:
    """Stands for `LinkWatch`."""

    made: ClassVar[list["Links"]] = []

    def __init__(self, devices: Iterable[str]) -> None:
        self.up = dict.fromkeys(devices, False)
        self.closed = False
        self.made.append(self)

    def start(self, changed: Callable[[str, bool], None]) -> None:
        self.changed = changed

    def close(self) -> None:
        self.closed = True

    def set(self, device: str, up: bool) -> None:
        self.up[device] = up
        self.changed(device, up)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> "list[Links]":
    monkeypatch.setattr(Links, "made", [])
    monkeypatch.setattr("controller.planes.p4runtime.plane.LinkWatch", Links)
    return Links.made


async def test_a_port_follows_its_device(one: Device, links: list[Links]) -> None:
    plane, heard = (
        P4RuntimePlane(config_of(one, PlanePort("a", 1), PlanePort("b", 2, "veth0")), timing=QUICK),
        Recorder(),
    )
    await plane.start(heard)
    await heard.until(lambda: plane.connected)
    assert plane.ports == {1: PortState(1, "a", True), 2: PortState(2, "b", False)}
    links[0].set("veth0", True)
    assert heard.ports[2] == plane.ports[2] == PortState(2, "b", True)
    await plane.close()
    assert links[0].closed


async def test_what_changed_while_the_device_was_away_is_told_with_the_next_connection(
    one: Device, links: list[Links]
) -> None:
    plane, heard = P4RuntimePlane(config_of(one, PlanePort("b", 2, "veth0")), timing=QUICK), Recorder()
    await plane.start(heard)
    await heard.until(lambda: plane.connected)
    await one.stop()
    await heard.until(lambda: heard.disconnects)
    links[0].set("veth0", True)
    assert not heard.ports[2].up
    await one.start()
    await heard.until(lambda: plane.connected)
    assert heard.ports[2].up
    await plane.close()


async def test_without_devices_nothing_is_watched(one: Device, links: list[Links]) -> None:
    plane = P4RuntimePlane(config_of(one, PlanePort("a", 1)), timing=QUICK)
    await plane.start(Recorder())
    await plane.close()
    assert not links
