"""Every command of vrctl on a running system: tables for people, JSON and YAML for programs, exit status."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_world import FAR, World, world
from rig import document, unbroken, until
from rig_switches import BRIDGE
from ruamel.yaml import YAML

pytestmark = pytest.mark.root

SHOWING = {
    "get tenants": "NAME  SLICES",
    "get routers": "ROUTER   PLANE  GUEST",
    "get planes": "NAME  KIND",
    "get interfaces": "ROUTER   NAME   PORT",
    "routes red/r1": "198.51.100.0/24  forward    10.2.0.2 right weight 1",
    "fib red/r1": "198.51.100.0/24  nexthop",
    "neighbors red/r1": "feed       10.3.0.2",
    "counters red/r1": "PUNTS         PACKETS",
    "trace red/r1 192.0.2.1": "port 2 (p2)",
    "verify": " prefixes, equal\nred/r1: ",
    "verify red/r1": " prefixes, equal\n",
    "events": "router-created red/r1: created",
}


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with world() as found:
        yield found


@pytest.mark.parametrize("command", SHOWING)
def test_what_shows_the_state(running: World, command: str) -> None:
    rig, words = running.rig, command.split()
    assert SHOWING[command] in rig.ok(*words)

    def alike() -> bool:
        """Whether both forms show as much; something may have come or gone in between."""
        from_json = json.loads(rig.ok(*words, "-o", "json"))
        from_yaml = YAML(typ="safe", pure=True).load(rig.ok(*words, "-o", "yaml"))
        assert type(from_json) is type(from_yaml)
        return len(from_json) == len(from_yaml) > 0

    until("as much in both", alike)


def test_trace_names_tables_entry_and_port(running: World) -> None:
    steps = {step["table"]: step for step in running.rig.show("trace", "red/r1", FAR, "-i", "left")}
    tables = "interface_classifier l3_admit punt ipv4_route ttl nexthop router_interface"
    assert " ".join(steps) == tables
    assert steps["ipv4_route"]["entry"] == "192.0.2.0/24"
    assert "port 2 (p2)" in steps["router_interface"]["action"]
    assert "unreachable" in running.rig.ok("trace", "red/r1", "172.16.0.1")


def test_diff_shows_what_apply_would_change_and_changes_nothing(running: World) -> None:
    rig, text = running.rig, document(*running.declared.values())
    assert rig.ok("diff", "-f", "-", text=text) == "nothing to change\n"
    other = text.replace("10.1.0.1/24", "10.1.0.9/24")
    said = rig.ok("diff", "-f", "-", text=other)
    assert "change router red/r1" in said
    assert "10.1.0.9/24" in said
    assert rig.ok("diff", "-f", "-", text=text) == "nothing to change\n"
    assert rig.ok("apply", "-f", "-", text=text) == "nothing to change\n"


def test_exec_runs_in_the_guest_with_its_exit_status(running: World) -> None:
    rig = running.rig
    assert "198.51.100.0/24" in rig.ok("exec", "red/r1", "--", "vtysh", "-c", "show ip route bgp")
    assert rig.vrctl("exec", "red/r1", "--", "sh", "-c", "exit 7").returncode == 7
    assert "no router 'red/r9'" in rig.complaint("exec", "red/r9", "--", "true")


def test_capture_writes_what_the_plane_punts(running: World, tmp_path: Path) -> None:
    rig, file = running.rig, tmp_path / "punted.pcap"
    command = rig.command("capture", "red/r1", "left", "-w", str(file))
    with subprocess.Popen(command, env=rig.environment) as capture:
        try:
            pings = rig.spawn(running.red.left, "ping", "-q", "-i", "0.1", "10.1.0.1")  # until it captures
            # Both ways, as the capture may begin between a request and its reply.
            said = ("10.1.0.2 > 10.1.0.1: ICMP echo request", "10.1.0.1 > 10.1.0.2: ICMP echo reply")
            until("requests and replies", lambda: all(_tcpdump(file).count(one) >= 3 for one in said))
            pings.kill()
        finally:
            capture.terminate()


def _tcpdump(file: Path) -> str:
    return subprocess.run(["tcpdump", "-n", "-r", str(file)], capture_output=True, text=True, check=False).stdout


def test_events_are_followed(running: World) -> None:
    rig = running.rig
    with subprocess.Popen(rig.command("events", "--follow"), env=rig.environment, stdout=subprocess.PIPE) as follow:
        assert follow.stdout is not None
        try:
            rig.ok("plane", "attach", "s3", "--datapath-id", "0x3")
            lines = iter(follow.stdout.readline, b"")
            assert any(b"plane-created s3: created" in line for line in lines)
        finally:
            follow.terminate()
    rig.ok("delete", "plane", "s3")


def test_a_list_is_watched(running: World) -> None:
    rig = running.rig
    command = rig.command("get", "planes", "--watch", "-o", "json")
    with subprocess.Popen(command, env=rig.environment, stdout=subprocess.PIPE) as watch:
        assert watch.stdout is not None
        try:
            changes = map(json.loads, iter(watch.stdout.readline, b""))
            assert next(changes)["name"] == "s1"
            rig.ok("plane", "attach", "s3", "--datapath-id", "0x3")
            assert any((one["change"], one["name"]) == ("added", "s3") for one in changes)
            rig.ok("delete", "plane", "s3")
            assert any((one["change"], one["name"]) == ("removed", "s3") for one in changes)
        finally:
            watch.terminate()


def test_a_detached_plane_forwards_on(running: World) -> None:
    rig = running.rig
    with unbroken(rig, *running.ways):
        rig.ok("plane", "detach", "s1")
        assert rig.show("get", "planes")[0]["reason"] == "detached"
        assert rig.router("red/r1")["reason"] == "plane s1: detached; use it again with vrctl plane attach"
        assert "vrctl plane attach s1" in rig.complaint("verify", "red/r1")
        flows = rig.flows()
        rig.kill_controller()
        rig.start_controller()
        assert "use it again with vrctl plane attach" in rig.ok("get", "routers")
        rig.ok("plane", "attach", "s1")
        rig.up("red/r1", "blue/r1")
    until("the flows as they were", lambda: rig.flows() == flows)  # neighbors may have been given up
    rig.verified()


def test_backup_and_restore(running: World, tmp_path: Path) -> None:
    rig, file = running.rig, tmp_path / "backup"
    interfaces = rig.show("get", "interfaces")
    rig.ok("backup", str(file))
    assert file.stat().st_mode & 0o077 == 0
    rig.ok("delete", "tenant", "red")
    assert "give --force" in rig.complaint("restore", str(file))
    with unbroken(rig, (running.blue.left, FAR)):
        rig.ok("restore", "--force", str(file))
        until("the controller again", lambda: _has(running, "red/r1"))
        rig.up("red/r1", "blue/r1")
    assert [one["mac"] for one in rig.show("get", "interfaces")] == [one["mac"] for one in interfaces]
    rig.verified()
    assert "no backup of vr-controller" in rig.complaint("restore", "--force", "/etc/hostname")


def _has(running: World, router: str) -> bool:
    with contextlib.suppress(Exception):
        return bool(running.rig.router(router))
    return False


def test_completion_and_wrong_usage(running: World) -> None:
    rig = running.rig
    environment = {"COMP_WORDS": "vrctl routes r", "COMP_CWORD": "2", "_VRCTL_COMPLETE": "complete_bash"}
    environment |= {"SPLITPLANE_SOCKET": str(rig.run / "api.sock")}
    done = subprocess.run(rig.command()[:1], env=rig.environment | environment, capture_output=True, text=True)
    assert done.stdout.split() == ["red/r1"]
    for arguments in (["get", "nonsense"], ["apply"], ["delete"], ["frobnicate"]):
        assert rig.vrctl(*arguments).returncode == 2


def test_delete_with_the_file_that_apply_took(running: World) -> None:
    rig = running.rig
    text = document(*running.declared.values())
    said = rig.ok("delete", "-f", "-", text=text)
    assert {"delete tenant red", "delete tenant blue", "delete plane s1"} <= set(said.splitlines())
    assert rig.show("get", "tenants") == rig.show("get", "planes") == []
    assert "metadata" not in rig.ovs.ofctl("dump-flows", BRIDGE, "table=0")
