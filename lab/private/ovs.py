"""A private Open vSwitch (userspace datapath) with hosts, each in a network namespace of its own.

    ┌ namespace of the switch ────────────────────────────────────┐      ┌ namespace of a host ┐
    │ ovsdb-server, ovs-vswitchd (own run directory)              │      │                     │
    │ bridge ── port ─────────────────────────────────────── veth ┼──────┼ eth0                │
    │    └───── patch ── access bridge (tag) ─────────────── veth ┼──────┼ eth0 (untagged)     │
    └─────────────────────────────────────────────────────────────┘      └─────────────────────┘

Nothing is left when the context ends, however it ends: processes, namespaces, and with them their links, go.
"""

import contextlib
import itertools
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lab.namespaces import Host, Private, in_namespace, namespace, sh
from lab.ovs_daemons import OvsDaemons


@dataclass
class PrivateOvs(Private):
    """Open vSwitch in a namespace: ``with PrivateOvs() as ovs``. A given namespace is used and left alone."""

    namespace: str | None = None
    directory: Path = field(init=False)
    _daemons: OvsDaemons = field(init=False)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)

    def bring_up(self) -> None:
        """Start its daemons."""
        self.directory = self.make_directory("sp-ovs-")
        if self.namespace is None:
            self.namespace = self._stack.enter_context(namespace("sp-ovs"))
        self._daemons = OvsDaemons(self.directory, ("ip", "netns", "exec", self.namespace))
        self._stack.callback(self.kill)
        self._daemons.start()

    @property
    def pid(self) -> int:
        """The process of ovs-vswitchd."""
        return self._daemons.pid

    # -- life --------------------------------------------------------------------------------------------------------
    def kill(self) -> None:
        """Kill the switch and its database at once."""
        self._daemons.kill()

    def restart(self) -> None:
        """Kill everything and start it again: the configuration stays, all flows are gone."""
        self._daemons.kill()
        self._daemons.start()

    # -- commands ----------------------------------------------------------------------------------------------------
    def vsctl(self, *arguments: str) -> str:
        """Run ovs-vsctl, which waits until the switch has done it."""
        return self._daemons.vsctl(*arguments)

    def ofctl(self, command: str, bridge: str, *arguments: str) -> str:
        """Run an ovs-ofctl command on a bridge with OpenFlow 1.3."""
        socket_path = f"unix:{self.directory}/{bridge}.mgmt"
        return sh("ovs-ofctl", "-O", "OpenFlow13", command, socket_path, *arguments, env=self._daemons.environment)

    def appctl(self, *arguments: str) -> str:
        """Run ovs-appctl on the switch."""
        return sh("ovs-appctl", "-t", f"{self.directory}/ovs-vswitchd.ctl", *arguments, env=self._daemons.environment)

    # -- networks ----------------------------------------------------------------------------------------------------
    def add_bridge(self, name: str, datapath_id: int) -> None:
        """Add a bridge that forwards nothing until it is told to."""
        fixed = ("datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow13")
        identity = f"other_config:datapath-id={datapath_id:016x}"
        self.vsctl("add-br", name, "--", "set", "bridge", name, *fixed, identity, "other_config:disable-in-band=true")

    def set_controller(self, bridge: str, target: str) -> None:
        """Make a bridge connect to a controller, and try again every second."""
        retry = ("max_backoff=1000", "inactivity_probe=5000")
        self.vsctl("set-controller", bridge, target, "--", "set", "controller", bridge, *retry)

    def listening_socket(self) -> socket.socket:
        """Return a socket that listens on loopback inside the switch's namespace."""
        return in_namespace(str(self.namespace), lambda: socket.create_server(("127.0.0.1", 0)))

    def add_host(self, bridge: str, mac: str, *addresses: str, vlan: int = 0) -> Host:
        """Add a host with a MAC and addresses ("10.0.0.2/24"); with a VLAN its frames reach the bridge tagged."""
        number = next(self._numbers)
        name = self._stack.enter_context(namespace("sp-host"))
        link = f"p{number}"
        ends = ("type", "veth", "peer", "name", "eth0", "netns", name)
        sh("ip", "-n", str(self.namespace), "link", "add", link, "address", _link_mac(number), *ends)
        for place, device in ((str(self.namespace), link), (name, "eth0")):
            sh("ip", "netns", "exec", place, "ethtool", "-K", device, "tx", "off", "tso", "off", "gso", "off")
        sh("ip", "netns", "exec", str(self.namespace), "sysctl", "-qw", f"net.ipv6.conf.{link}.disable_ipv6=1")
        sh("ip", "-n", str(self.namespace), "link", "set", link, "up")
        sh("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=0")
        sh("ip", "-n", name, "link", "set", "eth0", "address", mac, "up")
        for address in addresses:
            sh("ip", "-n", name, "address", "add", address, "dev", "eth0")
        if vlan:
            self._add_access_port(bridge, link, number, vlan)
        else:
            self.vsctl("add-port", bridge, link, "--", "set", "interface", link, f"ofport_request={number}")
        return Host(name, bridge, number, link, mac)

    def _add_access_port(self, bridge: str, link: str, number: int, vlan: int) -> None:
        access, here, there = f"access{number}", f"trunk{number}", f"uplink{number}"
        self.vsctl("add-br", access, "--", "set", "bridge", access, "datapath_type=netdev")
        self.vsctl("add-port", access, link, f"tag={vlan}")
        patch = "type=patch"
        self.vsctl("add-port", access, there, "--", "set", "interface", there, patch, f"options:peer={here}")
        self.vsctl(
            *("add-port", bridge, here, "--", "set", "interface", here, patch),
            *(f"options:peer={there}", f"ofport_request={number}"),
        )


def _link_mac(number: int) -> str:
    return f"02:fe:00:00:00:{number:02x}"
