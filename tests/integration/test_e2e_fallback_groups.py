"""A vr-forwarder whose memory for nexthop groups is soon full, and another one behind it that takes the others."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from rig import Rig, interface, tenant, unbroken, until
from rig_switches import ForwarderFallbackSwitch

from lab.namespaces import Host, sh

pytestmark = pytest.mark.root

ROUTER = "red/r1"
GROUPS = 24
"""Each of other weights, and so a group of its own."""
MEMBERS = 256
"""Room for so many members, copies included."""


@dataclass
class Bed:
    """A router between a host and two others, to which all groups lead."""

    rig: Rig
    source: Host
    interfaces: list[dict[str, Any]]

    def route(self, numbers: range) -> None:
        """Have the router's guest know these of the networks, and no others."""
        lines = [f"route add {network(n)} nexthop via 10.2.0.2 weight {n + 1} nexthop via 10.3.0.2" for n in numbers]
        ports = {str(one["port"]): ["untagged"] for one in self.interfaces}
        router = {"name": "r1", "interfaces": self.interfaces, "ip": "\n".join(lines) + "\n"}
        self.rig.apply(tenant("red", ports, router | {"placement": "hardware"}))
        self.rig.up(ROUTER, routes=len(numbers) + 3)

    def placed(self, where: str) -> list[int]:
        """Return which of the networks are in hardware, or in software."""
        rows = {row["prefix"] for row in self.rig.show("fib", ROUTER, "--where", where)}
        return [n for n in range(GROUPS) if network(n) in rows]

    def refused(self) -> int:
        """Return how many groups the hardware has refused so far."""
        (plane,) = [one for one in self.rig.show("get", "planes") if one["name"] == "s1"]
        return int(plane["entries"].get("refused nexthop_group", 0))


def network(number: int) -> str:
    return f"20.{2 * number}.0.0/24"  # with holes between them


def address(number: int) -> str:
    return f"20.{2 * number}.0.1"


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Rig(switch=partial(ForwarderFallbackSwitch, members=MEMBERS)) as rig:
        hosts = [rig.host(number, f"10.{number}.0.2/24", f"10.{number}.0.1") for number in (1, 2, 3)]
        names = "source", "a", "b"
        interfaces = [
            interface(name, host, f"10.{number}.0.1/24")
            for number, (name, host) in enumerate(zip(names, hosts, strict=True), 1)
        ]
        for host in hosts[1:]:
            for number in range(GROUPS):
                host.ip("address", "add", f"{address(number)}/32", "dev", "lo")
        found = Bed(rig, hosts[0], interfaces)
        found.route(range(0))
        for number, host in enumerate(hosts, 1):  # hosts and guest get to know each other
            sh("ip", "netns", "exec", host.namespace, "ping", "-q", "-c", "2", "-i", "0.2", f"10.{number}.0.1")
        yield found


def test_groups_that_have_no_room_are_in_software_and_counted(bed: Bed) -> None:
    bed.route(range(GROUPS))
    until("groups in hardware", lambda: bed.placed("hardware"))
    until("the others in software", lambda: len(bed.placed("hardware") + bed.placed("software")) == GROUPS)
    assert bed.placed("software")
    assert bed.refused() >= len(bed.placed("software"))
    view = bed.rig.router(ROUTER)
    assert (view["state"], view["refused"], view["groups"]) == ("up", 0, GROUPS)
    bed.rig.verified()
    with unbroken(
        bed.rig, *((bed.source, address(n)) for n in (bed.placed("hardware")[0], *bed.placed("software")[:2]))
    ):
        sh("ip", "netns", "exec", bed.source.namespace, "ping", "-q", "-c", "50", "-i", "0.02", address(GROUPS - 1))


def test_what_was_refused_enters_when_others_have_left(bed: Bed) -> None:
    kept = bed.placed("software")[:3]
    last = range(kept[0], kept[0] + len(kept))
    with unbroken(bed.rig, (bed.source, address(kept[0]))):
        bed.route(last)
        until("all of them in hardware", lambda: bed.placed("hardware") == list(last))
    bed.rig.verified()
