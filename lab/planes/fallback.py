"""Open vSwitch with a vr-forwarder behind it, by a cable: one plane to the tenants."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lab.network import checked
from lab.planes.forwarder import ForwarderPlanes, enclosed, mount_bpffs
from lab.planes.open_vswitch import OpenVSwitchPlanes

SOFTWARE = "f1"
_PORT, _PEER_PORT, _PEER_NUMBER = "s1-f1", "f1-s1", 1
_DEVICE_ID = 1
_MTU = 1504
"""Of the cable: what the routers send, and a VLAN tag."""


class FallbackPlanes(OpenVSwitchPlanes):
    """One bridge, the forwarder `SOFTWARE`, and a veth pair between the two."""

    title = "Open vSwitch with vr-forwarder behind it"

    def __init__(self, capacity: Mapping[str, int]) -> None:
        """``capacity`` is the room of the bridge, by route table; a table left out has as much as it takes."""
        super().__init__()
        self.forwarder = enclosed(SOFTWARE, _DEVICE_ID)
        self._capacity = dict(capacity)

    def missing(self) -> str:
        """Say how to build the forwarder where it is not built."""
        return ForwarderPlanes().missing()

    def started(self) -> None:
        """Lay the cable, start the forwarder, and let the bridge look for the controller."""
        checked(["ip", "link", "add", _PORT, "type", "veth", "peer", "name", _PEER_PORT])
        # What a vr-forwarder asks of the other end of a veth where a bridge in userspace is (docs/forwarder.md).
        checked(["ethtool", "-K", _PORT, "gro", "on"])
        checked(["ip", "link", "set", _PORT, "mtu", str(_MTU), "gro_max_size", "1", "up"])
        checked(["ip", "link", "set", _PEER_PORT, "mtu", str(_MTU), "up"])
        (bridge,) = self._switches
        checked(["ovs-vsctl", "add-port", bridge, _PORT])
        mount_bpffs()
        self.forwarder.start({_PEER_PORT: _PEER_NUMBER})
        super().started()

    def declared(self) -> list[dict[str, Any]]:
        """Declare the bridge, and the forwarder as its fallback."""
        (bridge,) = super().declared()
        fallback = {"plane": SOFTWARE, "port": _PORT, "peer_port": _PEER_PORT}
        software = {
            "name": SOFTWARE,
            "kind": "p4runtime",
            "address": self.forwarder.address,
            "device_id": _DEVICE_ID,
            "ports": {_PEER_PORT: {"number": _PEER_NUMBER, "device": _PEER_PORT}},
        }
        room = {"capacity": self._capacity} if self._capacity else {}
        return [bridge | {"fallback": fallback} | room, software]

    def logs(self) -> Iterable[Path]:
        """Return the forwarder's; Open vSwitch's is that of all bridges."""
        return [self.forwarder.log]
