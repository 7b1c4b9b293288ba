"""The operator API: JSON over HTTP, described by its OpenAPI document at /v1/openapi.json."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import FileResponse, StreamingResponse
from starlette.background import BackgroundTask

import wire
from controller.api import errors, streams
from controller.api.bodies import (
    About,
    AuditQuery,
    CertificateBody,
    Command,
    DocumentBody,
    ExecBody,
    Move,
    PlaneIdentity,
    RevokeBody,
    Revoked,
)
from controller.diagnostics.operator_views import OperatorViews, SliceView, TenantView
from controller.errors import NoSuch, SpecError, SplitplaneError
from controller.model import RouterConfig
from controller.operations import backups
from controller.operations.certificates import Trusted
from controller.operations.operations import Operations, Outcome
from controller.operations.progress import Progress, Report
from controller.pki.certificates import CertificateState
from controller.spec.changes import Change
from controller.spec.document import Name, PlaneOptions, schema
from controller.spec.lines import MAX_SIZE_BYTES, check_characters
from controller.views import (
    CounterView,
    Event,
    InterfaceView,
    LoadView,
    NeighborView,
    PlacementView,
    PlaneLoad,
    PlaneView,
    RouterLoad,
    RouterView,
    TraceStep,
    VerifyView,
)

MAX_FILES_BYTES = 4 << 20
PROGRESS_QUEUE = 1024
JSON = "application/json"
NDJSON = "application/x-ndjson"
PCAP = "application/vnd.tcpdump.pcap"

_NAMES = {422: "Unprocessable Content"}  # as RFC 9110 has it, and Python only from 3.13 on
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": errors.Problem, "description": _NAMES.get(status, HTTPStatus(status).phrase)}
    for status in (400, 404, 409, 422, 424, 502, 503, 507)
}


def _operations(request: Request) -> Operations:
    operations: Operations = request.app.state.operations
    return operations.by(request.state.caller)


def _views(request: Request) -> OperatorViews:
    views: OperatorViews = request.app.state.views
    return views


Op = Annotated[Operations, Depends(_operations)]
Views = Annotated[OperatorViews, Depends(_views)]


def _router(tenant: str, router: str, views: Views) -> RouterConfig:
    return views.router(f"{tenant}/{router}")


Router = Annotated[RouterConfig, Depends(_router)]


async def _running(router: Router, views: Views) -> RouterConfig:
    return views.require_running(router)


Running = Annotated[RouterConfig, Depends(_running)]

api = APIRouter(prefix="/v1", responses=_ERRORS, generate_unique_id_function=lambda route: route.name.rstrip("_"))


def _streamed(media_type: str, what: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": what, "content": {media_type: {}}}}


def _list(rows: streams.Rows, kind: type[Any]) -> StreamingResponse:
    return StreamingResponse(streams.array(rows, kind), media_type=JSON)


def _check_document(body: DocumentBody) -> None:
    if len(body.text) > MAX_SIZE_BYTES:
        raise SpecError(body.source, None, f"larger than {MAX_SIZE_BYTES >> 20} MiB; split the file")
    if sum(map(len, body.files.values())) > MAX_FILES_BYTES:
        raise SpecError(body.source, None, f"its FRR files are larger than {MAX_FILES_BYTES >> 20} MiB; split it")
    for text in chain(body.files, body.files.values()):
        check_characters(text, body.source, None)


Change_ = Callable[[Report, Callable[[], None]], Coroutine[Any, Any, Outcome]]


async def _followed(change: Change_) -> StreamingResponse:
    """Start a change; answer with its error if it is refused, else stream its progress and its outcome."""
    queue: asyncio.Queue[Progress | None] = asyncio.Queue(PROGRESS_QUEUE)
    planned = asyncio.Event()

    def report(progress: Progress) -> None:
        if not queue.full():  # a reader too slow for progress misses some of it
            queue.put_nowait(progress)

    task = asyncio.create_task(change(report, planned.set), name="apply")
    task.add_done_callback(lambda _: planned.set())
    await planned.wait()
    if task.done() and (problem := task.exception()) is not None:
        raise problem

    async def body() -> AsyncIterator[bytes]:
        task.add_done_callback(lambda _: queue.put_nowait(None) if not queue.full() else None)
        while not (task.done() and queue.empty()):
            progress = await queue.get()
            if progress is not None:
                yield streams.line({"progress": streams.plain(progress)})
        try:
            outcome = task.result()
        except SplitplaneError as problem:
            yield streams.line(errors.body_of(problem))
        else:
            yield streams.line(streams.plain(outcome) | {"changes": [streams.plain(c) for c in outcome.changes]})

    return StreamingResponse(body(), media_type=NDJSON)


# Changes


@api.post("/apply", responses=_streamed(NDJSON, "progress, one object a line, and at last an Outcome"))
async def apply(body: DocumentBody, operations: Op) -> StreamingResponse:
    """Make the objects a document names as it declares them."""
    _check_document(body)
    return await _followed(
        lambda report, planned: operations.apply(body.text, body.source, body.files, report, planned)
    )


@api.post("/delete", responses=_streamed(NDJSON, "progress, one object a line, and at last an Outcome"))
async def delete_document(body: DocumentBody, operations: Op) -> StreamingResponse:
    """Delete the objects a document names."""
    _check_document(body)
    return await _followed(
        lambda report, planned: operations.delete_document(body.text, body.source, report, planned)
    )


@api.post("/diff")
async def diff(body: DocumentBody, operations: Op) -> list[Change]:
    """Tell what applying a document would change; nothing is changed."""
    _check_document(body)
    return (await operations.plan_document(body.text, body.source, body.files)).changes


@api.delete("/tenants/{tenant}")
async def delete_tenant(tenant: str, operations: Op) -> Outcome:
    """Delete a tenant with its routers."""
    return await operations.delete_tenant(tenant)


@api.delete("/routers/{tenant}/{router}")
async def delete_router(router: Router, operations: Op) -> Outcome:
    """Delete a router."""
    return await operations.delete_router(router.full_name)


@api.post("/routers/{tenant}/{router}/move")
async def move_router(router: Router, body: Move, operations: Op) -> Outcome:
    """Say where the routes of a router are to be, on a plane with a fallback."""
    return await operations.move_router(router.full_name, body.to)


@api.delete("/routers/{tenant}/{router}/move")
async def abort_move(router: Router, operations: Op) -> Outcome:
    """Take back the move of a router that is under way: its routes go back where they came from."""
    return await operations.abort_move(router.full_name)


@api.delete("/planes/{plane}")
async def delete_plane(plane: str, operations: Op, force: bool = False) -> Outcome:
    """Delete a plane that no tenant uses."""
    return await operations.delete_plane(plane, force)


@api.post("/planes/{plane}/attach")
async def attach_plane(plane: Name, body: PlaneOptions, operations: Op) -> Outcome:
    """Declare a plane, or use a detached one again."""
    return await operations.attach_plane(plane, body)


@api.post("/planes/{plane}/detach")
async def detach_plane(plane: str, operations: Op) -> Outcome:
    """Stop using a plane and leave it forwarding."""
    return await operations.detach_plane(plane)


@api.post("/planes/{plane}/certificate")
async def plane_certificate(plane: str, body: CertificateBody, operations: Op) -> PlaneIdentity:
    """Issue a key and a certificate for a plane, for either end of TLS."""
    files = await operations.plane_certificate(plane, body.names, body.directory)
    return PlaneIdentity(key=files.key.decode(), certificate=files.certificate.decode(), ca=files.ca.decode())


@api.post("/planes/{plane}/revoke")
async def revoke_plane(plane: str, body: RevokeBody, operations: Op) -> Revoked:
    """Refuse the certificates of a plane from now on, or one of them."""
    return Revoked(revoked=await operations.revoke_plane(plane, body.serial))


# The certificate authorities


@api.get("/certificates", response_model=list[CertificateState])
async def certificates(operations: Op) -> StreamingResponse:
    """List the certificates of the authorities, of the controller, and of planes."""
    return _list(operations.certificates, CertificateState)


@api.post("/pki/rotate")
async def rotate_authorities(operations: Op) -> Trusted:
    """Sign with new authorities from now on; those before stay trusted."""
    return await operations.rotate_authorities()


@api.post("/pki/retire")
async def retire_authorities(operations: Op, force: bool = False) -> Trusted:
    """Trust the authorities before the present ones no more."""
    return await operations.retire_authorities(force)


# Views


@api.get("/version")
async def version() -> About:
    """Tell what answers here."""
    return About(version="0.1.0", protocol=wire.PROTOCOL_VERSION)


@api.get("/schema")
async def document_schema() -> dict[str, Any]:
    """Return the JSON Schema of the document of apply."""
    return schema()


@api.get("/tenants", response_model=list[TenantView])
async def tenants(views: Views) -> StreamingResponse:
    """List tenants."""
    return _list(views.tenant_views(), TenantView)


@api.get("/slices", response_model=list[SliceView])
async def slices(views: Views) -> StreamingResponse:
    """List slices with what is reserved for them and used."""
    return _list(views.slice_views(), SliceView)


@api.get("/planes", response_model=list[PlaneView])
async def planes(views: Views) -> StreamingResponse:
    """List planes."""
    return _list(views.plane_views(), PlaneView)


@api.get("/routers", response_model=list[RouterView])
async def routers(views: Views) -> StreamingResponse:
    """List routers."""
    return _list(views.router_views(), RouterView)


@api.get("/load", response_model=LoadView)
async def load(views: Views) -> StreamingResponse:
    """Count what has passed through planes and routers; two looks tell the rates."""
    found = await views.running.load()
    lists: dict[str, tuple[streams.Rows, type[Any]]]
    lists = {"planes": (found.planes, PlaneLoad), "routers": (found.routers, RouterLoad)}
    return StreamingResponse(streams.record(lists), media_type=JSON)


@api.get("/interfaces", response_model=list[InterfaceView])
async def interfaces(views: Views) -> StreamingResponse:
    """List the interfaces of all routers."""
    return _list(views.interface_views(), InterfaceView)


@api.get("/find/{name}")
async def find(name: str, views: Views) -> RouterView:
    """Find a router by its own name, where only one tenant has it."""
    return views.router_view(views.router(name))


@api.get("/routers/{tenant}/{router}")
async def router_view(router: Router, views: Views) -> RouterView:
    """Show one router."""
    return views.router_view(router)


@api.get("/routers/{tenant}/{router}/routes", responses=_streamed(NDJSON, "RouteView, one a line"))
async def routes(router: Running, views: Views) -> StreamingResponse:
    """List the RIB of a router."""
    return StreamingResponse(streams.table(await views.running.routes(router.vrf_id)), media_type=NDJSON)


@api.get("/routers/{tenant}/{router}/fib", responses=_streamed(NDJSON, "FibEntryView, one a line"))
async def fib(router: Running, views: Views) -> StreamingResponse:
    """List what is installed on the plane for a router."""
    return StreamingResponse(streams.table(await views.running.fib(router.vrf_id)), media_type=NDJSON)


@api.get("/routers/{tenant}/{router}/placement")
async def placement(router: Running, views: Views) -> PlacementView:
    """Tell where the routes of a router are, on a plane with a fallback."""
    return await views.running.placement(router.vrf_id)


@api.get("/routers/{tenant}/{router}/neighbors", response_model=list[NeighborView])
async def neighbors(router: Running, views: Views) -> StreamingResponse:
    """List the neighbors of a router."""
    return _list(views.running.neighbors(router.vrf_id), NeighborView)


@api.get("/routers/{tenant}/{router}/counters")
async def counters(router: Running, views: Views) -> CounterView:
    """Read the counters of a router."""
    return await views.running.counters(router.vrf_id)


@api.get("/routers/{tenant}/{router}/counters/routes", responses=_streamed(NDJSON, "RouteCounterView, one a line"))
async def route_counters(router: Running, views: Views) -> StreamingResponse:
    """Read what the routes of a router have met, those that carry most first; those that met nothing are left out."""
    return StreamingResponse(streams.table(await views.running.route_counters(router.vrf_id)), media_type=NDJSON)


@api.get("/routers/{tenant}/{router}/trace")
async def trace(router: Running, views: Views, destination: str, interface: str | None = None) -> list[TraceStep]:
    """Follow a packet to ``destination`` through the tables."""
    return await views.running.trace(router.vrf_id, destination, interface)


@api.post("/routers/{tenant}/{router}/verify")
async def verify(router: Running, views: Views, operations: Op, repair: bool = False) -> VerifyView:
    """Compare what was learned, what is desired and what the plane holds."""
    return await (operations.repair(router) if repair else views.running.verify(router.vrf_id, False))


@api.get("/routers/{tenant}/{router}/capture", responses=_streamed(PCAP, "a capture file without end"))
async def capture(router: Running, views: Views, interface: str | None = None) -> StreamingResponse:
    """Follow the punted and injected frames of a router."""
    return StreamingResponse(streams.pcap(views.capture(router, interface)), media_type=PCAP)


@api.get("/routers/{tenant}/{router}/daemons")
async def daemons(router: Router, views: Views) -> dict[str, str]:
    """Tell which daemons run in a router's guest."""
    return (await views.guest_status(router)).daemons


@api.post("/routers/{tenant}/{router}/exec")
async def exec_(router: Router, body: ExecBody, operations: Op) -> Command:
    """Return the command that runs ``argv`` in a router's guest; the controller itself runs nothing."""
    for word in body.argv:
        check_characters(word, "argv", None)
    return Command(argv=await operations.exec_argv(router, body.argv))


@api.get("/routers/{tenant}/{router}/console")
async def console(router: Router, operations: Op) -> Command:
    """Return the command that connects a terminal with the console of a router's guest."""
    return Command(argv=await operations.console_argv(router))


@api.get("/routers/{tenant}/{router}/logs")
async def logs(router: Router, views: Views, follow: bool = False) -> Command:
    """Return the command that shows what a router's guest says: its daemons, or a machine's console."""
    return Command(argv=views.logs_argv(router, follow))


@api.get("/events", responses=_streamed(NDJSON, "Event, one a line"), response_model=list[Event])
async def events(operations: Op, since: int = 0, follow: bool = False) -> StreamingResponse:
    """List the events after a sequence number; with ``follow``, go on with those to come, one a line."""
    if follow:
        return StreamingResponse(streams.lines(operations.events.follow(since)), media_type=NDJSON)
    return _list(operations.events.recent(since), Event)


@api.get("/audit", responses=_streamed(NDJSON, "AuditView, one a line"))
async def audit_log(operations: Op, wanted: Annotated[AuditQuery, Query()]) -> StreamingResponse:
    """List operators' changes, the oldest first."""
    rows = await operations.audit.read(wanted.filter(), wanted.limit)
    return StreamingResponse(streams.table(rows), media_type=NDJSON)


# Backup


@api.post("/backup", response_class=FileResponse)
async def backup(operations: Op) -> FileResponse:
    """Return a backup of the declared state and the certificate authority."""
    with streams.stored_for_a_moment():
        directory = tempfile.TemporaryDirectory(prefix="splitplane-")
    with directory:
        path = Path(directory.name) / "backup"
        await operations.backup(path)
        file = path.open("rb")
    return FileResponse(streams.path_of(file), media_type="application/gzip", background=BackgroundTask(file.close))


@api.post("/restore", status_code=202)
async def restore(request: Request, operations: Op, force: bool = False) -> dict[str, str]:
    """Replace the state by a backup; the controller restarts itself, planes and guests go on."""
    with streams.stored_for_a_moment(), tempfile.TemporaryFile(prefix="splitplane-") as file:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > backups.MAX_BACKUP_BYTES:
                raise NoSuch("backup", "so large", f"the limit is {backups.MAX_BACKUP_BYTES >> 20} MiB")
            file.write(chunk)
        file.flush()
        await operations.restore(streams.path_of(file), force)
    return {"restored": "the controller restarts with it"}


def make_app(operations: Operations | None = None, views: OperatorViews | None = None) -> FastAPI:
    """Return the application; without operations and views it can only describe itself."""
    app = FastAPI(
        title="Splitplane operator API",
        version="1",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.operations, app.state.views = operations, views
    app.router.routes.extend(api.routes)  # include_router makes all of them anew, at the first request
    errors.install(app)
    return app
