"""Entries that are modified and deleted: from then on a plane forwards by what is left, and by nothing of before."""

from copy import copy
from dataclasses import replace

import pytest
from case import (
    BLUE,
    RED,
    ROUTERS,
    VRRP_4,
    Arrival,
    arrives,
    blue_lan,
    down,
    gleaned_only,
    lan,
    lan_vlan,
    stray,
    to_trunk,
    to_up,
    two_ways,
    up,
    via,
    wan,
)
from differences import compare_all
from entries import route_columns
from frames import IPV4, ethernet, ipv4, ipv6, mac, tagged
from random_tables import Trial
from wired import WiredPlane

from controller.planes.base import (
    BLACKHOLE,
    FALLBACK,
    GLEAN,
    LOCAL,
    FallbackLink,
    Installed,
    Nexthop,
    NexthopGroup,
    NexthopState,
    Op,
    RouterInterface,
    Update,
    WriteBatch,
)
from wire.columns import prefix_key

pytestmark = pytest.mark.asyncio(loop_scope="session")

NEW_MAC = mac("0200000000ee")
LINKS = (4, 411), (4, 412), (3, 411)
PROBES: list[Arrival] = [
    *(arrives(lan, ipv4(dst)) for dst in ("10.1.0.1", "10.1.0.9", "10.2.0.9", "10.2.3.1", "10.2.3.4", "10.3.0.9")),
    *(arrives(lan, ipv4(dst)) for dst in ("10.4.0.9", "10.7.0.9", "10.8.0.9", "10.9.0.9", "10.9.1.9", "10.9.2.9")),
    *(arrives(lan, ipv6(dst)) for dst in ("2001:db8:1::1", "2001:db8:2::9", "2001:db8:2:3::4", "2001:db8:8::9")),
    *(arrives(at, packet) for at in (lan, lan_vlan) for packet in (ipv4("10.12.0.9"), ipv6("2001:db8:12::9"))),
    *(stray(port, tagged(ethernet(NEW_MAC, IPV4, ipv4("10.12.0.9")), vlan)) for port, vlan in LINKS),
    *(arrives(lan, ipv4("10.3.0.9", payload=bytes(size - 20))) for size in (576, 577, 1400)),
    *(arrives(lan, ipv4("10.2.0.9"), to) for to in (VRRP_4, NEW_MAC)),
    *(arrives(at, ipv4("10.2.0.9")) for at in (lan_vlan, up, wan, blue_lan)),
    *(
        stray(port, tagged(ethernet(to.mac, IPV4, ipv4("10.2.0.9")), vlan))
        for port, vlan, to in ((1, 77, lan_vlan), (2, 10, lan_vlan), (4, 300, down), (1, 10, blue_lan))
    ),
]


def changed(**tables: object) -> Installed:
    """The shared routers with whole tables replaced."""
    entries = copy(ROUTERS)
    for table, held in tables.items():
        setattr(entries, table, held)
    return entries


def with_interfaces(*interfaces: RouterInterface) -> Installed:
    return changed(router_interfaces=ROUTERS.router_interfaces | {each.id: each for each in interfaces})


def with_nexthop(nexthop: Nexthop) -> Installed:
    return changed(nexthops=ROUTERS.nexthops | {nexthop.id: nexthop})


def with_group(group: NexthopGroup) -> Installed:
    return changed(groups=ROUTERS.groups | {group.id: group})


def with_routes(vrf_id: int, **actions: int | None) -> Installed:
    routes = dict(ROUTERS.routes[vrf_id])
    for text, action in actions.items():
        key = prefix_key(text)
        routes.pop(key, None)
        if action is not None:
            routes[key] = action
    return changed(routes=ROUTERS.routes | {vrf_id: routes})


CHANGES = {
    "an interface's VLAN": with_interfaces(replace(lan_vlan, vlan=77)),
    "an interface's port": with_interfaces(replace(lan_vlan, port=2)),
    "an interface gets a tag": with_interfaces(replace(lan_vlan, vlan=77), replace(up, vlan=10)),
    "an interface goes down": with_interfaces(replace(lan, enabled=False)),
    "an interface comes up": with_interfaces(replace(down, enabled=True)),
    "an interface's MAC": with_interfaces(replace(lan, mac=NEW_MAC), replace(up, mac=NEW_MAC)),
    "no virtual MACs any more": with_interfaces(replace(lan, virtual_macs=())),
    "one more virtual MAC": with_interfaces(replace(lan, virtual_macs=(*lan.virtual_macs, NEW_MAC))),
    "a fallback link comes": with_interfaces(replace(lan_vlan, fallback=FallbackLink(4, 412))),
    "a fallback link's VLAN": with_interfaces(replace(lan, fallback=FallbackLink(4, 412))),
    "a fallback link's port": with_interfaces(replace(lan, fallback=FallbackLink(3, 411))),
    "a fallback link goes": with_interfaces(replace(lan, fallback=None)),
    "a fallback link is another interface's": with_interfaces(
        replace(lan, fallback=None), replace(lan_vlan, fallback=lan.fallback)
    ),
    "an MTU": with_interfaces(replace(wan, mtu=576)),
    "a larger MTU": with_interfaces(replace(wan, mtu=9000)),
    "a neighbor moves": with_nexthop(replace(to_up, mac=NEW_MAC)),
    "a nexthop's interface": with_nexthop(replace(to_up, router_interface_id=wan.id)),
    "a neighbor is lost": with_nexthop(replace(to_up, mac=bytes(6), state=NexthopState.GLEAN)),
    "a neighbor fails": with_nexthop(replace(to_up, mac=bytes(6), state=NexthopState.DROP)),
    "a group loses a member": with_group(replace(two_ways, members=two_ways.members[1:])),
    "a group gets another member": with_group(
        replace(gleaned_only, members=(replace(gleaned_only.members[0], nexthop_id=to_trunk.id),))
    ),
    "a route's action": with_routes(RED, **{"10.2.0.0/16": BLACKHOLE, "2001:db8:2::/48": GLEAN}),
    "a route to an own address": with_routes(RED, **{"10.4.0.0/16": LOCAL, "10.2.3.4/32": LOCAL}),
    "longer prefixes go": with_routes(RED, **{"10.2.3.0/24": None, "10.2.3.4/32": None, "2001:db8:2:3::4/128": None}),
    "a route is in hardware": with_routes(RED, **{"10.12.0.0/16": via(to_up), "2001:db8:12::/48": LOCAL}),
    "a route is not in hardware": with_routes(RED, **{"10.2.0.0/16": FALLBACK, "2001:db8:2:3::/64": FALLBACK}),
    "a default comes": with_routes(RED, **{"0.0.0.0/0": BLACKHOLE, "::/0": GLEAN, "10.3.0.0/16": None}),
    "the other router's routes": with_routes(BLUE, **{"10.2.0.0/16": BLACKHOLE, "0.0.0.0/0": GLEAN}),
}


def updates(before: Installed, after: Installed) -> WriteBatch:
    """The updates from one to the other: what has an id is only modified, routes come and go too."""
    write = WriteBatch()
    for old, new, rows in (
        (before.router_interfaces, after.router_interfaces, write.router_interfaces),
        (before.nexthops, after.nexthops, write.nexthops),
        (before.groups, after.groups, write.groups),
    ):
        rows += [Update(Op.MODIFY, each) for key, each in new.items() if old[key] != each]
    for vrf_id, new in after.routes.items():
        old = before.routes[vrf_id]
        write.routes += route_columns(vrf_id, {key: new[key] for key in new.keys() - old.keys()}, Op.INSERT)
        write.routes += route_columns(vrf_id, dict.fromkeys(old.keys() - new.keys(), 0), Op.DELETE)
        both = new.keys() & old.keys()
        write.routes += route_columns(vrf_id, {key: new[key] for key in both if new[key] != old[key]}, Op.MODIFY)
    return write


async def check(wired: WiredPlane, entries: Installed) -> None:
    trials = [Trial(entries, probe.port, probe.frame) for probe in PROBES]
    assert [text async for _, text in compare_all(wired, trials)] == []


@pytest.mark.parametrize("after", CHANGES.values(), ids=CHANGES)
async def test_an_update_is_all_there_is_from_then_on(wired: WiredPlane, after: Installed) -> None:
    await wired.program(ROUTERS)
    there, back = updates(ROUTERS, after), updates(after, ROUTERS)
    assert there, "a change changes something"
    await wired.write(there)
    await check(wired, after)
    await wired.write(back)
    await check(wired, ROUTERS)
    wired.programmed = ROUTERS
