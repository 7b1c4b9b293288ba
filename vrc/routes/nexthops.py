"""Interns the contents of nexthops: equal ways out have one session-wide set id, whatever ids the kernel gave them.

    route ──► Binding (one per shape) ──► set id ──► content: kind and members (interface id, gateway, weight)

A nexthop id of the kernel or of zebra means something only within one `NexthopScope`: zebra gives the same ids to
other nexthops after a restart, so a new life of it is a new scope, and routes it did not repeat stay bound to the
contents of the old one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import IntEnum

from vrc.interfaces import ELSEWHERE
from vrc.netlink.route_messages import (
    RTM_NEWNEXTHOP,
    Hop,
    NexthopObject,
    RouteSpec,
    RouteType,
    decode_nexthop,
    decode_shape,
)

MAX_NEXTHOP_OBJECTS = 1 << 17
"""Most nexthop ids kept of one zebra or kernel."""

MAX_WEIGHT = 256
"""Of a member of a set; larger ones are brought down to it in proportion."""

MAX_HOP_WEIGHT = 256
"""Most that a hop of a route message can say (struct rtnexthop)."""

_SWEEP_AT = 1024


class SetKind(IntEnum):
    """What a nexthop set does (NexthopSet.Kind on the wire)."""

    FORWARD = 0
    CONNECTED = 1
    BLACKHOLE = 2
    UNREACHABLE = 3


Member = tuple[int, bytes, int]
"""(interface id, gateway or empty, weight)"""

Content = tuple[int, tuple[Member, ...]]
"""(SetKind, sorted members): what two sets are compared by."""

BLACKHOLE: Content = (SetKind.BLACKHOLE, ())
UNREACHABLE: Content = (SetKind.UNREACHABLE, ())


class NexthopSets:
    """Set ids by content, counted by the bindings that hold them. Ids grow from 1 and are never used again."""

    def __init__(self) -> None:
        self._ids: dict[Content, int] = {}
        self._contents: dict[int, Content] = {}
        self._holds: dict[int, int] = {}
        self._next = 1
        self.announced: set[int] = set()  # what the controller knows of this session
        self.gone: list[int] = []  # announced and now released: to be told

    def __len__(self) -> int:
        return len(self._ids)

    def hold(self, content: Content) -> int:
        """Return the id of a content and hold it once more."""
        set_id = self._ids.get(content)
        if set_id is None:
            set_id = self._next
            self._next += 1
            self._ids[content] = set_id
            self._contents[set_id] = content
            self._holds[set_id] = 0
        self._holds[set_id] += 1
        return set_id

    def release(self, set_id: int) -> None:
        """Give up one hold; with the last one the id is never used again."""
        self._holds[set_id] -= 1
        if not self._holds[set_id]:
            del self._holds[set_id]
            del self._ids[self._contents.pop(set_id)]
            if set_id in self.announced:
                self.announced.discard(set_id)
                self.gone.append(set_id)

    def begin_session(self) -> None:
        """Forget what was announced: a new session knows nothing."""
        self.announced.clear()
        self.gone.clear()

    def content(self, set_id: int) -> Content:
        """Return the content of a held id."""
        return self._contents[set_id]


class Binding:
    """What the routes of one shape are bound to: the decoded shape and the set id it resolves to (0: ignored)."""

    __slots__ = ("routes", "scope", "set_id", "spec")

    def __init__(self, scope: "NexthopScope", spec: RouteSpec) -> None:
        self.scope = scope
        self.spec = spec
        self.set_id = 0
        self.routes = 0  # how many routes have it


class NexthopScope:
    """One life of a nexthop id space, with the bindings made in it.

    ``usable`` maps an ifindex to an interface id, 0 where routes by it are to be ignored, ELSEWHERE where the guest
    alone can send packets: they go to it, as what is unreachable does, and by no shorter prefix. So do those that are
    to be encapsulated, as by MPLS, and have no plain way beside. ``inline_first`` takes the hops a route message
    carries itself rather than its nexthop id, as the kernel sends both, unless only the nexthop says all of it.
    """

    def __init__(self, sets: NexthopSets, usable: Callable[[int], int], *, inline_first: bool = False) -> None:
        self.sets = sets
        self.bindings: dict[bytes, Binding] = {}
        self.objects: dict[int, NexthopObject] = {}
        self.version = 0  # grows when bindings appear or resolve anew
        self.refused = 0
        self.ended = False  # nothing more is said of these ids
        self._usable = usable
        self._inline_first = inline_first
        self._touched: set[int] = set()
        self._missing: set[int] = set()
        self._sweep_at = _SWEEP_AT

    def bind(self, shape: bytes) -> Binding:
        """Return the binding of a shape, made now if it is new; MalformedNetlink where it does not decode."""
        binding = self.bindings.get(shape)
        if binding is None:
            binding = self.bindings[shape] = Binding(self, decode_shape(shape))
            binding.set_id = self._hold(binding.spec)
            self.version += 1
        return binding

    def change(self, kind: int, body: bytes) -> None:
        """Take in RTM_NEWNEXTHOP or RTM_DELNEXTHOP; bindings follow in `settle`. MalformedNetlink as decoded."""
        nexthop = decode_nexthop(body)
        if kind != RTM_NEWNEXTHOP:
            if self.objects.pop(nexthop.id, None) is not None:
                self._missing.add(nexthop.id)  # bindings of it stay as they are until it is said anew
            return
        known = self.objects.get(nexthop.id)
        if known is None and len(self.objects) >= MAX_NEXTHOP_OBJECTS:
            self.refused += 1
            return
        self.objects[nexthop.id] = nexthop
        if (known is not None and known != nexthop) or nexthop.id in self._missing:
            self._touched.add(nexthop.id)
            self._missing.discard(nexthop.id)

    def correct_weights(self, truth: NexthopObject) -> bool:
        """Take the weights of a group from the same group elsewhere; bindings follow in `settle`. Returns whether
        there was anything to correct."""
        mine = self.objects.get(truth.id)
        if mine is None or mine.members == truth.members:
            return False
        if {member for member, _ in mine.members} != {member for member, _ in truth.members}:
            return False
        self.objects[truth.id] = truth
        self._touched.add(truth.id)
        return True

    def settle(self) -> set[Binding]:
        """Resolve the bindings whose nexthops changed; return those with routes that got another set id."""
        if not self._touched:
            return set()
        touched, self._touched = self._touched, set()
        touched |= {
            group.id for group in self.objects.values() if any(member in touched for member, _ in group.members)
        }
        return self._resolve([b for b in self.bindings.values() if b.spec.nexthop_id in touched])

    def resolve(self) -> set[Binding]:
        """Resolve every binding anew, as when links change; return those with routes that got another set id."""
        self._touched.clear()
        return self._resolve(list(self.bindings.values()))

    def _resolve(self, bindings: list[Binding]) -> set[Binding]:
        changed = set()
        for binding in bindings:
            old, binding.set_id = binding.set_id, self._hold(binding.spec)
            if old:
                self.sets.release(old)
            if old != binding.set_id:
                self.version += 1
                if binding.routes:
                    changed.add(binding)
        return changed

    def _hold(self, spec: RouteSpec) -> int:
        content = self.content(spec)
        return self.sets.hold(content) if content is not None else 0

    def content(self, spec: RouteSpec) -> Content | None:
        """Return what a route does, None where it is to be ignored (no usable interface, multicast)."""
        if spec.type == RouteType.BLACKHOLE and not self._leads_on(spec.nexthop_id):
            return BLACKHOLE
        if spec.type in (RouteType.UNREACHABLE, RouteType.PROHIBIT, RouteType.THROW):
            return UNREACHABLE
        if spec.type not in (RouteType.UNICAST, RouteType.BLACKHOLE):
            return None
        inline = self._inline_first and spec.hops and not self._weighs_more(spec.nexthop_id)
        if spec.nexthop_id and not inline:
            return self._content_of(spec.nexthop_id)
        return self._members(spec.hops)

    def _leads_on(self, nexthop_id: int) -> bool:
        """Tell whether a nexthop is none of a blackhole any more: a kernel with `nexthop_compat_mode` 0 says so of
        the nexthop alone, and not of its routes, whose type was a blackhole's."""
        nexthop = self.objects.get(nexthop_id)
        return nexthop is not None and not nexthop.blackhole

    def _weighs_more(self, nexthop_id: int) -> bool:
        """Tell whether a group has a weight for which the hops in its routes' own messages have no room: Linux leaves
        out the higher octet there."""
        group = self.objects.get(nexthop_id)
        return group is not None and any(weight > MAX_HOP_WEIGHT for _, weight in group.members)

    def _content_of(self, nexthop_id: int) -> Content | None:
        nexthop = self._find(nexthop_id)
        if nexthop is None:
            return None
        if nexthop.blackhole:
            return BLACKHOLE
        hops = [nexthop.hop] if nexthop.hop else []
        for member_id, weight in nexthop.members:
            member = self._find(member_id)
            if member is not None and member.hop is not None:
                hops.append(replace(member.hop, weight=weight))
        return self._members(tuple(hops))

    def _find(self, nexthop_id: int) -> NexthopObject | None:
        nexthop = self.objects.get(nexthop_id)
        if nexthop is None:
            self._missing.add(nexthop_id)
        return nexthop

    def _members(self, hops: tuple[Hop, ...]) -> Content | None:
        weights: dict[tuple[int, bytes], int] = {}
        by_guest = False
        for hop in hops:
            interface_id = self._usable(hop.ifindex)
            if interface_id > 0 and not hop.encapsulated:
                way = (interface_id, hop.gateway)
                weights[way] = weights.get(way, 0) + hop.weight
            elif interface_id:
                by_guest = True
        if not weights:
            return UNREACHABLE if by_guest else None
        if len(weights) == 1:  # the weight of an only member says nothing
            weights = dict.fromkeys(weights, 1)
        if (largest := max(weights.values())) > MAX_WEIGHT:  # in proportion, and nobody is left without a share
            weights = {way: max(1, weight * MAX_WEIGHT // largest) for way, weight in weights.items()}
        kind = SetKind.FORWARD if any(gateway for _, gateway in weights) else SetKind.CONNECTED
        return kind, tuple(sorted((*way, weight) for way, weight in weights.items()))

    def gateways(self) -> set[tuple[int, bytes]]:
        """Return (ifindex, gateway) of every gateway that a route uses."""
        return {(hop.ifindex, hop.gateway) for hop in self._used() if hop.gateway and self._usable(hop.ifindex) > 0}

    def elsewhere(self) -> set[int]:
        """Return the ifindexes of links that are no interfaces of the router, and by which routes lead."""
        return {hop.ifindex for hop in self._used() if self._usable(hop.ifindex) == ELSEWHERE}

    def _used(self) -> Iterator[Hop]:
        for binding in self.bindings.values():
            if binding.routes:
                yield from self._hops(binding.spec)

    def _hops(self, spec: RouteSpec) -> list[Hop]:
        nexthop = self.objects.get(spec.nexthop_id)
        if nexthop is None:
            return list(spec.hops)
        members = [self.objects.get(member) for member, _ in nexthop.members]
        return [one.hop for one in (nexthop, *members) if one is not None and one.hop is not None]

    def sweep(self, *, force: bool = False) -> None:
        """Drop bindings without routes once they are many, or now with ``force``, and release their sets."""
        if not force and len(self.bindings) < self._sweep_at:
            return
        for shape in [shape for shape, binding in self.bindings.items() if not binding.routes]:
            binding = self.bindings.pop(shape)
            if binding.set_id:
                self.sets.release(binding.set_id)
        if self.ended:
            referred = self._referred()
            self.objects = {number: one for number, one in self.objects.items() if number in referred}
        if not self.bindings or len(self._missing) > _SWEEP_AT:
            self._missing &= self._referred()
        self._sweep_at = 2 * len(self.bindings) + _SWEEP_AT

    def _referred(self) -> set[int]:
        """Return the nexthop ids of which a binding may have something."""
        if not self.bindings:
            return set()
        direct = {binding.spec.nexthop_id for binding in self.bindings.values()}
        groups = (group for group in self.objects.values() if group.id in direct or not self.ended)
        return direct | {member for group in groups for member, _ in group.members}
