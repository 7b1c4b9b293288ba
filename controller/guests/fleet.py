"""All guests of this controller: started or adopted as declared, watched, and removed with their routers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from controller.errors import GuestError, NoSuch, SplitplaneError
from controller.events import EventLog
from controller.guests.base import GuestDriver, GuestSpec, GuestStatus
from controller.model import RouterConfig
from controller.pki import PKI
from controller.ports import SessionPort

Check = Callable[[RouterConfig], Awaitable[None]]
"""Tells before anything is stored whether a guest could start; GuestError says why not."""

STARTS_AT_ONCE = 4
"""Guests being started at the same time; each costs a second of CPU."""


class GuestFleet:
    """Keeps guests at what is declared. ``failures`` says in one line why a guest does not run, by vrf_id."""

    def __init__(
        self,
        state: Path,
        drivers: Mapping[str, GuestDriver],
        checks: Mapping[str, Check],
        pki: PKI,
        sessions: SessionPort,
        events: EventLog,
    ) -> None:
        self._state, self._drivers, self._checks = state, drivers, checks
        self._pki, self._sessions, self._events = pki, sessions, events
        self._started: dict[int, GuestSpec] = {}
        self._admitted: set[int] = set()
        self._gate = asyncio.Semaphore(STARTS_AT_ONCE)
        self.failures: dict[int, str] = {}

    def spec(self, router: RouterConfig) -> GuestSpec:
        """Return what the driver is told about a router."""
        return GuestSpec(
            vrf_id=router.vrf_id,
            router=router.full_name,
            source=router.source,
            frr=router.frr,
            hold_time_s=router.hold_time_s,
            directory=self._state / "guests" / str(router.vrf_id),
            identity=self._pki.identity(router.vrf_id),
            session=self._sessions.directory_for(router.vrf_id),
        )

    def driver(self, router: RouterConfig) -> GuestDriver:
        """Return the driver of a router's kind of guest."""
        try:
            return self._drivers[router.guest]
        except KeyError:
            raise NoSuch("kind of guest", router.guest, f"known: {', '.join(sorted(self._drivers))}") from None

    async def check(self, router: RouterConfig) -> None:
        """Tell before anything is stored whether the guest could start; GuestError says why not."""
        if (check := self._checks.get(router.guest)) is not None:
            await check(router)

    def current(self, router: RouterConfig) -> bool:
        """Tell whether the guest was started as now declared."""
        return self._started.get(router.vrf_id) == self.spec(router)

    def admit(self, router: RouterConfig) -> None:
        """Let a router's VRC connect, with a certificate of its own."""
        self._pki.issue(router)
        if router.vrf_id not in self._admitted:
            self._sessions.admit(router.vrf_id)
            self._admitted.add(router.vrf_id)

    async def ensure(self, router: RouterConfig) -> None:
        """Start, adopt or change a guest; GuestError where it cannot run."""
        async with self._gate:
            spec = self.spec(router)
            try:
                self.admit(router)
                await self.driver(router).start(spec)
            except SplitplaneError as problem:
                self._note_failure(router, str(problem))
                raise
            except OSError as problem:
                self._note_failure(router, f"{problem.filename}: {problem.strerror}")
                raise GuestError(f"{problem.filename}: {problem.strerror}") from None
            self._started[router.vrf_id] = spec
            if self.failures.pop(router.vrf_id, None) is not None:
                self._events.emit("info", "guest-started", router.full_name, "the guest runs again")

    def _note_failure(self, router: RouterConfig, text: str) -> None:
        text = text.removeprefix(f"{router.full_name}: ")  # whoever shows it names the router
        if self.failures.get(router.vrf_id) != text:
            self._events.emit("error", "guest-failed", router.full_name, text)
        self.failures[router.vrf_id] = text

    async def watch(self, router: RouterConfig) -> None:
        """Notice a guest that died as a whole, so that the next `ensure` starts it again."""
        if router.vrf_id in self._started and not (await self.status(router)).running:
            self._started.pop(router.vrf_id, None)
            self._events.emit("warning", "guest-died", router.full_name, "the guest's first process is gone")

    async def remove(self, router: RouterConfig) -> None:
        """Revoke a router's certificate, end its session and remove its guest; GuestError where something stays."""
        try:
            self._sessions.revoke(router.vrf_id)
        except OSError as problem:
            raise GuestError(f"{problem.filename}: {problem.strerror}") from None
        self._admitted.discard(router.vrf_id)
        self._pki.revoke(router.vrf_id)
        await self.driver(router).delete(self.spec(router))
        self._started.pop(router.vrf_id, None)
        self.failures.pop(router.vrf_id, None)

    async def status(self, router: RouterConfig) -> GuestStatus:
        """Tell what runs in a guest."""
        return await self.driver(router).status(self.spec(router))

    async def exec_argv(self, router: RouterConfig, argv: list[str]) -> list[str]:
        """Return the command, as the controller would run it, that runs ``argv`` in a router's guest."""
        status = await self.status(router)
        if not status.running:
            why = self.failures.get(router.vrf_id, "it is starting")
            raise GuestError(f"the guest of {router.full_name} does not run: {why}")
        return self.driver(router).exec_argv(status.pid, argv)
