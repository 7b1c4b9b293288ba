"""The routes in the guest's kernel that are not zebra's: connected ones, and those of `ip route`.

FPM tells that zebra has chosen such a route for a prefix, with RTPROT_KERNEL, and not reliably more: FRR 10.3 tells
neither the nexthop, which zebra does not install, nor that the route is gone, as zebra does not remove it. The kernel
tells both, so it is asked for both. Of a link without carrier it tells neither: Linux keeps such routes (`linkdown`),
while zebra withdraws them, and from FPM in its older versions as well. Here they are not in force.

    kernel ── netlink ──► SystemRoutes ──► the best of a prefix ─┐
    zebra ──── FPM: a system route ──────► RouteTable ───────────┴─► what is mirrored
"""

from collections.abc import Callable, Iterable

from vrc.errors import MalformedNetlink
from vrc.netlink.requests import NLM_F_EXCL, NLM_F_REPLACE
from vrc.netlink.route_messages import (
    NLM_F_APPEND,
    NLM_F_MULTI,
    RTM_DELROUTE,
    RTM_NEWROUTE,
    Change,
    decode_shape,
)
from vrc.routes.nexthops import Binding, NexthopScope, NexthopSets

RTPROT_KERNEL = 2

ZEBRA_PROTOCOLS = (range(11, 12), range(42, 43), range(186, 200))
"""What zebra's own routes have: RTPROT_ZEBRA, RTPROT_BABEL, RTPROT_BGP and what follows it (FRR, rt_netlink.h)."""

MAX_SYSTEM_ROUTES = 1 << 17
"""Most routes kept; more are counted as refused."""

_PROTOCOL = 3  # where a shape has rtm_protocol


def is_system(shape: bytes) -> bool:
    """Whether a kernel route of that shape is none of zebra's."""
    return not any(shape[_PROTOCOL] in protocols for protocols in ZEBRA_PROTOCOLS)


def is_chosen_system(shape: bytes) -> bool:
    """Whether FPM means a system route by a route of that shape."""
    return shape[_PROTOCOL] == RTPROT_KERNEL


def never_mirrored(key: bytes) -> bool:
    """Whether a prefix is loopback, multicast or link-local: never a route of a plane."""
    first, second, bits = key[0], key[1], key[-1]
    if len(key) == 5:
        if first == 169:
            return second == 254 and bits >= 16
        return (first == 127 and bits >= 8) or (first >= 224 and bits >= 3)
    return (first == 0xFF and bits >= 8) or (first == 0xFE and second & 0xC0 == 0x80 and bits >= 10)


class SystemRoutes:
    """System routes by prefix, by metric: the first whose links have carrier is in force.

    `changed` has the prefixes of which it may be another now.
    """

    def __init__(
        self, sets: NexthopSets, usable: Callable[[int], int], is_dark: Callable[[int], bool] = lambda _: False
    ) -> None:
        self.scope = NexthopScope(sets, usable, inline_first=True)
        self.changed: set[bytes] = set()
        self.ambiguous = False  # the kernel said something only a dump can explain
        self.refused = 0
        self.malformed = 0
        self._is_dark = is_dark
        self._routes: dict[bytes, list[Binding]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, key: bytes) -> Binding | None:
        """Return what is in force for a prefix, None where there is no such route."""
        return next((one for one in self._routes.get(key, ()) if not self.is_dark(one)), None)

    def is_dark(self, route: Binding) -> bool:
        """Tell whether all links of a route are down or without carrier."""
        return _is_over(route, self._is_dark)

    def follow_links(self) -> None:
        """Look anew at what is in force: carrier came or went, of which routes say nothing."""
        self.changed.update(self._routes)
        self.ambiguous |= any(one.routes and one.spec.reduced for one in self.scope.bindings.values())

    def apply(self, changes: Iterable[Change]) -> None:
        """Take in what the kernel says; what is zebra's own is passed over."""
        for kind, key, shape, flags in changes:
            if key and is_system(shape) and not never_mirrored(key):
                try:
                    self._change(kind, key, shape, flags)
                except MalformedNetlink:
                    self.malformed += 1
        self.scope.sweep()

    def replace(self, changes: Iterable[Change]) -> None:
        """Take in a whole dump: nothing else is there."""
        for key in list(self._routes):
            self._put(key, [])
        self.ambiguous = False
        self.apply(changes)

    def drop_over(self, is_down: Callable[[int], bool]) -> None:
        """Forget the IPv4 routes all of whose links are down: the kernel removes them and does not tell.

        Links and routes come by sockets of their own, so one that was made as its link came up may have been heard
        before the link was said to be down: then that is `ambiguous`.
        """
        for key, routes in list(self._routes.items()):
            if len(key) == 5:
                left = [one for one in routes if not _is_over(one, is_down)]
                if len(left) != len(routes):
                    self.ambiguous = True
                    self._put(key, left)

    def _change(self, kind: int, key: bytes, shape: bytes, flags: int) -> None:
        routes = self._routes.get(key, [])
        if kind == RTM_NEWROUTE:
            left = self._with(key, routes, self.scope.bind(shape), flags)
            if len(left) > len(routes) and self._count >= MAX_SYSTEM_ROUTES:
                self.refused += 1
                return
            self._put(key, left)
        elif kind == RTM_DELROUTE and routes:
            self._put(key, self._without(routes, shape))

    def _with(self, key: bytes, routes: list[Binding], added: Binding, flags: int) -> list[Binding]:
        """Return the routes of a prefix with one more, those of equal metric in the kernel's order."""
        metric = added.spec.metric
        equal = [one for one in routes if one.spec.metric == metric]
        grown = next((one for one in equal if len(key) == 17 and added.spec.grown_from(one.spec)), None)
        if flags & NLM_F_EXCL:  # the only one of its metric
            equal = [added]
        elif flags & NLM_F_REPLACE:
            self.ambiguous |= len(equal) > 1  # in the place of the first, or of another
            equal = [added, *(one for one in equal[1:] if one is not added)]
        elif grown is not None:
            equal[equal.index(grown)] = added
        elif added in equal:
            return routes
        elif flags & (NLM_F_APPEND | NLM_F_MULTI) or len(key) == 17:
            if len(key) == 17 and not flags & NLM_F_MULTI:
                ways = set(added.spec.hops)  # as a rule no two IPv6 routes of one metric have one in common
                self.ambiguous |= any(ways & set(one.spec.hops) for one in equal)
            equal.append(added)
        else:
            equal.insert(0, added)
        others = [one for one in routes if one.spec.metric != metric]
        return sorted([*others, *equal], key=lambda one: one.spec.metric)

    def _without(self, routes: list[Binding], shape: bytes) -> list[Binding]:
        known = self.scope.bindings.get(shape)
        spec = known.spec if known is not None else decode_shape(shape)
        equal = [one for one in routes if one.spec.metric == spec.metric]
        gone = known if known in equal else next((one for one in equal if one.spec.same_ways(spec)), None)
        if gone is None:
            self.ambiguous |= bool(equal)  # one way of several went, or what is kept came later
        return [one for one in routes if one is not gone]

    def _put(self, key: bytes, routes: list[Binding]) -> None:
        former = self._routes.get(key, [])
        for binding in routes:
            binding.routes += 1
        for binding in former:
            binding.routes -= 1
        self._count += len(routes) - len(former)
        if routes:
            self._routes[key] = routes
        else:
            self._routes.pop(key, None)
        if former != routes:
            self.changed.add(key)


def _is_over(route: Binding, links: Callable[[int], bool]) -> bool:
    """Tell whether a route has ways, and all of them are over such links."""
    hops = route.spec.hops
    return bool(hops) and all(links(hop.ifindex) for hop in hops)
