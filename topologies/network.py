"""A Mininet of planes, access switches, and hosts with FRR as the neighbors of virtual routers.

Everything here expects to run inside an enclosure (see enclosure.py): it uses /run as if nobody else did.
"""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Host, Node, OVSBridge, Switch

from topologies.planes import Planes

CONTROLLER = "tcp:127.0.0.1:6653"
_FRR = Path("/usr/lib/frr")


Link = Sequence[tuple[str, str]]
"""A link as its two ends, each a node and an interface."""


class NetworkError(Exception):
    """The network cannot be built; one line that says why."""


class FrrHost(Host):
    """A Mininet host with routing daemons, each with private /etc/frr and /run/frr."""

    def __init__(self, name: str, frr: str = "", daemons: Sequence[str] = (), **params: object) -> None:
        self.frr, self.daemons = frr, tuple(daemons)
        private = ["/etc/frr", "/run/frr", "/var/tmp"]
        super().__init__(name, privateDirs=private if daemons else [], **params)

    def start_daemons(self) -> None:
        """Start zebra and the daemons and give them their configuration."""
        files = {"frr.conf": self.frr, "vtysh.conf": "service integrated-vtysh-config\n"}
        for file, text in files.items():
            Path(f"/proc/{self.pid}/root/etc/frr/{file}").write_text(text)
        start = "; ".join(f"{_FRR}/{name} -d -A 127.0.0.1 --log file:/run/frr/{name}.log" for name in self.daemons)
        checked(inside(self, ["sh", "-ec", f"chown -R frr:frr /etc/frr /run/frr; {start}; vtysh -b"]))

    def vtysh(self, command: str) -> str:
        """Return what a vtysh command prints."""
        return output(inside(self, ["vtysh", "-c", command]))


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
        host = self.mininet.addHost(name, ip=None)
        host.addresses, host.gateways = addresses, gateways
        return host

    def neighbor(self, name: str, config: Path, *daemons: str) -> FrrHost:
        """Add an external router with FRR; zebra runs in any case."""
        host = self.mininet.addHost(name, ip=None, frr=config.read_text(), daemons=("zebra", *daemons))
        host.addresses, host.gateways = (), ()
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
                checked(inside(end, ["ethtool", "-K", name, "tx", "off", "tso", "off", "gso", "off"]))
            if self.planes.polled and end not in self._switches:
                checked(inside(end, ["ethtool", "-K", name, "gro", "on"]))
                if not isinstance(end, Host):
                    # A bridge in userspace could not send what GRO has joined.
                    checked(inside(end, ["ip", "link", "set", name, "gro_max_size", "1"]))

    def put(self, link: Link, state: str) -> None:
        """Set both ends of a link "up" or "down", as a cable does; a veth tells its far end up to a second late."""
        for name, interface in link:
            node = self[name]
            if node in self._switches:
                node, interface = self.planes.loose_end(node, interface)
            checked(inside(node, ["ip", "link", "set", interface, state]))

    def start(self) -> None:
        """Start switches, hosts and daemons; the planes are then there for the controller."""
        self.mininet.start()
        self.planes.started()
        for host in self.mininet.hosts:
            _configure(host)
        for host in self.mininet.hosts:
            if host.daemons:
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
    }
    lines = [f"echo {value} > /proc/sys/net/{name}" for name, value in settings.items()]
    lines += [f"ip address add {address} dev eth0{' nodad' * (':' in address)}" for address in host.addresses]
    lines += [f"ip {'-6' if ':' in gateway else '-4'} route add default via {gateway}" for gateway in host.gateways]
    checked(inside(host, ["sh", "-ec", "\n".join(lines)]))


def inside(host: Node, argv: Sequence[str]) -> list[str]:
    """Return the command that runs ``argv`` in a host's network and mount namespaces."""
    return ["mnexec", "-a", str(host.pid), *argv]


def checked(argv: Sequence[str]) -> None:
    """Run a command of the set-up; NetworkError with its last words where it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise NetworkError(f"{' '.join(argv)[:120]}: {said}")


def output(argv: Sequence[str], timeout_s: float = 30) -> str:
    """Return what a command prints, whatever its exit status."""
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s).stdout


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float, every_s: float = 0.25) -> None:
    """Poll until a condition holds; NetworkError that names ``what`` after the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise NetworkError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(every_s)
