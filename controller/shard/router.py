"""One virtual router while it runs: its declaration, its FIB, its punts and the VRC that is connected, if any.

The life of what was learned:

    Hello ──► all is marked ──► ResyncEnd ──► sweep, once the daemons have settled or the hold time is over
    VRC gone, or controller started ──► hold time ──► everything is withdrawn

Nothing here knows gRPC: a session calls in with plain values and is called back through `VrcPort`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, Protocol

from controller.errors import NoSuch, SessionRefused
from controller.events.log import EventLog
from controller.model import RouterConfig
from controller.planes.base import Clock
from controller.routing.fib import Fib
from controller.routing.rib import MAX_MEMBERS, Member, NexthopSet, SetKind
from controller.shard.neighbor_responder import is_answer
from controller.shard.punt_relay import RouterPunts
from wire import MAX_ADDRESSES

REFUSED_RETRY_S = 30.0
"""How often what the plane or a quota refused is tried again, and looked whether what was not kept has room."""

NEIGHBORS_AT_ONCE = 512
"""Neighbors of a message that one piece of work takes."""

SILENCE_S = 1.0
"""How often a router looks whether silence of its neighbors means something again."""


class VrcPort(Protocol):
    """What a router says to its VRC. None of these block."""

    @property
    def remark(self) -> str:
        """What an operator should know of the session, in one line; empty where there is nothing."""

    def declare(self, config: RouterConfig, ports_up: dict[int, bool]) -> None:
        """Send the declaration."""

    def acknowledge(self, sequence: int) -> None:
        """Every message up to this one is confirmed by the plane."""

    def ports_changed(self, ports_up: dict[int, bool]) -> None:
        """Link states of the plane's ports by interface id."""

    def request_snapshot(self, request_id: int) -> None:
        """Ask for the guest kernel's own dump."""

    def close(self, reason: str) -> None:
        """End the session."""


class RouterHost(Protocol):
    """What a router needs of its shard."""

    @property
    def ready(self) -> asyncio.Event:
        """Set once the plane was adopted."""

    @property
    def silent(self) -> bool:
        """Whether the guest's probes may not have reached neighbors of late."""

    def problem(self, config: RouterConfig) -> str:
        """Return why a router is not on its plane as it is declared, beside what was refused; empty where it is."""

    def wake(self, router: "VirtualRouter") -> None:
        """Write what there is to write."""

    def attend(self, router: "VirtualRouter") -> None:
        """Something of a router has changed: write what there is to write, and let it tick soon."""

    def configured(self, router: "VirtualRouter") -> None:
        """A router's declaration has changed: tell its FIB the plane's ports."""


SnapshotDone = Callable[[dict[bytes, NexthopSet] | None, str], None]
"""Takes what a guest's kernel has, or None and why that is not known."""


@dataclass(slots=True)
class Snapshot:
    """What a guest's kernel has, as far as its VRC has told."""

    done: SnapshotDone
    taken: dict[bytes, NexthopSet] = field(default_factory=dict)


class VirtualRouter:
    """Ties one router's parts together."""

    def __init__(self, config: RouterConfig, fib: Fib, host: RouterHost, events: EventLog, clock: Clock) -> None:
        self.config = config
        self.fib = fib
        self.host = host
        self.punts = RouterPunts(clock)
        self.vrc: VrcPort | None = None
        self.source = config.source.value
        self.snapshots: dict[int, Snapshot] = {}  # that are waited for, by their numbers
        self._events = events
        self._clock = clock
        self._acks: deque[tuple[int, tuple[int, int]]] = deque()
        self._progress = asyncio.Event()
        self._resynced = False
        self._addressed: set[int] = set()  # interfaces whose addresses this session has told to be there
        self._answered: set[int] = set()  # … by which the guest has answered since for an address of its own
        self._unanswered: dict[tuple[int, bytes], None] = {}  # neighbors given up while the plane was away
        self._trouble = ""  # why it is degraded, as last told
        self._retired: set[int] = set()  # interfaces it had: messages and frames under way may still name them
        self._sweep_at: float | None = clock() + config.hold_time_s
        self._retry_at: float | None = None  # when what was refused is tried again
        self._last_snapshot = 0

    # The operator and the plane

    def configure(self, config: RouterConfig) -> None:
        """Take a new declaration and tell the VRC."""
        self._retired.update(self.fib.interfaces)
        self.punts.declare(self.config.interfaces, config.interfaces)
        self.config = config
        self.fib.configure(config)
        self.host.configured(self)  # before the VRC learns of a new interface, whose port's state it mirrors
        if self.vrc is not None:
            self.vrc.declare(config, self.ports_up())
        self.host.attend(self)

    def move(self, fib: Fib, host: RouterHost) -> None:
        """Start afresh on a plane that was attached again; the VRC repeats what it knows on a new session."""
        former, self.host, self.fib = self.host, host, fib
        former.ready.set()  # it will never be: who waits for it looks at the new one
        self._resynced = False
        self._sweep_at = self._clock() + self.config.hold_time_s
        if self.vrc is not None:
            self.vrc.close("the plane was attached again")

    @property
    def holds(self) -> bool:
        """Whether what was learned is kept although no guest may be there, or none has repeated it yet."""
        return self._sweep_at is not None

    def speaks_for_itself(self, interface_id: int) -> bool:
        """Whether the guest is there, has the addresses of an interface, and answers who asks for them.

        A new one takes a while to get them; on a busy host it then takes seconds for an answer, while a neighbor
        gives it up after three. Two answers, both with the same MAC, do no harm.
        """
        if self.vrc is None:
            return False
        return self._resynced or (interface_id in self._answered and interface_id in self._addressed)

    def said(self, interface_id: int, frame: bytes) -> None:
        """The guest sent a frame."""
        if not self.speaks_for_itself(interface_id) and is_answer(frame):
            self._answered.add(interface_id)

    def had(self, interface_id: int) -> bool:
        """Whether an interface was this router's until lately."""
        return interface_id in self._retired and interface_id not in self.fib.interfaces

    def ports_up(self) -> dict[int, bool]:
        """Return each interface's port state."""
        return {i: known.port_up for i, known in self.fib.interfaces.items()}

    def ports_changed(self) -> None:
        """Mirror port states to the guest's TAPs."""
        if self.vrc is not None:
            self.vrc.ports_changed(self.ports_up())

    def plane_read(self) -> None:
        """The plane was read for the first time: until now no guest could repeat what it knows, and it has the whole
        hold time for that."""
        if self._sweep_at is not None:
            self._sweep_at = self._clock() + self.config.hold_time_s

    def tick(self) -> float:
        """Let time pass: hold times, failed neighbors, dead links.

        Returns when there is more to be done in time; what happens meanwhile brings a tick of its own.
        """
        now = self._clock()
        self.fib.tick(now)
        if self._sweep_at is not None and now >= self._sweep_at:
            if self.host.ready.is_set():
                self._end_hold()
            else:  # nobody can repeat anything before the plane is known
                self._sweep_at = now + self.config.hold_time_s
        if self.fib.room_again and self.vrc is not None:
            self.vrc.close("there is room again for what was not kept")
        if self._unanswered and not self.host.silent:
            # Not heard of since: whoever is sent something is looked for.
            self.fib.set_neighbors(dict.fromkeys(self._unanswered, (b"", False)), now)
            self._unanswered.clear()
        self._retry_refused(now)
        self.host.wake(self)
        self._tell_trouble()
        times = (self.fib.next_due, self._sweep_at, self._retry_at, now + SILENCE_S if self._unanswered else None)
        return min((at for at in times if at is not None), default=inf)

    def _retry_refused(self, now: float) -> None:
        if not (self.fib.refusing or self.fib.unkept):
            self._retry_at = None
        elif self._retry_at is None:
            self._retry_at = now + REFUSED_RETRY_S
        elif now >= self._retry_at:
            self._retry_at = now + REFUSED_RETRY_S
            self.fib.retry_refused()

    # The session

    async def plane_known(self) -> None:
        """Wait until the plane was adopted once.

        Only then is it known which ports are up, and which installed nexthop or group a nexthop set has already.
        """
        while not self.host.ready.is_set():
            await self.host.ready.wait()

    def open(self, vrc: VrcPort) -> None:
        """A VRC said Hello: it supersedes the one before and repeats everything it knows.

        SessionRefused while the router is being removed from its plane, which would never be clean of it.
        """
        if self.fib.removing:
            raise SessionRefused("the router is being removed from its plane; try again")
        if self.vrc is not None:
            self.vrc.close("another session of this router has begun")
        self.vrc = vrc
        self._acks.clear()
        self._resynced = False
        self._addressed.clear()
        self._answered.clear()
        self._sweep_at = self._clock() + self.config.hold_time_s
        self.fib.begin_resync()
        self._fail_snapshots("the session was restarted")
        vrc.declare(self.config, self.ports_up())
        self.host.attend(self)

    def lost(self, vrc: VrcPort) -> None:
        """The session ended. What was learned stays for the hold time."""
        if self.vrc is not vrc:
            return
        self.vrc = None
        self._resynced = False
        self._sweep_at = self._clock() + self.config.hold_time_s
        self.punts.clear()
        self._fail_snapshots("the session ended")
        if not self.fib.removing:
            text = f"forwarding for {self.config.hold_time_s} s"
            self._events.report("warning", "vrc-lost", self.config.full_name, text)
        self.host.attend(self)

    def processed(self, sequence: int) -> None:
        """A message was applied: it is acknowledged when the plane has confirmed what it changed."""
        mark = self.fib.mark()
        if self._acks and self._acks[-1][1] == mark:
            self._acks.pop()  # both are confirmed at once
        self._acks.append((sequence, mark))
        self.confirmed()
        self.host.attend(self)

    async def caught_up(self) -> None:
        """Wait until the plane has taken in enough of what was learned for more to be read."""
        while self.fib.overrun:
            self._progress.clear()
            await self._progress.wait()

    def confirmed(self) -> None:
        """The plane has confirmed something: send what can be acknowledged."""
        self._progress.set()
        reached = 0
        while self._acks and self.fib.reached(self._acks[0][1]):
            reached = self._acks.popleft()[0]
        if reached and self.vrc is not None:
            self.vrc.acknowledge(reached)

    def interface_states(self, states: Iterable[tuple[int, bool, Sequence[bytes]]]) -> None:
        """The guest's states of interfaces, one of each: id, up, own addresses.

        SessionRefused, with nothing done, where one is malformed or not this router's.
        """
        known: dict[int, tuple[bool, frozenset[bytes]]] = {}
        for interface_id, up, addresses in states:
            if not self._has_interface(interface_id):
                continue
            if len(addresses) > MAX_ADDRESSES or any(len(a) not in (4, 16) for a in addresses):
                raise SessionRefused(f"interface {interface_id} has malformed or more than {MAX_ADDRESSES} addresses")
            known[interface_id] = up, frozenset(addresses)
        self.fib.set_interfaces(known, self._clock())
        interfaces = self.fib.interfaces
        for interface_id, (_, there) in known.items():
            interfaces[interface_id].lacking -= there
        self._addressed.update(i for i, (_, there) in known.items() if interfaces[i].own_addresses <= there)
        self._note_lacking(known)

    def _note_lacking(self, interface_ids: Iterable[int]) -> None:
        """Keep what a guest that has settled has not got of its addresses: nobody stands in for it there."""
        for interface in map(self.fib.interfaces.__getitem__, interface_ids if self._resynced else ()):
            if interface.guest_up is not None:
                interface.lacking = interface.declared_addresses - interface.addresses

    def neighbors(self, states: Iterable[tuple[int, bytes, bytes, bool]]) -> Iterator[Literal[False]]:
        """Neighbors of the guest's kernel: interface, address, MAC, failed; of several of one the last counts.

        In parts that each take some milliseconds, of which those before the last yield. SessionRefused, with nothing
        done, where one is malformed or on a foreign interface.
        """
        known: dict[tuple[int, bytes], tuple[bytes, bool]] = {}
        for number, (interface_id, address, mac, failed) in enumerate(states, 1):
            if number % NEIGHBORS_AT_ONCE == 0:
                yield False
            if not self._has_interface(interface_id):
                continue
            if len(address) not in (4, 16) or len(mac) not in (0, 6) or (mac and mac[0] & 1):
                raise SessionRefused(f"neighbor {address[:16].hex()} {mac[:6].hex()} is malformed")
            known[interface_id, address] = mac, failed
        if self.host.silent:  # one that is forwarded to may well be there
            gone = {key for key, (mac, _) in known.items() if not mac}
            self._unanswered.update(dict.fromkeys(gone & self.fib.neighbors.keys()))
            known = {key: state for key, state in known.items() if key not in gone}
        keys = list(known)
        for start in range(0, len(keys), NEIGHBORS_AT_ONCE):
            if start:
                yield False
            # An interface may have gone since the part before, and all that was known on it.
            part = [key for key in keys[start : start + NEIGHBORS_AT_ONCE] if key[0] in self.fib.interfaces]
            for key in part:
                self._unanswered.pop(key, None)
            if refused := self.fib.set_neighbors({key: known[key] for key in part}, self._clock()):
                self.punts.counters["neighbors_over_quota"] += refused

    def define_set(self, set_id: int, kind: int, members: Sequence[tuple[int, bytes, int]]) -> None:
        """Name a nexthop set. SessionRefused where it names a foreign interface or is malformed."""
        self.fib.define_set(*self._checked_set(set_id, kind, members))

    def routes(self, family: int, keys: list[bytes], set_ids: Sequence[int]) -> None:
        """Replace or withdraw routes."""
        if more := self.fib.learn(family, keys, set_ids):
            self.punts.counters[f"ipv{family}_routes_not_kept"] += more
            text = f"{more} of a message, too far beyond quota ipv{family}_routes"
            self._events.report("warning", "routes-not-kept", self.config.full_name, text)

    def release(self, set_ids: Collection[int]) -> None:
        """The VRC has no use for these nexthop sets any more; what only they led to goes from the plane."""
        if set_ids:
            self.fib.release(set_ids)
            self.host.attend(self)

    def resync_end(self, daemons_settled: bool) -> None:
        """Everything was repeated; stale routes go now or when the hold time has passed."""
        self._resynced = True
        self._note_lacking(self.fib.interfaces)
        if daemons_settled:
            self._end_hold()

    # Snapshots of the guest's kernel

    def request_snapshot(self, request_id: int, done: SnapshotDone) -> None:
        """Ask for what the guest's kernel has; a later request has a larger id. NoSuch where its VRC is away."""
        if self.vrc is None:
            raise NoSuch("VRC session of", self.config.full_name, "see vrctl get routers and vrctl events")
        self._last_snapshot = request_id
        self.snapshots[request_id] = Snapshot(done)
        self.vrc.request_snapshot(request_id)

    def forget_snapshot(self, request_id: int) -> None:
        """Nobody waits for a snapshot any more: what still comes of it is dropped."""
        self.snapshots.pop(request_id, None)

    def snapshot_chunk(self, request_id: int, family: int, keys: list[bytes], set_ids: Sequence[int]) -> None:
        """A part of a snapshot. SessionRefused where it was not asked for or grows beyond reason."""
        if request_id > self._last_snapshot:
            raise SessionRefused(f"snapshot {request_id} was not asked for")
        snapshot = self.snapshots.get(request_id)
        if snapshot is None:
            return
        quota = self.config.quota
        if len(snapshot.taken) + len(keys) > 2 * (quota.ipv4_routes + quota.ipv6_routes) + 1000:
            raise SessionRefused("the snapshot is more than twice as large as the slice's quota")
        names = self.fib.named_sets
        unknown = set(set_ids).difference(names)
        if unknown:
            raise SessionRefused(f"snapshot uses nexthop set {min(unknown)}, which is not defined")
        snapshot.taken.update(zip(keys, map(names.__getitem__, set_ids), strict=True))

    def snapshot_end(self, request_id: int, error: str) -> None:
        """The last part of a snapshot."""
        snapshot = self.snapshots.pop(request_id, None)
        if snapshot is not None:
            snapshot.done(None if error else snapshot.taken, error)

    # State for people

    @property
    def state(self) -> tuple[str, str]:
        """Return the router's state and why it is not up."""
        fib = self.fib
        for interface in fib.interfaces.values():
            if interface.port is None and self.host.ready.is_set():  # until then no port is known
                return "degraded", f"port {interface.config.port} is not on plane {self.config.plane}"
        if self.vrc is None:
            return "disconnected", "no VRC session; see vrctl events"
        if not self._resynced:
            return "resync", "the VRC is repeating what it knows"
        if refusal := fib.refusal or self.host.problem(self.config):
            return "degraded", refusal
        return "up", ""

    # Inside

    def _tell_trouble(self) -> None:
        state, reason = self.state
        trouble = reason if state == "degraded" else ""
        if trouble != self._trouble:
            name = self.config.full_name
            if trouble:
                self._events.report("warning", "router-degraded", name, trouble)
            else:
                self._events.report("info", "router-recovered", name, f"no more: {self._trouble}")
            self._trouble = trouble

    def _end_hold(self) -> None:
        self._sweep_at = None
        if self.vrc is not None and not self._resynced:
            self._events.emit(
                "warning", "resync-slow", self.config.full_name, "no end of resync within the hold time"
            )
            self._sweep_at = self._clock() + self.config.hold_time_s
            return
        if self.vrc is None:
            self.fib.begin_resync()
        self.fib.sweep(self._clock())
        self.tell_swept()
        self.host.attend(self)

    def tell_swept(self) -> None:
        """Tell how many stale routes a resync has left, once all are withdrawn."""
        swept = self.fib.swept
        if swept and not self.fib.unfinished and not self.fib.removing:
            self.fib.swept = 0
            self._events.report("info", "swept", self.config.full_name, f"{swept} stale routes")

    def _fail_snapshots(self, reason: str) -> None:
        waiting, self.snapshots = self.snapshots, {}
        for snapshot in waiting.values():
            snapshot.done(None, reason)

    def _has_interface(self, interface_id: int) -> bool:
        """Tell whether an interface is this router's; False where it was until lately. SessionRefused otherwise."""
        if interface_id in self.fib.interfaces:
            return True
        if self.had(interface_id):
            return False
        raise SessionRefused(f"interface {interface_id} is not one of router {self.config.full_name}")

    def _checked_set(
        self, set_id: int, kind: int, members: Sequence[tuple[int, bytes, int]]
    ) -> tuple[int, SetKind, tuple[Member, ...]]:
        try:
            known = SetKind(kind)
        except ValueError:
            raise SessionRefused(f"nexthop set {set_id} is of unknown kind {kind}") from None
        needs_members = known in (SetKind.FORWARD, SetKind.CONNECTED)
        if bool(members) != needs_members or len(members) > MAX_MEMBERS:
            raise SessionRefused(f"nexthop set {set_id} of kind {known.name} has {len(members)} members")
        for interface_id, gateway, weight in members:
            self._has_interface(interface_id)
            if len(gateway) not in (0, 4, 16) or not 1 <= weight <= 256:
                raise SessionRefused(f"nexthop set {set_id} has a malformed member")
        return set_id, known, tuple(Member(*member) for member in members)
