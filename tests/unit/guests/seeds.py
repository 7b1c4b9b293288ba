"""Seeds of a machine, whole and otherwise."""

import io
import json
import tarfile

MACHINE = {"router": "red/r1", "hostname": "r1", "time": 1_800_000_000, "session": ["10.0.2.100", 6654]}
IDENTITY = {"cert.pem": b"certificate", "key.pem": b"key", "ca.pem": b"authority"}
FILES = {
    "guest.json": b'{"router": "red/r1"}',
    "machine.json": json.dumps(MACHINE).encode(),
    **{f"identity/{name}": content for name, content in IDENTITY.items()},
}


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    """Return the head of one file of an archive."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, link, size
    return entry


def archive(*extra: tarfile.TarInfo, files: dict[str, bytes] = FILES, kind: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return a seed, and what else is to be in it."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=kind) as tar:
        for name, content in files.items():
            tar.addfile(member(name, size=len(content)), io.BytesIO(content))
        for entry in extra:
            tar.addfile(entry, io.BytesIO(bytes(entry.size)))
    return written.getvalue()
