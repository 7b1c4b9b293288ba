"""A store of the version before, with rates for four classes of punts: each new class has that of its old one."""

import contextlib
import sqlite3
from pathlib import Path

from controller.model import PuntRates
from controller.store.sqlite import FILE, SqliteStore

DUMP = Path(__file__).with_name("schema_8.sql")


def migrated(directory: Path) -> dict[str, PuntRates]:
    with contextlib.closing(sqlite3.connect(directory / FILE)) as db:
        db.executescript(DUMP.read_text())
    state = SqliteStore(directory).load().state
    return {f"{t.name}@{part.plane}": part.quota.punts_per_s for t in state.tenants.values() for part in t.slices}


def test_each_class_has_the_rate_of_the_class_that_its_packets_were_in(tmp_path: Path) -> None:
    control, local, glean, exception = 500, 3000, 9, 50
    assert migrated(tmp_path)["green@s1"] == PuntRates(
        bfd=local,
        routing=control,
        bgp=local,
        arp=control,
        icmp=local,
        local=local,
        glean=glean,
        ttl=exception,
        mtu=exception,
        unreachable=exception,
        options=exception,
    )


def test_what_was_the_default_stays_as_it_was(tmp_path: Path) -> None:
    rates = migrated(tmp_path)
    assert set(rates) == {"red@hw", "red@s1", "blue@s1", "green@s1", "black@s1"}
    assert rates["red@hw"] == (4000, 1000, 4000, 1000, 4000, 4000, 200, 200, 200, 200, 200)


def test_nothing_else_of_a_quota_changes(tmp_path: Path) -> None:
    migrated(tmp_path)
    quota = SqliteStore(tmp_path).load().state.routers["red/r2"].quota
    assert (quota.hardware_ipv4_routes, quota.nexthops, quota.sets) == (300, 4096, 65_536)
