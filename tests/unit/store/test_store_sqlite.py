"""The store: what goes in comes out, one transaction is all or nothing, and a `kill -9` is no exception."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from controller.errors import StoreError
from controller.model import (
    NAMESPACE,
    Capacity,
    FallbackConfig,
    GuestConfig,
    GuestKind,
    Placement,
    PlaneConfig,
    PlaneKind,
    PlanePort,
    RouteSource,
    Routing,
    Suite,
    TenantConfig,
)
from controller.spec.merge import merge
from controller.spec.parse import parse
from controller.spec.state import Attachment, Hold, Ids, State, Tombstone
from controller.store import sqlite
from controller.store.base import Certificate
from controller.store.sqlite import FILE, SqliteStore

TEXT = """\
version: 1
planes: [{name: s1, datapath_id: "0xffffffffffffffff", shared_meters: [[ttl, mtu], [bfd, bgp]]}]
tenants:
  - name: red
    slices:
      - {plane: s1, ports: {p1: [untagged, 100-110], p2: [7]}, quota: {groups: 3, punts_per_s: {glean: 9}}}
    routers:
      - name: r1
        plane: s1
        source: netlink
        hold_time_s: 5
        interfaces:
          - {name: eth0, port: p1, addresses: [10.0.0.1/24, 2001:db8::1/64], virtual_macs: ["00:00:5e:00:01:01"]}
          - {name: to-r2, mtu: 9000, admin: down}
        frr: |
          router bgp 65001
      - {name: r2, plane: s1, interfaces: [{name: to-r1}]}
    links:
      - ends: [{router: r1, interface: to-r2, port: pa}, {router: r2, interface: to-r1, port: pb}]
"""


def declared(text: str, store: SqliteStore) -> tuple[State, Ids]:
    snapshot = store.load()
    ids = snapshot.ids.copy()
    return merge(parse(text, "t.yaml"), snapshot.state, ids, {})[0], ids


def test_everything_declared_comes_back_from_a_new_process(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state")
    state, ids = declared(TEXT, store)
    store.commit(state, ids, (), ())
    store.close()
    again = SqliteStore(tmp_path / "state").load()
    assert again.state == replace(state, detached=frozenset())
    assert (again.ids.next_vrf, again.ids.next_interface, again.ids.identity) == (3, 4, ids.identity)
    assert again.ids.taken == {1, 2}


def test_a_disk_that_is_full_is_called_so_and_the_store_goes_on(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    state, ids = declared(TEXT, store)
    store.commit(state, ids, (), ())
    router = state.routers["red/r1"]
    larger = {"red/r1": replace(router, routing=Routing(Suite.FRR, "x" * 1_000_000))}
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match=r"database or disk is full; make room$"):
        store.commit(replace(state, routers=state.routers | larger), ids, (), ())
    assert store.load().state == state
    store.commit(replace(state, routers={}, links=frozenset()), ids, (), ())


def test_a_virtual_mac_that_a_store_has_twice_is_one(tmp_path: Path) -> None:
    """No document may name one twice: whatever else was declared would be refused for it."""
    store = SqliteStore(tmp_path / "state")
    state, ids = declared(TEXT, store)
    store.commit(state, ids, (), ())
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / FILE)) as db, db:
        db.execute("UPDATE interfaces SET virtual_macs = CAST(virtual_macs || virtual_macs AS BLOB)")
    assert SqliteStore(tmp_path / "state").load().state == replace(state, detached=frozenset())


def test_the_directory_is_private(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "state")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / FILE).stat().st_mode & 0o777 == 0o600


def test_two_routers_swap_a_port_in_one_transaction(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    state, ids = declared(TEXT.replace("{name: to-r1}", "{name: to-r1}, {name: eth0, port: p2, vlan: 7}"), store)
    store.commit(state, ids, (), ())
    one, other = state.routers["red/r1"], state.routers["red/r2"]
    first, second = one.interfaces[0], other.interfaces[1]
    swapped = {
        "red/r1": replace(one, interfaces=(replace(first, port="p2", vlan=7), one.interfaces[1])),
        "red/r2": replace(other, interfaces=(other.interfaces[0], replace(second, port="p1", vlan=0))),
    }
    store.commit(replace(state, routers=swapped), ids, (), ())
    assert store.load().state.routers == swapped


def test_a_refused_commit_leaves_the_old_state(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    state, ids = declared(TEXT, store)
    store.commit(state, ids, (), ())
    one, other = state.routers["red/r1"], state.routers["red/r2"]
    clash = replace(other, interfaces=(replace(other.interfaces[0], port="p1", vlan=0),))
    with pytest.raises(StoreError, match="UNIQUE"):
        store.commit(replace(state, routers={"red/r1": one, "red/r2": clash}, planes={}), ids, (), ())
    assert store.load().state == state


def test_tombstones_and_holds_last_until_they_are_confirmed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    state, ids = declared(TEXT, store)
    store.commit(state, ids, (), ())
    router = state.routers["red/r2"]
    hold = Hold(Attachment("s1", "pb", 0), router.interfaces[0].id, router.vrf_id)
    routers = {"red/r1": replace(state.routers["red/r1"], interfaces=())}
    store.commit(replace(state, routers=routers, links=frozenset()), ids, [hold], [Tombstone(router)])
    snapshot = SqliteStore(tmp_path).load()
    assert snapshot.holds == (hold,)
    assert [t.router.full_name for t in snapshot.tombstones] == ["red/r2"]
    assert router.vrf_id in snapshot.ids.taken
    store.mark_clean(router.vrf_id, guest=True)
    assert len(store.load().tombstones) == 1
    store.mark_clean(router.vrf_id, plane=True)
    assert (store.load().tombstones, store.load().holds) == ((), ())
    assert router.vrf_id not in store.load().ids.taken


def test_a_certificate_is_valid_until_revoked(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.add_certificates([Certificate("aa", 1)])
    assert store.find_certificate("aa") == Certificate("aa", 1)
    store.revoke_certificates(1)
    assert store.find_certificate("aa") == Certificate("aa", 1, revoked=True)
    assert store.find_certificate("bb") is None


def test_certificates_that_were_issued_wait_for_no_disk_and_all_else_does(tmp_path: Path) -> None:
    store, said = SqliteStore(tmp_path), []
    store._db.set_trace_callback(said.append)
    store.add_certificates([Certificate("aa", 1)])
    inserted = next(number for number, text in enumerate(said) if text.startswith("INSERT"))
    before, after = said[:inserted], said[inserted:]
    assert [text for text in before if text.startswith("PRAGMA synchronous")] == ["PRAGMA synchronous = NORMAL"]
    assert after.index("COMMIT") < after.index("PRAGMA synchronous = FULL")
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._db.execute("PRAGMA wal_autocheckpoint").fetchone() == (1000,)
    store.close()
    assert SqliteStore(tmp_path).find_certificate("aa") == Certificate("aa", 1)


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all, but long enough to look like one" * 40)
    with pytest.raises(StoreError, match="file is not a database"):
        SqliteStore(tmp_path)


def test_a_directory_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreError, match="give another with --state"):
        SqliteStore(tmp_path / "state")


def test_p4runtime_planes_come_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    ports = (PlanePort("p1", 1), PlanePort("p2", 2, "s1-eth2"))
    plane = PlaneConfig("b1", PlaneKind.P4RUNTIME, 0, "unix:/run/b1.sock", (1 << 64) - 1, ports)
    state = State({"b1": plane})
    store.commit(state, store.load().ids, (), ())
    store.close()
    assert SqliteStore(tmp_path).load().state == state


def test_a_fallback_and_a_placement_come_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    state, ids = declared(TEXT.replace("plane: s1, interfaces", "plane: s1, placement: software, interfaces"), store)
    assert state.routers["red/r2"].placement is Placement.SOFTWARE
    plane = replace(state.planes["s1"], fallback=FallbackConfig("f1", "s1-f1", "f1-s1"), capacity=Capacity(1000, 9))
    moved = replace(state.routers["red/r2"], came_from=Placement.HARDWARE)
    state = replace(state, planes={**state.planes, "s1": plane, "f1": PlaneConfig("f1", PlaneKind.FAKE)})
    state = replace(state, routers={**state.routers, "red/r2": moved})
    store.commit(state, ids, (), [Tombstone(replace(state.routers["red/r2"], vrf_id=9))])
    found = store.load()
    assert found.state == state
    assert [tombstone.router.placement for tombstone in found.tombstones] == [Placement.SOFTWARE]


_OF_VERSION_2 = """
INSERT INTO planes(name, kind, datapath_id, attached) VALUES('s2', 'openflow', '0x2', 0);
INSERT INTO tenants VALUES('red');
INSERT INTO routers(vrf_id, tenant, name, plane, hold_time_s, source, guest, frr)
    VALUES(3, 'red', 'r3', 's2', 60, 'netlink', 'netns', 'router bgp 65001');
INSERT INTO tombstones(vrf_id, tenant, name, plane, hold_time_s, source, guest, frr, plane_clean, guest_clean)
    VALUES(4, 'red', 'r4', 's2', 120, 'fpm', 'netns', '!', 1, 0);
"""


def made_by_version(version: int, path: Path) -> None:
    """Make a store as a controller of an earlier version left it."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(sqlite._SCHEMA)
        for step in range(1, version):
            db.executescript(sqlite._MIGRATIONS[step])
        meta = {"identity": 7, "next_vrf": 5, "next_interface": 1}
        db.executemany("INSERT INTO meta VALUES(?, ?)", meta.items())
        rows = _OF_VERSION_2.replace("guest, frr", "guest, text") if version > 3 else _OF_VERSION_2
        db.executescript(f"{rows} PRAGMA user_version = {version};")


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_a_store_of_an_earlier_version_is_brought_to_this_one(tmp_path: Path, version: int) -> None:
    made_by_version(version, tmp_path / FILE)
    for _ in range(2):  # and stays there
        store = SqliteStore(tmp_path)
        found = store.load()
        assert found.state.planes == {"s2": PlaneConfig("s2", PlaneKind.OPENFLOW, 2)}
        assert found.state.detached == {"s2"}
        router = found.state.routers["red/r3"]
        assert (router.vrf_id, router.hold_time_s, router.routing) == (3, 60, Routing(Suite.FRR, "router bgp 65001"))
        assert (router.source, router.guest) == (RouteSource.NETLINK, NAMESPACE)
        (tombstone,) = found.tombstones
        assert (tombstone.router.full_name, tombstone.router.guest) == ("red/r4", NAMESPACE)
        assert (tombstone.plane_clean, tombstone.guest_clean) == (True, False)
        store.close()


def test_a_machine_s_sizes_come_back_also_of_a_deleted_router(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    machine = "plane: s1, guest: {kind: kvm, memory: 1G, vcpus: 2, image: /srv/image}"
    state, ids = declared(TEXT.replace("plane: s1, interfaces", f"{machine}, interfaces"), store)
    wanted = GuestConfig(GuestKind.KVM, 1024, 2, "/srv/image")
    assert state.routers["red/r2"].guest == wanted
    store.commit(state, ids, (), [Tombstone(replace(state.routers["red/r2"], vrf_id=9))])
    found = store.load()
    assert found.state.routers["red/r2"].guest == wanted
    assert [tombstone.router.guest for tombstone in found.tombstones] == [wanted]


@pytest.mark.parametrize("suite", [Suite.BIRD, Suite.IP])
def test_suites_come_back_also_of_a_deleted_router(tmp_path: Path, suite: Suite) -> None:
    store = SqliteStore(tmp_path)
    state, ids = declared(TEXT.replace("frr: |", f"{suite}: |"), store)
    wanted = Routing(suite, "router bgp 65001\n")
    assert state.routers["red/r1"].routing == wanted
    store.commit(state, ids, (), [Tombstone(replace(state.routers["red/r1"], vrf_id=9))])
    found = store.load()
    assert found.state.routers["red/r1"].routing == wanted
    assert [tombstone.router.routing for tombstone in found.tombstones] == [wanted]


def test_another_schema_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="has schema 99, this controller knows 11"):
        SqliteStore(tmp_path)


def test_detached_planes_are_remembered(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    plane = PlaneConfig("s1", PlaneKind.FAKE)
    state = State({"s1": plane}, {"red": TenantConfig("red")}, {}, frozenset(), frozenset({"s1"}))
    store.commit(state, store.load().ids, (), ())
    assert store.load().state == state


_WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from controller.model import PlaneConfig, PlaneKind, TenantConfig
from controller.spec.state import State
from controller.store.sqlite import SqliteStore

store = SqliteStore(Path(sys.argv[1]))
for number in range(1_000_000):
    names = [f"t{number}-{part}" for part in range(20)]
    state = State({names[0]: PlaneConfig(names[0], PlaneKind.FAKE, number + 1)}, {n: TenantConfig(n) for n in names})
    ids = store.load().ids
    ids.next_vrf = number + 2
    store.commit(state, ids, (), ())
    print(number, flush=True)
"""


def test_a_backup_by_another_thread_has_what_is_committed_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state")
    store.add_certificates([Certificate("committed", 1)])
    with store._transaction() as db:
        db.execute("INSERT INTO certificates VALUES('not yet', 1, 0)")
        thread = threading.Thread(target=store.backup, args=(tmp_path / FILE,), daemon=True)
        thread.start()
        thread.join(10.0)
        assert not thread.is_alive()
    assert SqliteStore(tmp_path).valid_serials([1]) == {"committed": 1}


def test_kill_9_in_the_middle_of_writing_leaves_one_whole_state(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            confirmed = int(line)
            if confirmed >= 5:
                break
        os.kill(writer.pid, signal.SIGKILL)
        confirmed = max([confirmed, *map(int, writer.stdout.read().split())])
    snapshot = SqliteStore(tmp_path).load()
    (plane,) = snapshot.state.planes.values()
    found = plane.datapath_id - 1
    assert found in (confirmed, confirmed + 1)
    assert snapshot.state.tenants.keys() == {f"t{found}-{part}" for part in range(20)}
    assert snapshot.ids.next_vrf == found + 2


def test_what_this_process_has_stored_is_not_read_again_before_the_next_change(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    state, ids = declared(TEXT, store)
    store.commit(state, ids, (), ())
    statements: list[str] = []
    store._db.set_trace_callback(statements.append)
    state = replace(state, routers={"red/r1": state.routers["red/r1"]}, links=frozenset())
    store.commit(state, ids, (), ())
    assert statements
    assert not [one for one in statements if one.startswith("SELECT")]
    store._db.set_trace_callback(None)
    assert store.load().state == state


def test_what_is_stored_is_read_again_after_a_change_that_failed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    state, ids = declared(TEXT, store)
    store.commit(state, ids, (), ())
    one, other = replace(state.routers["red/r1"], hold_time_s=77), state.routers["red/r2"]
    clash = replace(other, interfaces=(replace(other.interfaces[0], port="p1", vlan=0),))
    broken = replace(state, routers={"red/r1": one, "red/r2": clash})
    with pytest.raises(StoreError, match="UNIQUE"):
        store.commit(broken, ids, (), ())
    store.commit(replace(state, routers={"red/r1": one}, links=frozenset()), ids, (), ())
    assert store.load().state.routers == {"red/r1": one}
    store.commit(state, ids, (), ())
    assert store.load().state == state
