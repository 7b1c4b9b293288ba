"""The words that cases are written in."""

from dataclasses import dataclass, field, replace

from entries import installed
from frames import ether_type_of, ethernet, mac, tagged

from controller.planes.base import (
    BLACKHOLE,
    FALLBACK,
    GLEAN,
    LOCAL,
    UNREACHABLE,
    Capability,
    DropReason,
    FallbackLink,
    GroupMember,
    Installed,
    Nexthop,
    NexthopGroup,
    NexthopState,
    Policer,
    PuntReason,
    RouteKind,
    RouterInterface,
    route_action,
    same_rate,
)

FAST = same_rate(100_000)


def via(nexthop: Nexthop) -> int:
    return route_action(RouteKind.NEXTHOP, nexthop.id)


def via_group(group: NexthopGroup) -> int:
    return route_action(RouteKind.GROUP, group.id)


def interface_mac(interface_id: int) -> bytes:
    return bytes((2, 0, 0, 0, 0xFF, interface_id))


def interface(
    interface_id: int,
    vrf_id: int,
    port: int,
    vlan: int = 0,
    mtu: int = 1500,
    virtual: tuple[bytes, ...] = (),
    enabled: bool = True,
    fallback: FallbackLink | None = None,
) -> RouterInterface:
    own = interface_mac(interface_id)
    return RouterInterface(interface_id, vrf_id, port, vlan, own, mtu, virtual, enabled, fallback)


def nexthop(nexthop_id: int, egress: RouterInterface, state: NexthopState = NexthopState.FORWARD) -> Nexthop:
    neighbor = bytes((2, 0, 0, 1, 0, nexthop_id & 0xFF)) if state is NexthopState.FORWARD else bytes(6)
    return Nexthop(nexthop_id, egress.id, neighbor, state)


# -- the routers that most cases share -------------------------------------------------------------------------------
#     red    lan (port 1; fallback link: port 4, VLAN 411), lan_vlan (port 1, VLAN 10), up (port 2),
#            wan (port 3, VLAN 100, MTU 1400), trunk (port 4, VLAN 200), down (port 4, VLAN 300, disabled)
#     blue   blue_lan (port 1, VLAN 1000), blue_up (port 2, VLAN 1000): red's prefixes, other ways
RED, BLUE = 1, 2
VRRP_4, VRRP_6 = mac("00005e000101"), mac("00005e000201")
lan = interface(11, RED, 1, virtual=(VRRP_4, VRRP_6), fallback=FallbackLink(4, 411))
lan_vlan = interface(12, RED, 1, vlan=10)
up = interface(13, RED, 2)
wan = interface(14, RED, 3, vlan=100, mtu=1400)
trunk = interface(15, RED, 4, vlan=200)
down = interface(16, RED, 4, vlan=300, enabled=False)
blue_lan = interface(21, BLUE, 1, vlan=1000)
blue_up = interface(22, BLUE, 2, vlan=1000)

to_up, to_wan, to_trunk = nexthop(101, up), nexthop(102, wan), nexthop(103, trunk)
to_lan, to_lan_vlan, to_down = nexthop(104, lan), nexthop(105, lan_vlan), nexthop(106, down)
unresolved, failed = nexthop(107, up, NexthopState.GLEAN), nexthop(108, up, NexthopState.DROP)
blue_to_up, blue_to_lan = nexthop(121, blue_up), nexthop(122, blue_lan)


def group(group_id: int, *members: tuple[Nexthop, int], watch: int = 2) -> NexthopGroup:
    return NexthopGroup(group_id, tuple(GroupMember(each.id, weight, watch) for each, weight in members))


one_way = group(201, (to_up, 1))
two_ways = group(202, (to_up, 1), (to_wan, 3))
gleaned_only = group(203, (unresolved, 1))
failed_only = group(204, (failed, 1))

RED_ROUTES = {
    "10.1.0.0/24": via(to_lan),
    "10.1.0.1/32": LOCAL,
    "10.1.0.254/32": LOCAL,
    "10.2.0.0/16": via(to_up),
    "10.2.3.0/24": via(to_wan),
    "10.2.3.4/32": via(to_trunk),
    "10.2.3.6/31": via(to_up),
    "10.3.0.0/16": via(to_wan),
    "10.4.0.0/16": via(to_trunk),
    "10.5.0.0/16": via(to_lan_vlan),
    "10.6.0.0/16": via(to_down),
    "10.7.0.0/16": via_group(one_way),
    "10.8.0.0/16": via_group(two_ways),
    "10.9.0.0/24": GLEAN,
    "10.9.1.0/24": via(unresolved),
    "10.9.2.0/24": via_group(gleaned_only),
    "10.10.0.0/24": BLACKHOLE,
    "10.10.0.1/32": via(to_up),
    "10.10.1.0/24": via(failed),
    "10.10.2.0/24": via_group(failed_only),
    "10.11.0.0/16": UNREACHABLE,
    "10.12.0.0/16": FALLBACK,
    "2001:db8:1::/64": via(to_lan),
    "2001:db8:1::1/128": LOCAL,
    "2001:db8:2::/48": via(to_up),
    "2001:db8:2:3::/64": via(to_wan),
    "2001:db8:2:3::4/128": via(to_trunk),
    "2001:db8:2:3::6/127": via(to_up),
    "2001:db8:3::/48": via(to_wan),
    "2001:db8:4::/48": via(to_trunk),
    "2001:db8:5::/48": via(to_lan_vlan),
    "2001:db8:6::/48": via(to_down),
    "2001:db8:7::/48": via_group(one_way),
    "2001:db8:8::/48": via_group(two_ways),
    "2001:db8:9::/64": GLEAN,
    "2001:db8:9:1::/64": via(unresolved),
    "2001:db8:10::/64": BLACKHOLE,
    "2001:db8:10:1::/64": via(failed),
    "2001:db8:11::/48": UNREACHABLE,
    "2001:db8:12::/48": FALLBACK,
}
BLUE_ROUTES = {
    "0.0.0.0/0": via(blue_to_up),
    "10.1.0.1/32": via(blue_to_up),
    "10.2.0.0/16": LOCAL,
    "10.2.3.4/32": BLACKHOLE,
    "10.9.9.0/24": via(blue_to_lan),
    "::/0": via(blue_to_up),
    "2001:db8:2::/48": LOCAL,
    "2001:db8:9:9::/64": via(blue_to_lan),
}
ROUTERS = installed(
    [
        *(Policer(vrf_id, FAST) for vrf_id in (RED, BLUE)),
        *(lan, lan_vlan, up, wan, trunk, down, blue_lan, blue_up),
        *(to_up, to_wan, to_trunk, to_lan, to_lan_vlan, to_down, unresolved, failed, blue_to_up, blue_to_lan),
        *(one_way, two_ways, gleaned_only, failed_only),
    ],
    {RED: RED_ROUTES, BLUE: BLUE_ROUTES},
)


# -- arrivals and expectations ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Arrival:
    """A frame that comes in: by which port, and whose router interface that is (None: nobody's)."""

    port: int
    frame: bytes
    ingress: RouterInterface | None

    @property
    def untagged(self) -> bytes:
        tag = self.frame[12:14] == b"\x81\0"
        return self.frame[:12] + self.frame[16:] if tag else self.frame

    def by(self, ingress: RouterInterface) -> "Arrival":
        """The same frame, known to be a router interface's."""
        return replace(self, ingress=ingress)


def arrives(
    ingress: RouterInterface, packet: bytes, to: bytes | None = None, ether_type: int | None = None, priority: int = 0
) -> Arrival:
    """A packet that comes in by a router interface, to its MAC or another."""
    ether_type = ether_type_of(packet) if ether_type is None else ether_type
    frame = ethernet(ingress.mac if to is None else to, ether_type, packet)
    frame = tagged(frame, ingress.vlan, priority) if ingress.vlan else frame
    return Arrival(ingress.port, frame, ingress if ingress.enabled else None)


def stray(port: int, frame: bytes) -> Arrival:
    """A frame that comes in by no router interface."""
    return Arrival(port, frame, None)


@dataclass(frozen=True)
class Leaves:
    """A frame that goes out by a router interface, or by its fallback link."""

    egress: RouterInterface | FallbackLink
    frame: bytes


def leaves(by: Nexthop, packet: bytes, entries: Installed = ROUTERS) -> Leaves:
    """The packet in a frame to a nexthop."""
    egress = entries.router_interfaces[by.router_interface_id]
    frame = by.mac + egress.mac + ether_type_of(packet).to_bytes(2, "big") + packet
    return Leaves(egress, tagged(frame, egress.vlan) if egress.vlan else frame)


def falls_back(arrival: Arrival) -> Leaves:
    """What arrived on its way to the fallback plane: nothing but its tag is another."""
    assert arrival.ingress is not None
    link = arrival.ingress.fallback
    assert link is not None
    return Leaves(link, tagged(arrival.untagged, link.vlan))


def comes_back(egress: RouterInterface, packet: bytes, priority: int = 0, src: bytes | None = None) -> Arrival:
    """A packet that the fallback plane sends out of a router interface: MACs and TTL are done."""
    assert egress.fallback is not None
    link = egress.fallback
    src = egress.mac if src is None else src
    frame = _NEIGHBOR_MAC + src + ether_type_of(packet).to_bytes(2, "big") + packet
    return stray(link.port, tagged(frame, link.vlan, priority))


def leaves_again(egress: RouterInterface, packet: bytes) -> Leaves:
    """The packet that `comes_back`, as it goes out."""
    frame = _NEIGHBOR_MAC + egress.mac + ether_type_of(packet).to_bytes(2, "big") + packet
    return Leaves(egress, tagged(frame, egress.vlan) if egress.vlan else frame)


_NEIGHBOR_MAC = mac("020000010077")

Expected = Leaves | PuntReason | DropReason


@dataclass(frozen=True)
class Case:
    """One frame, and the one thing (or one of the things) that must become of it."""

    name: str
    arrival: Arrival
    expected: Expected | tuple[Expected, ...]
    needs: Capability | None = None
    entries: Installed = field(default_factory=lambda: ROUTERS)

    @property
    def possible(self) -> tuple[Expected, ...]:
        return self.expected if isinstance(self.expected, tuple) else (self.expected,)
