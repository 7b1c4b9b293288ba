"""A ring of ten routers with FRR, as virtual routers on one plane and as plain namespaces whose kernels forward.

    near ── r0 ── r1 ── r2 ── far          OSPF on every link, with BFD at 50 ms times 3
            │            │                 iBGP between all loopbacks: each announces a prefix
            r9 ── … ── r5 ── feeder        the feeder's routes stay with r5

Every link goes through a bridge in a namespace of its own. There it can be cut without either end losing its carrier,
so that it is BFD that notices.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from bench.rig import PLANE, WORK, Rig, interface, tenant
from lab.commands import NetworkError, checked, output
from lab.network import FrrHost, Network, Node, inside

ROUTERS = range(10)
AS_NUMBER, FEEDER_AS = 65001, 65000
BFD_PEERS = 2
NEAR, FAR, FEEDER = 0, 2, 5
"""The routers that have a host, on their interface `h`."""
HOSTS = {"near": NEAR, "far": FAR, "feeder": FEEDER}
DAEMONS = ("ospfd", "bgpd", "bfdd")

_LINK = """interface {name}
 ip ospf area 0
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 40
 ip ospf bfd
 ip ospf bfd profile quick
"""
_HEAD = """bfd
 profile quick
  detect-multiplier 3
  transmit-interval 50
  receive-interval 50
interface lo
 ip address 10.255.0.{n}/32
 ip ospf area 0
"""
_LAN = "interface h\n ip ospf area 0\n ip ospf passive\n"
_ROUTING = """router ospf
 ospf router-id 10.255.0.{n}
bgp as-path access-list own permit ^$
router bgp {own}
 bgp router-id 10.255.0.{n}
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor ALL peer-group
 neighbor ALL remote-as {own}
 neighbor ALL update-source 10.255.0.{n}
 neighbor ALL timers connect 1
{peers} address-family ipv4 unicast
  network 172.16.{n}.0/24
  neighbor ALL filter-list own out
"""


def host_address(name: str) -> str:
    """Return a host's own address; its router has .1 of the same prefix."""
    return f"10.{100 + HOSTS[name]}.0.2"


def wanted(router: int) -> set[str]:
    """Return the prefixes that a router has learned once all has converged."""
    others = [n for n in ROUTERS if n != router]
    return {prefix for n in others for prefix in (f"10.255.0.{n}/32", f"172.16.{n}.0/24")}


def links(router: int) -> dict[str, str]:
    """Return a router's interfaces with their addresses: a, b (towards the next one), and h where it has a host."""
    found = {"a": f"10.0.{(router - 1) % len(ROUTERS)}.2/30", "b": f"10.0.{router}.1/30"}
    return found | ({"h": f"10.{100 + router}.0.1/24"} if router in HOSTS.values() else {})


def text_of(router: int) -> str:
    """Return FRR's text of a router, except the addresses of its links."""
    peers = "".join(f" neighbor 10.255.0.{n} peer-group ALL\n" for n in ROUTERS if n != router)
    if router == FEEDER:
        feeder = host_address("feeder")
        peers += f" neighbor {feeder} remote-as {FEEDER_AS}\n neighbor {feeder} passive\n"
    lan = _LAN if router in HOSTS.values() else ""
    ends = "".join(_LINK.format(name=name) for name in ("a", "b"))
    return _HEAD.format(n=router) + lan + ends + _ROUTING.format(n=router, own=AS_NUMBER, peers=peers)


class Ring(ABC):
    """The ring in one of its two ways: its links and hosts, and what its routers do.

    ``prefix`` is of the names of its hosts and interfaces.
    """

    def __init__(self, network: Network, prefix: str) -> None:
        self._network, self._prefix = network, prefix
        self._wires = network.host(f"{prefix}w")
        self.hosts = {name: network.host(f"{prefix}-{name}", f"{host_address(name)}/24") for name in HOSTS}

    @abstractmethod
    def start(self) -> None:
        """Start routers and their daemons, all at once, from nothing."""

    @abstractmethod
    def prefixes(self, router: int) -> set[str]:
        """Return the prefixes that a router forwards to now."""

    @abstractmethod
    def vtysh(self, router: int, command: str) -> str:
        """Return what a command of vtysh prints on a router."""

    @abstractmethod
    def routes(self, router: int) -> int:
        """Return how many routes a router forwards by."""

    @abstractmethod
    def stop(self) -> None:
        """End the daemons, where they would disturb the other ring."""

    def sessions_lost(self) -> list[dict[str, int]]:
        """Return how often BFD sessions went down so far, by router and peer; NetworkError where one is missing."""
        lost = []
        for router in ROUTERS:
            peers = json.loads(self.vtysh(router, "show bfd peers counters json"))
            if len(peers) != BFD_PEERS:
                raise NetworkError(f"router {router} has {len(peers)} BFD sessions instead of {BFD_PEERS}")
            lost.append({peer["peer"]: int(peer["session-down"]) for peer in peers})
        return lost

    def _connect(self, ends: Mapping[tuple[int, str], tuple[Node, str]]) -> None:
        """Connect the ends, each a node and an interface by router and its interface."""
        for router in ROUTERS:
            following = (router + 1) % len(ROUTERS)
            for side, end in (("b", ends[router, "b"]), ("a", ends[following, "a"])):
                self._network.wire(self._wires, self._name(router, side), *end)
        for name, router in HOSTS.items():
            self._network.wire(self.hosts[name], "eth0", *ends[router, "h"])

    def bridge(self) -> None:
        """Join the two halves of each link; hosts reach everything through their router."""
        lines = []
        for link in ROUTERS:
            lines.append(f"ip link add br{link} type bridge mcast_snooping 0")
            lines += [f"ip link set {self._name(link, side)} master br{link} up" for side in "ab"]
            lines.append(f"ip link set br{link} up")
        checked(inside(self._wires, ["sh", "-ec", "\n".join(lines)]), where=self._wires.name)
        for name, host in self.hosts.items():
            gateway = host_address(name).removesuffix("2") + "1"
            checked(inside(host, ["ip", "route", "add", "10.0.0.0/8", "via", gateway]), where=host.name)

    def cut(self, link: int, is_cut: bool) -> None:
        """Disable one port of the link's bridge, or have it forward again (bridge(8))."""
        state = "0" if is_cut else "3"
        checked(inside(self._wires, ["bridge", "link", "set", "dev", self._name(link, "a"), "state", state]))

    def _name(self, link: int, side: str) -> str:
        return f"{self._prefix}{link}{side}"


class VirtualRing(Ring):
    """Ten virtual routers of one tenant on one plane."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        super().__init__(rig.network, "v")
        switch = rig.network[PLANE]
        ends = [(router, name) for router in ROUTERS for name in links(router)]
        self._connect({end: (switch, _port(*end)) for end in ends})

    def start(self) -> None:
        """Apply all of them at once."""
        routers = [
            {
                "name": f"r{router}",
                "frr": text_of(router),
                "interfaces": [
                    interface(name, _port(router, name), address) for name, address in links(router).items()
                ],
            }
            for router in ROUTERS
        ]
        ports = [_port(router, name) for router in ROUTERS for name in links(router)]
        self._rig.declare([tenant("ring", ports, *routers)])

    def prefixes(self, router: int) -> set[str]:
        """Return what the plane has confirmed."""
        view = self._rig.api.router(f"ring/r{router}")
        if view["state"] != "up" or view["pending"]:
            return set()
        lines = self._rig.api.text(f"routers/ring/r{router}/fib").splitlines()
        return {json.loads(line)["prefix"] for line in lines}

    def routes(self, router: int) -> int:
        """Return how many the plane has confirmed."""
        view = self._rig.api.router(f"ring/r{router}")
        return 0 if view["pending"] else int(view["ipv4_routes"])

    def stop(self) -> None:
        """Leave them: they are measured last, and go with the enclosure."""

    def vtysh(self, router: int, command: str) -> str:
        """Return what a command of vtysh prints in a guest."""
        return self._rig.controller.exec(f"ring/r{router}", "vtysh", "-c", command)


def _port(router: int, name: str) -> str:
    return f"r{router}-{name}"


class PlainRing(Ring):
    """Ten namespaces with FRR, whose kernels forward."""

    def __init__(self, network: Network) -> None:
        super().__init__(network, "p")
        self._routers = [self._add(network, router) for router in ROUTERS]
        ends = [(router, name) for router in ROUTERS for name in links(router)]
        self._connect({(router, name): (self._routers[router], name) for router, name in ends})

    def _add(self, network: Network, router: int) -> FrrHost:
        addresses = "".join(f"interface {name}\n ip address {at}\n" for name, at in links(router).items())
        config = WORK / f"p{router}.conf"
        config.write_text(f"hostname p{router}\n{addresses}{text_of(router)}")
        return network.neighbor(f"p{router}", config, "staticd", *DAEMONS, held=True)

    def start(self) -> None:
        """Start all daemons of all of them, as the guests' supervisors do."""
        with ThreadPoolExecutor(len(ROUTERS)) as pool:
            for done in [pool.submit(router.start_daemons) for router in self._routers]:
                done.result()

    def prefixes(self, router: int) -> set[str]:
        """Return what the kernel has."""
        lines = output(inside(self._routers[router], ["ip", "-4", "route"])).splitlines()
        first = (line.split()[0] for line in lines if line and not line.startswith((" ", "\t")))
        return {prefix if "/" in prefix else f"{prefix}/32" for prefix in first}

    def routes(self, router: int) -> int:
        """Return how many the kernel has."""
        return len(output(inside(self._routers[router], ["ip", "-4", "route"])).splitlines())

    def vtysh(self, router: int, command: str) -> str:
        """Return what a command of vtysh prints."""
        return self._routers[router].vtysh(command)

    def stop(self) -> None:
        """Kill the daemons; a route is left only where nobody measures any more."""
        for router in self._routers:
            checked(inside(router, ["sh", "-c", "# kill FRR\nkill -9 $(cat /run/frr/*.pid)"]), where=router.name)
