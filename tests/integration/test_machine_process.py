"""QEMU's process on the host: whose it is, what it sees, and what is said where it cannot run."""

import asyncio
import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from machines import BOOT_S, IMAGE, control_groups, needs_image, remember_accelerator

from controller.errors import GuestError
from controller.guests import shutdown
from controller.guests.base import GuestSpec, GuestStatus
from controller.guests.host.options import DEFAULT_RUN
from controller.guests.machine import image, image_digests, qemu
from controller.guests.machine.accelerator import AcceleratorProbe
from controller.guests.machine.command_line import Accelerator
from controller.guests.machine.qemu import QemuDriver
from controller.guests.users import machine_uid
from controller.model import GuestConfig, GuestKind, RouteSource, Routing
from lab import machine_root

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

GUEST = GuestConfig(GuestKind.KVM, 256, 1)


class Bed:
    """A driver of machines, and one router's directories as the controller makes them."""

    def __init__(self, base: Path) -> None:
        self.state, self.run = base / "state", base / "run"
        identity, session = self.state / "pki/1", self.run / "sessions/1"
        for directory in (identity, session):
            directory.mkdir(parents=True)
        for name in ("cert.pem", "key.pem", "ca.pem"):
            (identity / name).write_text(f"{name}\n")
        directory = self.state / ("guests-" + "x" * 90) / "1"  # longer than a socket's path may be
        places = directory, identity, session
        self.spec = GuestSpec(1, "red/r1", RouteSource.FPM, Routing(text="!\n"), 30, *places, GUEST)
        self.probe = AcceleratorProbe(self.state)
        self.driver = self.new_driver()

    def new_driver(self, image: Path = IMAGE) -> QemuDriver:
        return QemuDriver(image, self.probe, (self.state, self.run, DEFAULT_RUN))

    async def booted(self) -> GuestStatus:
        async with asyncio.timeout(BOOT_S):
            status = await self.driver.status(self.spec)
            while status.daemons.get("machine") != "up" or "zebra" not in status.daemons:
                assert status.running, await self.driver.last_words(self.spec)
                await asyncio.sleep(0.1)
                status = await self.driver.status(self.spec)
        return status


@asynccontextmanager
async def bed() -> AsyncIterator[Bed]:
    needs_image()
    base = Path(tempfile.mkdtemp(prefix="splitplane-machine-", dir="/var/lib"))
    made = Bed(base)
    remember_accelerator(made.state)
    try:
        yield made
    finally:
        await made.driver.delete(made.spec)
        shutil.rmtree(base)
    assert not control_groups(made.spec.directory)


def view(pid: int, path: str) -> list[str]:
    """What a process sees in a directory."""
    return sorted(os.listdir(f"/proc/{pid}/root{path}"))


async def test_qemu_has_a_user_a_network_and_files_of_its_own() -> None:
    async with bed() as at:
        await at.driver.start(at.spec)
        pid = at.driver.running(at.spec)
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(machine_uid(1))}
        assert {status[name].strip("0") for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb")} == {""}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        for kind in ("net", "mnt", "ipc", "uts"):
            assert os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
        links = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
        assert [line.split(":")[0].strip() for line in links] == ["lo"]
        assert view(pid, "/run") == ["splitplane"]
        assert view(pid, "/run/splitplane") == ["relay", "relay.py", "session"]
        for hidden in (
            "/home",
            "/root",
            "/tmp",
            "/var/cache",
            "/var/lib",
            "/var/spool",
        ):  # what is the controller's with them
            assert view(pid, hidden) == []
        modes = {path.name: path.stat().st_mode & 0o777 for path in at.spec.directory.iterdir() if path.is_file()}
        assert modes == dict.fromkeys(modes, 0o600)
        assert at.spec.directory.stat().st_mode & 0o777 == 0o700


async def test_two_controllers_that_start_one_machine_make_one() -> None:
    async with bed() as at:
        other = at.new_driver()
        results = await asyncio.gather(at.driver.start(at.spec), other.start(at.spec), return_exceptions=True)
        await other.close()
        assert [problem for problem in results if problem and not isinstance(problem, GuestError)] == []
        assert None in results
        assert at.driver.running(at.spec)


async def test_the_end_of_qemu_is_explained() -> None:
    async with bed() as at:
        await at.driver.start(at.spec)
        pid = at.driver.running(at.spec)
        os.kill(pid, signal.SIGTERM)
        await ended(pid)
        assert not (await at.driver.status(at.spec)).running
        assert await at.driver.last_words(at.spec) == "QEMU was ended by a signal"


async def ended(pid: int) -> None:
    """Wait for the end of a process."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        assert await shutdown.ended(pidfd, BOOT_S)
        os.close(pidfd)


def copy_of_image(at: Bed, name: str, content: bytes) -> Path:
    """An image in which one file is another, and which says nothing of what its files were."""
    copy = at.state / "image"
    copy.mkdir()
    for path in IMAGE.iterdir():
        if path.is_file() and not path.name.startswith(".") and path.name not in (image_digests.FILE, name):
            (copy / path.name).symlink_to(path)
    (copy / name).write_bytes(content)
    (copy / name).chmod(0o644)
    return copy


async def test_a_kernel_that_qemu_does_not_take_is_one_line() -> None:
    async with bed() as at:
        await at.probe.choose(image.load(IMAGE, "red/r1"))
        driver = at.new_driver(copy_of_image(at, "vmlinuz", b"no kernel at all"))
        with pytest.raises(GuestError, match=r"^red/r1: QEMU did not start: .*kernel") as caught:
            await driver.start(at.spec)
        assert "\n" not in str(caught.value)
        assert not driver.running(at.spec)


async def test_a_root_file_system_that_does_not_boot_is_said_as_the_kernel_says_it() -> None:
    async with bed() as at:
        driver = at.new_driver(copy_of_image(at, "root.squashfs", b"\0" * 4096))
        await driver.start(at.spec)
        await ended(driver.running(at.spec))
        assert (await driver.last_words(at.spec)).startswith("it powered itself off: ")
        assert (await driver.last_words(at.spec)).endswith("/dev/vda: not a squashfs file system")
        await driver.delete(at.spec)


async def test_an_image_that_is_not_what_it_was_starts_no_machine() -> None:
    async with bed() as at:
        copy = copy_of_image(at, "root.squashfs", b"\0" * 4096)
        (copy / image_digests.FILE).symlink_to(IMAGE / image_digests.FILE)
        driver = at.new_driver(copy)
        with pytest.raises(GuestError, match=r"^red/r1: image file .*/root\.squashfs is not what SHA256SUMS says; "):
            await driver.start(at.spec)
        assert not driver.running(at.spec)


async def test_the_accelerator_is_tried_once_in_each_boot_of_the_host(tmp_path: Path) -> None:
    needs_image()

    found = image.load(IMAGE, "red/r1")
    probe = AcceleratorProbe(tmp_path)
    first = await probe.choose(found)
    assert (first is Accelerator.TCG) == bool(probe.reason)
    again = AcceleratorProbe(tmp_path, device=tmp_path / "none")  # it would not look there
    assert (await again.choose(found), again.reason) == (first, probe.reason)
    (tmp_path / "accelerator.json").write_text('{"boot": "another", "accelerator": "kvm", "reason": ""}')
    without = AcceleratorProbe(tmp_path, device=tmp_path / "none")
    assert await without.choose(found) is Accelerator.TCG
    assert without.reason == f"{tmp_path}/none cannot be opened"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def booted() -> AsyncIterator[Bed]:
    """A machine that has come up; the last test that has it makes it another one."""
    async with bed() as at:
        await at.driver.start(at.spec)
        assert (await at.driver.status(at.spec)).daemons["machine"] == "booting"
        assert at.driver.trouble(at.spec) == "its machine is booting"
        await at.booted()
        yield at


async def test_a_machine_s_clock_follows_the_host_s(booted: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "LOOK_EVERY_S", 0.0)
    at = booted

    def ahead_s() -> float:
        """How far the machine's clock is ahead at least, whenever it was looked at."""
        before = time.time()
        told = float(machine_root.run(at.spec.directory, "date", "+%s.%N"))
        return told - min(max(told, before), time.time())

    assert abs(ahead_s()) < 2
    # The host was suspended: the machine's clock stood still.
    monitor = at.driver._contacts[at.spec.directory].monitor
    assert monitor is not None
    began = time.monotonic()
    await monitor._client.execute("stop")
    await asyncio.sleep(6)
    await monitor._client.execute("cont")
    most_s = time.monotonic() - began + 2
    (told,) = await at.driver.look_after(at.spec)
    said = re.fullmatch(r"its clock was (\d+\.\d) s behind and was set", told)
    assert said is not None
    assert 4 <= float(said[1]) < most_s
    assert abs(ahead_s()) < 2
    machine_root.run(at.spec.directory, "date", "-s", "+1 day")
    assert ahead_s() > 80_000
    (told,) = await at.driver.look_after(at.spec)
    assert re.fullmatch(r"its clock was 86[34]\d\d\.\d s ahead and was set", told)
    assert abs(ahead_s()) < 2
    assert await at.driver.look_after(at.spec) == []


async def test_a_machine_is_adopted_and_takes_a_new_certificate(booted: Bed) -> None:
    at = booted
    status = await at.driver.status(at.spec)
    assert set(status.daemons) >= {"machine", "vrc", "zebra", "staticd"}
    await at.driver.close()
    at.driver = at.new_driver()
    await at.driver.start(at.spec)
    (at.spec.identity / "cert.pem").write_text("another\n")
    await at.driver.start(at.spec)
    assert at.driver.running(at.spec) == status.pid
    argv = at.driver.exec_argv(at.spec, status.pid, ["cat", "/run/splitplane/identity/cert.pem"])
    shown = await asyncio.to_thread(subprocess.run, argv, stdin=subprocess.DEVNULL, capture_output=True)
    assert (shown.stdout, shown.stderr) == (b"another\n", b"")
    bigger = dataclasses.replace(at.spec, guest=dataclasses.replace(GUEST, memory_mib=320))
    await at.driver.start(bigger)
    assert at.driver.running(at.spec) not in (0, status.pid)
