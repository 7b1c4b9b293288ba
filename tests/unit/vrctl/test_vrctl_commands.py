"""Every command of vrctl, against a controller on fakes over a real Unix socket: output and exit status."""

import asyncio
import errno
import json
import os
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from operator_world import Controller
from ruamel.yaml import YAML

from controller.model import PlaneConfig, PlaneKind, PlanePort, Routing, Suite
from controller.views import CapturedFrame
from controller.vrctl import listings
from controller.vrctl.guest import command_for
from controller.vrctl.live import frames

Vrctl = Callable[..., Awaitable[tuple[int, str, str]]]

FRR = "router bgp 65001\n"
TEXT = """\
version: 1
planes: [{name: s1, kind: fake}]
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [untagged, 100]}}]
    routers:
      - name: r1
        plane: s1
        interfaces: [{name: eth0, port: p1, vlan: 100, addresses: [10.0.0.1/24]}]
        frr_file: frr/r1.conf
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "frr").mkdir()
    (tmp_path / "frr" / "r1.conf").write_text(FRR)
    path = tmp_path / "net.yaml"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
async def applied(controller: Controller, file: str) -> str:
    await controller.apply(TEXT, {"frr/r1.conf": FRR})
    return file


def table(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


async def test_apply_says_what_it_did_and_diff_what_it_would(vrctl: Vrctl, file: str, controller: Controller) -> None:
    status, would, _ = await vrctl("diff", "-f", file)
    assert status == 0
    assert controller.core.calls == []
    status, did, _ = await vrctl("apply", "-f", file)
    assert (status, did) == (0, would)
    assert did.splitlines() == ["create plane s1", "create tenant red", "create slice red@s1", "create router red/r1"]
    assert controller.views.router("r1").routing.text == FRR
    assert (await vrctl("apply", "-f", file))[1] == "nothing to change\n"
    assert json.loads((await vrctl("diff", "-f", file, "-o", "json"))[1]) == []


@pytest.mark.parametrize("suite", [Suite.BIRD, Suite.IP])
async def test_the_file_of_another_suite_is_sent_along(
    vrctl: Vrctl, file: str, controller: Controller, suite: Suite
) -> None:
    Path(file).write_text(TEXT.replace("frr_file: frr/r1.conf", f"{suite}_file: r1.conf"))
    Path(file).with_name("r1.conf").write_text("# nothing yet\n")
    assert (await vrctl("apply", "-f", file))[0] == 0
    assert controller.views.router("r1").routing == Routing(suite, "# nothing yet\n")
    shown = json.loads((await vrctl("get", "routers", "-o", "json"))[1])
    assert [view["suite"] for view in shown] == [suite]


async def test_a_wrong_document_is_one_line_and_status_1(vrctl: Vrctl, file: str) -> None:
    Path(file).write_text(TEXT.replace("vlan: 100", "vlam: 100"))
    status, out, err = await vrctl("apply", "-f", file)
    assert (status, out) == (1, "")
    assert err == (
        f"vrctl: {file}:9: unknown key 'vlam'; known here: "
        "name, port, vlan, mac, mtu, addresses, virtual_macs, admin\n"
    )


async def test_what_only_the_controller_can_tell_is_one_line_too(vrctl: Vrctl, file: str) -> None:
    Path(file).write_text(TEXT.replace("vlan: 100", "vlan: 7"))
    status, _, err = await vrctl("apply", "-f", file)
    assert status == 1
    assert err.startswith(
        f"vrctl: {file}:9: interface eth0 of red/r1: port p1 VLAN 7 of plane s1 is not in the slice"
    )
    assert err.count("\n") == 1


async def test_missing_files_are_named(vrctl: Vrctl, file: str, tmp_path: Path) -> None:
    (tmp_path / "frr" / "r1.conf").unlink()
    assert (await vrctl("apply", "-f", file))[2].endswith(":10: frr_file frr/r1.conf: No such file or directory\n")
    status, _, err = await vrctl("apply", "-f", str(tmp_path / "none.yaml"))
    assert status == 1
    assert "none.yaml: No such file or directory; give another file with -f" in err


@pytest.mark.parametrize("name", ["a\\0b", "a\\nb", ""])
async def test_a_file_that_cannot_be_is_named_in_one_line(vrctl: Vrctl, file: str, name: str) -> None:
    Path(file).write_text(TEXT.replace("frr/r1.conf", f'"{name}"'))
    status, out, err = await vrctl("apply", "-f", file)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"vrctl: {file}:10: frr_file ")


@pytest.mark.parametrize("name", ["red/", "/r1", "red/r1/x", "red//r1"])
async def test_what_names_no_router_is_said_to_be_none(vrctl: Vrctl, name: str) -> None:
    assert await vrctl("fib", name) == (1, "", f"vrctl: no router '{name}'; see vrctl get routers\n")


@pytest.mark.parametrize(
    "command",
    [
        *(("fib", ""), ("verify", ""), ("delete", "tenant", ""), ("delete", "router", ""), ("delete", "plane", "")),
        *(("plane", "attach", "", "--kind", "fake"), ("plane", "detach", ""), ("plane", "revoke", "")),
    ],
)
async def test_an_empty_name_is_said(vrctl: Vrctl, applied: str, controller: Controller, command: list[str]) -> None:
    assert await vrctl(*command) == (1, "", "vrctl: a name is empty; vrctl get lists those there are\n")
    assert controller.core.routers


async def test_arguments_that_are_no_text_are_wrong_usage(vrctl: Vrctl, applied: str) -> None:
    assert await vrctl("fib", "\udcff") == (2, "", "vrctl: argument '\\udcff' is not UTF-8 text\n")
    status, _, err = await vrctl("exec", "r1", "--", "")
    assert (status, "give a command after --" in err) == (2, True)


async def test_a_guest_that_fails_is_status_1_and_a_plane_that_is_away_a_warning(
    vrctl: Vrctl, file: str, controller: Controller
) -> None:
    controller.guests.failing["red/r1"] = "FRR is missing"
    controller.core.unreachable.add("s1")
    status, _, err = await vrctl("apply", "-f", file)
    assert status == 1
    assert "vrctl: red/r1: FRR is missing\n" in err
    assert "vrctl: warning: plane s1 is not connected" in err


def test_a_quota_of_hardware_is_shown_with_what_is_used() -> None:
    quota = {"hardware_ipv4_routes": 500, "hardware_ipv6_routes": None}
    part = {"plane": "s1", "ports": {"p1": "untagged"}, "quota": quota, "used": {"hardware_ipv4_routes": 37}}
    assert listings.tenant_row({"slices": [part]})["slices"] == ["s1: p1 untagged; hardware_ipv4_routes 37/500"]


def test_a_plane_shows_how_full_its_route_tables_are_and_who_says_so() -> None:
    tables = {"ipv4_route": {"used": 40, "capacity": 1000, "source": "given"}}
    tables["ipv6_route"] = {"used": 3, "capacity": None, "source": ""}
    entries = {"nexthop": 2, "ipv4_route": 4000, "ipv6_route": 3, "hardware ipv4_route": 40}
    row = listings.plane_row({"ports": [], "entries": entries, "tables": tables})
    assert (row["routes"], row["entries"]) == ({"ipv4": "40/1000 given", "ipv6": "3"}, {"nexthop": 2})


async def test_get_lists_every_kind(vrctl: Vrctl, applied: str) -> None:
    assert table((await vrctl("get", "routers"))[1])[1][:5] == ["red/r1", "s1", "netns", "up", "3"]
    assert table((await vrctl("get", "planes"))[1])[1][:3] == ["s1", "fake", "yes"]
    assert "p1 untagged 100" in (await vrctl("get", "tenants"))[1]
    (red,) = json.loads((await vrctl("get", "tenants", "-o", "json"))[1])
    assert (red["slices"][0]["quota"]["ipv4_routes"], red["slices"][0]["used"]["ipv4_routes"]) == (1_000_000, 3)
    assert table((await vrctl("get", "interfaces"))[1])[1][:4] == ["red/r1", "eth0", "p1", "100"]
    assert json.loads((await vrctl("get", "routers", "-o", "json"))[1])[0]["state"] == "up"
    assert YAML(typ="safe", pure=True).load((await vrctl("get", "tenants", "-o", "yaml"))[1])[0]["name"] == "red"


async def test_nothing_to_list_is_told_apart_from_the_output(vrctl: Vrctl) -> None:
    assert await vrctl("get", "routers") == (0, "", "no routers\n")
    assert json.loads((await vrctl("get", "routers", "-o", "json"))[1]) == []
    assert (await vrctl("get", "routers", "-o", "yaml"))[1] == "[]\n"


async def test_routes_and_fib_of_any_length(vrctl: Vrctl, applied: str, controller: Controller) -> None:
    controller.core.rows = 1203
    lines = (await vrctl("routes", "r1"))[1].splitlines()
    assert len(lines) == 1204
    assert lines[-1].split() == ["10.4.178.0/24", "forward", "192.0.2.1", "eth0", "weight", "1", "no", "yes"]
    assert len(json.loads((await vrctl("fib", "red/r1", "-o", "json"))[1])) == 1203


async def test_counters_of_routes(vrctl: Vrctl, applied: str, controller: Controller) -> None:
    assert (await vrctl("apply", "-f", applied))[0] == 0
    status, out, err = await vrctl("counters", "red/r1", "--routes")
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()[:2]] == [
        ["PREFIX", "PLANE", "PACKETS", "OCTETS", "COUNTED"],
        ["10.0.0.0/24", "s1", "1000", "64000", "sampled"],
    ]
    controller.core.rows = 0
    assert await vrctl("counters", "red/r1", "--routes") == (0, "", "no packet has met a route\n")


async def test_fib_says_where_only_on_a_plane_with_a_fallback(
    vrctl: Vrctl, applied: str, controller: Controller
) -> None:
    assert "WHERE" not in (await vrctl("fib", "r1"))[1]
    controller.core.rows, controller.core.where = 5, ("hardware", "software")
    assert "WHERE" in (await vrctl("fib", "r1"))[1]
    rows = json.loads((await vrctl("fib", "r1", "--where", "software", "-o", "json"))[1])
    assert [row["prefix"] for row in rows] == ["10.0.1.0/24", "10.0.3.0/24"]
    controller.core.rows = 1
    assert await vrctl("fib", "r1", "--where", "software") == (0, "", "nothing is in software\n")


async def test_a_router_whose_plane_was_detached_at_the_start_is_shown_as_declared(
    vrctl: Vrctl, applied: str, controller: Controller
) -> None:
    await vrctl("plane", "detach", "s1")
    controller.core.routers.clear()
    (plane,) = json.loads((await vrctl("get", "planes", "-o", "json"))[1])
    assert (plane["connected"], plane["routers"]) == (False, 1)
    assert ["red/r1", "eth0", "p1"] in [row[:3] for row in table((await vrctl("get", "interfaces"))[1])]
    asked = ("routes r1", "fib r1", "neighbors r1", "counters r1", "counters r1 --routes", "trace r1 10.0.0.1")
    for command in (*asked, "verify r1", "verify r1 --repair", "capture r1"):
        attach = "vrctl: no plane in use 's1'; use it again with vrctl plane attach s1\n"
        assert await vrctl(*command.split()) == (1, "", attach), command


async def test_neighbors_counters_and_trace(vrctl: Vrctl, applied: str) -> None:
    assert "192.0.2.1  02:00:00:00:00:01  resolved" in (await vrctl("neighbors", "r1"))[1]
    counters = (await vrctl("counters", "r1"))[1]
    assert ["eth0", "5", "320", "0", "0"] in table(counters)
    assert ["local", "2"] in table(counters)
    assert ["martian", "1"] in table(counters)
    assert "punt unreachable" in (await vrctl("trace", "r1", "192.0.2.9"))[1]


async def test_verify_is_status_1_where_they_differ_and_repairs_where_asked(
    vrctl: Vrctl, applied: str, controller: Controller
) -> None:
    assert await vrctl("verify") == (0, "red/r1: 3 prefixes, equal\n", "")
    controller.core.equal = False
    assert (await vrctl("verify", "r1"))[:2] == (1, "red/r1: 3 prefixes, 1 ranges of addresses differ\n")
    assert (await vrctl("verify", "r1", "--repair"))[0] == 0


async def test_verify_goes_on_past_a_router_whose_plane_is_away(vrctl: Vrctl, controller: Controller) -> None:
    slices, routers = ", ".join(f"{{plane: s{n}}}" for n in (1, 2)), [f"{{name: r{n}, plane: s{n}}}" for n in (1, 2)]
    planes = "planes: [{name: s1, kind: fake}, {name: s2, kind: fake}]"
    tenants = f"tenants: [{{name: red, slices: [{slices}], routers: [{', '.join(routers)}]}}]"
    await controller.apply(f"version: 1\n{planes}\n{tenants}\n")
    controller.core.unreachable.add("s1")
    away = "vrctl: red/r1: plane s1 is not reachable: not connected\n"
    assert await vrctl("verify") == (1, "red/r2: 3 prefixes, equal\n", away)
    status, out, err = await vrctl("verify", "-o", "json")
    assert (status, [view["router"] for view in json.loads(out)], err) == (1, ["red/r2"], away)
    assert (await vrctl("verify", "r1"))[:2] == (1, "")
    assert (await vrctl("verify", "r2"))[0] == 0


async def test_events_are_listed(vrctl: Vrctl, applied: str) -> None:
    assert "router-created red/r1: created" in (await vrctl("events"))[1]
    kinds = [event["kind"] for event in json.loads((await vrctl("events", "-o", "json"))[1])]
    assert kinds == ["plane-created", "tenant-created", "slice-created", "router-created"]


async def test_events_are_followed(served: Path, applied: str, controller: Controller) -> None:
    from controller.vrctl.client import Client, path_of

    lines = Client(served).lines("GET", path_of("events", since=4, follow=True))
    waiting = asyncio.create_task(asyncio.to_thread(next, lines))
    controller.events.emit("warning", "test", "red/r1", "now")
    assert (await waiting)["kind"] == "test"
    await asyncio.to_thread(lines.close)


async def test_capture_writes_a_pcap_file(vrctl: Vrctl, applied: str, controller: Controller, tmp_path: Path) -> None:
    controller.core.frames = [
        CapturedFrame(12.5, True, bytes(range(60))),
        CapturedFrame(13.0, False, b"x" * 14),
    ]
    assert (await vrctl("capture", "r1", "eth0", "-w", str(tmp_path / "c.pcap")))[0] == 0
    content = (tmp_path / "c.pcap").read_bytes()
    assert struct.unpack("<I", content[:4]) == (0xA1B2C3D4,)
    cut = [content[at : at + 7] for at in range(0, len(content), 7)]
    assert list(frames.records(iter(cut))) == [(12.5, bytes(range(60))), (13.0, b"x" * 14)]
    assert (await vrctl("capture", "r1", "eth0", "-c", "1", "-w", str(tmp_path / "one.pcap")))[0] == 0
    assert (tmp_path / "one.pcap").read_bytes() == content[: 24 + 16 + 60]
    assert "no interface 'red/r1 eth9'" in (await vrctl("capture", "r1", "eth9"))[2]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (
            "ffffffffffff 020000000001 0806 0001080006040001 020000000001 0a000001 000000000000 0a000002",
            "ARP who has 10.0.0.2 from 10.0.0.1",
        ),
        (
            "020000000002 020000000001 0800 45000014 00000000 01010000 0a000001 0a000002",
            "10.0.0.1 > 10.0.0.2 ICMP ttl 1",
        ),
        ("020000000002 020000000001 0800 45", "ethertype 0x0800"),
        ("0180c2000014 020000000001 0010 feFE", "LLC"),
        ("", "LLC"),
    ],
)
def test_a_frame_is_one_line_whatever_it_is(frame: str, words: str) -> None:
    assert words in frames.summary(0.0, bytes.fromhex(frame))


async def test_exec_runs_the_command_the_controller_names(
    vrctl: Vrctl, applied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run_apart(argv: list[str]) -> int:
        ran.append(argv)
        return 7

    monkeypatch.setattr("controller.vrctl.live.terminal.run_apart", run_apart)
    assert (await vrctl("exec", "r1", "--", "vtysh", "-c", "show ip route"))[0] == 7
    assert ran == [["env", "GUEST_PID=4242", "vtysh", "-c", "show ip route"]]


async def test_a_log_is_printed_without_control_characters(
    vrctl: Vrctl, applied: str, controller: Controller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "guest.log"
    log.write_bytes(b"bgpd: \x1b]0;title\x07\x1b[2J up\xc2\x9b\t\xe2\x80\xae\xff\r\nr\xc3\xa9seau\nlast")
    monkeypatch.setattr(controller.guests, "log_path", lambda _: log)
    assert (await vrctl("logs", "r1"))[:2] == (0, "bgpd: ?]0;title??[2J up?\t?\ufffd\nr\u00e9seau\nlast")


def test_exec_enters_the_controllers_namespaces_where_they_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "readlink", lambda path: "other" if path == "/proc/77/ns/net" else "same")
    command = " ".join(command_for(77, ["a", "b"]))
    assert "/usr/bin/nsenter --target 77 --net -- " in command
    assert command.endswith(" -- a b")


async def test_delete_by_name_and_by_file(vrctl: Vrctl, applied: str, controller: Controller) -> None:
    assert (await vrctl("delete", "router", "r1"))[1] == "delete router red/r1\n"
    assert (await vrctl("delete", "tenant", "red"))[1] == "delete tenant red\ndelete slice red@s1\n"
    assert (await vrctl("delete", "plane", "s1"))[1] == "delete plane s1\n"
    await vrctl("apply", "-f", applied)
    assert (await vrctl("delete", "-o", "json", "tenant", "red"))[:2] == (2, "")
    status, out, _ = await vrctl("delete", "-f", applied, "-o", "json")
    assert status == 0
    assert [change["kind"] for change in json.loads(out)["changes"]][-1] == "plane"
    assert not controller.operations.state.planes
    assert not controller.guests.running_specs


async def test_planes_are_attached_and_detached(vrctl: Vrctl, controller: Controller) -> None:
    assert (await vrctl("plane", "attach", "s9"))[
        2
    ] == "vrctl: no plane 's9'; give --datapath-id or --address to attach a new one\n"
    assert (await vrctl("plane", "attach", "s9", "--datapath-id", "0x2a"))[0] == 0
    assert controller.operations.state.planes["s9"].datapath_id == 42
    assert (await vrctl("plane", "detach", "s9"))[1] == "change plane s9\n    detached\n"
    assert table((await vrctl("get", "planes"))[1])[1][:5] == ["s9", "openflow", "datapath", "0x2a", "no"]


async def test_a_p4runtime_plane_is_attached_and_gets_another_port(vrctl: Vrctl, controller: Controller) -> None:
    declared = ("plane", "attach", "b1", "--address", "127.0.0.1:9559", "--port", "p1=1")
    assert await vrctl(*declared, "--port", "p2=2:s1-eth2") == (0, "create plane b1\n", "")
    ports = (PlanePort("p1", 1), PlanePort("p2", 2, "s1-eth2"))
    known = controller.operations.state.planes["b1"]
    assert known == PlaneConfig("b1", PlaneKind.P4RUNTIME, 0, "127.0.0.1:9559", 1, ports)
    assert table((await vrctl("get", "planes"))[1])[1][2:5] == ["127.0.0.1:9559", "device", "1"]
    changed = (await vrctl("plane", "attach", "b1", "--device-id", "7"))[1]
    assert changed == "change plane b1\n    device_id 1 → 7\n"
    changed = (await vrctl("plane", "attach", "b1", "--port", "p1=3", "--port", "p2=2:s1-eth2"))[1]
    assert changed == "change plane b1\n    port p1: 1 → 3\n"
    assert controller.operations.state.planes["b1"].device_id == 7


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--address", "127.0.0.1:9559"], 1, "attach: plane b1 of kind p4runtime needs ports"),
        (["--kind", "p4runtime", "--port", "p1=1"], 1, "attach: plane b1 of kind p4runtime needs an address"),
        (["--datapath-id", "1", "--device-id", "1"], 1, "plane b1 of kind openflow has no device_id; leave it out"),
        (["--address", "localhost", "--port", "p1=1"], 1, "vrctl: address: 'localhost' should be HOST:PORT"),
        (["--kind", "ovs"], 1, "vrctl: kind: Input should be 'openflow', 'p4runtime' or 'fake'"),
        (["--datapath-id", "1" + 16 * "0"], 2, "is no datapath id; write it as 0x1"),
        (["--datapath-id", "1" + 5000 * "0"], 2, "is no datapath id; write it as 0x1"),
        (["--port", "p1"], 2, "'p1' is no port; write it as p1=1 or p2=2:s1-eth2"),
        (["--port", "p1=1:"], 2, "'p1=1:' is no port"),
        (["--port", "p1=\u0663"], 2, "'p1=\u0663' is no port"),
        (["--port", "p1=1" + 5000 * "0"], 2, "is no port; write it as p1=1"),
        (["--port", "p1=1", "--port", "p1=2"], 2, "port p1 is given twice"),
        (["--port", "p1=0", "--address", "[::1]:9559"], 1, "greater than or equal to 1"),
    ],
)
async def test_a_plane_that_cannot_be_is_not_attached(
    vrctl: Vrctl, controller: Controller, options: list[str], status: int, words: str
) -> None:
    done = await vrctl("plane", "attach", "b1", *options)
    assert done[0] == status
    assert words in " ".join(done[2].replace("│", "").split())
    assert not controller.operations.state.planes


async def test_the_version_needs_no_controller(vrctl: Vrctl) -> None:
    status, out, _ = await vrctl("--version")
    assert status == 0
    assert out.split()[0] == "vrctl"
    assert out.split()[1][0].isdigit()


def test_a_table_counts_ports_and_names_those_that_are_down() -> None:
    view = {"name": "s1", "ports": ["p1 (1) up", "p2 (2) down", "p3 (3) up"], "entries": {}, "tables": {}}
    row = listings.plane_row(view)
    assert row["ports"] == ["2 up", "1 down: p2 (2)"]
    assert listings.plane_row(view | {"ports": []})["ports"] == []


async def test_a_switch_gets_a_private_key(vrctl: Vrctl, applied: str, tmp_path: Path) -> None:
    assert (await vrctl("plane", "certificate", "s1", "-d", str(tmp_path)))[0] == 0
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    assert "BEGIN CERTIFICATE" in (tmp_path / "cert.pem").read_text()


async def test_a_key_is_not_replaced_without_its_certificate(vrctl: Vrctl, applied: str, tmp_path: Path) -> None:
    assert (await vrctl("plane", "certificate", "s1", "-d", str(tmp_path)))[0] == 0
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.pem")}
    (tmp_path / ".ca.pem.new").mkdir()  # where the file is written: as good as a full disk
    status, _, err = await vrctl("plane", "certificate", "s1", "-d", str(tmp_path))
    assert (status, err.endswith("; nothing was written\n")) == (1, True)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.pem")} == before


async def test_no_certificate_is_issued_for_a_directory_that_is_not_there(
    vrctl: Vrctl, applied: str, controller: Controller, tmp_path: Path
) -> None:
    status, _, err = await vrctl("plane", "certificate", "s1", "-d", str(tmp_path / "none"))
    assert status == 2
    assert "does not exist" in err
    assert list(controller.planes.states()) == []


async def test_a_planes_certificate_is_listed_until_it_is_revoked(
    vrctl: Vrctl, applied: str, controller: Controller, tmp_path: Path
) -> None:
    names = ("--name", "192.0.2.7", "--name", "s1.example.net")
    assert (await vrctl("plane", "certificate", "s1", "-d", str(tmp_path), *names))[0] == 0
    ((*_, one),) = [json.loads((await vrctl("get", "certificates", "-o", "json"))[1])]
    assert (one["owner"], one["names"]) == ("plane s1", ["s1", "192.0.2.7", "s1.example.net"])
    assert (one["state"], one["directory"]) == ("valid", str(tmp_path))
    assert (await vrctl("plane", "certificate", "s1", "-d", str(tmp_path), "--no-renew"))[0] == 0
    assert list(controller.planes.states())[-1].directory == ""
    done = await vrctl("plane", "revoke", "s1", "--serial", one["serial"])
    assert done[:2] == (0, f"revoke certificate {one['serial']}\n")
    status, _, err = await vrctl("plane", "revoke", "s1", "--serial", one["serial"])
    assert status == 1
    assert err == f"vrctl: no certificate '{one['serial']}' of plane 's1'; see vrctl get certificates\n"
    status, _, err = await vrctl("plane", "certificate", "s1", "-d", str(tmp_path), "--name", "a b")
    assert (status, err) == (1, "vrctl: plane certificate: 'a b' is neither a DNS name nor an IP address\n")


async def test_authorities_are_rotated_and_retired(vrctl: Vrctl, applied: str, tmp_path: Path) -> None:
    assert (await vrctl("plane", "certificate", "s1", "-d", str(tmp_path), "--no-renew"))[0] == 0
    status, out, err = await vrctl("pki", "rotate")
    assert (status, out.count("the one before")) == (0, 2)
    assert "vrctl: warning: plane s1 needs a new certificate\n" in err
    assert (await vrctl("pki", "rotate"))[2].endswith("vrctl pki retire ends that\n")
    status, _, err = await vrctl("pki", "retire")
    assert status == 1
    assert err.startswith("vrctl: plane s1 needs a new certificate")
    assert err.endswith("do that first, or give --force\n")
    assert (await vrctl("pki", "retire", "--force"))[0] == 0
    assert (await vrctl("pki", "retire"))[2] == (
        "vrctl: there is no authority before this one; vrctl pki rotate makes a new one\n"
    )


async def test_backup_and_restore(vrctl: Vrctl, applied: str, controller: Controller, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup.tgz")
    assert (await vrctl("backup", backup))[0] == 0
    assert (await vrctl("backup", backup))[2] == f"vrctl: {backup} exists; give the name of a new file\n"
    status, _, err = await vrctl("restore", backup)
    assert (status, "give --force" in err, controller.restarts) == (1, True, 0)
    assert (await vrctl("restore", "--force", backup))[0] == 0
    assert controller.restarts == 1


@pytest.mark.parametrize(
    "argv",
    [["get", "nonsense"], ["apply"], ["delete"], ["nonsense"], ["get", "routers", "--nonsense"], ["plane", "attach"]],
)
def test_wrong_usage_is_status_2(argv: list[str]) -> None:
    from controller.vrctl.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["--socket", "/nonexistent", *argv])
    assert ended.value.code == 2


async def test_no_such_router_is_status_1_with_a_remedy(vrctl: Vrctl) -> None:
    assert await vrctl("routes", "red/r9") == (1, "", "vrctl: no router 'red/r9'; see vrctl get routers\n")
    assert await vrctl("fib", "r9") == (1, "", "vrctl: no router 'r9'; see vrctl get routers\n")


def test_no_controller_is_status_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from controller.vrctl.cli import main

    monkeypatch.setenv("SPLITPLANE_SOCKET", str(tmp_path / "none.sock"))
    with pytest.raises(SystemExit) as ended:
        main(["get", "routers"])
    assert ended.value.code == 3
    expected = f"vrctl: no controller at {tmp_path}/none.sock; start vr-controller or give --socket\n"
    assert capsys.readouterr().err == expected


def test_who_is_not_root_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from controller.vrctl.cli import main

    def refuse(self: socket.socket, address: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    path = tmp_path / "api.sock"
    path.touch()
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # as another user sees it: tests may be root's
    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(SystemExit) as ended:
        main(["--socket", str(path), "get", "routers"])
    expected = f"vrctl: no controller at {path} (permission denied); run vrctl as root\n"
    assert (ended.value.code, capsys.readouterr().err) == (3, expected)


@pytest.mark.parametrize(
    ("weight", "guarantee", "ceiling", "text"),
    [(1, None, None, "weight 1"), (2, 12.5, 40.0, "weight 2, guarantee 12.5 %, ceiling 40 %")],
)
def test_a_share_is_written_as_in_the_document(
    weight: int, guarantee: float | None, ceiling: float | None, text: str
) -> None:
    share = {"weight": weight, "guarantee_percent": guarantee, "ceiling_percent": ceiling}
    row = {"slice": "red@s1", "overcommit": False, "share": share, "used": {}, "reserved": {}, "quota": Counter()}
    assert listings.slice_row(row)["share"] == text


def test_the_share_that_every_other_router_has_is_left_blank() -> None:
    row = {"move": None, "reason": "", "remarks": [], "share": None}
    assert listings.router_row(row)["share"] == ""
