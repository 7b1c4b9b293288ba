"""Backups: one tar file with a snapshot of the store and the certificate authority, and what restores it."""

import contextlib
import gzip
import io
import os
import shutil
import tarfile
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from controller.errors import StoreError
from controller.operations.deletions import buried
from controller.operations.holds import given_up
from controller.operations.reissue import reissued
from controller.pki.authority import authorities, system_clock
from controller.store.base import PlaneCertificate, Snapshot, Store
from controller.store.sqlite import FILE, SqliteStore

MAX_BACKUP_BYTES = 256 << 20
_AUTHORITY = ("ca.key", "ca.pem")
_AUTHORITIES = tuple(
    f"{name}.{suffix}" for name in ("routers", "ca-former", "routers-former") for suffix in ("key", "pem")
)
"""What a backup may have beside `_AUTHORITY`: earlier ones have none, and not every controller is in a rotation."""
_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, LookupError, TypeError, ValueError)
"""What comes of reading something else, or a backup that is not as it was written."""
_STAGED = "restore"
_READY = "restore.ready"


def keys_of(state: Path) -> dict[str, bytes]:
    """Return the authorities' files as they are now, by their names in a backup; StoreError where they cannot be
    read."""
    names = (*_AUTHORITY, *(one for one in _AUTHORITIES if (state / "pki" / one).exists()))
    try:
        return {f"pki/{name}": (state / "pki" / name).read_bytes() for name in names}
    except OSError as problem:
        raise StoreError(f"{problem.filename}: {problem.strerror}; the backup was not written") from None


class _Wanted:
    """What is packed or unpacked, for as long as somebody wants it."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, unwanted: threading.Event) -> None:
        self._file, self._unwanted = file, unwanted

    def read(self, size: int = -1) -> bytes:
        if self._unwanted.is_set():
            raise StoreError("nobody waits for it any more")
        return self._file.read(size)


def write(store: Store, keys: Mapping[str, bytes], path: Path, unwanted: threading.Event) -> None:
    """Write a backup to a new file that only its owner may read; StoreError where it cannot be written, or would be
    more than `stage` takes. It may be called by another thread, and takes as long as the disk and gzip do, or until
    it is ``unwanted``."""
    snapshot = path.with_name(path.name + ".sqlite")
    try:
        with contextlib.suppress(FileNotFoundError):
            snapshot.unlink()
        store.backup(snapshot)
        if (size := snapshot.stat().st_size) > MAX_BACKUP_BYTES:
            most = f"a backup may have {MAX_BACKUP_BYTES:,}"
            remedy = "declare less, or copy the state directory of a stopped controller"
            raise StoreError(f"the store has {size:,} octets and {most}; {remedy}")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            with open(snapshot, "rb") as source:
                tar.addfile(tar.gettarinfo(arcname=FILE, fileobj=source), _Wanted(source, unwanted))
            for name, content in keys.items():
                member = tarfile.TarInfo(name)
                member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
                tar.addfile(member, io.BytesIO(content))
    except OSError as problem:
        raise StoreError(f"{path}: {problem.strerror}; the backup was not written") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            snapshot.unlink()


def stage(
    state: Path,
    path: Path,
    replaced: Snapshot,
    certificates: Sequence[PlaneCertificate],
    unwanted: threading.Event,
) -> None:
    """Unpack a backup beside the present state, for `make_ready`; StoreError where it is none.

    Routers of the present state that the backup does not know by the same id become deleted ones, and those that are
    being deleted remain such; the ports and VLANs of both wait for their planes. Ids go on from the higher of both,
    and a restored router whose id is another one's at present has a new one (`reissued`), so that nothing of theirs
    is taken for its own. Of ``certificates``, the present state's, those that are revoked stay so. It may be called
    by another thread, and goes on until it is ``unwanted``.
    """
    staged = state / _STAGED
    try:
        (state / _READY).unlink(missing_ok=True)
        shutil.rmtree(staged, ignore_errors=True)
        (staged / "pki").mkdir(mode=0o700, parents=True)
        _unpack(path, staged, unwanted)
        authorities(staged / "pki", system_clock)
        store = SqliteStore(staged, remedy="nothing was restored")
        try:
            snapshot = store.load()
            ids = snapshot.ids
            ids.next_vrf = max(ids.next_vrf, replaced.ids.next_vrf)
            ids.next_interface = max(ids.next_interface, replaced.ids.next_interface)
            ids.next_slice = max(ids.next_slice, replaced.ids.next_slice)
            after = reissued(snapshot.state, replaced, ids)
            restored = {router.vrf_id for router in after.routers.values()}
            deleted = [one for one in replaced.tombstones if one.router.vrf_id not in restored]
            holds = [*replaced.holds, *given_up(replaced.state, after)]
            store.commit(after, ids, holds, [*deleted, *buried(replaced.state, after)])
            _keep_revoked(store, [one for one in certificates if one.revoked])
        finally:
            store.close()
        if (staged / f"{FILE}-wal").exists():  # which `adopt` would leave here, with what was stored just now
            raise StoreError(f"{staged}: there is no room to write all of it; nothing was restored")
    except BaseException as problem:
        shutil.rmtree(staged, ignore_errors=True)
        if isinstance(problem, _DAMAGED):
            raise StoreError(f"this is no backup of vr-controller ({problem}); nothing was restored") from None
        if isinstance(problem, OSError):
            raise StoreError(f"{staged}: {problem.strerror}; nothing was restored") from None
        raise


def _keep_revoked(store: Store, certificates: Sequence[PlaneCertificate]) -> None:
    """Have certificates of planes revoked in a store, also those that were issued after it was written."""
    known = {one.serial: one.revoked for one in store.plane_certificates()}
    store.revoke_plane_certificates([one.serial for one in certificates if not known.get(one.serial, True)])
    for one in certificates:
        if one.serial not in known:
            store.add_plane_certificate(replace(one, directory=""))


def make_ready(state: Path) -> None:
    """Let the next start `adopt` what is staged; StoreError where that cannot be written. Not a part of `stage`: a
    thread goes on where nobody waits for it any more, and a restore that was cancelled is none."""
    try:
        (state / _READY).touch(mode=0o600)
    except OSError as problem:
        shutil.rmtree(state / _STAGED, ignore_errors=True)
        raise StoreError(f"{state / _READY}: {problem.strerror}; nothing was restored") from None


def _unpack(path: Path, staged: Path, unwanted: threading.Event) -> None:
    """Copy the files of a backup, and nothing else that the archive may hold."""
    with gzip.open(path) as whole:
        wanted = _Wanted(whole, unwanted)
        while wanted.read(1 << 20):  # to the checksum at its end, which tarfile does not reach
            pass
    with tarfile.open(path, mode="r:gz") as tar:
        there = {f"pki/{name}" for name in _AUTHORITIES} & set(tar.getnames())
        for name in (FILE, *(f"pki/{name}" for name in _AUTHORITY), *sorted(there)):
            member = tar.getmember(name)
            if not member.isreg() or member.size > MAX_BACKUP_BYTES:
                raise KeyError(f"{name} is not a plain file of bounded size")
            source = tar.extractfile(member) or io.BytesIO()
            target = os.open(staged / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with source, open(target, "wb") as file:
                shutil.copyfileobj(_Wanted(source, unwanted), file)
                file.flush()
                os.fsync(file.fileno())


def adopt(state: Path) -> bool:
    """Put a staged backup in the place of the state, before the store is opened; tells whether there was one.

    Every step can be repeated: whatever a `kill -9` interrupts is finished by the next start.
    """
    staged, ready = state / _STAGED, state / _READY
    if not ready.exists():
        shutil.rmtree(staged, ignore_errors=True)  # of a restore that was cut short
        return False
    try:
        for name in ("server.key", "server.pem"):
            with contextlib.suppress(FileNotFoundError):
                (state / "pki" / name).unlink()
        (state / "pki").mkdir(mode=0o700, exist_ok=True)
        if (staged / "pki" / _AUTHORITY[0]).exists():  # the first that is moved: none is yet
            for name in _AUTHORITIES:
                if not (staged / "pki" / name).exists():
                    (state / "pki" / name).unlink(missing_ok=True)
        for name in (*_AUTHORITY, *_AUTHORITIES):
            if (staged / "pki" / name).exists():
                (staged / "pki" / name).replace(state / "pki" / name)
        if (staged / FILE).exists():
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    (state / (FILE + suffix)).unlink()
            (staged / FILE).replace(state / FILE)
        ready.unlink()
        shutil.rmtree(staged, ignore_errors=True)
    except OSError as problem:
        raise StoreError(f"{state}: {problem.strerror}; the restore could not be finished") from None
    return True
