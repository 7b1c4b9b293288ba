"""Open vSwitch of our own: the access switches of any network, and planes driven by OpenFlow."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mininet.net import Mininet
from mininet.node import OVSSwitch

from topologies.commands import checked
from topologies.network import CONTROLLER

_OVS = Path("/run/openvswitch")
_ENVIRONMENT = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")


def start_daemons() -> None:
    """Start a private ovsdb-server and ovs-vswitchd (userspace datapath) with an empty database."""
    _OVS.mkdir(exist_ok=True)
    for name in _ENVIRONMENT:
        os.environ[name] = str(_OVS)
    schema = "/usr/share/openvswitch/vswitch.ovsschema"
    checked(["ovsdb-tool", "create", str(_OVS / "conf.db"), schema])
    log = ("--log-file", "-vconsole:off", "-vsyslog:off")
    server = ["ovsdb-server", f"--remote=punix:{_OVS}/db.sock", "--pidfile", "--detach", "--no-chdir", *log]
    checked(server, logs=[_OVS / "ovsdb-server.log"])
    _asked("--no-wait", "init")
    # One thread for upcalls and one for revalidation are plenty here, and leave the cores to the routers.
    threads = ("other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1")
    _asked("--no-wait", "set", "Open_vSwitch", ".", *threads)
    checked(["ovs-vswitchd", "--pidfile", "--detach", "--no-chdir", *log], logs=[_OVS / "ovs-vswitchd.log"])


def _asked(*words: str) -> None:
    """Run ovs-vsctl, which waits for ovs-vswitchd to have done it."""
    checked(["ovs-vsctl", *words], logs=sorted(daemon_logs()))


def daemon_logs() -> Iterable[Path]:
    """Return the logs of both."""
    return _OVS.glob("*.log")


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
            _asked("--", *target, "--", "set", "Bridge", name, "controller=@c")
        for bridge, port, peer in self._patches:
            options = ("type=patch", f"options:peer={peer}")
            _asked("add-port", bridge, port, "--", "set", "Interface", port, *options)

    def declared(self) -> list[dict[str, Any]]:
        """Declare each by its datapath id."""
        return [
            {"name": name, "kind": "openflow", "datapath_id": number} for name, (_, number) in self._switches.items()
        ]

    def process(self, name: str) -> int:
        """Return ovs-vswitchd, which is one for all."""
        return int((_OVS / "ovs-vswitchd.pid").read_text())

    def logs(self) -> Iterable[Path]:
        """Return none of their own: the daemons are those of all switches."""
        return ()
