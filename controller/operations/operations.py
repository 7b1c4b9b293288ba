"""What an operator can do, in the controller's own terms; the API only translates it to HTTP."""

import asyncio
import contextlib
import copy
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from controller.audit import log as audit
from controller.audit.caller import Caller, this_process
from controller.audit.log import Action, AuditLog, Request
from controller.diagnostics.operator_views import OperatorViews
from controller.errors import Conflict, NoSuch, SpecError, SplitplaneError, StoreError
from controller.events.log import EventLog
from controller.fallback.pace import in_turns
from controller.guests.fleet import FirstLoad, GuestFleet
from controller.guests.suites import unforwarded
from controller.model import Placement, RouterConfig, names_of
from controller.operations import backups, budget, deletions, move_requests, recorded
from controller.operations.certificates import Certificates, Trusted
from controller.operations.convergence import Convergence
from controller.operations.progress import Report, gathered
from controller.pki.certificates import CertificateState
from controller.pki.planes import IssuedFiles
from controller.spec import reservations, shares
from controller.spec.changes import Change, changes
from controller.spec.check import check, line_of
from controller.spec.document import PlaneOptions
from controller.spec.merge import Where, merge
from controller.spec.parse import Parsed, parse
from controller.spec.planes import plane_config, problems, with_options
from controller.spec.state import Ids, State
from controller.store.base import Store
from controller.views import MoveView, VerifyView


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that was checked and not yet stored."""

    before: State
    after: State
    changes: list[Change]
    ids: Ids
    named: frozenset[str] = frozenset()  # routers that a document names, changed or not

    def concerns(self, router: str) -> bool:
        """Whether what becomes of a router is for whoever made this change to know as its outcome."""
        return router in self.named or self.before.routers.get(router) != self.after.routers.get(router)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a change did; one line for everything that waits, which includes guests of other routers that do not run;
    one for everything that the change is about and that failed; one for what goes well and should be known."""

    changes: list[Change]
    waiting: list[str]
    failed: list[str]
    remarks: list[str] = field(default_factory=list)


class Operations:
    """The operator's side of one controller. Changes are made one after the other."""

    def __init__(
        self,
        state_directory: Path,
        store: Store,
        certificates: Certificates,
        convergence: Convergence,
        views: OperatorViews,
        guests: GuestFleet,
        events: EventLog,
        audit_log: AuditLog,
        restart: Callable[[], None],
        room: budget.Budget | None = None,
    ) -> None:
        self.events, self.audit = events, audit_log
        self._directory, self._store, self._certificates = state_directory, store, certificates
        self._convergence, self._views, self._guests, self._restart = convergence, views, guests, restart
        self._changing = asyncio.Lock()
        self._running: set[asyncio.Task[Outcome]] = set()
        self._restarting = asyncio.Event()  # with a backup: what was changed now would be lost
        self._caller = this_process()
        self._room = budget.of_process() if room is None else room

    def by(self, caller: Caller) -> "Operations":
        """Return these operations as those of somebody else: what they change is recorded as that caller's."""
        theirs = copy.copy(self)
        theirs._caller = caller
        return theirs

    @property
    def state(self) -> State:
        """The declared state."""
        return self._convergence.state

    # Changes

    async def plan_document(self, text: str, source: str, files: Mapping[str, str]) -> Plan:
        """Check what a document declares against the state; SpecError names the line of what is wrong."""
        parsed = await asyncio.to_thread(parse, text, source)
        return await self._plan(parsed, files)

    async def _plan(self, parsed: Parsed, files: Mapping[str, str]) -> Plan:
        ids, before = self._convergence.ids.copy(), self.state
        checks = self._checks()

        def merged() -> State:
            after, where = merge(parsed, before, ids, files)
            checks(after, where)
            return after

        after = await asyncio.to_thread(merged)
        if len(after.routers) > len(before.routers):  # what is there already is never refused
            self._room.require(len(after.routers) + len(self._convergence.tombstones))
        named = frozenset(f"{tenant.name}/{one.name}" for tenant, _ in parsed.tenants() for one in tenant.routers)
        return replace(await self._plan_state(after, before=before), ids=ids, named=named)

    def _checks(self) -> Callable[[State, Where], None]:
        """Return what raises SpecError for the first thing that cannot be, or that there is no room for, as things
        stand now: it may run in a thread, since states are never changed, only replaced."""
        before, convergence = self.state, self._convergence
        used, memory, without = convergence.used(), convergence.memory, convergence.without_shares()

        def checked(after: State, where: Where) -> None:
            check(after, where)
            found = reservations.problems(before, after, used, memory)
            for key, problem in chain(found, shares.unsupported(before, after, without)):
                raise SpecError(where.source, line_of(key, where), problem)

        return checked

    async def apply(
        self, text: str, source: str, files: Mapping[str, str], report: Report, planned: Callable[[], None]
    ) -> Outcome:
        """Make a document's objects as declared. ``planned`` is called when it was checked and stored, before
        anything is done; errors until then leave everything as it was."""
        request = self._request("apply", source)
        parsed = await self._parse(request, text)
        return await self._change(request, lambda: self._plan(parsed, files), report, planned)

    async def delete_document(self, text: str, source: str, report: Report, planned: Callable[[], None]) -> Outcome:
        """Delete the routers a document names, then its tenants and planes that nothing uses any more."""
        request = self._request("delete", source)
        parsed = await self._parse(request, text)
        first = await self._change(
            request, lambda: self._plan_state(deletions.without_document(self.state, parsed)), report, planned
        )
        named = {plane.name for plane, _ in parsed.planes()}
        unconfirmed: dict[str, list[RouterConfig]] = {}

        async def without_planes() -> Plan:
            unconfirmed.update({name: self._unconfirmed_on(name) for name in sorted(named)})
            return await self._plan_state(self._without_planes(named))

        second = await self._change(request, without_planes)
        stay = deletions.stay(self.state, unconfirmed)
        return Outcome(first.changes + second.changes, second.waiting + stay, second.failed)

    def _without_planes(self, names: set[str]) -> State:
        """Return the state without those planes that nothing uses and that have confirmed every deletion."""
        used = {part.plane for tenant in self.state.tenants.values() for part in tenant.slices}
        used |= {router.plane for router in self._unconfirmed()}
        state = self.state
        planes = state.planes
        kept = (planes.keys() - names) | used
        used |= {fallback.plane for name in kept & planes.keys() if (fallback := planes[name].fallback) is not None}
        for name in sorted((names & planes.keys()) - used, key=lambda name: planes[name].fallback is None):
            state = deletions.without_plane(state, name)
        return state

    async def delete_tenant(self, name: str) -> Outcome:
        """Delete a tenant with its routers and slices."""
        request = self._request("delete", name)
        return await self._change(request, lambda: self._plan_state(deletions.without_tenant(self.state, name)))

    async def delete_router(self, name: str) -> Outcome:
        """Delete one router and the links to it."""
        return await self._change(
            self._request("delete", name),
            lambda: self._plan_state(deletions.without_routers(self.state, {self._views.router(name).full_name})),
        )

    async def move_router(self, name: str, to: str) -> Outcome:
        """Say where a router's routes are to be: a placement, or a plane. They follow by themselves.

        Conflict where there is no such place for them, NoSuch where nothing has that name.
        """

        async def plan() -> Plan:
            router = self._views.router(name)
            return await self._plan_placement(router, move_requests.placement_of(self.state, router, to))

        return await self._change(self._request("move", name), plan)

    async def abort_move(self, name: str) -> Outcome:
        """Take back the placement that a router had before the move that is under way; Conflict where none is."""

        async def plan() -> Plan:
            router = self._views.router(name)
            move = self._views.router_view(router).move
            return await self._plan_placement(router, move_requests.placement_before(router, move))

        return await self._change(self._request("abort-move", name), plan)

    async def _plan_placement(self, router: RouterConfig, placement: Placement) -> Plan:
        placed = replace(router, placement=placement)
        move = self._views.router_view(router).move
        after = replace(self.state, routers={**self.state.routers, placed.full_name: placed})
        plan = await self._plan_state(after, {router.full_name: move})
        if move is None:
            return plan
        cut = [replace(change, details=[*change.details, move_requests.cut_short(move)]) for change in plan.changes]
        return replace(plan, changes=cut)

    async def delete_plane(self, name: str, force: bool) -> Outcome:
        """Delete a plane that no slice uses; ``force`` does not wait for routers deleted on it to be confirmed."""

        async def plan() -> Plan:
            after = deletions.without_plane(self.state, name)
            waiting = self._unconfirmed_on(name)
            if waiting and not force:
                raise Conflict(
                    f"plane {name} has not confirmed that {names_of(waiting)} is gone; "
                    "wait until it connects, or give --force"
                )
            return await self._plan_state(after)

        return await self._change(self._request("delete", name), plan)

    def _unconfirmed(self) -> list[RouterConfig]:
        """Return the deleted routers of which planes have not confirmed that they are gone."""
        return [one.router for one in self._convergence.tombstones.values() if not one.plane_clean]

    def _unconfirmed_on(self, plane: str) -> list[RouterConfig]:
        return [router for router in self._unconfirmed() if router.plane == plane]

    async def attach_plane(self, name: str, options: PlaneOptions) -> Outcome:
        """Declare a plane, or use a detached one again; SpecError where what is known of it is not enough."""

        async def plan() -> Plan:
            known = self.state.planes.get(name)
            if known is None and options == PlaneOptions():
                raise NoSuch("plane", name, "give --datapath-id or --address to attach a new one")
            section = with_options(known, name, options)
            for _, problem in problems(section):
                raise SpecError("attach", None, problem)
            before = self.state
            planes = {**before.planes, name: plane_config(section)}
            after = replace(before, planes=planes, detached=before.detached - {name})
            await asyncio.to_thread(self._checks(), after, Where("attach"))
            return await self._plan_state(after, before=before)

        return await self._change(self._request("attach", name), plan)

    async def detach_plane(self, name: str) -> Outcome:
        """Stop using a plane; it goes on forwarding, and its routers wait for it to be attached again."""

        async def plan() -> Plan:
            if name not in self.state.planes:
                raise NoSuch("plane", name, "see vrctl get planes")
            before = self.state
            after = replace(before, detached=before.detached | {name})
            await asyncio.to_thread(check, after, Where("detach"))
            return await self._plan_state(after, before=before)

        return await self._change(self._request("detach", name), plan)

    async def _plan_state(
        self, after: State, moves: Mapping[str, MoveView | None] | None = None, before: State | None = None
    ) -> Plan:
        """Plan a state made from the one ``before``, or the present one; ``moves`` are under way of routers that are
        placed elsewhere, where that is known."""
        before, ids = before or self.state, self._convergence.ids.copy()
        for name in after.behind - before.behind:
            if waiting := self._unconfirmed_on(name):
                raise Conflict(
                    f"plane {name} has not confirmed that {names_of(waiting)} is gone, and a fallback is not asked; "
                    "wait until it connects"
                )
        if moves is None:
            placed = move_requests.placed_elsewhere(before, after)
            moves = {router.full_name: self._views.router_view(router).move for router in placed}

        def planned() -> tuple[State, list[Change]]:
            moved = move_requests.with_origins(before, after, moves)
            return moved, changes(before, moved)

        return Plan(before, *await asyncio.to_thread(planned), ids)

    def _request(self, action: Action, subject: str) -> Request:
        return Request(self._caller, action, subject)

    async def _parse(self, request: Request, text: str) -> Parsed:
        try:
            return await asyncio.to_thread(parse, text, request.subject)
        except SplitplaneError as problem:
            await self.audit.refused(request, recorded.why_refused(problem))
            raise

    async def _change(
        self,
        request: Request,
        plan: Callable[[], Awaitable[Plan]],
        report: Report = lambda _: None,
        planned: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Plan, record, store and carry out, one change at a time, also when whoever waits for it goes."""
        task = asyncio.create_task(self._carry_out(request, plan, report, planned), name="change")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _carry_out(
        self, request: Request, plan: Callable[[], Awaitable[Plan]], report: Report, planned: Callable[[], None]
    ) -> Outcome:
        async with self._changing:
            try:
                self._require_no_restart()
                ready = await plan()
                while ready.before is not self.state:  # a move has ended, or a plane has said its sizes
                    ready = await plan()
                remarks = await self._check_guests(ready)
            except SplitplaneError as problem:
                await self.audit.refused(request, recorded.why_refused(problem))
                raise
            change_id = await self.audit.begin(
                request, lambda: recorded.object_changes(ready.before, ready.after, ready.changes)
            )
            async with self._end_recorded(change_id):
                unrevoked = await self._commit(ready)
                planned()
                programmed = await self._convergence.program(report)
        # A guest may not answer for minutes: other changes do not wait for it.
        async with self._end_recorded(change_id):
            ailing = await self._convergence.run_guests(programmed, ready.concerns)
            waiting = unrevoked + programmed.waiting
            waiting += await self._unconnected(ready)  # planes may have connected meanwhile
            lines = {name: f"{name}: {line.removeprefix(f'{name}: ')}" for name, line in ailing.items()}
            failed = [line for router, line in lines.items() if ready.concerns(router)]
            waiting += [line for router, line in lines.items() if not ready.concerns(router)]
            loads = await self._first_loads(ready, ailing)
        failed += [f"{name}: {load.failed}" for name, load in loads.items() if load.failed]
        waiting += [f"{name}: {load.waiting}" for name, load in loads.items() if load.waiting]
        outcome = audit.FAILED if failed else audit.DONE if ready.changes else audit.UNCHANGED
        await self.audit.end(change_id, outcome, recorded.what_failed(failed))
        return Outcome(ready.changes, waiting, failed, remarks)

    @contextlib.asynccontextmanager
    async def _end_recorded(self, change_id: str) -> AsyncIterator[None]:
        """Record the end of a change that an error ends, also one that nobody foresaw."""
        try:
            yield
        except Exception as problem:
            refused = isinstance(problem, Conflict | NoSuch)
            await self.audit.end(change_id, audit.REFUSED if refused else audit.FAILED, recorded.why_refused(problem))
            raise

    def _require_no_restart(self) -> None:
        if self._restarting.is_set():
            raise Conflict("the controller restarts with a backup; try again")

    async def _commit(self, ready: Plan) -> list[str]:
        """Store a change; one line for each deleted plane whose certificates are not refused yet. StoreError where
        it would declare a plane of that name, for which they were good."""
        unrevoked: list[str] = []
        if ready.before != ready.after:
            for plane, line in (await self._certificates.forget()).items():
                if plane in ready.after.planes:
                    raise StoreError(line)
            await self._convergence.commit(ready.after, ready.ids)
            unrevoked = [*(await self._certificates.forget()).values()]
        async for change in in_turns(ready.changes):
            text = f"{change.verb}d" if not change.details else f"{change.verb}d: {'; '.join(change.details)}"
            self.events.emit("info", f"{change.kind}-{change.verb}d", change.name, text)
        return unrevoked

    async def _first_loads(self, plan: Plan, failed: Mapping[str, str]) -> dict[str, FirstLoad]:
        """Wait until the guests that a change started have read their texts; return what became of each."""
        started = [
            router
            async for name, router in in_turns(plan.after.routers.items())
            if name not in failed and _runs_otherwise(plan.before.routers.get(name), router)
        ]
        found = await gathered(self._guests.loaded(router) for router in started)
        return {router.full_name: load for router, load in zip(started, found, strict=True)}

    async def _check_guests(self, plan: Plan) -> list[str]:
        remarks: dict[str, None] = {}  # each once, in this order
        async for name, router in in_turns(plan.after.routers.items()):
            if _runs_otherwise(plan.before.routers.get(name), router):
                remarks |= dict.fromkeys(await self._guests.check(router))
                if line := unforwarded.remark(router.routing):
                    remarks[f"{name}: {line}"] = None
        return list(remarks)

    async def _unconnected(self, plan: Plan) -> list[str]:
        routers = in_turns(plan.after.routers.items())
        changed = [router async for name, router in routers if plan.before.routers.get(name) != router]
        lines = []
        for name in sorted({router.plane for router in changed}):
            view = await self._views.running.plane_view(name)
            here = [router for router in changed if router.plane == name]
            if view is not None and not view.connected and all(self._follows(plan, router) for router in here):
                moved = [router for router in here if self._views.router_view(router).move is not None]
                lines += [f"{r.full_name}: {view.reason}; the move waits until it is back" for r in moved]
            elif view is None or not view.connected:
                behind = f" ({view.reason})" if view is not None and view.reason.startswith("plane ") else ""
                lines.append(f"plane {name} is not connected{behind}; its routers are programmed when it connects")
        return lines

    def _follows(self, plan: Plan, router: RouterConfig) -> bool:
        """Whether only what is behind its plane is away, and nothing of the change waits for that but a move."""
        before = plan.before.routers.get(router.full_name)
        if before is None or (before.interfaces, before.quota) != (router.interfaces, router.quota):
            return False
        if (before.share, before.slice_share) != (router.share, router.slice_share):
            return False
        return self._views.router_view(router).state not in ("no-plane", "starting")

    # What is given away or replaced: recorded as well

    @contextlib.asynccontextmanager
    async def _recorded(self, action: Action, subject: str) -> AsyncIterator[None]:
        change_id = await self.audit.begin(self._request(action, subject))
        async with self._end_recorded(change_id):
            self._require_no_restart()
            try:
                yield
            except asyncio.CancelledError:  # unlike a change, it does not go on
                await self.audit.end(change_id, audit.FAILED, audit.BROKEN_OFF)
                raise
        await self.audit.end(change_id, audit.DONE)

    @property
    def certificates(self) -> Iterator[CertificateState]:
        """The certificates of the authorities, of the controller, and of planes."""
        return self._certificates.states()

    async def plane_certificate(self, name: str, names: list[str], directory: str) -> IssuedFiles:
        """Issue a key and certificate for a plane, for both ends of TLS, and what it is to trust."""
        async with self._recorded("certificate", name):
            return await self._certificates.issue(name, names, directory)

    async def revoke_plane(self, name: str, serial: str) -> list[str]:
        """Refuse a plane's certificates from now on, or one of them; returns their serials."""
        async with self._recorded("revoke", f"{name} {serial}".rstrip()):
            return await self._certificates.revoke(name, serial)

    async def rotate_authorities(self) -> Trusted:
        """Sign with new authorities from now on; those before stay trusted."""
        async with self._recorded("rotate", "pki"):
            return await self._certificates.rotate()

    async def retire_authorities(self, force: bool) -> Trusted:
        """Trust the authorities before the present ones no more."""
        async with self._recorded("retire", "pki"):
            return await self._certificates.retire(force)

    async def exec_argv(self, router: RouterConfig, argv: list[str]) -> list[str]:
        """Return the command that runs ``argv`` in a router's guest. Of its arguments, which may hold secrets, only
        the program's name is recorded."""
        async with self._recorded("exec", f"{router.full_name} {argv[0]}"):
            return await self._views.exec_argv(router, argv)

    async def console_argv(self, router: RouterConfig) -> list[str]:
        """Return the command that connects a terminal with the console of a router's guest."""
        async with self._recorded("console", router.full_name):
            return self._views.console_argv(router)

    async def repair(self, router: RouterConfig) -> VerifyView:
        """Write again what of a router differs on its plane; return what differed."""
        async with self._recorded("repair", router.full_name):
            return await self._views.running.verify(router.vrf_id, True)

    async def backup(self, path: Path) -> None:
        """Write the store and the certificate authority to one new file, readable by its owner only."""
        async with self._recorded("backup", ""):
            keys = backups.keys_of(self._directory)  # in one turn of the loop, in which nobody replaces them
            unwanted = threading.Event()
            try:
                await asyncio.to_thread(backups.write, self._store, keys, path, unwanted)
            except BaseException:  # a stop waits for every thread
                unwanted.set()
                raise

    async def restore(self, path: Path, force: bool) -> None:
        """Replace the state by a backup and restart the controller in place; Conflict over a state that is not
        empty unless forced. Routers that the backup does not have are deleted as usual."""
        async with self._changing, self._recorded("restore", ""):
            if (self.state.planes or self.state.tenants) and not force:
                raise Conflict("this controller has planes or tenants; delete them first, or give --force")
            self._restarting.set()  # what is changed from now on would be lost
            unwanted = threading.Event()
            try:
                replaced = await asyncio.to_thread(self._store.load)
                certificates = await self._certificates.of_planes()
                await asyncio.to_thread(backups.stage, self._directory, path, replaced, certificates, unwanted)
                backups.make_ready(self._directory)
            except BaseException:
                unwanted.set()
                self._restarting.clear()
                raise
            self._restart()


def _runs_otherwise(before: RouterConfig | None, after: RouterConfig) -> bool:
    """Whether a router's guest or what it runs is new or another."""
    return before is None or (before.routing, before.guest) != (after.routing, after.guest)
