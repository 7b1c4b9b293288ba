"""An in-memory plane for tests: keeps entries as a real one would and fails where it is told to."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace

from controller.errors import PlaneUnreachable
from controller.planes.base import (
    FALLBACK,
    Capability,
    Clock,
    Counters,
    Installed,
    Op,
    PlaneListener,
    PortState,
    PuntReason,
    Refused,
    RouteCounts,
    RouteKind,
    RouterInterface,
    RoutesInto,
    RouteTraffic,
    Sampler,
    SharedMeters,
    WriteBatch,
    action_kind,
    action_value,
    routes_to_read,
)
from controller.planes.fake_path import FakePath
from controller.planes.packet import Frame, IpPacket, with_tag
from controller.planes.reference_pipeline import Forwarded, Punted
from controller.planes.shares import ShareEntries, ShareEntry, ShareKey, ShareUse

Fault = Callable[[str, bytes | int, Op], str | None]
"""Given (table, key, op), returns why to refuse that update, or None."""


Cables = Callable[[int, bytes], None]
"""Given (port, frame), takes what a port transmits."""


def _unplugged(_port: int, _frame: bytes) -> None:
    """Lose the frame."""


def _no_fault(_table: str, _key: bytes | int, _op: Op) -> None:
    return None


@dataclass
class FakePlane:
    """Implements `Plane`. Tests connect and disconnect it, move ports, inject frames, and look at `entries`, `writes`
    and what comes out of its cables."""

    name: str
    capacity: int = 1_000_000
    fault: Fault = _no_fault
    entries: Installed = field(default_factory=Installed)
    writes: list[WriteBatch] = field(default_factory=list)
    shares: ShareEntries = field(default_factory=dict)
    share_writes: list[tuple[ShareEntries, set[ShareKey]]] = field(default_factory=list)  # what was put, what deleted
    use: dict[int, ShareUse] = field(default_factory=dict)
    packets_out: list[tuple[RouterInterface, bytes]] = field(default_factory=list)
    cables: Cables = _unplugged
    capabilities: frozenset[Capability] = frozenset(Capability)
    shared_meters: SharedMeters = ()
    connected: bool = False
    ports: dict[int, PortState] = field(default_factory=dict)
    table_sizes: dict[str, int] = field(default_factory=dict)
    gate: asyncio.Event = field(default_factory=asyncio.Event)  # cleared: writes wait unconfirmed
    clock: Clock = time.monotonic
    sampler: Sampler | None = None
    one_in: int = 1  # packets that are routed for one that is sampled
    _routed: int = 0
    _listener: PlaneListener | None = None
    _path: FakePath = field(init=False)

    def __post_init__(self) -> None:
        self.gate.set()
        self._path = FakePath(self.clock)

    def sample_to(self, sampler: Sampler | None) -> None:
        """Give samples of what is routed from now on."""
        self.sampler = sampler

    async def start(self, listener: PlaneListener) -> None:
        """Remember whom to tell; `connect` brings the channel up."""
        self._listener = listener

    async def close(self) -> None:
        """Drop the channel; entries stay."""
        self.disconnect("closed")

    def connect(self) -> None:
        """Bring the channel up."""
        self.connected = True
        assert self._listener is not None, "start comes first"
        self._listener.plane_connected(self)
        for port in self.ports.values():
            self._listener.port_changed(self, port)

    def disconnect(self, reason: str = "connection reset") -> None:
        """Cut the channel; entries stay."""
        if self.connected and self._listener is not None:
            self.connected = False
            self._listener.plane_disconnected(self, reason)

    def set_port(self, number: int, name: str, up: bool, present: bool = True) -> None:
        """Add, change or remove a port."""
        port = PortState(number, name, up, present)
        if present:
            self.ports[number] = port
        else:
            self.ports.pop(number, None)
        if self.connected and self._listener is not None:
            self._listener.port_changed(self, port)

    def punt(self, router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        """Send a packet-in."""
        assert self._listener is not None, "start comes first"
        assert reason in PuntReason
        self._listener.packet_in(self, router_interface_id, reason, frame)

    def inject(self, port: int, frame: bytes) -> None:
        """Let a frame come in by a port: it is transmitted, punted or dropped, and counted."""
        live = {number for number, state in self.ports.items() if state.up}
        outcome, ingress = self._path.take(self.entries, self.capabilities, live, port, frame)
        if isinstance(outcome, Forwarded):
            if ingress and outcome.router_interface_id is not None:
                self._sample(ingress, outcome.frame)
            self._transmit(outcome.port, outcome.frame)
        elif isinstance(outcome, Punted) and self.connected:
            self.punt(ingress, outcome.reason, outcome.frame)

    def _sample(self, ingress: int, frame: bytes) -> None:
        self._routed += 1
        if self.sampler is not None and self.connected and self._routed % self.one_in == 0:
            packet = IpPacket.find(Frame.read(frame))
            assert packet is not None, "nothing else is routed"
            self.sampler([(ingress, packet.dst + bytes((8 * len(packet.dst),)))])

    def _transmit(self, port: int, frame: bytes) -> None:
        """A port that is down takes frames and loses them."""
        if port in self.ports and self.ports[port].up:
            self.cables(port, frame)

    async def read(self, only: int | None = None, into: RoutesInto | None = None) -> Installed:
        """Return a copy of the entries."""
        self._require_channel()
        held = self.entries
        read = routes_to_read(only, into)
        for vrf_id, routes in held.routes.items():
            there = read.setdefault(vrf_id, {})
            for key, action in routes.items():
                there[key] = action
        return Installed(
            dict(held.policers),
            dict(held.router_interfaces),
            dict(held.nexthops),
            dict(held.groups),
            read,
            set(held.damaged),
            held.foreign,
        )

    async def write(self, batch: WriteBatch) -> list[Refused]:
        """Apply a batch in the contract's order, entry by entry."""
        self._require_channel()
        self.writes.append(batch)
        refused: list[Refused] = []
        for deletes in (False, True):
            stages = self._stages(batch)
            for stage in reversed(stages) if deletes else stages:
                refused += stage(deletes)
        await self.gate.wait()
        self._require_channel()
        return refused

    async def read_shares(self) -> ShareEntries | None:
        """Return a copy of the shares."""
        self._require_channel()
        return dict(self.shares) if Capability.SHARES in self.capabilities else None

    async def write_shares(
        self, put: Mapping[ShareKey, ShareEntry], gone: Collection[ShareKey]
    ) -> dict[ShareKey, str]:
        """Put and delete shares."""
        self._require_channel()
        self.share_writes.append((dict(put), set(gone)))
        changes = {**dict.fromkeys(put, Op.MODIFY), **dict.fromkeys(gone, Op.DELETE)}
        refused = {key: why for key, op in changes.items() if (why := self.fault(*key, op)) is not None}
        self.shares.update({key: entry for key, entry in put.items() if key not in refused})
        for key in set(gone) - refused.keys():
            self.shares.pop(key, None)
        return refused

    async def share_use(self) -> dict[int, ShareUse]:
        """Return what tests say that routers have had."""
        self._require_channel()
        return dict(self.use)

    async def counters(self) -> Counters:
        """Return the counters of all frames that were injected."""
        self._require_channel()
        return replace(deepcopy(self._path.counters), share_use=dict(self.use))

    async def route_counts(self) -> RouteCounts:
        """Return how many frames met each route."""
        self._require_channel()
        counts = RouteCounts()
        for vrf_id, routes in self.entries.routes.items():
            met = self._path.routes.get(vrf_id, {})
            for key, action in routes.items():
                into = counts.covers if action == FALLBACK else counts.routes
                into.setdefault(vrf_id, {})[key] = met.get(key, (0, 0))[0]
        return counts

    async def route_traffic(self, vrf_id: int) -> RouteTraffic:
        """Return how many frames met each route of a router, and their octets."""
        self._require_channel()
        if not {Capability.ROUTE_COUNTERS, Capability.SAMPLED_ROUTE_COUNTERS} & self.capabilities:
            return {}
        met = self._path.routes.get(vrf_id, {})
        routes = self.entries.routes.get(vrf_id, {})
        return {key: met.get(key, (0, 0)) for key, action in routes.items() if action != FALLBACK}

    async def sent(self) -> dict[int, int]:
        """Return how many frames left by each router interface."""
        return {one: count.tx_packets for one, count in (await self.counters()).router_interfaces.items()}

    def packet_out(self, interface: RouterInterface, frame: bytes) -> bool:
        """Keep the frame in `packets_out` and send it out of its port."""
        if self.connected:
            self.packets_out.append((interface, frame))
            self._transmit(interface.port, with_tag(interface.vlan, frame))
        return self.connected

    def _require_channel(self) -> None:
        if not self.connected:
            raise PlaneUnreachable(self.name, "not connected")

    def _stages(self, batch: WriteBatch) -> list[Callable[[bool], list[Refused]]]:
        held = self.entries
        return [
            lambda deletes: self._apply("policer", held.policers, batch.policers, deletes),
            lambda deletes: self._apply("router_interface", held.router_interfaces, batch.router_interfaces, deletes),
            lambda deletes: self._apply("nexthop", held.nexthops, batch.nexthops, deletes),
            lambda deletes: self._apply("nexthop_group", held.groups, batch.groups, deletes),
            lambda deletes: self._apply_routes(batch, deletes),
        ]

    def _apply(self, table: str, held: dict, updates: list, deletes: bool) -> list[Refused]:  # type: ignore[type-arg]
        refused = []
        for update in updates:
            if (update.op is Op.DELETE) != deletes:
                continue
            entry = update.entry
            key = entry.vrf_id if table == "policer" else entry.id
            if table == "policer":
                self._path.forget_policer(key)
            present = key in held or (table, key) in self.entries.damaged
            if deletes and not present:
                continue
            reason = self.fault(table, key, update.op) or self._missing(table, update.op, entry, present)
            if reason:
                refused.append(Refused(table, getattr(entry, "vrf_id", 0), key, update.op, reason))
                continue
            if deletes:
                held.pop(key, None)
            else:
                held[key] = entry
            self.entries.damaged.discard((table, key))
        return refused

    def _missing(self, table: str, op: Op, entry: object, present: bool) -> str | None:
        if op is Op.INSERT and present:
            return "exists"
        members = getattr(entry, "members", ())
        if op is not Op.DELETE and any(member.nexthop_id not in self.entries.nexthops for member in members):
            return f"{table} names a nexthop that does not exist"
        return None

    def _apply_routes(self, batch: WriteBatch, deletes: bool) -> list[Refused]:
        refused = []
        for updates in batch.routes:
            table = f"ipv{updates.family}_route"
            held = self.entries.routes.setdefault(updates.vrf_id, {})
            for op, key, action in zip(updates.ops, updates.keys, updates.actions, strict=True):
                if (op is Op.DELETE) != deletes:
                    continue
                full = op is Op.INSERT and sum(map(len, self.entries.routes.values())) >= self.capacity
                reason = "table full" if full else self.fault(table, key, op) or self._dangling(op, action)
                if reason:
                    refused.append(Refused(table, updates.vrf_id, key, op, reason, full))
                elif deletes:
                    held.pop(key, None)
                    self._path.routes.get(updates.vrf_id, {}).pop(key, None)
                else:
                    held[key] = action
        return refused

    def _dangling(self, op: Op, action: int) -> str | None:
        kind, value = action_kind(action), action_value(action)
        if op is Op.DELETE:
            return None
        if kind is RouteKind.NEXTHOP and value not in self.entries.nexthops:
            return f"nexthop {value} does not exist"
        if kind is RouteKind.GROUP and value not in self.entries.groups:
            return f"group {value} does not exist"
        return None
