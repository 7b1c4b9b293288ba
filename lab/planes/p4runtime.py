"""Planes driven by P4Runtime, each a process on the interfaces of the enclosure: what BMv2 and vr-forwarder share."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from mininet.net import Mininet
from mininet.node import Node, Switch


class Device(Protocol):
    """A process that serves P4Runtime for one plane."""

    device_id: int
    log: Path

    @property
    def address(self) -> str:
        """Where it listens."""

    @property
    def pid(self) -> int:
        """Its process."""

    def start(self, ports: Mapping[str, int]) -> None:
        """Start it on these interfaces, each with its port number, and wait until it serves."""

    def stop(self) -> object:
        """Kill it; harmless when repeated."""


class DeviceSwitch(Switch):  # type: ignore[misc]  # Mininet has no types
    """A device as a Mininet switch."""

    def __init__(self, name: str, device: Device, **params: object) -> None:
        super().__init__(name, dpid=f"{device.device_id:016x}", **params)
        self.device = device

    def numbers(self) -> dict[str, int]:
        """Return the numbers of the ports by name."""
        return {str(port): number for number, port in self.intfs.items() if str(port) != "lo"}

    def start(self, controllers: object) -> None:
        """Start it on the interfaces it has been given."""
        self.device.start(self.numbers())

    def stop(self, deleteIntfs: bool = True) -> None:
        """End it."""
        self.device.stop()
        super().stop(deleteIntfs)


class DevicePlanes:
    """Devices on the interfaces of the enclosure; a link inside one is a veth pair between two ports."""

    def __init__(self, make: Callable[[str, int, int], Device]) -> None:
        """``make`` makes a device from its name, its device id and its place among the devices."""
        self._make = make
        self._switches: dict[str, DeviceSwitch] = {}

    def switch(self, mininet: Mininet, name: str, number: int) -> DeviceSwitch:
        """Add a switch."""
        device = self._make(name, number, len(self._switches))
        switch: DeviceSwitch = mininet.addSwitch(name, cls=DeviceSwitch, device=device)
        self._switches[name] = switch
        return switch

    def join(self, mininet: Mininet, switch: DeviceSwitch, port: str, other_port: str) -> None:
        """Add a veth pair; Mininet would give both ends the same number."""
        number = switch.newPort()
        ends = {"intfName1": port, "intfName2": other_port, "port1": number, "port2": number + 1}
        mininet.addLink(switch, switch, **ends)

    def loose_end(self, switch: DeviceSwitch, port: str) -> tuple[Node, str]:
        """Return the port itself."""
        return switch, port

    def started(self) -> None:
        """Have nothing left to do."""

    def declared(self) -> list[dict[str, Any]]:
        """Declare each by its address, with the interfaces that tell the states of its ports."""
        return [
            {
                "name": name,
                "kind": "p4runtime",
                "address": switch.device.address,
                "device_id": switch.device.device_id,
                "ports": {port: {"number": number, "device": port} for port, number in switch.numbers().items()},
            }
            for name, switch in self._switches.items()
        ]

    def process(self, name: str) -> int:
        """Return the switch's own process."""
        return self._switches[name].device.pid

    def logs(self) -> Iterable[Path]:
        """Return what each printed."""
        return [switch.device.log for switch in self._switches.values()]


def on_path(program: str) -> bool:
    """Tell whether a program is installed."""
    return shutil.which(program) is not None
