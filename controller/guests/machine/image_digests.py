"""Whether an image's files are still those that it was made of, by the digests beside them.

    SHA256SUMS      as sha256sum(1) writes it: a digest, two spaces (or a space and `*`), the name of a file beside it

A file is read once for each change of it: what it is told by is its inode, its size and its times.
"""

import asyncio
import hashlib
import os
import re
from pathlib import Path

from controller.errors import GuestError
from controller.guests.machine.image import MANIFEST, Image

FILE = "SHA256SUMS"
_MAX_BYTES = 64 << 10
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/]+)")

_Known = tuple[int, int, int, int, int]


class ImageDigests:
    """What was found of the files of images."""

    def __init__(self) -> None:
        self._found: dict[Path, tuple[_Known, str]] = {}
        self._turn = asyncio.Lock()  # ten machines that start read an image once

    async def check(self, image: Image, router: str) -> list[str]:
        """GuestError names a file that is not the one that the image was made with.

        Returns what the operator should know, a line: that an image has no digests, and so is not checked.
        """
        wanted = _wanted(image.directory, router)
        if wanted is None:
            return [f"image {image.directory} has no {FILE}: nobody would notice a damaged file"]
        async with self._turn:
            for path in (image.directory / MANIFEST, image.kernel, image.initrd, image.root):
                digest = wanted.get(path.name)
                if digest is None:
                    raise GuestError(f"{router}: {image.directory / FILE} has no {path.name}; {_remedy(image)}")
                if await self._digest(path, router) != digest:
                    raise GuestError(f"{router}: image file {path} is not what {FILE} says; {_remedy(image)}")
        return []

    async def _digest(self, path: Path, router: str) -> str:
        try:
            known, digest = self._found.get(path, (None, ""))
            if known != (now := _identity(path)):
                digest = await asyncio.to_thread(_read, path)
                self._found[path] = now, digest
        except OSError as problem:
            raise GuestError(f"{router}: image file {path}: {problem.strerror}") from None
        return digest


def _wanted(directory: Path, router: str) -> dict[str, str] | None:
    file = directory / FILE
    try:
        with file.open("rb") as opened:
            lines = opened.read(_MAX_BYTES).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise GuestError(f"{router}: {file}: {problem.strerror}") from None
    found = [_LINE.fullmatch(line) for line in lines]
    if not all(found):
        raise GuestError(f"{router}: {file} is not what sha256sum writes; (cd {directory} && sha256sum … >{FILE})")
    return {match[2]: match[1] for match in found if match}


def _identity(path: Path) -> _Known:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remedy(image: Image) -> str:
    return f"make it anew with guest/build {image.directory}"
