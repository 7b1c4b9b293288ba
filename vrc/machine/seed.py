"""The seed of a machine: what the host says to it before it can be asked, as a tar archive on a small disk.

    guest.json               what vr-guest is started with, paths as they are inside of the machine
    machine.json             {"router": "…", "hostname": "…", "time": unix seconds, "session": [address, port]}
    identity/cert.pem, key.pem, ca.pem

A reader of its own, for the plain format alone (POSIX.1-1988 ustar, which GNU tar's shorter names agree with): five
files are known by name, and whatever else an archive may hold (links, devices, other paths, extended headers) is
refused. Nothing in the archive decides where something is written.
"""

import contextlib
import json
import os
from dataclasses import dataclass
from typing import Any

MAX_SEED_BYTES = 1 << 20
IDENTITY_FILES = ("cert.pem", "key.pem", "ca.pem")
_BLOCK = 512
_NAMES = frozenset({"guest.json", "machine.json", *(f"identity/{name}" for name in IDENTITY_FILES)})
_DIRECTORIES = frozenset({"identity", "."})


class SeedError(Exception):
    """The seed cannot be used; the text says why in one line."""


@dataclass(frozen=True, slots=True)
class Seed:
    """What the host says."""

    guest: dict[str, Any]  # guest.json
    router: str
    hostname: str
    time_s: int
    session: tuple[str, int]
    identity: dict[str, bytes]  # by name in IDENTITY_FILES


def read_seed(device: str) -> Seed:
    """Read the archive on ``device``; SeedError where it is not one of ours."""
    try:
        with open(device, "rb") as file:
            archive = file.read(MAX_SEED_BYTES + 1)
    except OSError as error:
        raise SeedError(f"{device}: {error.strerror}") from error
    if len(archive) > MAX_SEED_BYTES:
        raise SeedError(f"larger than {MAX_SEED_BYTES} octets")
    return parse_seed(unpack(archive))


def unpack(archive: bytes) -> dict[str, bytes]:
    """Return the known files of an archive by name."""
    files: dict[str, bytes] = {}
    offset = 0
    while offset + _BLOCK <= len(archive):
        header = archive[offset : offset + _BLOCK]
        offset += _BLOCK
        if not any(header):
            return files
        name, kind, size = _member(header)
        if kind == b"5" and name.rstrip("/") in _DIRECTORIES and not size:
            continue
        if kind not in (b"0", b"\0"):
            raise SeedError(f"{name!r} is not a plain file (type {kind.decode('latin-1')!r}); write it as ustar")
        if name not in _NAMES:
            raise SeedError(f"{name!r} does not belong there")
        if name in files:
            raise SeedError(f"{name!r} is there twice")
        if offset + size > len(archive):
            raise SeedError(f"{name!r} is cut short")
        files[name] = archive[offset : offset + size]
        offset += -(-size // _BLOCK) * _BLOCK
    raise SeedError("not a tar archive, or it has no end")


def _member(header: bytes) -> tuple[str, bytes, int]:
    blank = header[:148] + b" " * 8 + header[156:]
    try:
        size, checksum = (int(field.strip(b" \0") or b"0", 8) for field in (header[124:136], header[148:156]))
    except ValueError:
        raise SeedError("not a tar archive") from None
    if checksum != sum(blank) or size < 0:
        raise SeedError("not a tar archive, or it is damaged")
    name = header[:100].split(b"\0")[0].decode(errors="replace").removeprefix("./") or "."
    return name, header[156:157], size


def parse_seed(files: dict[str, bytes]) -> Seed:
    """Make a seed of the archive's files."""
    if missing := sorted(_NAMES - files.keys()):
        raise SeedError(f"{missing[0]} is missing")
    try:
        guest = json.loads(files["guest.json"])
        machine = json.loads(files["machine.json"])
        host, port = machine["session"]
        if not 0 < int(port) < 1 << 16:
            raise ValueError(f"no port: {port}")
        identity = {name: files[f"identity/{name}"] for name in IDENTITY_FILES}
        return Seed(
            dict(guest), machine["router"], machine["hostname"], int(machine["time"]), (host, int(port)), identity
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise SeedError(f"guest.json or machine.json: {error!r}") from error


def write_identity(directory: str, identity: dict[str, bytes], owner: int) -> None:
    """Replace the certificate files in ``directory``: readable by ``owner`` alone, each whole at any moment.

    OSError where there is no room for one: then all stay as they are, as they belong together.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    new = {name: f"{directory}/{name}.new" for name in IDENTITY_FILES}
    try:
        for name, path in new.items():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "wb") as file:
                os.fchown(file.fileno(), owner, owner)
                file.write(identity[name])
    except OSError:
        for path in new.values():
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise
    for name, path in new.items():
        os.replace(path, f"{directory}/{name}")
    os.chown(directory, owner, owner)
    os.chmod(directory, 0o500)
