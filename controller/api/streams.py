"""Bodies that are sent piece by piece: newline-delimited JSON, and pcap; files on their way."""

import asyncio
import contextlib
import dataclasses
import json
import struct
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter

from controller.errors import StoreError
from controller.views import CapturedFrame

PAGE = 500
"""Rows made before others get their turn on the event loop."""

VIEWS_PAGE = 100
"""The same of views that take several look-ups each: a few milliseconds."""

_PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)  # microseconds, Ethernet
_RECORD = struct.Struct("<IIII")


def plain(view: Any) -> dict[str, Any]:
    """Return a flat dataclass as a dict, without the deep copy that dataclasses.asdict makes."""
    return {field.name: getattr(view, field.name) for field in dataclasses.fields(view)}


def line(value: Any) -> bytes:
    """Return one line of newline-delimited JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


async def table(rows: Iterable[Any]) -> AsyncIterator[bytes]:
    """Send views one per line, a page at a time."""
    walk: Iterator[Any] = iter(rows)
    while page := list(islice(walk, PAGE)):
        yield b"".join(line(plain(row)) for row in page)
        await asyncio.sleep(0)


async def array(rows: Iterable[Any], pages: TypeAdapter[Any]) -> AsyncIterator[bytes]:
    """Send views as a JSON list, a page at a time; ``pages`` writes lists of them."""
    walk, before = iter(rows), b"["
    while page := list(islice(walk, VIEWS_PAGE)):
        yield before + pages.dump_json(page)[1:-1]
        before = b","
        await asyncio.sleep(0)
    yield b"[]" if before == b"[" else b"]"


async def lines(views: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """Send views one per line as they come."""
    async for view in views:
        yield line(plain(view))


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
