"""A Mininet of planes, access switches, and hosts with FRR as the neighbors of virtual routers.

Everything here expects to run inside an enclosure (see enclosure.py): it uses /run as if nobody else did.
"""

from collections.abc import Sequence
from pathlib import Path

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Host, Node, OVSBridge, Switch

from lab import frr
from lab.commands import NetworkError, checked, output, wait_for
from lab.namespaces import trusting
from lab.planes.base import Planes

__all__ = [
    "CONTROLLER",
    "FrrHost",
    "Link",
    "Network",
    "NetworkError",
    "Node",
    "checked",
    "inside",
    "output",
    "wait_for",
]

CONTROLLER = "tcp:127.0.0.1:6653"


Link = Sequence[tuple[str, str]]
"""A link as its two ends, each a node and an interface."""


class FrrHost(Host):  # type: ignore[misc]  # Mininet has no types
    """A Mininet host with routing daemons, each with private /etc/frr and /run/frr."""

    def __init__(
        self,
        name: str,
        text: str = "",
        daemons: Sequence[str] = (),
        *,
        addresses: Sequence[str] = (),
        gateways: Sequence[str] = (),
        held: bool = False,
        **params: object,
    ) -> None:
        self.text, self.daemons, self.held = text, tuple(daemons), held
        self.addresses, self.gateways = addresses, gateways
        super().__init__(name, privateDirs=[*frr.PLACES, "/var/tmp"] if daemons else [], **params)

    def start_daemons(self) -> None:
        """Start zebra and the daemons and give them their configuration."""
        self._checked(["sh", "-ec", f"chown -R frr:frr {' '.join(frr.PLACES)}"])
        frr.start(self._root, self._checked, self.text, self.daemons)

    def _checked(self, argv: Sequence[str], logs: Sequence[Path] = ()) -> None:
        checked(inside(self, argv), where=self.name, logs=logs)

    @property
    def _root(self) -> Path:
        return Path(f"/proc/{self.pid}/root")

    def logs(self, pattern: str = "*.log") -> list[Path]:
        """Return the logs of its daemons."""
        return sorted(frr.log(self._root, "*").parent.glob(pattern))

    def vtysh(self, *commands: str) -> str:
        """Return what vtysh prints of these commands, one after the other."""
        return output(inside(self, frr.vtysh(*commands)), where=self.name, logs=self.logs())


class Prompt(CLI):  # type: ignore[misc]  # Mininet has no types
    """Mininet's prompt, for hosts with a hyphen in their names."""

    identchars = CLI.identchars + "-"


class Network:
    """A Mininet under construction, then running."""

    def __init__(self, planes: Planes) -> None:
        self.planes = planes
        setLogLevel("output")  # what its prompt needs, and less than it says while it builds
        Mininet.inited = True  # its init() raises limits of the whole machine, which we do not need
        self.mininet = Mininet(topo=None, build=False, controller=None, host=FrrHost)
        self._switches: list[Switch] = []
        self._interfaces = 0

    def __getitem__(self, name: str) -> Node:
        return self.mininet[name]

    def switch(self, name: str, number: int) -> Switch:
        """Add a plane: a switch for the controller to program, by its datapath or device id."""
        switch = self.planes.switch(self.mininet, name, number)
        self._switches.append(switch)
        return switch

    def join(self, switch: Switch, port: str, other_port: str) -> None:
        """Connect two ports of a plane, for a link between two of its routers."""
        self.planes.join(self.mininet, switch, port, other_port)

    def bridge(self, name: str) -> OVSBridge:
        """Add an access switch: a learning bridge of Open vSwitch that no controller sees."""
        return self.mininet.addSwitch(name, cls=OVSBridge, datapath="user", dpid=f"{0xB000 + self._interfaces:016x}")

    def host(self, name: str, *addresses: str, gateways: Sequence[str] = ()) -> FrrHost:
        """Add an end host with these addresses on eth0 and default routes through ``gateways``."""
        host: FrrHost = self.mininet.addHost(name, ip=None, addresses=addresses, gateways=gateways)
        return host

    def neighbor(self, name: str, config: Path, *daemons: str, held: bool = False) -> FrrHost:
        """Add an external router with FRR; zebra runs in any case. A ``held`` one is not started with the rest."""
        daemons = ("zebra", *daemons)
        text = config.read_text()
        host: FrrHost = self.mininet.addHost(name, ip=None, text=text, daemons=daemons, held=held)
        return host

    def wire(self, node: Node, interface: str, other: Node, other_interface: str) -> None:
        """Connect two nodes by a veth pair with MAC addresses that are the same in every run."""
        if self.planes.needs_cables and node in self._switches and other in self._switches:
            cable = self.bridge(f"c{self._interfaces}")
            self._wire(node, interface, cable, f"{cable.name}-a")
            self._wire(cable, f"{cable.name}-b", other, other_interface)
        else:
            self._wire(node, interface, other, other_interface)

    def _wire(self, node: Node, interface: str, other: Node, other_interface: str) -> None:
        self._interfaces += 1
        macs = (f"02:fe:00:00:{self._interfaces:02x}:{end:02x}" for end in (1, 2))
        names = {"intfName1": interface, "intfName2": other_interface, "addr1": next(macs), "addr2": next(macs)}
        self.mininet.addLink(node, other, **names)
        for end, name in ((node, interface), (other, other_interface)):
            if isinstance(end, Host):
                # Packets leave a plane as they are: checksums must be in them by then.
                checked(inside(end, ["ethtool", "-K", name, "tx", "off", "tso", "off", "gso", "off"]), where=end.name)
            if self.planes.polled and end not in self._switches:
                checked(inside(end, ["ethtool", "-K", name, "gro", "on"]), where=end.name)
                if not isinstance(end, Host):
                    # A bridge in userspace could not send what GRO has joined.
                    checked(inside(end, ["ip", "link", "set", name, "gro_max_size", "1"]), where=end.name)

    def put(self, link: Link, state: str) -> None:
        """Set both ends of a link "up" or "down", as a cable does; a veth tells its far end up to a second late."""
        for name, interface in link:
            node = self[name]
            if node in self._switches:
                node, interface = self.planes.loose_end(node, interface)
            checked(inside(node, ["ip", "link", "set", interface, state]), where=node.name)

    def prompt(self) -> None:
        """Open Mininet's prompt on the terminal, until it is left."""
        Prompt(self.mininet)

    def start(self) -> None:
        """Start switches, hosts and daemons; the planes are then there for the controller."""
        self.mininet.start()
        self.planes.started()
        for host in self.mininet.hosts:
            _configure(host)
        for host in self.mininet.hosts:
            if host.daemons and not host.held:
                host.start_daemons()


def _configure(host: FrrHost) -> None:
    """Set a host's kernel up: routers forward and share flows by layer 4, end hosts have addresses and a gateway."""
    forwarding = int(bool(host.daemons))
    settings = {
        "ipv4/ip_forward": forwarding,
        "ipv6/conf/all/forwarding": forwarding,
        "ipv6/conf/all/keep_addr_on_down": 1,
        "ipv4/fib_multipath_hash_policy": 1,
        "ipv6/fib_multipath_hash_policy": 1,
        "ipv4/conf/all/rp_filter": 0,
        # Demonstrations trace more than once a second.
        "ipv4/icmp_ratelimit": 0,
        "ipv6/icmp/ratelimit": 0,
        **trusting(*host.intfNames()),
    }
    lines = [f"echo {value} > /proc/sys/net/{name}" for name, value in settings.items()]
    lines += [f"ip address add {address} dev eth0{' nodad' * (':' in address)}" for address in host.addresses]
    lines += [f"ip {'-6' if ':' in gateway else '-4'} route add default via {gateway}" for gateway in host.gateways]
    checked(inside(host, ["sh", "-ec", "\n".join(lines)]), where=host.name)


def inside(host: Node, argv: Sequence[str]) -> list[str]:
    """Return the command that runs ``argv`` in a host's network and mount namespaces."""
    return ["mnexec", "-a", str(host.pid), *argv]
