"""All guests of this controller: started or adopted as declared, watched, and removed with their routers."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakValueDictionary

from controller.errors import GuestError, NoSuch, SplitplaneError, StoreError
from controller.events.log import EventLog
from controller.guests.base import BOOTING, BUSY, STARTING, GuestDriver, GuestSpec, GuestStatus, failing
from controller.model import GuestKind, RouterConfig
from controller.pki.authority import PKI, Identity
from controller.protocols import SessionPort
from controller.supervisor import contained

Check = Callable[[RouterConfig], Awaitable[list[str]]]
"""Tells before anything is stored whether a guest could start; GuestError says why not. Returns remarks, by line."""

STARTS_AT_ONCE = 4
"""Guests being started at the same time; each costs a second of CPU. Of each tenant, as many are asked at once."""

LOAD_LIMIT_S, LOAD_POLL_S = 75.0, 0.1
"""How long whoever changes a guest waits for its daemons to read their text, once a machine has booted, and the first
pause between asking. It is longer than any daemon's own limit at its start, so that one that hangs is told."""

_RESTARTING = "being started again"
_GONE = {"guest": _RESTARTING}
"""Of a guest that does not run, for who waits for its text: `watch` tells if it died."""

_COMING = (STARTING, BOOTING, BUSY, _RESTARTING)
"""States that say nothing yet of what became of a text."""

SILENCE_S = 60.0
"""A guest whose VRC has had no session for so long is said to be silent."""

IDENTIFY_AGAIN_S = 60.0
"""Between two attempts at a certificate that the disk did not take."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0
SETTLED_S = 120.0
"""A guest that lived so long may die once more without a pause."""

Connected = Callable[[RouterConfig], bool]
"""Tells whether a router's VRC has a session."""


@dataclass(frozen=True, slots=True)
class _Death:
    """A guest that died as a whole, and when it may be started again."""

    spec: GuestSpec
    count: int  # in a row
    why: str
    not_before: float


@dataclass(frozen=True, slots=True)
class FirstLoad:
    """What became of a text that a guest was started with, each in one line; all went well where both are empty."""

    failed: str = ""  # what was refused, or what does not run
    waiting: str = ""  # what had not come up when nobody waited any more


@dataclass(slots=True)
class _Known:
    """What is known of one router's guest."""

    identity: Identity | None = None  # its certificate
    identify_at_s: float = 0.0  # when one that was not issued is tried again
    unissued: str = ""  # why
    delivered: Identity | None = None  # what its guest was given
    kept: str = ""  # serial of the only certificate that is not refused
    started: GuestSpec | None = None  # as which it was started or adopted; None while it does not run
    begun_s: float = 0.0  # when that was
    heard_s: float = 0.0  # when that was, or its session was last seen
    silent: bool = False
    failure: str = ""  # why it does not run as declared, in one line
    death: _Death | None = None  # the last one
    spec: tuple[RouterConfig, GuestSpec] | None = None  # what its driver is told, of what was declared last

    @property
    def unsettled(self) -> bool:
        """Whether others than what it was given are to be refused: not while it is to be given the next one."""
        given, latest = self.delivered, self.identity
        return given is not None and given.serial != self.kept and (latest is None or latest.serial == given.serial)


class _Places:
    """The places of each tenant, for guests that are asked at the same time."""

    def __init__(self) -> None:
        # A tenant's are there for as long as somebody has one or waits for one.
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, tenant: str) -> asyncio.Semaphore:
        """Return a tenant's."""
        return self._places.setdefault(tenant, asyncio.Semaphore(STARTS_AT_ONCE))


class GuestFleet:
    """Keeps guests at what is declared."""

    def __init__(
        self,
        state: Path,
        drivers: Mapping[GuestKind, GuestDriver],
        checks: Mapping[GuestKind, Check],
        pki: PKI,
        sessions: SessionPort,
        events: EventLog,
        connected: Connected = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connected, self._clock = connected, clock
        self._state, self._drivers, self._checks = state, drivers, checks
        self._pki, self._sessions, self._events = pki, sessions, events
        self._guests: defaultdict[int, _Known] = defaultdict(_Known)  # by vrf_id
        # Or a router would get two at once, or a new one be taken for a former one.
        self._certifying = asyncio.Lock()
        self._gate = asyncio.Semaphore(STARTS_AT_ONCE)
        # One that runs is asked to change, or what it does, and may not answer: it holds up its own tenant's alone.
        self._changing, self._asking = _Places(), _Places()

    @property
    def failing(self) -> bool:
        """Whether a guest does not run as declared."""
        return any(known.failure for known in self._guests.values())

    def failure(self, router: RouterConfig) -> str:
        """Why a router's guest does not run as declared, in one line; empty where it does."""
        return self._known(router).failure

    def _known(self, router: RouterConfig) -> _Known:
        """Return what is known of a router's guest for who only asks, who may do so after it was removed."""
        return self._guests.get(router.vrf_id, _Known())

    def spec(self, router: RouterConfig) -> GuestSpec:
        """Return what the driver is told about a router, of which each is asked again and again."""
        known = self._guests.get(router.vrf_id)
        if known is None:
            return self._make_spec(router)
        if known.spec is None or known.spec[0] is not router:
            known.spec = router, self._make_spec(router)
        return known.spec[1]

    def _make_spec(self, router: RouterConfig) -> GuestSpec:
        return GuestSpec(
            vrf_id=router.vrf_id,
            router=router.full_name,
            source=router.source,
            routing=router.routing,
            hold_time_s=router.hold_time_s,
            directory=self._state / "guests" / str(router.vrf_id),
            identity=self._pki.identity(router.vrf_id),
            session=self._sessions.directory_for(router.vrf_id),
            guest=router.guest,
            interfaces=router.interfaces,
        )

    def driver(self, router: RouterConfig) -> GuestDriver:
        """Return the driver of a router's kind of guest."""
        try:
            return self._drivers[router.guest.kind]
        except KeyError:
            raise NoSuch("kind of guest", router.guest.kind, f"known: {', '.join(sorted(self._drivers))}") from None

    async def check(self, router: RouterConfig) -> list[str]:
        """Tell before anything is stored whether the guest could start; GuestError says why not.

        Returns what the operator should know all the same, a line each.
        """
        check = self._checks.get(router.guest.kind)
        return [] if check is None else await check(router)

    def current(self, router: RouterConfig) -> bool:
        """Tell whether the guest was started as declared, and given a certificate that is good for long enough."""
        known = self._known(router)
        due = known.identity is not None and (self._due(known) or known.delivered != known.identity)
        return not (due or known.failure) and known.started == self.spec(router)

    def _due(self, known: _Known) -> bool:
        """Whether a guest needs another certificate, or others to trust; the clock may have gone back as well."""
        if known.identity is None:
            return True
        return not self._sound(known.identity) and self._clock() >= known.identify_at_s

    def _sound(self, identity: Identity) -> bool:
        in_time = identity.valid_from <= datetime.now(UTC) < identity.renew_at
        return in_time and identity.generation == self._pki.generation

    async def identify(self, routers: Sequence[RouterConfig]) -> None:
        """Have a certificate for each router, all at once. Where none can be issued the old one stays."""
        if any(self._due(self._guests[router.vrf_id]) for router in routers):
            async with self._certifying:
                await self._identify([router for router in routers if self._due(self._guests[router.vrf_id])])

    async def _identify(self, due: Sequence[RouterConfig]) -> None:
        issued = await self._pki.issue(due)
        for router in due:
            known = self._guests[router.vrf_id]
            known.identity, known.unissued = issued.identities.get(router.vrf_id), ""
            if issued.trouble and (known.identity is None or not self._sound(known.identity)):
                known.unissued, known.identify_at_s = issued.trouble, self._clock() + IDENTIFY_AGAIN_S
                self._events.report("error", "certificate-not-renewed", router.full_name, issued.trouble)

    async def admit(self, routers: Sequence[RouterConfig]) -> None:
        """Let routers' VRCs connect, each with a certificate of its own; one that has none fails in `ensure`."""
        await self.identify(routers)
        for router in routers:
            driver = self._drivers.get(router.guest.kind)
            if driver is not None and self._guests[router.vrf_id].identity is not None:
                self._sessions.admit(router.vrf_id, driver.session_uid(router.vrf_id))

    async def settle(self) -> None:
        """Refuse the former certificates of guests that were given new ones; StoreError leaves that for later."""
        async with self._certifying:
            fresh = {
                vrf_id: (known, known.delivered)
                for vrf_id, known in self._guests.items()
                if known.delivered is not None and known.unsettled
            }
            await self._pki.keep({vrf_id: given.serial for vrf_id, (_, given) in fresh.items()})
        for known, given in fresh.values():
            if known.delivered is not None and known.started is not None:  # else it was removed, or died, meanwhile
                if known.kept:
                    line = f"again on {given.renew_at:%Y-%m-%d}"
                    self._events.emit("info", "certificate-renewed", known.started.router, line)
                known.kept = given.serial

    def behind(self) -> list[str]:
        """Return the routers whose guests were not given what is trusted now."""
        now = self._pki.generation
        return sorted(
            known.started.router
            for known in self._guests.values()
            if known.started is not None and (known.delivered is None or known.delivered.generation != now)
        )

    async def ensure(self, router: RouterConfig) -> None:
        """Start, adopt or change a guest; GuestError where it cannot run."""
        spec = self.spec(router)
        async with self._changing.of(router.tenant) if self._running(spec) else self._gate:
            await self._notice_death(router)
            try:
                self._wait_after_death(spec)
                await self.admit([router])
                if (identity := self._guests[router.vrf_id].identity) is None:
                    raise StoreError(self._guests[router.vrf_id].unissued)
                await self.driver(router).start(spec)
            except SplitplaneError as problem:
                self._note_failure(router, str(problem))
                raise
            except OSError as problem:
                self._note_failure(router, f"{problem.filename}: {problem.strerror}")
                raise GuestError(f"{problem.filename}: {problem.strerror}") from None
            known = self._guests[router.vrf_id]
            known.started, known.begun_s = spec, self._clock()
            known.heard_s, known.delivered = known.begun_s, identity
            if known.failure:
                known.failure = ""
                self._events.emit("info", "guest-started", router.full_name, "the guest runs again")

    async def try_to_ensure(self, router: RouterConfig) -> None:
        """Start, adopt or change a guest; where it cannot run, also as nobody foresaw, that is known as its
        `failure`."""

        def failed() -> None:
            self._note_failure(router, "a fault of the controller at its guest: tried again; see vrctl events")

        with contained(self._events, router.full_name, "its guest", failed), suppress(SplitplaneError):
            await self.ensure(router)

    def _running(self, spec: GuestSpec) -> bool:
        driver = self._drivers.get(spec.guest.kind)
        return driver is not None and bool(driver.running(spec))

    def _note_failure(self, router: RouterConfig, text: str) -> None:
        text = text.removeprefix(f"{router.full_name}: ")  # whoever shows it names the router
        known = self._guests[router.vrf_id]
        if known.failure != text:
            self._events.emit("error", "guest-failed", router.full_name, text)
        known.failure = text

    async def watch(self, router: RouterConfig) -> None:
        """Notice a guest that died as a whole, for the next `ensure` to start it again, and what ails the others."""
        known = self._known(router)
        with contained(self._events, router.full_name, "a look at its guest"):
            if (spec := known.started) is None or await self._notice_death(router):
                return
            for line in await self.driver(router).look_after(spec):
                self._events.report("warning", "guest-trouble", router.full_name, line)
            self._note_silence(router, known)

    async def _notice_death(self, router: RouterConfig) -> bool:
        """Tell of a guest that was started and does not run any more; tells whether it was so."""
        known = self._known(router)
        spec = known.started
        driver = None if spec is None else self._drivers.get(spec.guest.kind)
        if spec is None or driver is None or driver.running(spec):
            return False
        words = await driver.last_words(spec)
        if known.started is spec and self._known(router) is known:  # else it was told, or removed, meanwhile
            self._note_death(router, known, spec, words)
        return True

    def _note_death(self, router: RouterConfig, known: _Known, spec: GuestSpec, words: str) -> None:
        now, before = self._clock(), known.death
        known.started = None
        count = before.count + 1 if before is not None and now - known.begun_s < SETTLED_S else 1
        pause_s = min(FIRST_PAUSE_S * 2 ** (count - 2), LONGEST_PAUSE_S) if count > 1 else 0.0
        why = words or "the guest's first process is gone"
        known.death = _Death(spec, count, why, now + pause_s)
        self._events.report("warning", "guest-died", router.full_name, why)

    def _wait_after_death(self, spec: GuestSpec) -> None:
        """GuestError while a guest that keeps dying has to wait; a changed declaration is tried at once."""
        death = self._guests[spec.vrf_id].death
        if death is not None and death.spec == spec and self._clock() < death.not_before:
            raise GuestError(f"{death.why}; it died {death.count} times in a row and is started again after a pause")

    def _note_silence(self, router: RouterConfig, known: _Known) -> None:
        now = self._clock()
        if self._connected(router):
            known.heard_s, known.silent = now, False
        elif now - known.heard_s >= SILENCE_S and not known.silent:
            known.silent = True
            self._events.report("error", "guest-silent", router.full_name, self.trouble(router))

    async def loaded(self, router: RouterConfig) -> FirstLoad:
        """Wait until a guest's daemons run with their text, and return what became of it.

        How long a machine may boot is for its driver to say. A guest that takes longer than LOAD_LIMIT_S after that
        goes on by itself; what ails it then is seen by `watch`.
        """
        spec, driver, died = self.spec(router), self.driver(router), self._known(router).death
        until_s, pause_s = self._clock() + LOAD_LIMIT_S, LOAD_POLL_S
        while True:
            daemons = await self._states(router, driver, spec)
            known = self._known(router)
            if known.death is not None and known.death is not died:
                return FirstLoad(failed=f"{known.death.why}; see vrctl logs {router.full_name}")
            if daemons == _GONE and known.started is None and known.death is None:
                break  # it was removed
            silent = _why_silent(daemons)  # it may still come
            if silent and self._clock() >= until_s:
                return FirstLoad(waiting=silent)
            if not silent and (trouble := failing(spec, daemons)):
                return FirstLoad(failed=trouble)
            coming = [f"{name} is {state}" for name, state in daemons.items() if state in _COMING]
            if not coming and not silent:
                break
            if BOOTING in daemons.values():
                until_s = self._clock() + LOAD_LIMIT_S
            elif coming and self._clock() >= until_s:
                more = f" (and {len(coming) - 1} more)" if len(coming) > 1 else ""
                where = f"see vrctl logs {router.full_name}"
                return FirstLoad(waiting=f"{coming[0]}{more} after {LOAD_LIMIT_S:g} s, and goes on; {where}")
            await asyncio.sleep(pause_s)
            pause_s = min(1.0, 1.5 * pause_s)
        return FirstLoad()

    async def _states(self, router: RouterConfig, driver: GuestDriver, spec: GuestSpec) -> dict[str, str]:
        """Ask for the states of a guest's daemons; where they are not to be had it is that of ``guest``."""
        async with self._asking.of(router.tenant):
            try:
                status = await driver.status(spec)
            except GuestError as problem:  # vr-host is away
                return {"guest": f"failed: {str(problem).removeprefix(f'{spec.router}: ')}"}
        return status.daemons if status.running else _GONE

    def trouble(self, router: RouterConfig) -> str:
        """Why a router's guest is of no use, in one line; empty where it is not known to be."""
        known = self._known(router)
        if known.failure:
            return known.failure
        if known.started is not None and (ailing := self.driver(router).trouble(known.started)):
            return ailing
        if known.silent:
            return f"the guest has not connected for {SILENCE_S:.0f} s; see vrctl logs {router.full_name}"
        return ""

    def label(self, router: RouterConfig) -> str:
        """What the operator is shown as the kind of a router's guest."""
        driver = self._drivers.get(router.guest.kind)
        return driver.label(self.spec(router)) if driver is not None else router.guest.kind.value

    async def revoke(self, router: RouterConfig) -> None:
        """Revoke a router's certificate and end its session; GuestError where its socket stays."""
        try:
            self._sessions.revoke(router.vrf_id)
        except OSError as problem:
            raise GuestError(f"{problem.filename}: {problem.strerror}") from None
        known = self._guests[router.vrf_id]
        known.identity, known.delivered, known.kept = None, None, ""
        await self._pki.revoke(router.vrf_id)

    async def remove(self, router: RouterConfig) -> None:
        """Revoke a router and remove its guest; GuestError where something stays."""
        await self.revoke(router)
        await self.driver(router).delete(self.spec(router))
        self._guests.pop(router.vrf_id, None)

    async def forget_others(self, known: Set[int]) -> None:
        """Revoke what is left of other routers: what `forget` could not, or what was being issued to one that was
        deleted when the controller ended."""
        for vrf_id in sorted(self._pki.left() - known):
            try:
                await self._pki.revoke(vrf_id)
            except StoreError as problem:
                self._events.report("error", "certificate-not-revoked", f"router {vrf_id}", str(problem))

    async def forget(self, router: RouterConfig) -> None:
        """Revoke what was issued to a router that was deleted meanwhile, or tell why it is not."""
        try:
            await self.revoke(router)
        except SplitplaneError as problem:
            self._events.report("error", "certificate-not-revoked", router.full_name, str(problem))
        self._guests.pop(router.vrf_id, None)

    async def status(self, router: RouterConfig) -> GuestStatus:
        """Tell what runs in a guest; one that is up and yet useless is not called up."""
        status = await self.driver(router).status(self.spec(router))
        if self._known(router).silent and status.daemons.get("machine") == "up":
            silent = f"failed: {self.trouble(router)}"
            return replace(status, daemons=status.daemons | {"machine": silent})
        return status

    async def exec_argv(self, router: RouterConfig, argv: list[str]) -> list[str]:
        """Return the command, as the controller would run it, that runs ``argv`` in a router's guest."""
        spec, driver = self.spec(router), self.driver(router)
        if not (pid := driver.running(spec)):
            why = self.failure(router) or "it is starting"
            raise GuestError(f"the guest of {router.full_name} does not run: {why}")
        return driver.exec_argv(spec, pid, argv)

    async def close(self) -> None:
        """Let go of all guests; they run on."""
        for driver in self._drivers.values():
            await driver.close()

    def console_argv(self, router: RouterConfig) -> list[str]:
        """Return the command that connects a terminal with the console of a router's guest."""
        return self.driver(router).console_argv(self.spec(router))

    def logs_argv(self, router: RouterConfig, follow: bool) -> list[str]:
        """Return the command that shows what a router's guest says; GuestError where it never said anything."""
        path = self.driver(router).log_path(self.spec(router))
        if not path.exists():
            why = self.failure(router) or "it is starting"
            raise GuestError(f"the guest of {router.full_name} has no log yet: {why}")
        # By name: a log that has reached its bound goes on in a new file.
        return ["/usr/bin/tail", "-n", "+1", *(["-F"] if follow else []), str(path.absolute())]


def _why_silent(daemons: Mapping[str, str]) -> str:
    """Why nothing is known of a guest's daemons, in one line; empty where something is."""
    name, state = next(iter(daemons.items()), ("", ""))
    alone = len(daemons) == 1 and name in ("guest", "machine") and state.startswith("failed: ")
    return f"{name}: {state.removeprefix('failed: ')}" if alone else ""
