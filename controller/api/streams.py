"""Bodies that are sent piece by piece: newline-delimited JSON, and pcap; files on their way."""

import asyncio
import contextlib
import dataclasses
import json
import struct
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter

from controller.errors import StoreError
from controller.views import CapturedFrame

PAGE = 250
"""Rows made before others get their turn on the event loop."""

VIEWS_PAGE = 100
"""The same of views that take several look-ups each: a few milliseconds."""

PAGE_OCTETS = 1 << 16
"""Octets after which a page ends, however few its rows are: one may have hundreds of nexthops, or ports."""

Rows = Iterable[Any] | AsyncIterable[Any]

_WRITERS: dict[type[Any], TypeAdapter[Any]] = {}

_PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)  # microseconds, Ethernet
_RECORD = struct.Struct("<IIII")


def plain(view: Any) -> dict[str, Any]:
    """Return a flat dataclass as a dict, without the deep copy that dataclasses.asdict makes."""
    return {field.name: getattr(view, field.name) for field in dataclasses.fields(view)}


def line(value: Any) -> bytes:
    """Return one line of newline-delimited JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


async def _pages(rows: Rows, encode: Callable[[Any], bytes], most: int, between: bytes) -> AsyncIterator[bytes]:
    """Make rows a page at a time, and leave a turn of the event loop to others after each."""
    page, octets = list[bytes](), 0
    async for row in _each(rows):
        page.append(encode(row))
        octets += len(page[-1])
        if len(page) >= most or octets >= PAGE_OCTETS:
            yield between.join(page)
            page, octets = [], 0
            await asyncio.sleep(0)
    if page:
        yield between.join(page)


async def _each(rows: Rows) -> AsyncIterator[Any]:
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row


def table(rows: Rows) -> AsyncIterator[bytes]:
    """Send views one per line, a page at a time."""
    return _pages(rows, lambda row: line(plain(row)), PAGE, b"")


def _writer(kind: type[Any]) -> TypeAdapter[Any]:
    """Return what writes views of one kind; made once, as it takes longer than a request."""
    if kind not in _WRITERS:
        _WRITERS[kind] = TypeAdapter(kind)
    return _WRITERS[kind]


async def array(rows: Rows, kind: type[Any]) -> AsyncIterator[bytes]:
    """Send views of one kind as a JSON list, a page at a time."""
    before = b"["
    async for page in _pages(rows, _writer(kind).dump_json, VIEWS_PAGE, b","):
        yield before + page
        before = b","
    yield b"[]" if before == b"[" else b"]"


async def record(lists: Mapping[str, tuple[Rows, type[Any]]]) -> AsyncIterator[bytes]:
    """Send lists of views as one JSON object, by name, a page at a time."""
    before = b"{"
    for name, (rows, kind) in lists.items():
        yield before + json.dumps(name).encode() + b":"
        async for part in array(rows, kind):
            yield part
        before = b","
    yield b"}"


async def lines(views: AsyncIterable[Any]) -> AsyncIterator[bytes]:
    """Send views one per line as they come; many may come at once."""
    sent = 0
    async for view in views:
        yield line(plain(view))
        sent += 1
        if sent % VIEWS_PAGE == 0:
            await asyncio.sleep(0)


async def pcap(frames: AsyncIterator[CapturedFrame]) -> AsyncIterator[bytes]:
    """Send frames as a capture file; the header goes once it captures, so that a reader sees that it began."""
    first = asyncio.ensure_future(anext(frames, None))
    try:
        await asyncio.sleep(0)  # from here on whatever passes is kept
        yield _PCAP_HEADER
        if (one := await first) is None:
            return
        yield _record(one)
    finally:
        first.cancel()
    async for one in frames:
        yield _record(one)


def _record(one: CapturedFrame) -> bytes:
    seconds, fraction = divmod(one.time, 1)
    size = len(one.frame)
    return _RECORD.pack(int(seconds), int(fraction * 1_000_000), size, size) + one.frame


def path_of(file: IO[bytes]) -> Path:
    """Return a path of an open file that has no name: a backup has keys, and a name would outlive a `kill -9`."""
    return Path(f"/proc/self/fd/{file.fileno()}")


@contextlib.contextmanager
def stored_for_a_moment() -> Iterator[None]:
    """StoreError where there is no room for a backup on its way."""
    try:
        yield
    except OSError as problem:
        where = problem.filename or "the directory for temporary files"
        raise StoreError(f"{where}: {problem.strerror}; make room, or set TMPDIR of vr-controller") from None
