"""Open vSwitch of our own: the access switches of any network, and planes driven by OpenFlow."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mininet.net import Mininet
from mininet.node import OVSSwitch

from lab.network import CONTROLLER
from lab.ovs_daemons import OvsDaemons

_DAEMONS = OvsDaemons(Path("/run/openvswitch"))
"""Of the enclosure: every network in it has them."""


def start_daemons() -> None:
    """Start the enclosure's own daemons, with an empty database."""
    Path("/run/openvswitch").mkdir(exist_ok=True)
    os.environ |= _DAEMONS.environment  # for Mininet, which runs ovs-vsctl
    _DAEMONS.start()


def daemon_logs() -> Iterable[Path]:
    """Return the logs of both."""
    return _DAEMONS.logs


class OpenVSwitchPlanes:
    """Bridges in secure mode that connect to the controller; a link inside one is a pair of patch ports."""

    title = "Open vSwitch"
    needs_cables = False
    polled = False

    def __init__(self) -> None:
        self._switches: dict[str, tuple[OVSSwitch, int]] = {}
        self._patches: list[tuple[str, str, str]] = []

    def missing(self) -> str:
        """Lack nothing: every network needs Open vSwitch (see enclosure.py)."""
        return ""

    def switch(self, mininet: Mininet, name: str, number: int) -> OVSSwitch:
        """Add a bridge."""
        options = {"datapath": "user", "failMode": "secure", "protocols": "OpenFlow13"}
        switch = mininet.addSwitch(name, cls=OVSSwitch, dpid=f"{number:016x}", **options)
        self._switches[name] = switch, number
        return switch

    def join(self, mininet: Mininet, switch: OVSSwitch, port: str, other_port: str) -> None:
        """Remember a patch-port pair, which is made when the bridge is there."""
        self._patches += [(switch.name, port, other_port), (switch.name, other_port, port)]

    def loose_end(self, switch: OVSSwitch, port: str) -> tuple[OVSSwitch, str]:
        """Return the port itself."""
        return switch, port

    def started(self) -> None:
        """Let the bridges look for the controller, and make the patch ports."""
        for name in self._switches:
            target = ("--id=@c", "create", "Controller", f'target="{CONTROLLER}"', "max_backoff=1000")
            _DAEMONS.vsctl("--", *target, "--", "set", "Bridge", name, "controller=@c")
        for bridge, port, peer in self._patches:
            options = ("type=patch", f"options:peer={peer}")
            _DAEMONS.vsctl("add-port", bridge, port, "--", "set", "Interface", port, *options)

    def declared(self) -> list[dict[str, Any]]:
        """Declare each by its datapath id."""
        return [
            {"name": name, "kind": "openflow", "datapath_id": number} for name, (_, number) in self._switches.items()
        ]

    def process(self, name: str) -> int:
        """Return ovs-vswitchd, which is one for all."""
        return _DAEMONS.pid

    def logs(self) -> Iterable[Path]:
        """Return none of their own: the daemons are those of all switches."""
        return ()
