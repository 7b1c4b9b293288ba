"""vr-host and the driver that asks it: what is declared arrives as it was, and nothing else can be asked."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from operator_fakes import FakeGuests
from worlds import router_config

from controller.errors import GuestError
from controller.guests.base import GuestSpec, GuestStatus
from controller.guests.host.client import HostDriver, VrHost, asked_of
from controller.guests.host.daemon import parse_arguments
from controller.guests.host.server import CONNECTIONS, HostServer
from controller.model import GuestConfig, GuestKind, InterfaceConfig, RouterConfig, RouteSource, Routing, Suite

OWN_USER = frozenset({os.geteuid()})
INTERFACE = InterfaceConfig(
    3, "left", "p1", 7, bytes.fromhex("02000000ff01"), 9000, ("192.0.2.1/24", "2001:db8::1/64")
)


class Guests(FakeGuests):
    """Remembers what it was told, identity included, and what a check was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[GuestSpec, dict[str, str]]] = []
        self.checked: list[RouterConfig] = []
        self.asked = asyncio.Event()

    async def start(self, spec: GuestSpec) -> None:
        self.asked.set()
        await super().start(spec)
        self.told.append((spec, {path.name: path.read_text() for path in spec.identity.iterdir()}))

    async def check(self, router: RouterConfig) -> list[str]:
        self.checked.append(router)
        if (reason := self.failing.get(router.full_name)) is not None:
            raise GuestError(reason)
        return ["line 3 is forwarded by no plane"]


class Host:
    """A vr-host that does nothing itself, and a controller's driver that asks it."""

    def __init__(self, base: Path) -> None:
        self.socket, self.state, self.run = base / "own/host.sock", base / "state", base / "run"
        self.guests = Guests()
        for directory in (self.socket.parent, self.state, self.run, base / "pki"):
            directory.mkdir()
        for name in ("cert.pem", "key.pem", "ca.pem"):
            (base / "pki" / name).write_text(f"{name} of red/r1")
        self.spec = GuestSpec(
            vrf_id=7,
            router="red/r1",
            source=RouteSource.NETLINK,
            routing=Routing(Suite.BIRD, "# a text\n"),
            hold_time_s=30,
            directory=self.state / "guests/7",
            identity=base / "pki",
            session=self.run / "sessions/7",
            guest=GuestConfig(GuestKind.KVM, 512, 2, str(base / "image")),
            interfaces=(INTERFACE,),
        )
        self.driver = HostDriver(VrHost(self.socket), self.guests)

    @asynccontextmanager
    async def serving(self, users: frozenset[int] = OWN_USER) -> AsyncIterator[HostServer]:
        kinds = dict.fromkeys(GuestKind, self.guests)
        server = HostServer(
            self.socket, kinds, dict.fromkeys(GuestKind, self.guests.check), self.state, self.run, users
        )
        await server.start()
        try:
            yield server
        finally:
            await self.driver.close()
            await server.close()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def test_a_guest_is_started_as_it_was_declared(host: Host) -> None:
    async with host.serving():
        await host.driver.start(host.spec)
        ((told, identity),) = host.guests.told
        assert identity == {name: f"{name} of red/r1" for name in ("cert.pem", "key.pem", "ca.pem")}
        of_plane = replace(INTERFACE, id=0, port="", vlan=0)  # which no guest is told
        assert replace(told, identity=host.spec.identity) == replace(host.spec, interfaces=(of_plane,))
        assert not told.identity.exists()
        assert await host.driver.status(host.spec) == GuestStatus(True, 4242, {"zebra": "up"}, 0)
        await host.driver.stop(host.spec)
        assert not (await host.driver.status(host.spec)).running


async def test_keys_that_a_killed_vr_host_left_go_at_the_next_start(host: Host) -> None:
    own = host.socket.parent
    (own / "identity-killed").mkdir()
    (own / "identity-killed/key.pem").write_text("a key")
    async with host.serving():
        with pytest.raises(GuestError, match="another vr-host serves here"):
            async with host.serving():
                pass
        assert [path.name for path in own.iterdir()] == ["host.sock"]


async def test_a_guest_beyond_what_vr_host_takes_is_an_error_and_no_crash(host: Host) -> None:
    async with host.serving() as server:
        with pytest.raises(
            GuestError, match=r"^red/r1: vr-host takes no such guest: hold_time_s: Input should be .*"
        ):
            await host.driver.start(replace(host.spec, hold_time_s=0))
        assert server.done == 0


async def test_the_socket_is_nobody_s_but_the_user_s(host: Host) -> None:
    async with host.serving():
        assert host.socket.stat().st_mode & 0o777 == 0o660


async def test_errors_and_remarks_are_those_of_the_driver(host: Host) -> None:
    router = replace(router_config(), tenant="red", name="r1", routing=Routing(Suite.FRR, "router bgp 1\n"))
    async with host.serving():
        assert await host.driver.check(router) == ["line 3 is forwarded by no plane"]
        assert (host.guests.checked[0].full_name, host.guests.checked[0].routing) == ("red/r1", router.routing)
        host.guests.failing["red/r1"] = "red/r1: zebra not found; apt-get install frr"
        for asked in (host.driver.check(router), host.driver.start(host.spec)):
            with pytest.raises(GuestError, match=r"^red/r1: zebra not found; apt-get install frr$"):
                await asked


async def test_what_ails_a_guest_is_asked_often_at_first_and_while_it_does(host: Host) -> None:
    async with host.serving() as server:
        await host.driver.look_after(host.spec)
        assert await host.driver.look_after(host.spec) == []
        assert server.done == 1  # it runs since long ago: nobody asked
        await host.driver.start(host.spec)
        host.guests.notices, host.guests.troubles["red/r1"] = ["out of memory"], "zebra does not run"
        assert await host.driver.look_after(host.spec) == ["out of memory"]
        assert host.driver.trouble(host.spec) == "zebra does not run"
        host.guests.words = "QEMU was ended by a signal"
        assert await host.driver.last_words(host.spec) == "QEMU was ended by a signal"


async def test_while_vr_host_is_away_its_remedy_is_told_and_afterwards_it_is_asked_again(host: Host) -> None:
    for _ in range(2):
        async with host.serving():
            await host.driver.start(host.spec)
        with pytest.raises(GuestError, match=r"^red/r1: vr-host: .*; systemctl status vr-host$"):
            await host.driver.start(host.spec)
    assert await host.driver.last_words(host.spec) == ""
    assert await host.driver.look_after(host.spec) == [host.driver.trouble(host.spec)] != [""]
    assert await host.driver.look_after(host.spec) == []  # once is enough


async def test_a_vr_host_that_ends_while_it_is_asked_is_no_answer(host: Host) -> None:
    host.guests.silent["red/r1"] = asyncio.Event()
    async with host.serving() as server:
        starting = asyncio.create_task(host.driver.start(host.spec))
        await host.guests.asked.wait()
        await server.close()
        with pytest.raises(GuestError, match=r"vr-host: .*it broke off"):
            await starting


async def test_an_error_that_nobody_foresaw_is_that_of_one_request(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def look_after(_: GuestSpec) -> list[str]:
        raise KeyError("fields")

    host.guests.silent["red/r1"] = answer = asyncio.Event()
    monkeypatch.setattr(host.guests, "look_after", look_after)
    async with host.serving():
        starting = asyncio.create_task(host.driver.start(host.spec))
        await host.guests.asked.wait()
        assert await host.driver.look_after(host.spec) == ["vr-host: KeyError; see its log"]
        answer.set()
        await starting
    assert "KeyError: 'fields'" in caplog.text


async def test_another_user_is_refused(host: Host) -> None:
    async with host.serving(frozenset({os.geteuid() + 1})) as server:
        with pytest.raises(GuestError, match="vr-host"):
            await host.driver.start(host.spec)
        assert server.refused == 1
    assert host.guests.told == []


async def test_connections_are_few(host: Host) -> None:
    async with host.serving() as server:
        ends = [await asyncio.open_unix_connection(host.socket) for _ in range(CONNECTIONS + 1)]
        assert await ends[-1][0].read() == b""
        assert server.refused == 1
        for _, writer in ends:
            writer.close()


async def test_a_second_vr_host_does_not_take_the_socket(host: Host) -> None:
    async with host.serving():
        with pytest.raises(GuestError, match="another vr-host serves here"):
            await HostServer(host.socket, {}, {}, host.state, host.run, OWN_USER).start()
        await host.driver.start(host.spec)


def wanted(**changed: Any) -> dict[str, Any]:
    """A request to start red/r1, as JSON, with some fields changed."""
    guest = {
        "vrf_id": 7,
        "router": "red/r1",
        "suite": "frr",
        "kind": "netns",
        "memory_mib": 0,
        "text": "!\n",
        "vcpus": 0,
        "image": "",
        "source": "fpm",
        "hold_time_s": 30,
        "interfaces": [{"name": "left", "mac": "02000000ff01", "mtu": 1500, "addresses": [], "admin_up": True}],
        "identity": {"cert": "pem", "key": "pem", "ca": "pem"},
    }
    return {"id": 1, "ask": {"op": "start", "guest": guest | changed}}


async def answered(host: Host, request: dict[str, Any]) -> bytes:
    reader, writer = await asyncio.open_unix_connection(host.socket)
    writer.write(json.dumps(request).encode() + b"\n")
    answer = await reader.readline()
    writer.close()
    return answer


async def test_what_may_be_asked_is_answered(host: Host) -> None:
    async with host.serving():
        assert json.loads(await answered(host, wanted())) == {"id": 1}
    assert len(host.guests.told) == 1


INTERFACES = wanted()["ask"]["guest"]["interfaces"]


@pytest.mark.parametrize(
    "changed",
    [
        {"directory": "/etc"},
        {"session": "/run"},
        {"uid": 0},
        {"vrf_id": 0},
        {"vrf_id": 8001},
        {"vrf_id": "7"},
        {"vrf_id": 7.0},
        {"router": "../r1"},
        {"router": "red/../../etc"},
        {"router": "red"},
        {"suite": "sh"},
        {"kind": "chroot"},
        {"memory_mib": 1 << 40},
        {"image": "image"},
        {"identity": {"cert": "pem"}},
        {"identity": {"cert": "", "key": "", "ca": "", "../x": ""}},
        {"interfaces": [INTERFACES[0] | {"name": "../all"}]},
        {"interfaces": [INTERFACES[0] | {"name": "lo"}]},
        {"interfaces": [INTERFACES[0] | {"mac": "02:00"}]},
        {"interfaces": [INTERFACES[0] | {"addresses": ["; reboot"]}]},
        {"interfaces": INTERFACES * 65_537},
    ],
)
async def test_what_nobody_may_ask_ends_the_connection(host: Host, changed: dict[str, Any]) -> None:
    async with host.serving():
        assert await answered(host, wanted(**changed)) == b""
    assert host.guests.told == []


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", '{"id": 1, "ask": {"op": "exec", "argv": ["sh"]}}', '{"id": 1}', "\0"]
)
async def test_what_is_no_request_ends_the_connection(host: Host, line: str) -> None:
    async with host.serving():
        reader, writer = await asyncio.open_unix_connection(host.socket)
        writer.write(line.encode() + b"\n")
        assert await reader.read() == b""
        writer.close()


async def test_no_machine_boots_what_the_controller_could_have_written(host: Host) -> None:
    link = host.socket.parent.parent / "elsewhere"
    link.symlink_to(host.state / "image")
    async with host.serving():
        for image in (host.state / "image", host.run / "x", host.state / "guests/../image", link):
            spec = replace(host.spec, guest=replace(host.spec.guest, image=str(image)))
            with pytest.raises(GuestError, match=r"^red/r1: image .* lies in .*; have it elsewhere$"):
                await host.driver.start(spec)
    assert host.guests.told == []


def test_both_kinds_are_asked_of_the_same_vr_host(tmp_path: Path) -> None:
    fakes = {GuestKind.NETNS: FakeGuests(), GuestKind.KVM: FakeGuests()}
    known = asked_of(VrHost(tmp_path / "host.sock"), fakes)
    assert known.drivers.keys() == known.checks.keys() == fakes.keys()


def test_a_user_that_is_not_there_is_named_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_arguments(["--user", "root"]).user.pw_uid == 0
    with pytest.raises(SystemExit):
        parse_arguments(["--user", "no-such-user"])
    assert "there is no user no-such-user; useradd --system" in capsys.readouterr().err
