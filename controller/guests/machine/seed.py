"""The seed of a machine: a raw tar on a small read-only disk, with what makes the image this router's guest.

    guest.json                      what vr-guest is started with, paths as they are inside
    machine.json                    router, hostname, time (s since the epoch), session (address, port)
    identity/{cert,key,ca}.pem      0400

No file system: the machine's first process reads it with nothing but a tar reader.
"""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from controller.errors import GuestError
from controller.guests.suites.choice import suite_of
from controller.model import Routing, Suite
from controller.pki.authority import IDENTITY_FILES

SESSION = ("10.0.2.100", 6654)
"""Where a machine finds its session, on the only link it has."""

MAX_SEED_BYTES = 1 << 20
_BLOCK_BYTES = 512


def read_identity(directory: Path, router: str) -> dict[str, bytes]:
    """Return a router's certificate, key and authority by file name; GuestError where one cannot be read."""
    try:
        return {name: (directory / name).read_bytes() for name in IDENTITY_FILES}
    except OSError as problem:
        raise GuestError(f"{router}: {problem.filename}: {problem.strerror}") from None


def make_seed(config: dict[str, Any], identity: dict[str, bytes], started: int) -> bytes:
    """Return a seed's octets, a multiple of 512; GuestError where they are too many.

    ``started`` is the time that the machine sets its clock to, in seconds since the epoch.
    """
    machine = {"router": config["router"], "hostname": config["hostname"], "time": started, "session": list(SESSION)}
    files = {"guest.json": _text(config), "machine.json": _text(machine)}
    files |= {f"identity/{name}": content for name, content in identity.items()}
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o400, started
            archive.addfile(entry, io.BytesIO(content))
    content = written.getvalue()
    _require_room(len(content), config["router"], suite_of(config))
    return content + bytes(-len(content) % _BLOCK_BYTES)


def require_room(router: str, routing: Routing) -> None:
    """GuestError where a router's text alone is more than a seed."""
    _require_room(len(_text(routing.text)), router, routing.suite)


def _require_room(size: int, router: str, suite: Suite) -> None:
    if size > MAX_SEED_BYTES:
        raise GuestError(f"{router}: its seed is larger than {MAX_SEED_BYTES >> 20} MiB; shorten {suite}")


def _text(value: object) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
