"""A store of the version before, without shares: all have that of every other, and slices get ids."""

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

from controller.model import USUAL_SHARE, Share
from controller.spec.state import State
from controller.store.sqlite import FILE, SqliteStore

DUMP = Path(__file__).with_name("schema_9.sql")


def migrated(directory: Path) -> SqliteStore:
    with contextlib.closing(sqlite3.connect(directory / FILE)) as db:
        db.executescript(DUMP.read_text())
    return SqliteStore(directory)


def slice_ids(state: State) -> dict[str, int]:
    return {f"{t.name}@{part.plane}": part.id for t in state.tenants.values() for part in t.slices}


def test_nobody_has_more_than_another(tmp_path: Path) -> None:
    snapshot = migrated(tmp_path).load()
    shares = {part.share for tenant in snapshot.state.tenants.values() for part in tenant.slices}
    shares |= {router.share for router in snapshot.state.routers.values()}
    shares |= {tombstone.router.share for tombstone in snapshot.tombstones}
    assert shares == {USUAL_SHARE}


def test_every_slice_has_an_id_and_the_next_one_gets_another(tmp_path: Path) -> None:
    snapshot = migrated(tmp_path).load()
    ids = slice_ids(snapshot.state)
    assert set(ids) == {"red@hw", "red@s1", "blue@s1", "green@s1", "black@s1"}
    assert len(set(ids.values())) == len(ids)
    assert min(ids.values()) > 0
    assert snapshot.ids.slice() not in ids.values()
    routers = snapshot.state.routers
    assert {name: router.slice_id for name, router in routers.items()} == {
        name: ids[f"{router.tenant}@{router.plane}"] for name, router in routers.items()
    }


def test_shares_and_ids_are_kept(tmp_path: Path) -> None:
    store = migrated(tmp_path)
    snapshot = store.load()
    state, ids, share = snapshot.state, snapshot.ids, Share(3, 100_000, 400_000)
    red = state.tenants["red"]
    slices = tuple(replace(part, share=share) for part in red.slices)
    router = replace(state.routers["red/r1"], share=Share(7))
    issued = ids.slice()
    tenants = {**state.tenants, "red": replace(red, slices=slices)}
    store.commit(replace(state, tenants=tenants, routers={**state.routers, "red/r1": router}), ids, (), ())
    store.close()
    kept = SqliteStore(tmp_path).load()
    assert {part.share for part in kept.state.tenants["red"].slices} == {share}
    assert slice_ids(kept.state) == slice_ids(state)
    assert (kept.state.routers["red/r1"].share, kept.state.routers["red/r1"].slice_share) == (Share(7), share)
    assert kept.ids.slice() > issued
