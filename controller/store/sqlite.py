"""The store in one SQLite file: write-ahead log, synchronous, one writer.

Who reads has a connection of its own, and so waits neither for who writes nor for the disk.
"""

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.errors import StoreError
from controller.model import RouterConfig, SliceConfig, TenantConfig
from controller.spec.state import Attachment, Hold, Ids, State, Tombstone
from controller.store import rows
from controller.store.base import Certificate, PlaneCertificate, Snapshot
from controller.store.disk import sync_directory

SCHEMA_VERSION = 11
FILE = "state.sqlite"

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE planes(name TEXT PRIMARY KEY, kind TEXT NOT NULL, datapath_id TEXT NOT NULL, attached INTEGER NOT NULL)
    STRICT;
CREATE TABLE tenants(name TEXT PRIMARY KEY) STRICT;
CREATE TABLE slices(tenant TEXT NOT NULL, plane TEXT NOT NULL, ports TEXT NOT NULL, quota TEXT NOT NULL,
    PRIMARY KEY(tenant, plane)) STRICT;
CREATE TABLE routers(vrf_id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, plane TEXT NOT NULL,
    hold_time_s INTEGER NOT NULL, source TEXT NOT NULL, guest TEXT NOT NULL, frr TEXT NOT NULL,
    UNIQUE(tenant, name)) STRICT;
CREATE TABLE interfaces(id INTEGER PRIMARY KEY, vrf_id INTEGER NOT NULL REFERENCES routers ON DELETE CASCADE,
    position INTEGER NOT NULL, plane TEXT NOT NULL, name TEXT NOT NULL, port TEXT NOT NULL, vlan INTEGER NOT NULL,
    mac BLOB NOT NULL, mtu INTEGER NOT NULL, addresses TEXT NOT NULL, virtual_macs BLOB NOT NULL,
    admin_up INTEGER NOT NULL, UNIQUE(vrf_id, name), UNIQUE(plane, port, vlan)) STRICT;
CREATE TABLE links(tenant TEXT NOT NULL, router TEXT NOT NULL, interface TEXT NOT NULL, port TEXT NOT NULL,
    other_router TEXT NOT NULL, other_interface TEXT NOT NULL, other_port TEXT NOT NULL,
    PRIMARY KEY(tenant, router, interface)) STRICT;
CREATE TABLE holds(plane TEXT NOT NULL, port TEXT NOT NULL, vlan INTEGER NOT NULL, interface_id INTEGER NOT NULL,
    vrf_id INTEGER NOT NULL, PRIMARY KEY(plane, port, vlan, interface_id)) STRICT;
CREATE TABLE tombstones(vrf_id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, plane TEXT NOT NULL,
    hold_time_s INTEGER NOT NULL, source TEXT NOT NULL, guest TEXT NOT NULL, frr TEXT NOT NULL,
    plane_clean INTEGER NOT NULL, guest_clean INTEGER NOT NULL) STRICT;
CREATE TABLE certificates(serial TEXT PRIMARY KEY, vrf_id INTEGER NOT NULL, revoked INTEGER NOT NULL) STRICT;
"""
"""Version 1; never changed, so that a new store is made on the same way as an old one is brought here."""

_MIGRATIONS = {
    # P4Runtime planes
    1: """
ALTER TABLE planes ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE planes ADD COLUMN device_id TEXT NOT NULL DEFAULT '0x0';
ALTER TABLE planes ADD COLUMN ports TEXT NOT NULL DEFAULT '[]';
""",
    # guests in virtual machines
    2: """
ALTER TABLE routers ADD COLUMN memory_mib INTEGER NOT NULL DEFAULT 0;
ALTER TABLE routers ADD COLUMN vcpus INTEGER NOT NULL DEFAULT 0;
ALTER TABLE routers ADD COLUMN image TEXT NOT NULL DEFAULT '';
ALTER TABLE tombstones ADD COLUMN memory_mib INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tombstones ADD COLUMN vcpus INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tombstones ADD COLUMN image TEXT NOT NULL DEFAULT '';
""",
    # suites other than FRR
    3: """
ALTER TABLE routers RENAME COLUMN frr TO text;
ALTER TABLE routers ADD COLUMN suite TEXT NOT NULL DEFAULT 'frr';
ALTER TABLE tombstones RENAME COLUMN frr TO text;
ALTER TABLE tombstones ADD COLUMN suite TEXT NOT NULL DEFAULT 'frr';
""",
    # planes with a fallback
    4: """
ALTER TABLE planes ADD COLUMN fallback TEXT NOT NULL DEFAULT 'null';
ALTER TABLE planes ADD COLUMN capacity TEXT NOT NULL DEFAULT '{}';
ALTER TABLE routers ADD COLUMN placement TEXT NOT NULL DEFAULT 'auto';
ALTER TABLE tombstones ADD COLUMN placement TEXT NOT NULL DEFAULT 'auto';
""",
    # where routers come from that are moved
    5: """
ALTER TABLE routers ADD COLUMN came_from TEXT NOT NULL DEFAULT '';
ALTER TABLE tombstones ADD COLUMN came_from TEXT NOT NULL DEFAULT '';
""",
    # certificates of planes
    6: """
CREATE TABLE plane_certificates(number INTEGER PRIMARY KEY, serial TEXT NOT NULL UNIQUE, plane TEXT NOT NULL,
    pem BLOB NOT NULL, directory TEXT NOT NULL, revoked INTEGER NOT NULL) STRICT;
CREATE INDEX certificates_of_router ON certificates(vrf_id);
""",
    # quotas that are reserved: nobody can tell from what was given what was the default until then, which two slices
    # could not have had; it becomes a part, and that is never less than what is installed
    7: """
ALTER TABLE planes ADD COLUMN sizes TEXT NOT NULL DEFAULT '{}';
ALTER TABLE slices ADD COLUMN said TEXT NOT NULL DEFAULT '[]';
ALTER TABLE slices ADD COLUMN overcommit INTEGER NOT NULL DEFAULT 0;
UPDATE slices SET said = (
    SELECT json_group_array(name) FROM (
        SELECT 'ipv4_routes' AS name, 1000000 AS usual UNION SELECT 'ipv6_routes', 500000
        UNION SELECT 'nexthops', 4096 UNION SELECT 'groups', 1024
    ) WHERE json_extract(quota, '$.' || name) <> usual);
""",
    # a punt class for each protocol: it has the rate of the class that its packets were in until then, control for
    # routing and ARP, local for BFD, BGP, ICMP and what else is for the router, exception for the last four
    8: """
UPDATE slices SET quota = (
    SELECT json_set(quota, '$.punts_per_s', json_array(local, control, local, control, local, local, glean,
        exception, exception, exception, exception))
    FROM (SELECT json_extract(quota, '$.punts_per_s[0]') AS control, json_extract(quota, '$.punts_per_s[1]') AS local,
        json_extract(quota, '$.punts_per_s[2]') AS glean, json_extract(quota, '$.punts_per_s[3]') AS exception));
""",
    # punt classes that share meters
    9: """
ALTER TABLE planes ADD COLUMN shared_meters TEXT NOT NULL DEFAULT '[]';
""",
    # shares, all as they are where none is said, and the ids by which planes know slices
    10: """
ALTER TABLE slices ADD COLUMN id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE slices ADD COLUMN share TEXT NOT NULL DEFAULT '{}';
ALTER TABLE routers ADD COLUMN share TEXT NOT NULL DEFAULT '{}';
ALTER TABLE tombstones ADD COLUMN share TEXT NOT NULL DEFAULT '{}';
UPDATE slices SET id = rowid;
INSERT INTO meta SELECT 'next_slice', coalesce(max(id), 0) + 1 FROM slices;
""",
}
"""What brings a store from one version to the next."""

_ROUTER = (
    "vrf_id, tenant, name, plane, hold_time_s, source, guest, text, memory_mib, vcpus, image, suite, placement, "
    "came_from, share"
)
"""The columns of a router, in the order of its row."""

_PLANE_CERTIFICATE = "serial, plane, pem, directory, revoked"


class SqliteStore:
    """A `Store` in a directory that only its owner may read; made where it does not exist."""

    def __init__(self, directory: Path, remedy: str = "") -> None:
        """``remedy`` is what is said of every error, where that is not what an operator can do about it."""
        self._path, self._remedy = directory / FILE, remedy
        self._writing = threading.RLock()  # held for a transaction, and by who opens `_db` or closes it
        self._state: State | None = None  # as it is stored, where that is known: it takes long to read
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)
        except OSError as problem:
            raise StoreError(f"state directory {directory}: {problem.strerror}; give another with --state") from None
        with self._errors():
            self._db = self._open()
            self._prepare()
            self._reader = self._connect()

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        db = self._connect()
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "busy_timeout = 2000"):
            db.execute(f"PRAGMA {pragma}")
        return db

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)

    def _prepare(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == SCHEMA_VERSION:
            return
        if not 0 <= version < SCHEMA_VERSION:
            self._db.close()
            kept = self._kept(SCHEMA_VERSION)
            back = f", or go back to {kept.name} (docs/operations.md, Upgrade)" if kept.exists() else ""
            raise StoreError(
                f"{self._path} has schema {version}, this controller knows {SCHEMA_VERSION}; upgrade it{back}"
            )
        if version:
            self._keep(version)
        with self._transaction() as db:
            if not version:
                _execute(db, _SCHEMA)
                first = {"identity": secrets.randbits(32), "next_vrf": 1, "next_interface": 1}
                db.executemany("INSERT INTO meta VALUES(?, ?)", first.items())
            for step in range(version or 1, SCHEMA_VERSION):
                _execute(db, _MIGRATIONS[step])
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _kept(self, version: int) -> Path:
        return self._path.with_name(f"{FILE}.schema-{version}")

    def _keep(self, version: int) -> None:
        """Keep the store as it is beside it, before it becomes one that the version before cannot read."""
        kept = self._kept(version)
        new = kept.with_name(f"{kept.name}.new")
        try:
            new.unlink(missing_ok=True)
            self._copy_to(new)
            new.replace(kept)
            sync_directory(kept.parent)
        except (sqlite3.Error, OSError) as problem:
            self._db.close()
            raise StoreError(
                f"{kept} cannot be written, and without this copy nothing is migrated: {problem}; make room for it"
            ) from None

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as problem:
            full = getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            remedy = "make room" if full else "repair it, restore a backup, or give another --state"
            raise StoreError(f"{self._path}: {problem}; {self._remedy or remedy}") from None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing, self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                if self._db.in_transaction:  # SQLite has rolled it back where the disk is full
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _unsynced(self) -> Iterator[None]:
        """Let a transaction not wait for the disk; the write-ahead log keeps it whole and in order all the same."""
        pages = self._db.execute("PRAGMA wal_autocheckpoint").fetchone()[0]
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA wal_autocheckpoint = 0")  # which waits for the disk
        try:
            yield
        finally:
            self._db.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            self._db.execute("PRAGMA synchronous = FULL")

    def load(self) -> Snapshot:
        """Read everything in one transaction."""
        with self._transaction() as db:
            return read_snapshot(db)

    def commit(self, state: State, ids: Ids, holds: Sequence[Hold], tombstones: Sequence[Tombstone]) -> None:
        """Replace the declared state and the issued ids; add holds and tombstones."""
        with self._writing:
            with self._transaction() as db:
                before, self._state = self._state, None  # it is read again after whatever goes wrong
                write_state(db, before or read_snapshot(db).state, state)
                write_ids(db, ids)
                for hold in holds:
                    at = hold.attachment
                    row = (at.plane, at.port, at.vlan, hold.interface_id, hold.vrf_id)
                    db.execute("INSERT OR REPLACE INTO holds VALUES(?, ?, ?, ?, ?)", row)
                for tombstone in tombstones:
                    row = (*rows.router_row(tombstone.router), int(tombstone.plane_clean), int(tombstone.guest_clean))
                    columns = f"{_ROUTER}, plane_clean, guest_clean"
                    marks = ", ".join("?" * len(row))
                    db.execute(f"INSERT OR REPLACE INTO tombstones({columns}) VALUES({marks})", row)
            self._state = state

    def release(self, vrf_id: int) -> None:
        """Forget the holds of a router."""
        with self._transaction() as db:
            db.execute("DELETE FROM holds WHERE vrf_id = ?", (vrf_id,))

    def mark_clean(self, vrf_id: int, *, plane: bool = False, guest: bool = False) -> None:
        """Note what of a deleted router is clean, and forget it when all is."""
        with self._transaction() as db:
            db.execute(
                "UPDATE tombstones SET plane_clean = plane_clean | ?, guest_clean = guest_clean | ? WHERE vrf_id = ?",
                (int(plane), int(guest), vrf_id),
            )
            if plane:
                db.execute("DELETE FROM holds WHERE vrf_id = ?", (vrf_id,))
            db.execute("DELETE FROM tombstones WHERE vrf_id = ? AND plane_clean AND guest_clean", (vrf_id,))

    def add_certificates(self, certificates: Sequence[Certificate]) -> None:
        """Remember certificates that were issued to routers.

        Not synced to the disk before the next change is: where a crash of the host loses them, they are issued again.
        """
        rows_of = [(one.serial, one.vrf_id, int(one.revoked)) for one in certificates]
        with self._writing, self._errors(), self._unsynced(), self._transaction() as db:
            db.executemany("INSERT INTO certificates VALUES(?, ?, ?)", rows_of)

    def valid_serials(self, vrf_ids: Collection[int]) -> dict[str, int]:
        """Return the serials of these routers' certificates that are not revoked, with the router of each."""
        with self._errors():
            marks = ", ".join("?" * len(vrf_ids))
            query = f"SELECT serial, vrf_id FROM certificates WHERE vrf_id IN ({marks}) AND NOT revoked"
            return dict(self._reader.execute(query, tuple(vrf_ids)))

    def certified(self) -> set[int]:
        """Return the routers that have a certificate which is not revoked."""
        with self._errors():
            found = self._reader.execute("SELECT DISTINCT vrf_id FROM certificates WHERE NOT revoked")
            return {vrf_id for (vrf_id,) in found}

    def revoke_certificates(self, vrf_id: int) -> None:
        """Revoke every certificate of a router; a revoked one and one never issued are alike, so rows may go."""
        with self._transaction() as db:
            db.execute("DELETE FROM certificates WHERE vrf_id = ? AND revoked", (vrf_id,))
            db.execute("UPDATE certificates SET revoked = 1 WHERE vrf_id = ?", (vrf_id,))

    def keep_certificates(self, serials: Mapping[int, str]) -> None:
        """Revoke all certificates of some routers but one of each; their rows go, as with `revoke_certificates`."""
        with self._writing:
            others = [serial for serial, vrf_id in self.valid_serials(serials).items() if serials[vrf_id] != serial]
            if not others:
                return
            with self._transaction() as db:
                db.executemany("DELETE FROM certificates WHERE serial = ?", [(serial,) for serial in others])

    def find_certificate(self, serial: str) -> Certificate | None:
        """Return the certificate with this serial, if it was issued here."""
        with self._errors():
            row = self._reader.execute("SELECT * FROM certificates WHERE serial = ?", (serial,)).fetchone()
        return Certificate(row[0], row[1], bool(row[2])) if row else None

    def plane_certificates(self) -> list[PlaneCertificate]:
        """Return the certificates of planes, those that were revoked too, oldest first."""
        with self._errors():
            found = self._reader.execute(f"SELECT {_PLANE_CERTIFICATE} FROM plane_certificates ORDER BY number")
            return [PlaneCertificate(row[0], row[1], row[2], row[3], bool(row[4])) for row in found]

    def add_plane_certificate(self, certificate: PlaneCertificate) -> None:
        """Remember a certificate of a plane. No other one is renewed in its directory any more."""
        one = certificate
        row = (one.serial, one.plane, one.pem, one.directory, int(one.revoked))
        with self._transaction() as db:
            if one.directory:
                db.execute("UPDATE plane_certificates SET directory = '' WHERE directory = ?", (one.directory,))
            db.execute(f"INSERT INTO plane_certificates({_PLANE_CERTIFICATE}) VALUES(?, ?, ?, ?, ?)", row)

    def revoke_plane_certificates(self, serials: Sequence[str]) -> None:
        """Revoke certificates of planes."""
        with self._transaction() as db:
            db.executemany("UPDATE plane_certificates SET revoked = 1 WHERE serial = ?", [(one,) for one in serials])

    def forget_plane_certificates(self, serials: Sequence[str]) -> None:
        """Forget certificates of planes that have ended."""
        with self._transaction() as db:
            db.executemany("DELETE FROM plane_certificates WHERE serial = ?", [(one,) for one in serials])

    def backup(self, path: Path) -> None:
        """Write a consistent snapshot to a new file, readable by its owner only."""
        with self._errors():
            self._copy_to(path)

    def _copy_to(self, path: Path) -> None:
        """Copy what is committed, without the room of what was deleted."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        # By a connection of its own: that of all others is not held up, and what it has not committed is not seen.
        with contextlib.closing(sqlite3.connect(self._path)) as source:
            source.execute("VACUUM INTO ?", (str(path),))

    def close(self) -> None:
        """Close the file, once nobody writes to it."""
        with self._writing:
            self._reader.close()
            self._db.close()


def _execute(db: sqlite3.Connection, statements: str) -> None:
    """Run statements inside a transaction, which executescript would end."""
    for statement in statements.split(";"):
        db.execute(statement)


def read_snapshot(db: sqlite3.Connection) -> Snapshot:
    """Read everything a store holds but certificates."""
    found = [rows.plane_of(row) for row in db.execute("SELECT * FROM planes")]
    planes = [(plane, attached) for plane, attached, _ in found]
    slices: dict[str, list[SliceConfig]] = {}
    for tenant, part in map(rows.slice_of, db.execute("SELECT * FROM slices ORDER BY tenant, plane")):
        slices.setdefault(tenant, []).append(part)
    names = [name for (name,) in db.execute("SELECT name FROM tenants")]
    tenants = {name: TenantConfig(name, tuple(slices.get(name, ()))) for name in names}
    interfaces: dict[int, list[Any]] = {}
    for vrf_id, interface in map(rows.interface_of, db.execute("SELECT * FROM interfaces ORDER BY vrf_id, position")):
        interfaces.setdefault(vrf_id, []).append(interface)
    parts = {(tenant, part.plane): part for tenant, own in slices.items() for part in own}
    routers: dict[str, RouterConfig] = {}
    for row in db.execute(f"SELECT {_ROUTER} FROM routers"):
        router = rows.router_of(row, parts.get((row[1], row[3])), tuple(interfaces.get(row[0], ())))
        routers[router.full_name] = router
    state = State(
        {plane.name: plane for plane, _ in planes},
        tenants,
        routers,
        frozenset(map(rows.link_of, db.execute("SELECT * FROM links"))),
        frozenset(plane.name for plane, attached in planes if not attached),
        {plane.name: sizes for plane, _, sizes in found if sizes},
    )
    holds = tuple(Hold(Attachment(*row[:3]), row[3], row[4]) for row in db.execute("SELECT * FROM holds"))
    tombstones = tuple(
        Tombstone(rows.router_of(row[:-2], None, ()), bool(row[-2]), bool(row[-1]))
        for row in db.execute(f"SELECT {_ROUTER}, plane_clean, guest_clean FROM tombstones")
    )
    meta = dict(db.execute("SELECT key, value FROM meta"))
    taken = frozenset(router.vrf_id for router in routers.values()) | {t.router.vrf_id for t in tombstones}
    ids = Ids(meta["next_vrf"], meta["next_interface"], taken, meta["identity"], meta["next_slice"])
    return Snapshot(state, ids, holds, tombstones)


def write_ids(db: sqlite3.Connection, ids: Ids) -> None:
    """Store how far the ids are issued."""
    counters = {"next_vrf": ids.next_vrf, "next_interface": ids.next_interface, "next_slice": ids.next_slice}
    db.executemany("UPDATE meta SET value = ? WHERE key = ?", [(value, key) for key, value in counters.items()])


def write_state(db: sqlite3.Connection, before: State, after: State) -> None:
    """Write what differs; routers that change go first, so that a port can change hands in one transaction."""
    new = {name: router for name, router in after.routers.items() if before.routers.get(name) != router}
    changed = list(new.values())
    gone = [old for name, old in before.routers.items() if name in new or name not in after.routers]
    db.executemany("DELETE FROM routers WHERE vrf_id = ?", [(router.vrf_id,) for router in gone])
    marks = ", ".join("?" * len(_ROUTER.split()))
    db.executemany(f"INSERT INTO routers({_ROUTER}) VALUES({marks})", map(rows.router_row, changed))
    for router in changed:
        interfaces = [rows.interface_row(router, at, interface) for at, interface in enumerate(router.interfaces)]
        db.executemany("INSERT INTO interfaces VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", interfaces)
    if (before.planes, before.detached, before.sizes) != (after.planes, after.detached, after.sizes):
        db.execute("DELETE FROM planes")
        planes = [
            rows.plane_row(plane, name not in after.detached, after.sizes.get(name, {}))
            for name, plane in after.planes.items()
        ]
        db.executemany("INSERT INTO planes VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", planes)
    if before.tenants != after.tenants:
        db.execute("DELETE FROM slices")
        db.execute("DELETE FROM tenants")
        db.executemany("INSERT INTO tenants VALUES(?)", [(name,) for name in after.tenants])
        slices = [rows.slice_row(tenant.name, part) for tenant in after.tenants.values() for part in tenant.slices]
        db.executemany("INSERT INTO slices VALUES(?, ?, ?, ?, ?, ?, ?, ?)", slices)
    if before.links != after.links:
        db.execute("DELETE FROM links")
        db.executemany("INSERT INTO links VALUES(?, ?, ?, ?, ?, ?, ?)", map(rows.link_row, sorted(after.links)))
