"""A vr-forwarder with room for few nexthops, routes, router interfaces or policers, and another one behind it."""

from functools import partial
from typing import Any

import pytest
from rig import Rig, interface, tenant, unbroken, until
from rig_switches import ForwarderFallbackSwitch

from controller.planes.base import PuntClass
from lab.namespaces import Host, sh

pytestmark = pytest.mark.root

RED, BLUE, GREEN = "red/r1", "blue/r1", "green/r1"
NEXTHOPS = 8
FEW, MANY = 3, 240
OF_INTERFACES = (
    *("router_interface", "router_interface_egress", "fallback_link", "l3_admit"),
    "interface_classifier",
)


def network(number: int) -> str:
    return f"{20 + number // 100}.{2 * (number % 100)}.0.0/24"  # with holes between them


def address(number: int) -> str:
    return network(number).replace("0/24", "1")


def ping(host: Host, *arguments: str) -> None:
    sh("ip", "netns", "exec", host.namespace, "ping", "-q", "-c", "2", "-i", "0.2", *arguments)


class Bed:
    """Hosts in networks of their own, and what the plane in front says of itself."""

    def __init__(self, rig: Rig, hosts: int) -> None:
        self.rig = rig
        numbers = range(1, hosts + 1)
        self.hosts = [rig.host(n, f"10.{n}.0.2/24", f"10.{n}.0.1") for n in numbers]
        self.interfaces = [interface(f"eth{n}", self.hosts[n - 1], f"10.{n}.0.1/24") for n in numbers]

    @property
    def switch(self) -> ForwarderFallbackSwitch:
        """Both planes."""
        assert isinstance(self.rig.switch, ForwarderFallbackSwitch)
        return self.rig.switch

    def declared(self, name: str, interfaces: list[dict[str, Any]], *lines: str) -> dict[str, Any]:
        """Return a tenant with a router of these interfaces, which is to be in hardware."""
        ports = {str(one["port"]): ["untagged"] for one in interfaces}
        ip = "".join(f"{line}\n" for line in lines)
        return tenant(name, ports, {"name": "r1", "interfaces": interfaces, "ip": ip, "placement": "hardware"})

    def behind_gateway(self, number: int, host: int) -> str:
        """Have a host answer for a network by a gateway of its own; returns the route to it."""
        far, gateway = self.hosts[host - 1], f"10.{host}.0.{10 + number}"
        far.ip("address", "add", f"{gateway}/24", "dev", "eth0")
        far.ip("address", "add", f"{address(number)}/32", "dev", "lo")
        return f"route add {network(number)} via {gateway}"

    def placed(self, where: str) -> list[int]:
        """Return which of the networks are in hardware, or in software."""
        rows = {row["prefix"] for row in self.rig.show("fib", RED, "--where", where)}
        return [n for n in range(MANY) if network(n) in rows]

    def refused(self, table: str) -> int:
        """Return how many entries of a table the hardware has refused so far."""
        (plane,) = [one for one in self.rig.show("get", "planes") if one["name"] == "s1"]
        return int(plane["entries"].get(f"refused {table}", 0))

    def size(self, table: str) -> int:
        """Return for how many entries of a table the plane in front says that it has room."""
        tables = self.switch.front.show("status")["tables"]
        return next(int(one["size"]) for one in tables if one["name"] == table)

    def held(self, table: str) -> list[int]:
        """Return how many entries of a table the plane in front has, and the one behind it."""
        planes = [plane.show("status")["tables"] for plane in (self.switch.front, self.switch.forwarder)]
        return [int(one["entries"]) for tables in planes for one in tables if one["name"] == table]

    def proved(self) -> None:
        """Wait until the link is proved: the proof takes a router interface and a policer of either plane."""
        behind = self.switch.forwarder
        until("the proof begins", lambda: behind.show("status")["server"]["packet_outs"])  # nothing else sends there
        until("the proof ends", lambda: self.held("policer") == [len(PuntClass)] * 2)

    def degraded(self, router: str) -> str:
        """Return why a router is degraded, as `vrctl get routers` says it; empty where it is not."""
        view = self.rig.router(router)
        return str(view["reason"]) if view["state"] == "degraded" else ""


def test_routes_by_nexthops_that_have_no_room_are_in_software() -> None:
    """The hardware is full of one neighbor's gateways when another one's come, and they enter when it has left."""
    with Rig(switch=partial(ForwarderFallbackSwitch, nexthops=NEXTHOPS)) as rig:
        bed = Bed(rig, 3)
        source = bed.hosts[0]
        early, late = range(NEXTHOPS), range(NEXTHOPS, NEXTHOPS + FEW)
        lines = [bed.behind_gateway(n, 3 if n in early else 2) for n in (*early, *late)]
        rig.apply(bed.declared("red", bed.interfaces[::2], *lines[:NEXTHOPS]))
        rig.up(RED, routes=NEXTHOPS + 2)
        ping(source, "10.1.0.1")
        until("a full table", lambda: bed.held("nexthop")[0] == bed.size("nexthop") == NEXTHOPS)

        rig.apply(bed.declared("red", bed.interfaces, *lines))
        rig.up(RED, routes=len(lines) + 3)
        until("the late ones in software", lambda: set(late) <= set(bed.placed("software")))
        assert bed.placed("hardware")
        assert bed.refused("nexthop") >= FEW
        assert rig.router(RED)["state"] == "up"
        rig.verified()
        with unbroken(rig, *((source, address(n)) for n in late)):
            rig.apply(bed.declared("red", bed.interfaces[:2], *lines[NEXTHOPS:]))
            until("them in hardware", lambda: bed.placed("hardware") == list(late))
        rig.verified()


def test_routes_that_have_no_room_are_in_software() -> None:
    with Rig(switch=partial(ForwarderFallbackSwitch, words=1024)) as rig:
        bed = Bed(rig, 3)
        source, *far = bed.hosts
        for n in (0, 1, MANY - 2, MANY - 1):
            far[n % 2].ip("address", "add", f"{address(n)}/32", "dev", "lo")
        lines = [f"route add {network(n)} via 10.{2 + n % 2}.0.2" for n in range(MANY)]
        rig.apply(bed.declared("red", bed.interfaces, *lines))
        rig.up(RED, routes=MANY + 3)
        for n, host in enumerate(bed.hosts, 1):
            ping(host, f"10.{n}.0.1")

        until("some in hardware", lambda: bed.placed("hardware"))
        until("all of them placed", lambda: len(bed.placed("hardware") + bed.placed("software")) == MANY)
        assert bed.placed("software")
        assert bed.refused("ipv4_route")
        assert rig.router(RED)["state"] == "up"
        rig.verified()
        with unbroken(rig, (source, address(0)), (source, address(MANY - 1))):
            rig.apply(bed.declared("red", bed.interfaces, lines[0], *lines[-FEW:]))
            until("the rest in hardware", lambda: bed.placed("hardware") == [0, *range(MANY - FEW, MANY)])
        rig.verified()


def test_a_router_interface_that_has_no_room_is_one_line_and_nothing_of_it_is_there() -> None:
    with Rig(switch=partial(ForwarderFallbackSwitch, router_interfaces=3)) as rig:
        bed = Bed(rig, 4)
        three, full = bed.interfaces[:3], "plane s1: router_interface is full"
        rig.apply(bed.declared("red", three[:2]))
        rig.up(RED)
        bed.proved()
        rig.apply(bed.declared("red", three))
        rig.up(RED)
        for n, host in enumerate(bed.hosts[:3], 1):
            ping(host, f"10.{n}.0.1")
        with unbroken(rig, (bed.hosts[0], "10.2.0.2")):
            before = bed.rig.switch.holdings()
            rig.apply(bed.declared("red", bed.interfaces))
            until("it is said", lambda: bed.degraded(RED) == full)
            assert bed.refused("router_interface")
            assert bed.size("router_interface") == bed.size("router_interface_egress") == 3
            assert full in rig.ok("get", "routers")
            assert [bed.held(table)[0] for table in OF_INTERFACES] == [3, 3, 3, 3, 6]  # with ways back
            rig.verified()
            rig.apply(bed.declared("red", three))
            rig.up(RED)
            until("what there was", lambda: bed.held("router_interface") == [3, 3])
            assert bed.rig.switch.holdings() == before
            two = [three[0], three[1], bed.interfaces[3]]
            rig.apply(bed.declared("red", bed.interfaces))
            until("it is said again", lambda: bed.degraded(RED) == full)
            rig.apply(bed.declared("red", two))
            rig.ok("verify", RED, "--repair")  # or after half a minute
            rig.up(RED)
        ping(bed.hosts[3], "10.4.0.1")
        ping(bed.hosts[0], "10.4.0.2")
        rig.verified()


def test_a_router_whose_policer_has_no_room_is_one_line_and_the_others_go_on() -> None:
    with Rig(switch=partial(ForwarderFallbackSwitch, policers=2 * len(PuntClass))) as rig:
        bed = Bed(rig, 4)
        full = "plane s1: policer is full"
        red, blue, green = (
            bed.declared(name, bed.interfaces[part])
            for name, part in (("red", slice(2)), ("blue", slice(2, 3)), ("green", slice(3, 4)))
        )
        rig.apply(red)
        rig.up(RED)
        bed.proved()
        rig.apply(red, blue)
        rig.up(RED, BLUE)
        for n, host in enumerate(bed.hosts[:2], 1):
            ping(host, f"10.{n}.0.1")
        with unbroken(rig, (bed.hosts[0], "10.2.0.2")):
            rig.apply(red, blue, green)
            until("it is said", lambda: bed.degraded(GREEN) == full)
            assert bed.refused("policer")
            assert (bed.size("policer"), bed.held("policer")[0]) == (2 * len(PuntClass),) * 2
            assert rig.router(RED)["state"] == rig.router(BLUE)["state"] == "up"
            assert rig.show("verify", RED)[0]["equal"]
            rig.ok("delete", "tenant", "green")
            until("nothing of it", lambda: bed.held("policer") == [2 * len(PuntClass)] * 2)
            rig.apply(red, blue, green)
            until("it is said again", lambda: bed.degraded(GREEN) == full)
            rig.ok("delete", "tenant", "blue")
            rig.ok("verify", GREEN, "--repair")  # or after half a minute
            rig.up(GREEN)
        ping(bed.hosts[3], "10.4.0.1")
        rig.verified()


def test_an_interface_that_the_planes_do_not_offer_is_one_line_and_nothing_of_it_is_there() -> None:
    """With more MACs than vr-forwarder admits: no table is full, so it says why itself."""
    with Rig(switch=ForwarderFallbackSwitch) as rig:
        bed = Bed(rig, 3)
        two, third = bed.interfaces[:2], bed.interfaces[2]
        macs = [f"00:00:5e:00:01:{n:02x}" for n in range(1, 6)]
        rig.apply(bed.declared("red", two))
        rig.up(RED)
        for n, host in enumerate(bed.hosts[:2], 1):
            ping(host, f"10.{n}.0.1")
        bed.proved()
        before = [bed.held(table) for table in OF_INTERFACES]
        with unbroken(rig, (bed.hosts[0], "10.2.0.2")):
            rig.apply(bed.declared("red", [*two, third | {"virtual_macs": macs}]))
            until("it is said", lambda: "admits at most 5 MACs" in bed.degraded(RED))
            assert "is full" not in bed.degraded(RED)
            assert [bed.held(table) for table in OF_INTERFACES] == before
            rig.verified()
            rig.apply(bed.declared("red", [*two, third | {"virtual_macs": macs[1:]}]))
            rig.up(RED)
        until("all of it", lambda: bed.held("l3_admit") == [7, 7])
        ping(bed.hosts[2], "10.3.0.1")
        rig.verified()
