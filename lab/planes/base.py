"""The port of a topology's planes: switches of one kind, and what a topology wants of them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from mininet.net import Mininet
from mininet.node import Node, Switch


class Planes(Protocol):
    """The switches of a network that the controller programs. Each is a Mininet switch in the enclosure's own
    network namespace, whose interfaces are named as the plane's ports are."""

    title: str  # "Open vSwitch"
    needs_cables: bool
    """Whether two planes are connected through an access switch, as neither bears that its own end goes down."""
    polled: bool
    """Whether the other end of a port's cable has to poll (`gro on`), or the kernel drops what the plane sends."""

    def missing(self) -> str:
        """Return one line that says what this machine lacks for it and the remedy; empty when nothing."""

    def switch(self, mininet: Mininet, name: str, number: int) -> Switch:
        """Add the plane ``name``; ``number`` is its datapath or device id."""

    def join(self, mininet: Mininet, switch: Switch, port: str, other_port: str) -> None:
        """Connect two ports of one switch, before it is started."""

    def loose_end(self, switch: Switch, port: str) -> tuple[Node, str]:
        """Return the interface that is set down to cut the cable of a port."""

    def started(self) -> None:
        """Finish what needs switches that run."""

    def declared(self) -> list[dict[str, Any]]:
        """Return the planes: section of the document that declares the switches; they have been started."""

    def process(self, name: str) -> int:
        """Return the process that forwards for a plane."""

    def logs(self) -> Iterable[Path]:
        """Return the switches' logs."""
