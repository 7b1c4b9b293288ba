"""What a punt is policed as: for what is on its way, by the reason; for the router itself, by protocol as well.

`RULES` says it for the reasons CONTROL and LOCAL, to whatever destination: a group, an own address, a link-local one.
So the unicast part of an OSPF exchange and BGP over fe80:: are in the class of their protocol. The constant table
`punt_class` of p4src and the OpenFlow table of that name hold the same rules.

A rule looks at no more than a switch does: at the protocol of the IP header, and behind a header without options at
the ports of a packet that is no fragment. So a fragment of OSPF or ICMP is of its class, one of BGP is LOCAL; and so
is what stands behind an extension header of IPv6.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from controller.planes.base import PuntClass, PuntReason
from controller.planes.packet import IPV4, IPV6, Frame, IpPacket

ARP = 0x0806
TCP, UDP = 6, 17
_ICMP, _ICMPV6, _EIGRP, _OSPF, _VRRP = 1, 58, 88, 89, 112
_RIP, _RIPNG, _BABEL, _BGP = 520, 521, 6696, 179
_BFD, _BFD_ECHO, _BFD_MULTIHOP = 3784, 3785, 4784
_NEIGHBOR_DISCOVERY = range(133, 138)

OF_REASON = {
    PuntReason.GLEAN: PuntClass.GLEAN,
    PuntReason.TTL_EXPIRED: PuntClass.TTL,
    PuntReason.MTU_EXCEEDED: PuntClass.MTU,
    PuntReason.UNREACHABLE: PuntClass.UNREACHABLE,
    PuntReason.IP_OPTIONS: PuntClass.OPTIONS,
    PuntReason.HOP_BY_HOP: PuntClass.OPTIONS,
}
"""Of what is on its way through the router."""

FOR_THE_ROUTER = (PuntReason.CONTROL, PuntReason.LOCAL)
"""The reasons of what has a class by its protocol."""

CLASSES_OF = {
    reason: frozenset(set(PuntClass) - set(OF_REASON.values()) if reason in FOR_THE_ROUTER else {OF_REASON[reason]})
    for reason in PuntReason
}
"""The classes that packets punted for a reason may have."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The class of IP packets of a protocol; None: whatever it is."""

    punt_class: PuntClass
    family: int  # 4 or 6
    protocol: int
    source_port: int | None = None
    destination_port: int | None = None
    icmp_type: int | None = None
    ttl: int | None = None

    def matches(self, packet: IpPacket) -> bool:
        """Tell whether a packet is of this protocol."""
        if (packet.family, packet.protocol) != (self.family, self.protocol):
            return False
        wanted = self.source_port, self.destination_port, self.icmp_type, self.ttl
        found = packet.source_port, packet.destination_port, packet.icmp_type, packet.ttl
        return all(one is None or one == other for one, other in zip(wanted, found, strict=True))


def _rules() -> Iterator[Rule]:
    """Yield the rules. A TTL of 255 says that a packet comes from the link: what is of no use without has no share of
    its class (VRRP, RFC 5798 section 5.1.1.3; BFD of a single hop, RFC 5881 section 5; neighbor discovery, RFC 4861
    section 7.1). An echo packet of BFD was sent with 255, and the neighbor's plane has forwarded it."""
    for family in (4, 6):
        yield Rule(PuntClass.ROUTING, family, _OSPF)
        yield Rule(PuntClass.ROUTING, family, _EIGRP)
        yield Rule(PuntClass.ROUTING, family, _VRRP, ttl=255)
        for port in (_RIP, _RIPNG, _BABEL):
            yield Rule(PuntClass.ROUTING, family, UDP, destination_port=port)
        yield Rule(PuntClass.BGP, family, TCP, source_port=_BGP)
        yield Rule(PuntClass.BGP, family, TCP, destination_port=_BGP)
        yield Rule(PuntClass.BFD, family, UDP, destination_port=_BFD, ttl=255)
        for ttl in (254, 255):
            yield Rule(PuntClass.BFD, family, UDP, destination_port=_BFD_ECHO, ttl=ttl)
        yield Rule(PuntClass.BFD, family, UDP, destination_port=_BFD_MULTIHOP)
    for icmp_type in _NEIGHBOR_DISCOVERY:
        yield Rule(PuntClass.ARP, 6, _ICMPV6, icmp_type=icmp_type, ttl=255)
    yield Rule(PuntClass.ICMP, 4, _ICMP)
    yield Rule(PuntClass.ICMP, 6, _ICMPV6)


RULES = tuple(_rules())
"""The first that matches counts; what none matches is LOCAL."""

_BY_PROTOCOL: dict[tuple[int, int], list[Rule]] = {}
for _rule in RULES:
    _BY_PROTOCOL.setdefault((_rule.family, _rule.protocol), []).append(_rule)


def punt_class(reason: PuntReason, frame: bytes) -> PuntClass:
    """Return what an untagged frame that is punted is policed as."""
    return OF_REASON[reason] if reason in OF_REASON else class_of_protocol(frame)


def class_of_protocol(frame: bytes) -> PuntClass:
    """Return the class of a frame for the router itself. What is neither IP nor ARP is IS-IS: nothing else is punted.

    A frame of less than 14 octets, which no plane delivers, is LOCAL.
    """
    ether_type = int.from_bytes(frame[12:14], "big")
    if ether_type not in (IPV4, IPV6):
        return PuntClass.ARP if ether_type == ARP else PuntClass.ROUTING if len(frame) >= 14 else PuntClass.LOCAL
    packet = IpPacket.find(Frame.read(frame))
    rules = _BY_PROTOCOL.get((packet.family, packet.protocol), ()) if packet is not None else ()
    return next((rule.punt_class for rule in rules if packet and rule.matches(packet)), PuntClass.LOCAL)
