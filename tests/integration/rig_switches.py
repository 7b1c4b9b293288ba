"""The switches that a rig may have, alike: hosts, what is installed, a cut of the controller's connection, power."""

import contextlib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

import pytest
from finsy.proto import p4r
from marks import needs_bmv2
from p4rt_relay import P4RuntimeRelay, read_entries

from lab.namespaces import Host, namespace, sh
from lab.private.bmv2 import PrivateBmv2
from lab.private.device import PrivateDevice
from lab.private.forwarder import NATIVE_MTU, PrivateForwarder
from lab.private.ovs import PrivateOvs

BRIDGE = "br"
PLANE = "s1"
OPENFLOW = "tcp:127.0.0.1:6653"
_VARIES = re.compile(r"cookie=0x\w+, |(?<=meter:)\d+")


class RigSwitch(Protocol):
    """One switch, the plane PLANE."""

    namespace: str

    def __enter__(self) -> "RigSwitch":
        """Start it."""

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""

    @property
    def declared(self) -> dict[str, Any]:
        """The plane in a document."""

    @property
    def behind(self) -> tuple[dict[str, Any], ...]:
        """More planes in a document: what is behind it."""

    def connect(self) -> None:
        """Let the controller and the switch find each other."""

    def cut(self) -> None:
        """Cut their connection and keep it cut."""

    def kill(self) -> None:
        """Kill the switch at once."""

    def restart(self) -> None:
        """Have it run again, empty."""

    def holdings(self) -> object:
        """Return all that is installed, comparable, without counters."""

    def host(self, number: int, address: str, vlan: int = 0) -> Host:
        """Add a host with the MAC 02:00:00:00:00:NUMBER."""


class OvsSwitch:
    """A bridge of a private Open vSwitch."""

    behind: tuple[dict[str, Any], ...] = ()

    def __init__(self) -> None:
        self.ovs = PrivateOvs()

    def __enter__(self) -> "OvsSwitch":
        self.ovs.__enter__()
        self.ovs.add_bridge(BRIDGE, 1)
        self.namespace = str(self.ovs.namespace)
        return self

    def __exit__(self, *_: object) -> None:
        self.ovs.__exit__()

    @property
    def declared(self) -> dict[str, Any]:
        return {"name": PLANE, "kind": "openflow", "datapath_id": "0x1"}

    def connect(self) -> None:
        self.ovs.set_controller(BRIDGE, OPENFLOW)

    def cut(self) -> None:
        self.ovs.vsctl("set", "Controller", BRIDGE, 'target="tcp:127.0.0.1:1"')

    def kill(self) -> None:
        self.ovs.kill()

    def restart(self) -> None:
        self.ovs.restart()

    def host(self, number: int, address: str, vlan: int = 0) -> Host:
        return self.ovs.add_host(BRIDGE, f"02:00:00:00:00:{number:02x}", address, vlan=vlan)

    def flows(self, *match: str) -> list[str]:
        """Return the flows, without cookies, counters and the numbers of meters."""
        text = self.ovs.ofctl("dump-flows", BRIDGE, "--no-stats", *match)
        return sorted(_VARIES.sub("", line).strip() for line in text.splitlines() if "actions=" in line)

    def holdings(self) -> tuple[list[str], ...]:
        parts = (self.ovs.ofctl(command, BRIDGE) for command in ("dump-groups", "dump-meters"))
        return self.flows(), *(sorted(line.strip() for line in part.splitlines()[1:]) for part in parts)


class FallbackSwitch(OvsSwitch):
    """A bridge with room for a few routes, and a vr-forwarder behind it, by a cable between the two."""

    LINK, PEER = "br-f1", "p1"

    def __init__(self, samples: tuple[str, ...] = (), **capacity: int) -> None:
        super().__init__()
        options = tuple(word for one in samples for word in ("--samples", one))
        self.forwarder = PrivateForwarder(1, options=options)
        self._capacity = capacity
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "FallbackSwitch":
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.forwarder)
            stack.push(super().__exit__)
            super().__enter__()
            plug_in(self.forwarder, self.namespace, self.LINK)
            self.ovs.vsctl("add-port", BRIDGE, self.LINK)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look_up_every_packet(self) -> None:
        """Have no cached flow be for more than one flow of packets.

        Open vSwitch before 3.1.3 gives new actions to the wrong one of two that overlap (docs/planes.md).
        """
        self.ovs.appctl("upcall/disable-megaflows")

    @property
    def declared(self) -> dict[str, Any]:
        return super().declared | fallback(self.LINK, self.PEER, self._capacity)

    @property
    def behind(self) -> tuple[dict[str, Any], ...]:
        return (declared_behind(self.forwarder),)


def plug_in(forwarder: PrivateForwarder, place: str, device: str) -> None:
    """Bring the far end of the forwarder's only port into the namespace of the switch in front of it."""
    (end,) = forwarder.hosts
    end.ip("link", "set", "eth0", "netns", place, "name", device)
    sh("ip", "netns", "exec", place, "sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1")
    sh("ip", "-n", place, "link", "set", device, "up")


def fallback(port: str, peer_port: str, capacity: dict[str, int]) -> dict[str, Any]:
    """What a plane with a fallback has more in a document."""
    link = {"fallback": {"plane": "f1", "port": port, "peer_port": peer_port}}
    return link | ({"capacity": capacity} if capacity else {})


def declared_behind(forwarder: PrivateForwarder) -> dict[str, Any]:
    """The forwarder in a document."""
    port = {host.link: {"number": host.port, "device": host.link} for host in forwarder.hosts}
    return {"name": "f1", "kind": "p4runtime", "address": forwarder.address, "device_id": 1, "ports": port}


class DeviceSwitch:
    """A P4Runtime device behind a relay that counts the controller's requests and can be cut."""

    HOSTS = 5  # a device gets its ports when it starts
    behind: tuple[dict[str, Any], ...] = ()

    def __init__(self, device: PrivateDevice) -> None:
        self._device = device
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "DeviceSwitch":
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._device)
            path = Path(self._device.directory, "relay.sock")
            self._relay = P4RuntimeRelay(f"unix:{path}", self._device.address)
            stack.callback(self._relay.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def namespace(self) -> str:
        return str(self._device.namespace)

    @property
    def declared(self) -> dict[str, Any]:
        ports = {host.link: {"number": host.port, "device": host.link} for host in self._device.hosts}
        return {"name": PLANE, "kind": "p4runtime", "address": self._relay.address, "device_id": 1, "ports": ports}

    @property
    def requests(self) -> Counter[str]:
        """How many requests of each method the controller has sent so far: "Write", "Read", …"""
        return Counter(self._relay.requests)

    def support(self, but: Callable[[p4r.Entity], bool] | None) -> None:
        """Have the device refuse new entries as unsupported for which ``but`` holds; None: it supports all."""
        self._relay.unsupported = but

    def connect(self) -> None:
        self._relay.open()

    def cut(self) -> None:
        self._relay.close()

    def restart(self) -> None:
        self._device.restart()

    def kill(self) -> None:
        self._device.power_off()

    def host(self, number: int, address: str, vlan: int = 0) -> Host:
        assert not vlan, "hosts of this switch are untagged"
        host = self._device.hosts[number - 1]
        host.ip("address", "add", address, "dev", "eth0")
        return host

    def holdings(self) -> object:
        return read_entries(self._device.address)


class DeviceFallbackSwitch(DeviceSwitch):
    """A private device and a vr-forwarder behind it, by a cable between the two."""

    LINK, LINK_PORT, PEER = "behind", 9, "p1"

    def __init__(self, front: PrivateBmv2 | PrivateForwarder, prefix: str, **declared_capacity: int) -> None:
        super().__init__(front)
        self.front, self.forwarder = front, PrivateForwarder(1)
        self._prefix, self._declared_capacity = prefix, declared_capacity
        self._cable = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.front.namespace = stack.enter_context(namespace(self._prefix))
            stack.enter_context(self.forwarder)
            plug_in(self.forwarder, self.front.namespace, self.LINK)
            super().__enter__()
            self._cable = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._cable.close()

    @property
    def declared(self) -> dict[str, Any]:
        declared = super().declared
        declared["ports"][self.LINK] = {"number": self.LINK_PORT, "device": self.LINK}
        return declared | fallback(self.LINK, self.PEER, self._declared_capacity)

    @property
    def behind(self) -> tuple[dict[str, Any], ...]:
        return (declared_behind(self.forwarder),)


class Bmv2FallbackSwitch(DeviceFallbackSwitch):
    """A private BMv2 and a vr-forwarder behind it, by a cable between the two."""

    def __init__(self, **capacity: int) -> None:
        super().__init__(PrivateBmv2(self.HOSTS, more_ports={self.LINK_PORT: self.LINK}), "sp-bmv2", **capacity)

    def look_up_every_packet(self) -> None:
        """It does so by itself."""


class ForwarderFallbackSwitch(DeviceFallbackSwitch):
    """A private vr-forwarder of the ``capacity`` that its options name, and another one behind it, by a cable."""

    front: PrivateForwarder

    def __init__(self, **capacity: int) -> None:
        small = tuple(word for name, count in capacity.items() for word in ("--capacity", f"{name}={count}"))
        port = "--port", f"{self.LINK_PORT}={self.LINK}"
        super().__init__(PrivateForwarder(self.HOSTS, options=(*small, *port)), "sp-front")


class Bmv2Switch(DeviceSwitch):
    """A private BMv2."""

    def __init__(self, hosts: int = DeviceSwitch.HOSTS) -> None:
        super().__init__(PrivateBmv2(hosts))


class ForwarderSwitch(DeviceSwitch):
    """A private vr-forwarder, which goes on forwarding where only its daemon is killed."""

    def __init__(self, hosts: int = DeviceSwitch.HOSTS, mtu: int = NATIVE_MTU) -> None:
        self.forwarder = PrivateForwarder(hosts, mtu=mtu)
        super().__init__(self.forwarder)


SWITCHES = (
    pytest.param(OvsSwitch, id="ovs"),
    pytest.param(ForwarderSwitch, id="forwarder"),
    pytest.param(Bmv2Switch, id="bmv2", marks=needs_bmv2),
)
"""For tests that must hold whatever forwards."""

FALLBACK_SWITCHES = (
    pytest.param(FallbackSwitch, id="ovs"),
    pytest.param(Bmv2FallbackSwitch, id="bmv2", marks=needs_bmv2),
)
"""For tests that must hold whatever forwards in front of a vr-forwarder."""
