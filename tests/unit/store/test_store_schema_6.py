"""A store as the version before reservations wrote it: all of it is there, and nothing installed is refused."""

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from controller.errors import StoreError
from controller.spec.reservations import share
from controller.store.sqlite import FILE, SCHEMA_VERSION, SqliteStore

DUMP = Path(__file__).with_name("schema_6.sql")


def old_dump(directory: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(directory / FILE)) as db:
        db.executescript(DUMP.read_text())
        return list(db.iterdump())


def old_store(directory: Path) -> SqliteStore:
    if not (directory / FILE).exists():
        old_dump(directory)
    return SqliteStore(directory)


def test_everything_is_there(tmp_path: Path) -> None:
    snapshot = old_store(tmp_path).load()
    state = snapshot.state
    assert set(state.planes) == {"s1", "hw", "sw"}
    assert set(state.routers) == {"red/r1", "red/r2", "blue/r1", "green/r1"}
    assert [one.router.full_name for one in snapshot.tombstones] == ["green/gone"]
    assert len(snapshot.holds) == 1
    assert (snapshot.ids.next_vrf, snapshot.ids.next_interface, snapshot.ids.identity) == (6, 6, 7)
    assert state.planes["hw"].capacity.ipv4_route == 1000
    assert state.routers["green/r1"].quota.punts_per_s.glean == 9


def test_what_was_the_default_becomes_a_part_and_what_was_given_stays(tmp_path: Path) -> None:
    state = old_store(tmp_path).load().state
    said = {f"{t.name}@{part.plane}": part.said for t in state.tenants.values() for part in t.slices}
    assert said == {
        "red@hw": frozenset(),
        "red@s1": frozenset(),
        "blue@s1": frozenset(),
        "green@s1": {"ipv4_routes", "groups"},
        "black@s1": {"ipv4_routes"},
    }
    assert not any(part.overcommit for tenant in state.tenants.values() for part in tenant.slices)


def test_nothing_that_is_installed_is_refused(tmp_path: Path) -> None:
    """Quotas of 1,300,000 on a switch that says it has room for 1,000,000, and defaults of 1,000,000 beside them."""
    store = old_store(tmp_path)
    state = store.load().state
    installed = {"red": 250_000, "blue": 10, "green": 400_000, "black": 300_000}
    used = {tenant: {"ipv4_routes": count, "nexthops": 3} for tenant, count in installed.items()}
    sizes = {"s1": {"ipv4_route": 1_000_000, "ipv6_route": 1_000_000}}
    shares = share(replace(state, sizes=sizes), "s1", used)
    assert shares.short["ipv4_routes"] > 0
    for tenant, count in installed.items():
        assert shares.reserved[tenant]["ipv4_routes"] >= count
    assert sum(shares.reserved[tenant]["ipv4_routes"] for tenant in installed) <= 1_000_000
    assert shares.limits["red"].nexthops == 4096  # of a table whose size nobody knows


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    snapshot = store.load()
    state = replace(snapshot.state, sizes={"s1": {"ipv4_route": 1_000_000}})
    store.commit(state, snapshot.ids, (), ())
    store.close()
    again = SqliteStore(tmp_path).load().state
    assert (again, again.sizes) == (state, {"s1": {"ipv4_route": 1_000_000}})


def schema_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def test_the_store_as_it_was_is_kept_and_is_the_way_back(tmp_path: Path) -> None:
    before = old_dump(tmp_path)
    old_store(tmp_path).close()
    kept = tmp_path / f"{FILE}.schema-6"
    assert (schema_of(tmp_path / FILE), schema_of(kept), kept.stat().st_mode & 0o777) == (SCHEMA_VERSION, 6, 0o600)
    with contextlib.closing(sqlite3.connect(kept)) as db:
        assert list(db.iterdump()) == before
    SqliteStore(tmp_path).close()  # nothing to migrate, nothing to keep
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, kept.name]


def test_without_a_copy_nothing_is_migrated(tmp_path: Path) -> None:
    before = old_dump(tmp_path)
    (tmp_path / f"{FILE}.schema-6").mkdir()  # what stands in the copy's way
    with pytest.raises(StoreError, match=r"schema-6 cannot be written, and without this copy nothing is migrated: "):
        SqliteStore(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as db:
        assert list(db.iterdump()) == before
    assert schema_of(tmp_path / FILE) == 6


def test_a_newer_store_names_the_copy_that_this_version_can_read(tmp_path: Path) -> None:
    old_store(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    (tmp_path / f"{FILE}.schema-{SCHEMA_VERSION}").touch()
    with pytest.raises(StoreError, match=rf"upgrade it, or go back to {FILE}\.schema-{SCHEMA_VERSION} \(docs/"):
        SqliteStore(tmp_path)
