"""What operators do with certificates, and what time does to them."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from controller.errors import Conflict, NoSuch, SpecError, StoreError
from controller.events.log import EventLog
from controller.guests.fleet import GuestFleet
from controller.operations.convergence import Convergence
from controller.pki.authority import PKI, SERVER_NAME
from controller.pki.certificates import CertificateState
from controller.pki.planes import IssuedFiles, PlaneCertificates
from controller.store.base import PlaneCertificate

LOOK_S = 2.0
"""How often certificates are compared with the clock."""

RENEW_EVERY_S = 60.0
"""How often the files of planes on this host are looked at, and planes that are deleted."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Trusted:
    """What is trusted after a change of the authorities: one line for each thing that is still to be done."""

    authorities: list[str]
    waiting: list[str]


class Certificates:
    """The operator's side of the PKI; `run` keeps it in step with the clock."""

    def __init__(
        self, pki: PKI, planes: PlaneCertificates, convergence: Convergence, guests: GuestFleet, events: EventLog
    ) -> None:
        self._pki, self._planes, self._convergence, self._guests = pki, planes, convergence, guests
        self._events = events
        self._renew_at_s, self._told = 0.0, ""
        self._working = asyncio.Lock()

    async def run(self) -> None:
        """Renew what is due, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Renew what is due: the authorities' and the controller's own certificates, and planes' on this host."""
        if self._pki.refresh():
            text = "the authorities' certificates were not valid now, and were made again under the same keys"
            self._events.emit("warning", "authority-renewed", "vr-controller", text)
            self._convergence.wake()
            self._renew_at_s = 0.0
        if (unwritten := self._pki.unwritten) != self._told:
            self._told = unwritten
            if unwritten:
                text = f"{unwritten}; it works from memory until it can be written: free space"
                self._events.emit("error", "certificate-not-written", "vr-controller", text)
        if time.monotonic() >= self._renew_at_s:
            self._renew_at_s = time.monotonic() + RENEW_EVERY_S
            await self.forget()  # where the disk was full then, or the controller was killed between the two
            for plane, line in await self._in_thread(self._planes.renew):
                self._events.report("info", "plane-certificate", plane, line)

    async def issue(self, plane: str, names: list[str], directory: str) -> IssuedFiles:
        """Issue a key and certificate for a plane, for both ends of TLS, and what it is to trust."""
        if plane not in self._convergence.state.planes:
            raise NoSuch("plane", plane, "see vrctl get planes")
        if SERVER_NAME in (plane, *(name.rstrip(".").lower() for name in names)):
            raise Conflict(f"{SERVER_NAME} is the controller's own name, by which planes know it; choose another")
        try:
            return await self._in_thread(self._planes.issue, plane, names, directory)
        except ValueError as problem:
            raise SpecError("plane certificate", None, str(problem)) from None

    async def revoke(self, plane: str, serial: str) -> list[str]:
        """Refuse a plane's certificates, or one of them, and cut what is connected; returns the serials."""
        revoked = await self._in_thread(self._planes.revoke, plane, serial.lower())
        self._events.emit("warning", "certificate-revoked", f"plane {plane}", ", ".join(revoked))
        await self._convergence.reconnect(plane)
        return revoked

    async def forget(self) -> dict[str, str]:
        """Refuse what was issued to planes that are not declared any more; one line for each of which the disk does
        not take that: it is good until `look` finds room."""
        waiting = {}
        for plane in sorted(self._planes.believed() - self._convergence.state.planes.keys()):
            try:
                await self._in_thread(self._planes.revoke, plane)
            except NoSuch:  # somebody has done so meanwhile
                continue
            except StoreError as problem:
                waiting[plane] = f"plane {plane}: its certificates are good until there is room: {problem}"
                self._events.report("error", "certificate-not-revoked", f"plane {plane}", str(problem))
        return waiting

    async def of_planes(self) -> list[PlaneCertificate]:
        """Return what was issued to planes, once what is being issued and revoked is."""
        return await self._in_thread(self._planes.recorded)

    def states(self) -> Iterator[CertificateState]:
        """Iterate over the authorities', the controller's own, and planes' certificates."""
        yield from self._pki.states()
        yield from self._planes.states()

    async def rotate(self) -> Trusted:
        """Sign with new authorities from now on; those before stay trusted until `retire`."""
        self._pki.rotate()
        self._events.emit("warning", "authority-rotated", "vr-controller", "the one before stays trusted")
        return await self._changed()

    async def retire(self, force: bool) -> Trusted:
        """Trust the authorities before no more; Conflict while that would lock somebody out who is known here,
        unless forced."""
        if self._pki.ca.former is None and self._pki.routers.former is None:
            raise Conflict("there is no authority before this one; vrctl pki rotate makes a new one")
        if (waiting := self._waiting()) and not force:
            raise Conflict(f"{'; '.join(waiting)}; do that first, or give --force")
        self._pki.retire()
        self._events.emit("warning", "authority-retired", "vr-controller", "the one before is trusted no more")
        return await self._changed()

    async def _changed(self) -> Trusted:
        self._renew_at_s = 0.0
        await self.look()
        self._convergence.wake()
        waiting = self._waiting() if self._pki.ca.former is not None else []
        return Trusted([one.owner + " " + one.serial for one in self._pki.states()], waiting)

    async def _in_thread(self, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Do what signs, or waits for the disk; one such work after the other."""
        async with self._working:
            return await asyncio.to_thread(work, *args, **kwargs)

    def _waiting(self) -> list[str]:
        """One line for everybody known who could not connect without the authority before."""
        lines = [f"plane {plane} needs a new certificate" for plane in self._planes.of_former()]
        if behind := self._guests.behind():
            more = f" and {len(behind) - 5} more" if len(behind) > 5 else ""
            lines.append(f"{', '.join(behind[:5])}{more} have not been given the new authority yet")
        return lines
