"""The image of a machine: a directory with image.json, a kernel, an initrd and a root file system.

    {"format": 2, "name": "…", "kernel": "vmlinuz", "initrd": "initrd.img", "root": "root.squashfs",
     "append": "…", "minimum_memory_mib": 160, "version": 1, "frr": "10.3"}

guest/build makes one; docs/guests.md says what one of a tenant's own must hold.
"""

import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.errors import GuestError

FORMAT = 2
"""From 2 on the guest inside has a range of ids and memory of its own for what it writes (guest.json)."""
MANIFEST = "image.json"
MAX_MANIFEST_BYTES = 64 << 10
_VERSION = re.compile(r"|\d+\.\d+(\.\d+)?")
_TEXTS = ("name", "kernel", "initrd", "root", "append")


@dataclass(frozen=True, slots=True)
class Image:
    """An image whose files are there and can be read."""

    directory: Path
    name: str
    kernel: Path
    initrd: Path
    root: Path
    append: str  # to the kernel's command line
    minimum_memory_mib: int
    frr: str  # the version of FRR in it ("10.3"), empty where it does not say


def load(directory: Path, router: str) -> Image:
    """Return the image of a directory; GuestError names what is missing, unreadable or of the wrong format."""
    manifest = directory / MANIFEST
    try:
        with manifest.open("rb") as file:
            content = file.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise GuestError(
            f"{router}: no image at {directory}: {MANIFEST} not found; make one with guest/build {directory}"
        ) from None
    except OSError as problem:
        raise GuestError(f"{router}: image {manifest}: {problem.strerror}") from None
    fields = _fields(content, f"{router}: image {manifest}")
    files = {name: directory / fields[name] for name in ("kernel", "initrd", "root")}
    for path in files.values():
        _require_readable(path, router)
    least = fields["minimum_memory_mib"]
    append, frr = fields["append"], str(fields["frr"])
    return Image(directory, fields["name"], **files, append=append, minimum_memory_mib=least, frr=frr)


def _fields(content: bytes, what: str) -> dict[str, Any]:
    try:
        fields = json.loads(content) if len(content) <= MAX_MANIFEST_BYTES else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise GuestError(f"{what} is not a JSON object; make the image anew with guest/build")
    if fields.get("format") != FORMAT:
        raise GuestError(f"{what} has format {fields.get('format')!r}, this controller knows {FORMAT}; make it anew")
    for name in _TEXTS:
        if not isinstance(fields.get(name), str):
            raise GuestError(f"{what}: {name} should be a text; docs/guests.md lists the keys")
    if type(least := fields.get("minimum_memory_mib")) is not int or least < 0:
        raise GuestError(f"{what}: minimum_memory_mib should be a number; docs/guests.md lists the keys")
    if not _VERSION.fullmatch(str(fields.setdefault("frr", ""))):
        raise GuestError(f"{what}: frr should be a version, as 10.3; docs/guests.md lists the keys")
    for name in ("kernel", "initrd", "root"):
        if Path(fields[name]).name != fields[name]:
            raise GuestError(f"{what}: {name} should be the name of a file beside it, not {fields[name]!r}")
    return fields


def _require_readable(path: Path, router: str) -> None:
    """A machine runs as a user of its own, so its files have to be everybody's to read."""
    try:
        found = os.stat(path)
    except OSError as problem:
        raise GuestError(f"{router}: image file {path}: {problem.strerror}; make it anew with guest/build") from None
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        raise GuestError(f"{router}: image file {path} is not a file with content; make it anew with guest/build")
    if not found.st_mode & stat.S_IROTH:
        raise GuestError(f"{router}: image file {path} is not readable by the machine's user; chmod a+r {path}")


def require_memory(image: Image, memory_mib: int, router: str) -> None:
    """GuestError where a machine has too little memory for its image."""
    if memory_mib < image.minimum_memory_mib:
        raise GuestError(
            f"{router}: memory of {memory_mib}M is too little for image {image.name}, "
            f"which needs {image.minimum_memory_mib}M; raise memory: under guest:"
        )
