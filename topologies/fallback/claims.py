"""What must hold in fallback."""

import re
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from itertools import islice
from pathlib import Path
from typing import Any

from lab.network import NetworkError, output, wait_for
from lab.planes.fallback import FallbackPlanes
from lab.prefixes import Announcement
from lab.probes import RunningPing, capture, ping
from lab.topology import Lab, Progress
from topologies import proofs
from topologies.checks import Claim, Refuted, expect
from topologies.fallback.topology import H1, HARDWARE, N1, OWN_ROUTES, ROOM, ROUTER, announced

_COUNT = 20
_MOVE_S = 60.0
_CONFIRMED_S = 10.0
_FOLLOWED_S = 120.0
_ASKED_FOR = 3
_TRIES = 10
"""Destinations that are counted at most: one that is sampled may move into the switch for as few as its pings."""
_COUNTED_S = 5.0
"""How long a switch may take to count what it has sent."""
_IPV4_ROUTES = "table=3,cookie=0x5350400000000000/0xfffff00000000000"  # docs/planes.md
_FALLBACK_LINK = "table=10"
_AGGREGATE = re.compile(r"packet_count=(\d+) .*flow_count=(\d+)")
_LONGEST = 24
"""Nothing that n1 announces is longer, so an address in such a prefix has no other route that is as long."""


def learned(lab: Lab, progress: Progress) -> list[str]:
    """The session is up, and nothing of what it brought is refused."""
    # What is asked for moves into the switch at any time, and is pending for as long.
    wait_for(f"{ROUTER} with nothing pending", lambda: not _counts(lab)["pending"], _CONFIRMED_S)
    view = _counts(lab)
    seen = f"{ROUTER}: {view['ipv4_routes']} routes learned, {view['pending']} pending, {view['refused']} refused"
    expect(view["ipv4_routes"] == lab.topology.routes[ROUTER] and not view["refused"], seen)
    return [*proofs.sessions_up(lab, progress), seen]


def _counts(lab: Lab) -> dict[str, Any]:
    (view,) = lab.controller.get("routers")
    return dict(view)


def follows(lab: Lab, progress: Progress) -> list[str]:
    """What is asked for is routed by the forwarder at first, and soon by the switch, without a lost packet."""
    chosen = {one.text: _host(one) for one in islice(_announced(lab, "software"), _ASKED_FOR)}
    before = _by_forwarder(lab, chosen)
    progress(f"pings to {', '.join(chosen)}")
    start = time.monotonic()
    streams = {("h1", address): RunningPing(lab.network["h1"], address) for address in chosen.values()}
    try:
        _wait_in_hardware(lab, {*chosen, f"{H1}/32"})
    finally:
        took = time.monotonic() - start
        seen = {end: stream.stop() for end, stream in streams.items()}
    after = _by_forwarder(lab, chosen)
    shown = f"{', '.join(chosen)}: of {2 * _COUNT * len(chosen)} packets there and back"
    shown = f"{shown} {before} were the forwarder's, {after} after {took:.0f} s of pings"
    expect(after < before, shown)
    return [shown, *(proofs.unbroken(lab, end, stream, took) for end, stream in seen.items())]


def _wait_in_hardware(lab: Lab, wanted: set[str]) -> None:
    def seen() -> tuple[str, list[Path]]:
        return f"in software: {', '.join(sorted(wanted - _in_hardware(lab)))}", lab.logs_of([ROUTER])

    what = f"what is asked for of {ROUTER} in hardware"
    wait_for(what, lambda: wanted <= _in_hardware(lab), _FOLLOWED_S, 0.5, seen=seen)


def _by_forwarder(lab: Lab, chosen: dict[str, str]) -> int:
    """Ping some destinations, and return how many of the packets there and back the forwarder has routed."""
    before = _passed(lab)[1]
    for address in chosen.values():
        answered = ping(lab.network["h1"], address, _COUNT)
        expect(answered == _COUNT, f"h1 → {address}: {answered} of {_COUNT} pings answered")
    return _passed(lab)[1] - before


def placed(lab: Lab, progress: Progress) -> list[str]:
    """The switch holds no more than it has room for, and what it holds is used."""
    entries = _entries(lab)
    _, flows = _aggregate(_IPV4_ROUTES)
    hardware = entries["hardware ipv4_route"]
    seen = f"{entries['ipv4_route']} prefixes, {hardware} entries in hardware with room for {ROOM}, {flows} flows"
    expect(0 < hardware <= ROOM and flows <= ROOM, seen)
    return [seen]


def reach(lab: Lab, progress: Progress) -> list[str]:
    """Whichever plane routes it, a packet arrives, with two hops less: r1 and n1."""
    found = []
    for address, where in _destinations(lab).items():
        with capture(lab.network["h2"], f"icmp and dst host {address} and ip[8] = 62") as arrived:
            answered = ping(lab.network["h1"], address, 5)
            matched = arrived(5)
        seen = f"h1 → {address} ({where}) {answered}/5, {matched} of them with TTL 62"
        expect(answered == 5 and matched == 5, seen)
        found.append(seen)
    return found


def trace(lab: Lab, progress: Progress) -> list[str]:
    """The path has the same hops, whichever plane routes."""
    found = []
    for address, where in _destinations(lab).items():
        progress(f"h1 → {address}")
        (line,) = proofs.trace(lab, "h1", address, [{"10.1.0.1"}, {N1}, {address}])
        found.append(f"{line} ({where})")
    return found


def counted(lab: Lab, progress: Progress) -> list[str]:
    """The switch and the forwarder count the packets that take the way over the forwarder, and no others."""
    back = "hardware" if f"{H1}/32" in _in_hardware(lab) else "software"
    return [_count(lab, progress, where, back) for where in ("hardware", "software")]


def _count(lab: Lab, progress: Progress, where: str, back: str) -> str:
    expected = _COUNT * [where, back].count("software")
    for prefix in islice(_announced(lab, where), _TRIES):
        address = _host(prefix)
        progress(f"{_COUNT} pings to {address}")
        before = _passed(lab)
        answered = ping(lab.network["h1"], address, _COUNT)
        expect(answered == _COUNT, f"h1 → {address} ({where}): {answered} of {_COUNT} pings answered")
        sent, forwarded = _counted(lab, before, expected)
        # Asked last: an entry works before it is told of.
        if (prefix.text in _in_hardware(lab)) == (where == "hardware"):
            shown = f"{_COUNT} pings to {address} ({where}), answers by {back}"
            shown = f"{shown}: switch sent {sent} to the forwarder, which forwarded {forwarded}"
            expect(sent == forwarded == expected, f"{shown}; {expected} expected")
            return shown
    raise Refuted(f"each of {_TRIES} destinations in {where} moved while it was pinged")


def _counted(lab: Lab, before: tuple[int, int], expected: int) -> tuple[int, int]:
    """Return what the switch has sent to the forwarder since, and what that has forwarded, once both are as many as
    expected, or late."""
    late = time.monotonic() + _COUNTED_S
    while min(found := _since(lab, before)) < expected and time.monotonic() < late:
        time.sleep(0.1)
    return found


def moves(lab: Lab, progress: Progress) -> list[str]:
    """All routes move to software and back under pings, of which none is lost; the planes are equal each time."""
    found = []
    streams = {("h1", address): RunningPing(lab.network["h1"], address) for address in _destinations(lab)}
    start = time.monotonic()
    try:
        for placement in ("software", "hardware", "auto"):
            progress(f"vrctl move {ROUTER} --to {placement}")
            *_, said = lab.controller.vrctl("move", ROUTER, "--to", placement).splitlines()
            _wait_moved(lab, placement)
            proofs.verified(lab)
            entries = _entries(lab)["hardware ipv4_route"]
            found.append(f"to {placement}: {said}: {entries} entries in hardware, verified")
    finally:
        took = time.monotonic() - start
        seen = {end: stream.stop() for end, stream in streams.items()}
    return found + [proofs.unbroken(lab, end, stream, took) for end, stream in seen.items()]


def restart(lab: Lab, progress: Progress) -> list[str]:
    """The controller of both planes is killed and started again under traffic."""
    return proofs.survives_restart(lab, progress, [("h1", address) for address in _destinations(lab)])


def switch_forwards(lab: Lab, progress: Progress) -> list[str]:
    """Transit traffic does not touch the guest."""
    return proofs.switch_forwards(lab, progress, [("h1", address) for address in _destinations(lab)])


def verified(lab: Lab, progress: Progress) -> list[str]:
    """Learned, desired and installed are equal."""
    return proofs.verified(lab)


def _entries(lab: Lab) -> dict[str, int]:
    views: list[dict[str, Any]] = lab.controller.get("planes")
    return next(view["entries"] for view in views if view["name"] == HARDWARE)


def _in_hardware(lab: Lab) -> set[str]:
    """Return the prefixes that the switch routes."""
    return {entry["prefix"] for entry in lab.controller.fib(ROUTER) if entry["where"] == "hardware"}


def _destinations(lab: Lab) -> dict[str, str]:
    """Return an address that the switch routes and one that the forwarder does, with "hardware" and "software"."""
    found = {}
    for where in ("hardware", "software"):
        for prefix in islice(_announced(lab, where), 1):
            found[_host(prefix)] = where
    expect(len(found) == 2, f"all routes of {ROUTER} are in {', '.join(found.values())}")
    return found


def _announced(lab: Lab, where: str) -> Iterator[Announcement]:
    """Iterate over the prefixes that n1 announces and that are in hardware or in software now."""
    held = _in_hardware(lab)
    for one in announced(lab.topology.routes[ROUTER] - OWN_ROUTES):
        if one.length == _LONGEST and (one.text in held) == (where == "hardware"):
            yield one


def _host(prefix: Announcement) -> str:
    return str(IPv4Address(prefix.network + 1))


def _moved(lab: Lab, placement: str) -> bool:
    """Tell whether the routes are where they were sent: own addresses alone are left, or the room is used."""
    held = _entries(lab)["hardware ipv4_route"]
    return not lab.unsettled() and (held < ROOM // 10 if placement == "software" else held > ROOM // 2)


def _wait_moved(lab: Lab, placement: str) -> None:
    def seen() -> tuple[str, list[Path]]:
        unsettled = "; ".join(lab.unsettled())
        held = f"{_entries(lab)['hardware ipv4_route']} entries in hardware with room for {ROOM}"
        return f"{held}; {unsettled or f'{ROUTER} is up'}", lab.logs_of([ROUTER])

    wait_for(f"routes of {ROUTER} in {placement}", lambda: _moved(lab, placement), _MOVE_S, seen=seen)


def _aggregate(flows: str) -> tuple[int, int]:
    """Return how many packets have met such flows of the switch, and how many of these it has."""
    command = ["ovs-ofctl", "-O", "OpenFlow13", "dump-aggregate", HARDWARE, flows]
    found = _AGGREGATE.search(text := output(command))
    if found is None:
        raise NetworkError(f"{' '.join(command)}: {text.strip() or 'no answer'}")
    return int(found[1]), int(found[2])


def _passed(lab: Lab) -> tuple[int, int]:
    """Return the packets that the switch has sent to the forwarder, and those that the forwarder has forwarded."""
    packets, _ = _aggregate(_FALLBACK_LINK)
    planes = lab.network.planes
    assert isinstance(planes, FallbackPlanes)
    return packets, planes.forwarder.sent()


def _since(lab: Lab, before: tuple[int, int]) -> tuple[int, int]:
    sent, forwarded = _passed(lab)
    return sent - before[0], forwarded - before[1]


CLAIMS = (
    Claim("every route is learned and none refused", learned),
    Claim("what is asked for moves into the switch by itself", follows),
    Claim("the switch holds what it has room for", placed),
    Claim("destinations in hardware and in software are reached with the same TTL", reach),
    Claim("the path is the same by either plane", trace),
    Claim("counters show which way packets take", counted),
    Claim("routes move to software and back without a lost packet", moves),
    Claim("the planes forward, not the guest", switch_forwards),
    Claim("kill -9 of the controller loses no packet", restart),
    Claim("vrctl verify finds learned, desired and installed equal", verified),
)
