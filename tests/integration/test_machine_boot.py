"""The guest image boots, runs a guest, answers over its control channel, names what goes wrong, and ends."""

import asyncio
import io
import json
import time
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from limits_guest import LIMITS, PROCESSOR
from machine_bed import APP, DEADLINE_S, IDENTITY, MachineBed, guest_config, machine_bed, seed_of, static_config
from machines import ROOT

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

MODULES = ("__init__", "errors", "guests/__init__", "guests/shutdown", "guests/limits", "guests/pidfile")
UNPACK = f"cat >/tmp/sent.zip && PYTHONPATH=/tmp/sent.zip:{APP} exec python3 -m limits_guest"
CLIENT_HELLO = (0x16, 0x01)  # RFC 8446: a handshake record, and the message in it


def is_client_hello(octets: bytes) -> bool:
    return (octets[0], octets[5]) == CLIENT_HELLO


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bed() -> AsyncIterator[MachineBed]:
    """A machine with a guest, the smallest in which FRR is to run; the last test that has it turns it off."""
    async with machine_bed() as made:
        await made.boot(made.good_seed(), 192)
        await made.up()
        yield made


async def test_a_new_certificate_is_used_and_the_guest_stays(bed: MachineBed) -> None:
    async def processes(of: str) -> str:
        """From outside the guest: what an emulated machine runs inside it confines first, by Python's start."""
        told: str = (await bed.run("pgrep", "-f", of, where="machine"))["stdout"]
        return told

    before, zebra = await processes("vrc.agent"), await processes("frr/zebra")
    assert before
    assert zebra
    pem = {name.partition(".")[0]: (bed.base / "identity" / name).read_text() for name in IDENTITY}
    pem["cert"] = "# new\n" + pem["cert"]
    assert (await bed.ask("identity", **pem))["ok"]
    async with asyncio.timeout(DEADLINE_S):
        while await processes("vrc.agent") in ("", before):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert (await bed.run("head", "-1", "/run/splitplane/identity/cert.pem"))["stdout"] == "# new\n"
    assert (await bed.ask("machine"))["restarts"] == 0
    assert await processes("frr/zebra") == zebra


async def test_want_of_memory_is_named(bed: MachineBed) -> None:
    greedy = await bed.run("python3", "-c", "x = [bytearray(1 << 20) for _ in range(400)]", limit_s=120)
    assert greedy["status"] == -9
    assert (await bed.ask("machine"))["oom_kills"] >= 1
    async with asyncio.timeout(DEADLINE_S):
        while "vr-machine: out of memory: " not in bed.console:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert (await bed.ask("machine"))["supervisor"] == "up"


async def test_a_machine_runs_a_guest_as_the_namespace_driver_does(bed: MachineBed) -> None:
    async with asyncio.timeout(DEADLINE_S):
        assert is_client_hello(await bed.hello.get())
    routes = await bed.run("vtysh", "-c", "show ip route static")
    assert "10.5.0.0/24" in routes["stdout"]

    # Time, names, entropy, and who may read the key. The link to the host is not in the guest.
    shown = "date +%s; hostname; stat -c '%a %u' /run/splitplane/identity/key.pem; ls /sys/class/net; echo x >/usr/x"
    inside = await bed.run("sh", "-c", shown)
    now, hostname, modes, *links = inside["stdout"].splitlines()
    assert abs(int(now) - time.time()) < 60
    assert hostname == "r1"
    assert modes == f"400 {guest_config()['vrc']['uid']}"
    assert links == ["lo"]
    assert "Read-only file system" in inside["stderr"]

    # And it leads to one address only.
    outside = await bed.run("sh", "-c", "ip route; ip -6 route show dev eth0", where="machine")
    assert outside["stdout"].split()[:3] == ["10.0.2.0/24", "dev", "eth0"]
    assert len(outside["stdout"].splitlines()) == 1

    assert (await bed.run("hostname", where="machine"))["stdout"] == "m1\n"

    # Whoever connects anew is answered, also after a line that was left half said.
    bed._writer.write(b'{"op": "stat')
    for _ in range(3):
        await bed.connect()
        assert (await bed.ask("version"))["version"] == 1

    assert (await bed.ask("poweroff"))["ok"]
    assert await bed.gone() == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guestless() -> AsyncIterator[MachineBed]:
    """A machine with a seed that cannot be used, and so without a guest."""
    async with machine_bed() as made:
        await made.boot(seed_of({"../../etc/passwd": b"root::0:0:::\n"}), 256, PROCESSOR + 1)
        yield made


async def test_a_seed_that_cannot_be_used_is_named_and_the_machine_can_be_asked(guestless: MachineBed) -> None:
    told = await guestless.ask("machine")
    assert told["supervisor"] == "failed: seed: '../../etc/passwd' does not belong there"
    assert "vr-machine: seed: '../../etc/passwd' does not belong there" in guestless.console
    refused = await guestless.ask("status")
    assert (refused["ok"], refused["error"]) == (False, told["supervisor"])
    assert "root:x:0:0" in (await guestless.run("cat", "/etc/passwd", where="machine"))["stdout"]


def sent() -> bytes:
    """The modules that the program needs, as Python imports them."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.write(ROOT / "tests/integration/limits_guest.py", "limits_guest.py")
        for name in MODULES:
            file.write(ROOT / f"controller/{name}.py", f"controller/{name}.py")
    return archive.getvalue()


async def test_memory_processors_processes_and_disks_are_limited_and_nothing_is_left(guestless: MachineBed) -> None:
    """On control groups of version 2, which most hosts have, and those that this suite has to run on may not."""
    done = await guestless.run("sh", "-c", UNPACK, stdin=sent(), where="machine", limit_s=120)
    assert done["status"] == 0, done
    found = json.loads(done["stdout"])
    assert (found["missing"], found["procs"]) == ([], True)
    assert found["processors"] == [PROCESSOR]
    assert found["read_s"] > 1.5 > found["unlimited_read_s"]
    assert found["greedy"] == -9
    assert found["killed"] == found["oom_kills"]
    assert found["oom_kills"] >= 1
    assert found["throttled"] > 0
    assert found["cpus"] < 2 * LIMITS.cpus
    assert 0 < found["forked"] < LIMITS.pids
    assert found["changed"] == [str(64 << 20), "150000 100000", "16"]
    assert found["kept_while_used"]
    assert found["ended"] == -9
    assert not found["left"]


async def routes_inside(bed: MachineBed) -> set[str]:
    """The IPv4 routes of the guest, with their nexthops, without those of its interfaces."""
    told = (await bed.run("ip", "-4", "route", "show", "proto", "static"))["stdout"]
    return {" ".join(line.split()[:3]) for line in told.splitlines()}


async def has_routes(bed: MachineBed, *routes: str) -> None:
    """Give the guest a link, as the controller would, and wait for its static routes."""
    link = "ip link add d0 type dummy && ip address add 10.9.0.1/24 dev d0 && ip link set d0 up"
    async with asyncio.timeout(DEADLINE_S):
        while not (await bed.run("sh", "-c", f"ip link show d0 || ({link})"))["ok"]:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        while await routes_inside(bed) != set(routes):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def test_static_routes_are_changed_and_come_back_and_the_console_offers_a_shell() -> None:
    async with machine_bed() as bed:
        before = "10.5.0.0/24 via 10.9.0.2", "10.7.0.0/24 via 10.9.0.2"
        await bed.boot(bed.good_seed(static_config(*(f"{route} proto static" for route in before))), 256)
        async with asyncio.timeout(DEADLINE_S):
            while not (status := await bed.ask("status"))["ok"]:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert set(status["daemons"]) == {"vrc", "ip"}
        await has_routes(bed, *before)
        assert set((await bed.ask("status"))["daemons"].values()) == {"up"}

        # A changed text, without a restart.
        first = (await bed.run("cat", "/run/guest/guest.pid", where="machine"))["stdout"].split()[0]
        after = "10.5.0.0/24 via 10.9.0.3", "10.6.0.0/24 via 10.9.0.2"
        config = static_config(*(f"{route} proto static" for route in after))
        assert (await bed.ask("reload", config=config))["ok"]
        assert await routes_inside(bed) == set(after)
        refused = await bed.ask("reload", config=guest_config())
        assert refused["error"] == "another suite needs a new guest"

        # A guest that is started again has the changed text.
        assert (await bed.ask("machine"))["restarts"] == 0
        await bed.run("kill", "-9", first, where="machine")
        async with asyncio.timeout(DEADLINE_S):
            while not (told := await bed.ask("machine"))["restarts"] or told["supervisor"] != "up":  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        await has_routes(bed, *after)

        reader, writer = await asyncio.open_unix_connection(str(Path(bed.base) / "console.sock"))
        writer.write(b"\n")
        async with asyncio.timeout(DEADLINE_S):
            await reader.readuntil(b"This is the guest.")
            await reader.readuntil(b"# ")
            writer.write(b"echo $((6 * 7)) $(hostname)\n")
            await reader.readuntil(b"\n42 r1")
            writer.write(b"exit\n")
            await reader.readuntil(b"Press Enter")
        writer.close()
