"""A P4Runtime device that refuses some nexthops, groups or routes as unsupported, and a vr-forwarder behind it."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from finsy.proto import p4r
from rig import Rig, interface, tenant, unbroken, until
from rig_switches import ForwarderFallbackSwitch

from controller.planes.p4runtime.p4info import golden_pipeline
from lab.namespaces import Host, sh

pytestmark = pytest.mark.root

ROUTER = "red/r1"
BY_A, BY_B, BY_BOTH, BLACKHOLE = "20.2.0.0/24", "20.4.0.0/24", "20.6.0.0/24", "20.8.0.0/24"
SCHEMA = golden_pipeline().schema


@dataclass
class Bed:
    """A router between a host and two others."""

    rig: Rig
    hosts: list[Host]

    def placed(self, where: str) -> set[str]:
        rows = {row["prefix"] for row in self.rig.show("fib", ROUTER, "--where", where)}
        return rows & {BY_A, BY_B, BY_BOTH, BLACKHOLE}

    def refused(self, table: str) -> int:
        (plane,) = [one for one in self.rig.show("get", "planes") if one["name"] == "s1"]
        return int(plane["entries"].get(f"refused {table}", 0))

    def support(self, but: Callable[[p4r.Entity], bool] | None) -> None:
        assert isinstance(self.rig.switch, ForwarderFallbackSwitch)
        self.rig.switch.support(but)

    def groups(self, entity: p4r.Entity) -> bool:
        return entity.table_entry.table_id == SCHEMA.table("nexthop_group").id

    def nexthops_to_b(self, entity: p4r.Entity) -> bool:
        mac = bytes.fromhex(self.hosts[2].mac.replace(":", "")).lstrip(b"\0")
        params = entity.table_entry.action.action.params
        return entity.table_entry.table_id == SCHEMA.table("nexthop").id and mac in [one.value for one in params]

    def blackholes(self, entity: p4r.Entity) -> bool:
        table, action = SCHEMA.table("ipv4_route"), entity.table_entry.action.action
        return entity.table_entry.table_id == table.id and action.action_id == table.actions["blackhole"].id


@pytest.fixture
def bed() -> Iterator[Bed]:
    with Rig(switch=ForwarderFallbackSwitch) as rig:
        hosts = [rig.host(number, f"10.{number}.0.2/24", f"10.{number}.0.1") for number in (1, 2, 3)]
        for host in hosts[1:]:
            for network in (BY_A, BY_B, BY_BOTH):
                host.ip("address", "add", network.replace("0/24", "1/32"), "dev", "lo")
        yield Bed(rig, hosts)


CASES = (
    ("nexthop_group", Bed.groups, {BY_BOTH}),
    ("nexthop", Bed.nexthops_to_b, {BY_B, BY_BOTH}),
    ("ipv4_route", Bed.blackholes, {BLACKHOLE}),
)


@pytest.mark.parametrize(("table", "unsupported", "software"), CASES, ids=[case[0] for case in CASES])
def test_what_the_hardware_does_not_support_is_in_software_and_counted(
    bed: Bed, table: str, unsupported: Callable[[Bed, p4r.Entity], bool], software: set[str]
) -> None:
    bed.support(lambda entity: unsupported(bed, entity))
    interfaces = [interface(f"eth{number}", host, f"10.{number}.0.1/24") for number, host in enumerate(bed.hosts, 1)]
    lines = (
        f"route add {BY_A} via 10.2.0.2",
        f"route add {BY_B} via 10.3.0.2",
        f"route add {BY_BOTH} nexthop via 10.2.0.2 nexthop via 10.3.0.2",
        f"route add blackhole {BLACKHOLE}",
    )
    router = {"name": "r1", "interfaces": interfaces, "ip": "".join(f"{line}\n" for line in lines)}
    ports = {str(one["port"]): ["untagged"] for one in interfaces}
    bed.rig.apply(tenant("red", ports, router | {"placement": "hardware"}))
    bed.rig.up(ROUTER, routes=len(lines) + len(interfaces))
    for number, host in enumerate(bed.hosts, 1):  # hosts and guest get to know each other
        sh("ip", "netns", "exec", host.namespace, "ping", "-q", "-c", "2", "-i", "0.2", f"10.{number}.0.1")

    until("what is not supported in software", lambda: bed.placed("software") == software)
    assert bed.placed("hardware") == {BY_A, BY_B, BY_BOTH, BLACKHOLE} - software
    assert bed.refused(table)
    view = bed.rig.router(ROUTER)
    assert (view["state"], view["refused"]) == ("up", 0)
    bed.rig.verified()
    with unbroken(bed.rig, *((bed.hosts[0], one.replace("0/24", "1")) for one in (BY_A, BY_B, BY_BOTH))):
        into = BLACKHOLE.replace("0/24", "1")
        command = f"ip netns exec {bed.hosts[0].namespace} ping -q -c 3 -i 0.2 -W 1 {into}".split()
        assert subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 1, "nobody answers"
        bed.support(None)
        bed.rig.ok("verify", ROUTER, "--repair")
        if table == "nexthop":  # and with it the group that has it; half a minute is enough for one of the three
            until("all of them in hardware", lambda: not bed.placed("software"))
    bed.rig.verified()
