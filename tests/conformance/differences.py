"""A plane and the model of the contract side by side: whether they differ, and the smallest case in which they do."""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

from random_tables import SHORTEST, Trial, random_arrival, random_table
from wired import Observation, WiredPlane

from controller.planes.base import (
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
    action_kind,
    action_value,
)
from controller.planes.reference_pipeline import Dropped, Forwarded, Outcome, Punted

FOUND = Path(__file__).parent / "found"
LATE = 10
"""How often counters that may be late are read again."""
Differs = Callable[[Trial], Awaitable[bool]]


# -- the comparison --------------------------------------------------------------------------------------------------
def possible(wired: WiredPlane, trial: Trial) -> list[Observation]:
    """Return everything that the contract lets a frame do."""
    verdicts = wired.verdicts(trial.entries, trial.port, trial.frame)
    return [_observation(each.ingress, way.outcome, len(trial.frame)) for each in verdicts for way in each.ways]


def _observation(ingress: RouterInterface | None, outcome: Outcome, octets: int) -> Observation:
    seen = Observation()
    if ingress is not None:
        seen.received[ingress.id] = 1
        seen.received_octets[ingress.id] = octets
    if isinstance(outcome, Forwarded):
        seen.outputs = [(outcome.port, outcome.frame)]
        if outcome.router_interface_id is not None:
            seen.sent[outcome.router_interface_id] = 1
    elif isinstance(outcome, Punted) and ingress is not None:
        seen.punts = [(ingress.id, outcome.reason, outcome.frame)]
        seen.punted[ingress.vrf_id, outcome.reason] = 1
    elif isinstance(outcome, Dropped):
        seen.dropped[outcome.reason] = 1
    return seen


async def difference(wired: WiredPlane, trial: Trial) -> str | None:
    """Write the entries and send the frame, wherever they may be; return what it did and what it may do, None where
    that is the same."""
    await wired.program(trial.entries)
    async for place in wired.places():
        found = await compare(wired, trial)
        if found is not None:
            return f"routes {place}: {found}"
    return None


async def compare(wired: WiredPlane, trial: Trial, before: Installed | None = None) -> str | None:
    """The same for a plane that has the entries already, or those of ``before`` still."""
    allowed = possible(wired, trial)
    if before is not None:
        allowed += possible(wired, replace(trial, entries=before))
    return await _differs(wired, {trial.port: [trial.frame]}, allowed)


async def compare_all(wired: WiredPlane, trials: Sequence[Trial]) -> AsyncIterator[tuple[Trial, str]]:
    """The same for many frames: those that may do only one thing all together, and one by one where that differs."""
    alone, arrivals, expected = [], defaultdict(list), Observation()
    for trial in trials:
        allowed = possible(wired, trial)
        if len(allowed) > 1 or _counts_too_long(wired, allowed):
            alone.append(trial)
        else:
            arrivals[trial.port].append(trial.frame)
            expected += allowed[0]
    together = await _differs(wired, arrivals, [expected])
    found = False
    for trial in alone if together is None else trials:
        if difference := await compare(wired, trial):
            found = True
            yield trial, difference
    if together is not None and not found:
        yield trials[0], f"only together: {together}"


async def _differs(
    wired: WiredPlane, arrivals: Mapping[int, Sequence[bytes]], allowed: list[Observation]
) -> str | None:
    seen = await wired.observe_all(arrivals)
    if _counts_too_long(wired, allowed):
        allowed = [replace(each, sent=seen.sent) for each in allowed]
    for _ in range(LATE if wired.counts_late else 0):
        if seen in allowed or not any(_went_alike(seen, each) for each in allowed):
            break
        await asyncio.sleep(0.1)
        await wired.count_again(seen)
    return None if seen in allowed else f"{wired.kind} did {seen}\nthe contract allows {allowed}"


def _counts_too_long(wired: WiredPlane, allowed: list[Observation]) -> bool:
    """Whether the plane counts as sent what is too long for where one of these would have it go."""
    return wired.counts_too_long_as_sent and any(PuntReason.MTU_EXCEEDED in dict(_reasons(each)) for each in allowed)


def _went_alike(one: Observation, other: Observation) -> bool:
    return (one.outputs, one.punts) == (other.outputs, other.punts)


def _reasons(seen: Observation) -> Iterator[tuple[PuntReason, int]]:
    return ((reason, interface_id) for interface_id, reason, _ in seen.punts)


async def first_difference(wired: WiredPlane, seed: int, packets: int) -> str | None:
    """Try a random table; the first difference is shrunk, kept as a file, and returned as text."""
    draw = Random(seed)
    entries = random_table(draw)
    trials = [Trial(entries, *random_arrival(draw, entries)) for _ in range(packets)]
    await wired.program(entries)
    async for place in wired.places():
        async for trial, found in compare_all(wired, trials):
            return await _smallest(wired, trial, f"seed {seed}, routes {place}: {found}")
    return None


async def _smallest(wired: WiredPlane, trial: Trial, found: str) -> str:
    async def differs(smaller: Trial) -> bool:
        return await difference(wired, smaller) is not None

    smallest = await shrink(trial, differs)
    path = keep(smallest, wired.kind)
    return f"{found}\nat the least: {await difference(wired, smallest)}\nkept as {path}"


# -- shrinking -------------------------------------------------------------------------------------------------------
async def shrink(trial: Trial, differs: Differs) -> Trial:
    """Return the smallest trial that still differs: no single entry can go, no octet of the frame be zero or cut."""
    trial = await _fewer_entries(trial, differs)
    return await _plainer_frame(trial, differs)


async def _fewer_entries(trial: Trial, differs: Differs) -> Trial:
    """Zeller's ddmin over the entries; what names an entry that is gone goes too."""
    atoms, parts = list(_atoms(trial.entries)), 2
    while len(atoms) > 1:
        size = max(1, len(atoms) // parts)
        for at in range(0, len(atoms), size):
            fewer = replace(trial, entries=_whole(trial.entries, atoms[:at] + atoms[at + size :]))
            if await differs(fewer):
                trial, atoms, parts = fewer, list(_atoms(fewer.entries)), max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts *= 2
    return trial


Atom = tuple[str, int, bytes]


def _atoms(entries: Installed) -> Iterator[Atom]:
    for vrf_id, routes in entries.routes.items():
        yield from (("route", vrf_id, key) for key in routes)
    yield from (("group", each, b"") for each in entries.groups)
    yield from (("nexthop", each, b"") for each in entries.nexthops)
    yield from (("interface", each, b"") for each in entries.router_interfaces)
    yield from (("policer", each, b"") for each in entries.policers)


def _whole(entries: Installed, atoms: list[Atom]) -> Installed:
    """Return the entries that are listed and name none that is not."""
    held, kept = set(atoms), Installed()
    kept.policers = {key: each for key, each in entries.policers.items() if ("policer", key, b"") in held}
    interfaces = entries.router_interfaces.items()
    kept.router_interfaces = {key: each for key, each in interfaces if ("interface", key, b"") in held}
    kept.nexthops = {
        key: each
        for key, each in entries.nexthops.items()
        if ("nexthop", key, b"") in held and each.router_interface_id in kept.router_interfaces
    }
    for key, group in entries.groups.items():
        members = tuple(each for each in group.members if each.nexthop_id in kept.nexthops)
        if ("group", key, b"") in held and members:
            kept.groups[key] = NexthopGroup(key, members)
    for vrf_id, routes in entries.routes.items():
        kept.routes[vrf_id] = {
            key: action
            for key, action in routes.items()
            if ("route", vrf_id, key) in held and _names_only(kept, action)
        }
    return kept


def _names_only(kept: Installed, action: int) -> bool:
    kind, value = action_kind(action), action_value(action)
    return {RouteKind.NEXTHOP: value in kept.nexthops, RouteKind.GROUP: value in kept.groups}.get(kind, True)


async def _plainer_frame(trial: Trial, differs: Differs) -> Trial:
    cut = len(trial.frame) // 2
    while cut:
        shorter = replace(trial, frame=trial.frame[:-cut])
        if len(shorter.frame) >= SHORTEST and await differs(shorter):
            trial = shorter
        else:
            cut //= 2
    for at in range(len(trial.frame)):
        plainer = replace(trial, frame=trial.frame[:at] + b"\0" + trial.frame[at + 1 :])
        if trial.frame[at] and await differs(plainer):
            trial = plainer
    return trial


# -- files -----------------------------------------------------------------------------------------------------------
def keep(trial: Trial, kind: str) -> Path:
    """Write a trial where all are replayed as cases, and return the file."""
    fields = {"port": trial.port, "frame": trial.frame, **asdict(trial.entries)}
    fields["routes"] = {
        vrf_id: {key.hex(): action for key, action in held.items()} for vrf_id, held in trial.entries.routes.items()
    }
    del fields["damaged"], fields["foreign"]
    text = json.dumps(fields, indent=1, default=bytes.hex) + "\n"
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    path.write_text(text)
    return path


def kept(path: Path) -> Trial:
    """Read what `keep` wrote."""
    fields = json.loads(path.read_text())
    entries = Installed()
    for each in fields["policers"].values():
        entries.policers[each["vrf_id"]] = Policer(each["vrf_id"], tuple(each["rates"]))
    for each in fields["router_interfaces"].values():
        each["mac"], each["virtual_macs"] = (
            bytes.fromhex(each["mac"]),
            tuple(map(bytes.fromhex, each["virtual_macs"])),
        )
        if each.get("fallback") is not None:
            each["fallback"] = FallbackLink(**each["fallback"])
        entries.router_interfaces[each["id"]] = RouterInterface(**each)
    for each in fields["nexthops"].values():
        each["mac"], each["state"] = bytes.fromhex(each["mac"]), NexthopState(each["state"])
        entries.nexthops[each["id"]] = Nexthop(**each)
    for each in fields["groups"].values():
        members = tuple(GroupMember(**member) for member in each["members"])
        entries.groups[each["id"]] = NexthopGroup(each["id"], members)
    for vrf_id, routes in fields["routes"].items():
        entries.routes[int(vrf_id)] = {bytes.fromhex(key): action for key, action in routes.items()}
    return Trial(entries, fields["port"], bytes.fromhex(fields["frame"]))
