"""A P4Runtime device of its own, with hosts: a veth pair each, the far end in a network namespace of its own."""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from lab.namespaces import Host, Private, namespace, sh
from lab.planes.p4runtime import Device

JUMBO = 9216


@dataclass
class PrivateDevice(Private):
    """A device in a namespace, which runs inside ``with``.

    Host N is behind port N and has the MAC 02:00:00:00:00:0N. A given namespace is used and left alone.
    """

    hosts_wanted: int = 2
    namespace: str | None = None
    directory: Path = field(init=False)
    hosts: list[Host] = field(default_factory=list, init=False)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)
    process: Device | None = field(default=None, init=False)
    kind: ClassVar[str]

    def bring_up(self) -> None:
        """Make its hosts and start it."""
        self.directory = self.make_directory(f"sp-{self.kind}-")
        if self.namespace is None:
            self.namespace = self._stack.enter_context(namespace(f"sp-{self.kind}"))
        for number in range(1, self.hosts_wanted + 1):
            self.hosts.append(self.add_host(self._stack, self.namespace, number))
        self._stack.callback(self.power_off)
        self.power_on()

    @property
    def address(self) -> str:
        """Where its P4Runtime server listens."""
        raise NotImplementedError

    def add_host(self, stack: contextlib.ExitStack, here: str, number: int) -> Host:
        """Add the host behind a port of the device, whose namespace is ``here``."""
        return add_host(stack, here, self.kind, number)

    def power_on(self) -> None:
        """Start it with nothing."""
        raise NotImplementedError

    def power_off(self) -> None:
        """Take it away with all that it knows; its ports stay."""
        raise NotImplementedError

    def restart(self) -> None:
        """Have it start again with nothing."""
        self.power_off()
        self.power_on()

    @property
    def log(self) -> str:
        """What it has written so far, of all its starts."""
        return self.log_file.read_text(errors="replace")

    @property
    def log_file(self) -> Path:
        """Where it writes."""
        return self.directory / f"{self.kind}.log"

    @property
    def pid(self) -> int:
        """The running process."""
        assert self.process is not None, "start comes first"
        return self.process.pid

    def set_link(self, port: int, up: bool) -> None:
        """Give a port carrier or take it away, by the host's end of the cable.

        The device's own end stays up: while an interface of BMv2 is down, its receiving thread waits for that alone.
        """
        self.hosts[port - 1].ip("link", "set", "eth0", "up" if up else "down")


def add_host(
    stack: contextlib.ExitStack, here: str, kind: str, number: int, *features: str, mtu: int = JUMBO
) -> Host:
    """Add the host behind port ``number`` of a device in namespace ``here``, with the MAC 02:00:00:00:00:NUMBER.

    ``features`` are more of ethtool's words for the host's end.
    """
    there = stack.enter_context(namespace("sp-host"))
    link, mac = f"p{number}", f"02:00:00:00:00:{number:02x}"
    sh("ip", "-n", here, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", there)
    for place, device, more in ((here, link, ()), (there, "eth0", features)):
        whole = ("tx", "off", "tso", "off", "gso", "off")
        sh("ip", "netns", "exec", place, "ethtool", "-K", device, *whole, *more)
        options = f"net.ipv6.conf.{device}"
        quiet = f"{options}.accept_dad=0" if place == there else f"{options}.disable_ipv6=1"
        sh("ip", "netns", "exec", place, "sysctl", "-qw", quiet)
    sh("ip", "-n", here, "link", "set", link, "mtu", str(mtu), "up")
    sh("ip", "-n", there, "link", "set", "eth0", "mtu", str(mtu), "address", mac, "up")
    return Host(there, kind, number, link, mac)
