"""The API as HTTP: errors have one form, the document is served, the socket is private."""

import asyncio
import io
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from operator_world import Controller
from pydantic import TypeAdapter

from controller.api import app, streams
from controller.api.server import ApiServer
from controller.operations import backups
from controller.spec.lines import MAX_SIZE_BYTES
from controller.views import CapturedFrame, RouterView
from controller.vrctl.client import Client, Refused, path_of
from controller.vrctl.progress import follow
from wire import PROTOCOL_VERSION


async def ask(served: Path, method: str, target: str, body: object = None) -> Any:
    return await asyncio.to_thread(Client(served).call, method, target, body)


def document(text: str) -> dict[str, object]:
    return {"source": "t.yaml", "text": text, "files": {}}


async def test_a_list_of_thousands_is_made_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "VIEWS_PAGE", 2)
    views = [RouterView(f"red/r{n}", "s1", "up", "", n, 0, 0, 0, 0, 0, 0, remarks=["x"]) for n in range(5)]
    made, body, after = [], b"", []

    def rows() -> Iterator[RouterView]:
        for view in views:
            made.append(view)
            yield view

    async for part in streams.array(rows(), RouterView):
        body += part
        after.append(len(made))
    assert after == [2, 4, 5, 5]
    assert json.loads(body) == [asdict(view) for view in views]
    assert [part async for part in streams.array([], RouterView)] == [b"[]"]


async def test_no_request_makes_what_another_one_made(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    make = TypeAdapter.__init__

    def noted(adapter: "TypeAdapter[Any]", kind: object, **named: Any) -> None:
        made.append(kind)
        make(adapter, kind, **named)

    monkeypatch.setattr(TypeAdapter, "__init__", noted)
    monkeypatch.setattr(streams, "_WRITERS", {})
    server = ApiServer(app.make_app(controller.operations, controller.views), tmp_path)
    task = asyncio.create_task(server.run())
    assert (await ask(server.path, "GET", "/v1/version"))["protocol"] == PROTOCOL_VERSION
    assert [await ask(server.path, "GET", "/v1/routers") for _ in range(2)] == [[], []]
    server.close()
    await task
    assert made == [RouterView]


async def test_the_socket_is_private(served: Path) -> None:
    assert served.stat().st_mode & 0o777 == 0o600


async def test_it_describes_itself(served: Path) -> None:
    paths = (await ask(served, "GET", "/v1/openapi.json"))["paths"]
    assert {"/v1/apply", "/v1/routers/{tenant}/{router}/fib"} <= paths.keys()
    assert (await ask(served, "GET", "/v1/version"))["protocol"] == PROTOCOL_VERSION
    assert (await ask(served, "GET", "/v1/schema"))["additionalProperties"] is False


@pytest.mark.parametrize(
    ("method", "target", "body", "kind", "words"),
    [
        ("GET", "/v1/nonsense", None, "HTTPError", "Not Found"),
        ("POST", "/v1/apply", {"text": 1}, "InvalidRequest", "body.source: Field required"),
        ("POST", "/v1/apply", document("version: 2"), "SpecError", "t.yaml:1: version: 2 should be 1"),
        ("POST", "/v1/apply", document("x" * (MAX_SIZE_BYTES + 1)), "SpecError", "larger than 1 MiB"),
        ("GET", "/v1/routers/red/r9", None, "NoSuch", "no router 'red/r9'; see vrctl get routers"),
        ("DELETE", "/v1/tenants/red", None, "NoSuch", "no tenant 'red'"),
        ("GET", "/v1/audit?since=nan", None, "InvalidRequest", "query.since: Input should be a finite number"),
        ("GET", "/v1/audit?since=1e400", None, "InvalidRequest", "query.since: Input should be a finite number"),
        ("POST", "/v1/planes/s1/attach", {"datapath_id": 0}, "InvalidRequest", "greater than or equal to 1"),
        ("POST", "/v1/planes/S1/attach", {}, "InvalidRequest", "path.plane: 'S1' should be lower-case letters"),
        ("POST", "/v1/planes/s1/attach", {"address": "x"}, "InvalidRequest", "'x' should be HOST:PORT, [IPV6]:PORT"),
        ("POST", "/v1/planes/s1/attach", {"ports": {"p1": 0}}, "InvalidRequest", "body.ports.p1: Input should be gr"),
        (
            *("POST", "/v1/planes/s1/attach", {"ports": {"p1": {"number": 0}}}, "InvalidRequest"),
            "body.ports.p1.number: Input should be greater",
        ),
        (
            *("POST", "/v1/planes/s1/attach", {"ports": {"p1": {"number": 1, "devic": "a"}}}, "InvalidRequest"),
            "body.ports.p1.devic: Extra inputs",
        ),
        (
            *("POST", "/v1/planes/s1/attach", {"ports": {"p1": {"device": "a"}}}, "InvalidRequest"),
            "body.ports.p1.number: Field required",
        ),
        ("POST", "/v1/planes/s1/attach", {"datapath_id": 1 << 64}, "InvalidRequest", "equal to 18446744073709551615"),
        ("POST", "/v1/planes/s1/attach", {"datapath_id": "x"}, "InvalidRequest", "'x' is no datapath id"),
        (
            *("POST", "/v1/planes/s1/attach", {"ports": {"p1": {"number": 1, "device": "a b"}}}, "InvalidRequest"),
            "'a b' should be the name of a network interface",
        ),
    ],
)
async def test_errors_have_one_form(
    served: Path, method: str, target: str, body: object, kind: str, words: str
) -> None:
    with pytest.raises(Refused) as caught:
        await ask(served, method, target, body)
    assert caught.value.kind == kind
    assert words in str(caught.value)


@pytest.mark.parametrize("files", [{"a.conf": "\ud800"}, {"a.conf": "", "\ud800": ""}])
async def test_a_file_that_is_no_text_is_refused(served: Path, controller: Controller, files: dict[str, str]) -> None:
    text = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants: [{name: red, slices: [{plane: s1}], routers: [{name: r1, plane: s1, frr_file: a.conf}]}]
"""
    with pytest.raises(Refused, match=r"t\.yaml: character U\+D800 is not allowed"):
        await ask(served, "POST", "/v1/apply", document(text) | {"files": files})
    assert not controller.operations.state.planes


async def test_a_word_that_is_no_text_is_refused(served: Path, controller: Controller) -> None:
    text = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants: [{name: red, slices: [{plane: s1}], routers: [{name: r1, plane: s1}]}]
"""
    await controller.apply(text)
    with pytest.raises(Refused, match=r"argv: character U\+D800 is not allowed"):
        await ask(served, "POST", "/v1/routers/red/r1/exec", {"argv": ["cat", "\ud800"]})


async def test_an_unreachable_plane_is_named(served: Path, controller: Controller) -> None:
    text = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants: [{name: red, slices: [{plane: s1}], routers: [{name: r1, plane: s1}]}]
"""
    await controller.apply(text)
    controller.core.unreachable.add("s1")
    with pytest.raises(Refused, match="plane s1 is not reachable: not connected") as caught:
        await ask(served, "GET", path_of("routers", "red", "r1", "counters"))
    assert caught.value.kind == "PlaneUnreachable"


@pytest.mark.parametrize("path", ["backup", "restore"])
async def test_a_backup_that_has_no_room_on_its_way_is_refused(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(Refused, match=r"/none/splitplane-.*: No such file or directory; make room") as caught:
        await ask(served, "POST", f"/v1/{path}", {})
    assert caught.value.kind == "StoreError"


async def test_a_backup_on_its_way_has_no_name_that_a_kill_would_leave(
    served: Path, controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, named = tmp_path / "temporary", []
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    answer, stage = app.FileResponse, backups.stage

    def answering(*arguments: Any, **options: Any) -> app.FileResponse:
        named.append([*place.iterdir()])
        return answer(*arguments, **options)

    def staging(*arguments: Any) -> None:
        named.append([*place.iterdir()])
        stage(*arguments)

    monkeypatch.setattr(app, "FileResponse", answering)
    monkeypatch.setattr(backups, "stage", staging)
    pieces = await asyncio.to_thread(lambda: [*Client(served).pieces("POST", "/v1/backup")])
    await asyncio.to_thread(Client(served).send_file, "/v1/restore", io.BytesIO(b"".join(pieces)))
    assert named == [[], []]
    assert controller.restarts == 1


async def test_a_backup_that_is_sent_to_a_full_disk_is_refused(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb"))
    with pytest.raises(Refused, match=r"temporary files: No space left on device; make room") as caught:
        await ask(served, "POST", "/v1/restore", "x" * 100_000)
    assert caught.value.kind == "StoreError"


async def test_a_capture_has_begun_when_its_header_is_sent() -> None:
    begun = []

    async def frames() -> AsyncIterator[CapturedFrame]:
        begun.append(True)
        yield CapturedFrame(1.5, True, b"one")
        yield CapturedFrame(2.5, True, b"two")

    pieces = streams.pcap(frames())
    assert len(await anext(pieces)) == 24
    assert begun
    assert [piece[16:] async for piece in pieces] == [b"one", b"two"]


def test_a_change_is_followed_to_its_outcome() -> None:
    step = {"progress": {"done": 1, "total": 2, "text": "x"}}
    assert follow(iter([step, {"changes": []}])) == {"changes": []}
    with pytest.raises(Refused, match="the disk is full"):
        follow(iter([step, {"error": "the disk is full", "kind": "StoreError"}]))
    with pytest.raises(Refused, match="run vrctl again"):
        follow(iter([step]))
