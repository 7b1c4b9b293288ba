"""What the operator is told of machines: states, last words, limits, and a fleet that pauses between starts."""

import asyncio
import contextlib
import json
import os
import socket
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
from operator_world import Controller
from test_machine_host_channel import to

from controller.errors import GuestError
from controller.events.untrusted_text import MAX_WORDS
from controller.guests import control, limits, pidfile
from controller.guests.base import BOOTING, BUSY, GuestSpec, GuestStatus
from controller.guests.fleet import LONGEST_PAUSE_S, SETTLED_S, SILENCE_S, STARTS_AT_ONCE, FirstLoad, GuestFleet
from controller.guests.guest_files import write_config
from controller.guests.guest_json import guest_config, vrc_command
from controller.guests.limits import Limits
from controller.guests.machine import qemu, seed
from controller.guests.machine.accelerator import AcceleratorProbe
from controller.guests.machine.console_log import MAX_CONSOLE_BYTES, bound_console
from controller.guests.machine.qemu import QemuDriver
from controller.guests.machine.readings import (
    CLOCK_TOLERANCE_S,
    Machine,
    clock_step_s,
    digest,
    machine_state,
    write_machine,
)
from controller.guests.suites.config_text import MAX_TEXT_BYTES
from controller.model import GuestConfig, GuestKind, Quota, RouterConfig, RouteSource, Routing
from controller.pki.authority import IDENTITY_FILES, PKI

LIMITS = Limits(512 << 20, 1.5, 64)
DOCUMENT = """\
version: 1
planes: [{name: s1, datapath_id: 1}]
tenants:
  - name: red
    slices: [{plane: s1, ports: {p1: [untagged]}}]
    routers:
      - {name: r1, plane: s1, interfaces: [{name: eth0, port: p1}]}
"""


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        ({"supervisor": "up", "oom_kills": 0}, "up"),
        ({"supervisor": "failed: exit status 1"}, "failed: exit status 1"),
        (
            {"supervisor": "up", "oom_kills": 3},
            "failed: out of memory, 3 processes were killed since it started; raise memory: under guest: (now 256M)",
        ),
    ],
)
def test_a_machine_s_state(reply: dict[str, object], state: str) -> None:
    assert machine_state(reply, 256) == state


def test_what_a_hostile_machine_says_of_itself_is_short_and_printable() -> None:
    assert machine_state({"supervisor": "\x1b[2J" * 100_000}, 256) == ("?[2J" * 100_000)[:MAX_WORDS]
    assert machine_state({"oom_kills": "\x1b" * 100_000}, 256) == "up"
    daemons = {f"\x1b{number}" * 50: ["\x07"] * 1000 for number in range(1000)}
    states, restarts = control.states_inside({"daemons": daemons, "restarts": "many"})
    assert restarts == 0
    assert len(states) <= 64
    assert all(name.isprintable() and len(name) <= 32 for name in states)
    assert all(state.isprintable() and len(state) <= MAX_WORDS for state in states.values())
    assert control.states_inside({"daemons": ["bgpd"], "restarts": -1}) == ({}, 0)
    assert control.states_inside({"daemons": {"bgpd": "up"}, "restarts": 2}) == ({"bgpd": "up"}, 2)


def driver_and_spec(tmp_path: Path) -> tuple[QemuDriver, GuestSpec]:
    spec = GuestSpec(
        *(1, "red/r1", RouteSource.FPM, Routing(text="!"), 30, tmp_path, tmp_path, tmp_path),
        guest=GuestConfig(GuestKind.KVM, 192, 1),
    )
    return QemuDriver(tmp_path, AcceleratorProbe(tmp_path)), spec


@pytest.mark.parametrize(
    ("age_s", "in_vain_s", "state", "restarted"),
    [
        (5.0, 5.0, BOOTING, True),  # started anew it has everything at once
        (86_400.0, 0.0, BUSY, False),  # as vr-host has just begun, and a command may have the channel
        (86_400.0, 61.0, "failed: it has not answered for 60 s; see vrctl logs red/r1", False),
        (86_400.0, 91.0, "failed: it has not answered for 60 s; see vrctl logs red/r1", True),
    ],
)
async def test_a_changed_machine_that_does_not_answer_is_started_anew_where_it_boots_or_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: float, in_vain_s: float, state: str, restarted: bool
) -> None:
    driver, spec = driver_and_spec(tmp_path)
    monkeypatch.setattr(qemu, "STATUS_LIMIT_S", 0.05)
    monkeypatch.setattr(pidfile, "age_s", lambda _: age_s)
    pidfile.write(tmp_path, os.getpid())
    driver._contacts[tmp_path].silent_since_s = time.monotonic() - in_vain_s
    former, config = ({"frr": {"ids": None, "text": text}, "vrc": {"uid": 1}} for text in ("!", "new"))
    identity = {"cert.pem": b""}
    started = Machine(192, 1, "image", identity=digest(identity))
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as silence:
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen()
        assert (await driver.status(spec)).daemons == {"machine": state}
        assert driver.trouble(spec) == ("its machine is booting" if state == BOOTING else "")
        if not restarted:
            silence.enter_context(pytest.raises(control.Silence))
        assert not await driver._changed_inside(spec, started, former, config, identity)


async def test_a_text_that_no_seed_has_room_for_is_refused_while_its_machine_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have it by a reload, and not start again."""
    asked: list[str] = []

    async def ask(*args: object, **_: object) -> dict[str, object]:
        asked.append(repr(args))
        return {"ok": True}

    async def take(_router: str, _routing: Routing) -> None:
        """As a host without FRR."""

    driver, spec = driver_and_spec(tmp_path)
    monkeypatch.setattr(driver, "_image_of", lambda *_: SimpleNamespace(directory="image", frr=""))
    monkeypatch.setattr(driver, "_digests", SimpleNamespace(check=lambda *_: asyncio.sleep(0, [])))
    monkeypatch.setattr(qemu, "_check_text", take)
    monkeypatch.setattr(control, "ask", ask)
    for name in IDENTITY_FILES:
        (tmp_path / name).touch()
    pidfile.write(tmp_path, os.getpid())
    driver._contacts[tmp_path].answered = os.getpid()
    identity = seed.read_identity(tmp_path, "red/r1")
    write_machine(tmp_path, Machine(192, 1, "image", identity=digest(identity)))
    write_config(tmp_path, guest_config(spec, qemu._PLACE, vrc_command(spec, "/usr/bin/python3")))
    text = "ip route 10.0.0.0/8 Null0\n" * 40_000
    assert len(text) < MAX_TEXT_BYTES
    router = RouterConfig(1, "red", "r1", "s1", Quota(), (), guest=spec.guest, routing=Routing(text=text))
    with pytest.raises(GuestError, match=r"^red/r1: its seed is larger than 1 MiB; shorten frr$"):
        await driver.check(router)
    with pytest.raises(GuestError, match=r"^red/r1: its seed is larger than 1 MiB; shorten frr$"):
        await driver.start(replace(spec, routing=router.routing))
    assert not asked


async def test_a_machine_whose_supervisor_hangs_is_busy_at_first_and_then_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            request = json.loads(line) if line.strip() else {"op": ""}
            if request["op"] == "machine":
                writer.write(to(request, supervisor="up") + b"\n")
            elif request["op"] == "reload":
                writer.write(json.dumps({"id": request["id"]} | full).encode() + b"\n")
            elif request["op"] == "status" and inside[0]:
                writer.write(json.dumps({"id": request["id"]} | inside[0]).encode() + b"\n")
        writer.close()

    driver, spec = driver_and_spec(tmp_path)
    contact = driver._contacts[tmp_path]
    full = {"ok": False, "error": "8 requests are unanswered already"}
    inside: list[dict[str, object]] = [full]
    monkeypatch.setattr(qemu, "STATUS_LIMIT_S", 1.0)
    monkeypatch.setattr(qemu, "LOOK_EVERY_S", 0.0)
    pidfile.write(tmp_path, os.getpid())
    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        assert (await driver.status(spec)).daemons == {"machine": BUSY}
        assert await driver.look_after(spec) == []
        contact.busy_since_s -= 61.0
        told = "supervisor: it has not answered for 60 s; see vrctl logs red/r1"
        assert (await driver.look_after(spec), driver.trouble(spec)) == ([told], told)
        inside[0] = {}  # those before were given up, so it is asked again, in vain
        assert (await driver.look_after(spec), driver.trouble(spec)) == ([], told)
        contact.busy_since_s -= 30.0
        former, config = ({"frr": {"ids": None, "text": text}, "vrc": {"uid": 1}} for text in ("!", "new"))
        started = Machine(192, 1, "image", identity=digest({}))
        assert not await driver._changed_inside(spec, started, former, config, {})  # a change starts it anew
        inside[0] = {"ok": True, "daemons": {"vrc": "up"}}
        assert (await driver.status(spec)).daemons == {"machine": "up", "vrc": "up"}
        assert contact.busy_since_s == inf
        inside[0] = full
        assert (await driver.status(spec)).daemons == {"machine": BUSY}


@pytest.mark.parametrize("changed", ["text", "identity"])
async def test_a_machine_that_answers_is_not_started_anew_because_it_once_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            request = json.loads(line) if line.strip() else {"op": ""}
            if request["op"] == "machine":
                writer.write(to(request, supervisor="up") + b"\n")
            elif request["op"]:
                asked.append(request["op"])
                writer.write(json.dumps({"id": request["id"]} | inside[0]).encode() + b"\n")
        writer.close()

    driver, spec = driver_and_spec(tmp_path)
    contact = driver._contacts[tmp_path]
    inside: list[dict[str, object]] = [{"ok": False, "error": "8 requests are unanswered already"}]
    pidfile.write(tmp_path, os.getpid())
    former, config = ({"frr": {"ids": None, "text": text}, "vrc": {"uid": 1}} for text in ("!", "new"))
    identity = {} if changed == "text" else {"cert.pem": b"new"}
    started = Machine(192, 1, "image", identity=digest({}))
    change = spec, started, former, config if changed == "text" else former, identity
    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        await driver.status(spec)
        inside[0] = {"ok": True, "daemons": {"vrc": "up"}}
        contact.busy_since_s -= 100.0  # nobody has asked since: a reload had the channel
        asked.clear()
        assert await driver._changed_inside(*change)
        assert asked == ["status", "reload" if changed == "text" else "identity"]
        contact.busy_since_s = 0.0
        monkeypatch.setattr(qemu, "REPLACE_AFTER_S", inf)
        assert await driver._changed_inside(*change)
        assert contact.busy_since_s == inf  # this was an answer


@pytest.mark.parametrize(
    ("console", "log", "words"),
    [
        ("", "", "QEMU was killed"),
        ("", "qemu-system-x86_64: one\nqemu-system-x86_64: Could not open it\n", "Could not open it"),
        ("Kernel panic - not syncing: VFS: no root\r\n", "", "kernel panic: VFS: no root"),
        (
            "Kernel panic - not syncing: System is deadlocked on memory\r\n",
            "",
            "out of memory; raise memory: under guest: (now 192M)",
        ),
    ],
)
async def test_a_machine_s_last_words(tmp_path: Path, console: str, log: str, words: str) -> None:
    driver, spec = driver_and_spec(tmp_path)
    (tmp_path / "console.log").write_text(console)
    (tmp_path / "qemu.log").write_text(log)
    assert await driver.last_words(spec) == words


def test_the_console_s_log_is_bounded_and_its_end_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(b"x" * MAX_CONSOLE_BYTES)
    bound_console(tmp_path)
    assert log.stat().st_size == MAX_CONSOLE_BYTES
    with log.open("ab", buffering=0) as file:
        file.write(b"the end")
        bound_console(tmp_path)
        file.write(b"goes on")
    assert log.read_bytes() == b"goes on"
    assert (tmp_path / "console.log.1").read_bytes().endswith(b"the end")


def controllers(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "cgroup.procs").touch()


def test_limits_of_control_groups_of_version_1_and_what_is_missing(tmp_path: Path) -> None:
    controllers(tmp_path, "memory", "pids")
    group = limits.make(Path("/state/guests/7"), LIMITS, tmp_path)
    assert group.missing == ("cpu",)
    memory, pids = (Path(procs).parent for procs in group.procs)
    assert (memory / "memory.limit_in_bytes").read_text() == str(512 << 20)
    assert (pids / "pids.max").read_text() == "64"
    other = limits.make(Path("/other/guests/7"), LIMITS, tmp_path)
    assert not set(other.procs) & set(group.procs)  # two controllers of one host


def test_limits_of_control_groups_of_version_2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory pids")
    for place in (tmp_path, tmp_path / "splitplane"):
        place.mkdir(exist_ok=True)
        (place / "cgroup.subtree_control").write_text("cpu memory pids")
    group = limits.make(Path("/state/guests/7"), LIMITS, tmp_path)
    assert group.missing == ()
    (procs,) = group.procs
    assert Path(procs).with_name("cpu.max").read_text() == "150000 100000"
    assert Path(procs).with_name("memory.max").read_text() == str(512 << 20)


def test_a_host_without_control_groups_is_said_to_lack_them_all(tmp_path: Path) -> None:
    assert limits.make(Path("/state/guests/7"), LIMITS, tmp_path).missing == limits.CONTROLLERS


# -- the fleet -------------------------------------------------------------------------------------------------------


class Watched:
    """A controller on fakes with one router, a clock, and a VRC that is there or not."""

    def __init__(self, state: Path) -> None:
        self.now, self.here = 1000.0, True
        self.controller = Controller(state)
        fakes = self.controller
        pki = PKI(state, fakes.store)
        self.fleet = GuestFleet(
            *(state, {GuestKind.NETNS: fakes.guests}, {}, pki, fakes.sessions, fakes.events),
            *(lambda _: self.here, lambda: self.now),
        )

    def kinds(self) -> list[str]:
        return [event.kind for event in self.controller.events.recent(0)]


@pytest.fixture
async def watched(tmp_path: Path) -> Watched:
    found = Watched(tmp_path)
    await found.controller.apply(DOCUMENT)
    return found


async def refused(fleet: GuestFleet, router: RouterConfig) -> str | None:
    try:
        await fleet.ensure(router)
    except GuestError as problem:
        return str(problem)
    return None


async def test_a_guest_that_keeps_dying_is_started_with_growing_pauses(watched: Watched) -> None:
    fleet, guests = watched.fleet, watched.controller.guests
    router = watched.controller.views.router("red/r1")
    guests.words = "kernel panic: no root"
    pauses = []
    for _ in range(9):
        await fleet.ensure(router)
        guests.running_specs.clear()
        await fleet.watch(router)
        before = watched.now
        while (refusal := await refused(fleet, router)) is not None:
            assert refusal.startswith("kernel panic: no root; it died ")
            assert fleet.trouble(router) == refusal
            watched.now += 0.5
        pauses.append(watched.now - before)
    assert pauses == [0, 2, 4, 8, 16, 32, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert fleet.trouble(router) == ""
    watched.now += SETTLED_S
    guests.running_specs.clear()
    await fleet.watch(router)
    await fleet.ensure(router)  # it had settled


async def test_a_changed_declaration_is_tried_at_once(watched: Watched) -> None:
    fleet, guests = watched.fleet, watched.controller.guests
    router = watched.controller.views.router("red/r1")
    for _ in range(2):
        await fleet.ensure(router)
        guests.running_specs.clear()
        await fleet.watch(router)
    assert await refused(fleet, router) is not None
    await fleet.ensure(replace(router, hold_time_s=7))


async def test_a_guest_that_never_connects_is_named(watched: Watched) -> None:
    fleet = watched.fleet
    router = watched.controller.views.router("red/r1")
    await fleet.ensure(router)
    watched.here = False
    watched.now += SILENCE_S - 1
    await fleet.watch(router)
    assert fleet.trouble(router) == ""
    watched.now += 1
    for _ in range(3):
        await fleet.watch(router)
    assert fleet.trouble(router) == "the guest has not connected for 60 s; see vrctl logs red/r1"
    assert watched.kinds().count("guest-silent") == 1
    watched.here = True
    await fleet.watch(router)
    assert fleet.trouble(router) == ""


async def test_a_guest_s_trouble_and_notices_reach_the_operator(watched: Watched) -> None:
    fleet, guests = watched.fleet, watched.controller.guests
    router = watched.controller.views.router("red/r1")
    await fleet.ensure(router)
    guests.troubles["red/r1"] = "out of memory"
    guests.notices = ["5 connections were refused"]
    await fleet.watch(router)
    assert fleet.trouble(router) == "out of memory"
    assert [e.text for e in watched.controller.events.recent(0) if e.kind == "guest-trouble"] == [
        "5 connections were refused"
    ]


async def test_guests_that_do_not_answer_take_the_places_of_their_own_tenant_alone(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def status(spec: GuestSpec) -> GuestStatus:
        if spec.router.startswith("red/"):
            asked.append(spec.router)
            await answer.wait()
        return GuestStatus(True, 4242, {"zebra": "up"}, 0)

    fleet, asked, answer = watched.fleet, list[str](), asyncio.Event()
    red = watched.controller.views.router("red/r1")
    monkeypatch.setattr(watched.controller.guests, "status", status)
    waiting = [asyncio.create_task(fleet.loaded(red)) for _ in range(STARTS_AT_ONCE + 1)]
    while len(asked) < STARTS_AT_ONCE:  # noqa: ASYNC110 - the fake tells nobody
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        assert await fleet.loaded(replace(red, vrf_id=99, tenant="blue")) == FirstLoad()
    assert len(asked) == STARTS_AT_ONCE
    answer.set()
    assert set(await asyncio.gather(*waiting)) == {FirstLoad()}
    assert not fleet._asking._places  # nothing is kept of a tenant for whom nobody waits


def test_a_clock_is_stepped_only_where_it_is_wrong_for_certain() -> None:
    near = CLOCK_TOLERANCE_S
    for told in (1000.0 - near, 1003.0 + near, None, "x", float("nan"), float("inf"), 10**400, -1.0):
        assert clock_step_s({"time_s": told}, 1000.0, 1003.0) == 0.0
    assert clock_step_s({"time_s": 999.0 - near}, 1000.0, 1003.0) == pytest.approx(2.5 + near)
    assert clock_step_s({"time_s": 5000}, 1000.0, 1003.0) == pytest.approx(-3998.5)
    assert clock_step_s({}, 1000.0, 1003.0) == 0.0
    assert clock_step_s({"time_s": 1000.0}, 1000.0, -2600.0) == 0.0  # ours was put back meanwhile
