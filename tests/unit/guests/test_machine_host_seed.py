"""What the host hands to a machine: the seed as its reader inside takes it, QEMU's command line, the image."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from controller.errors import GuestError
from controller.guests.base import GuestSpec
from controller.guests.machine import image, seed
from controller.guests.machine.command_line import Accelerator, Sizes, machine_command
from controller.guests.machine.seed import MAX_SEED_BYTES, make_seed
from controller.guests.users import IDS_OF_A_GUEST, as_user, guest_id_base, machine_uid, vrc_uid
from controller.model import MAX_ROUTERS, GuestConfig, GuestKind, RouteSource, Routing
from vrc.machine.seed import parse_seed, unpack

IDENTITY = {"cert.pem": b"a certificate\n", "key.pem": b"a key\n", "ca.pem": b"an authority\n"}
CONFIG = {"router": "red/r1", "hostname": "red-r1", "frr": {"text": "router bgp 65001\n"}}
MANIFEST = {"format": 2, "name": "small", "kernel": "vmlinuz", "initrd": "initrd.img", "root": "root.squashfs"}
MANIFEST |= {"append": "quiet", "minimum_memory_mib": 160, "version": 1}


def make_image(directory: Path, **changes: object) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "image.json").write_text(json.dumps(MANIFEST | changes))
    for name in ("vmlinuz", "initrd.img", "root.squashfs"):
        (directory / name).write_bytes(b"x")
        (directory / name).chmod(0o644)
    return directory


def test_the_reader_inside_takes_what_the_host_writes() -> None:
    content = make_seed(CONFIG, IDENTITY, 1_700_000_000)
    assert len(content) % 512 == 0
    found = parse_seed(unpack(content))
    assert (found.guest, found.identity) == (CONFIG, IDENTITY)
    assert (found.router, found.hostname, found.time_s) == ("red/r1", "red-r1", 1_700_000_000)
    assert found.session == ("10.0.2.100", 6654)


def test_a_seed_that_no_machine_would_read_is_refused() -> None:
    with pytest.raises(GuestError, match=r"^red/r1: its seed is larger than 1 MiB; shorten frr$"):
        make_seed(CONFIG | {"frr": {"text": "!" * MAX_SEED_BYTES}}, IDENTITY, 0)


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match=r"^red/r1: .*/cert\.pem: No such file or directory$"):
        seed.read_identity(tmp_path, "red/r1")


def test_an_image_is_what_its_manifest_says(tmp_path: Path) -> None:
    found = image.load(make_image(tmp_path / "image"), "red/r1")
    assert (found.kernel, found.minimum_memory_mib) == (tmp_path / "image/vmlinuz", 160)
    image.require_memory(found, 160, "red/r1")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 1}, "image.json has format 1, this controller knows 2; make it anew"),
        ({"frr": "new"}, "frr should be a version, as 10.3"),
        ({"kernel": "../vmlinuz"}, "kernel should be the name of a file beside it, not '../vmlinuz'"),
        ({"kernel": None}, "kernel should be a text; docs/guests.md lists the keys"),
        ({"minimum_memory_mib": "160M"}, "minimum_memory_mib should be a number"),
        ({"root": "other.squashfs"}, "other.squashfs: No such file or directory; make it anew with guest/build"),
    ],
)
def test_a_manifest_that_is_wrong_is_one_line(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(GuestError) as caught:
        image.load(make_image(tmp_path, **changes), "red/r1")
    assert str(caught.value).startswith("red/r1: image ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 100_000, b'"' + b"x" * (1 << 20) + b'"'])
def test_a_manifest_that_is_none_is_one_line(tmp_path: Path, content: bytes) -> None:
    (make_image(tmp_path) / "image.json").write_bytes(content)
    with pytest.raises(GuestError, match="is not a JSON object; make the image anew with guest/build"):
        image.load(tmp_path, "red/r1")


def test_what_is_no_image_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match=r"^red/r1: no image at .*: image.json not found; make one with guest/build"):
        image.load(tmp_path, "red/r1")
    (make_image(tmp_path) / "vmlinuz").chmod(0o640)
    with pytest.raises(GuestError, match=r"vmlinuz is not readable by the machine's user; chmod a\+r "):
        image.load(tmp_path, "red/r1")
    (make_image(tmp_path) / "vmlinuz").write_bytes(b"")
    with pytest.raises(GuestError, match="vmlinuz is not a file with content"):
        image.load(tmp_path, "red/r1")


def test_too_little_memory_names_both_sizes(tmp_path: Path) -> None:
    found = image.load(make_image(tmp_path), "red/r1")
    wanted = "memory of 128M is too little for image small, which needs 160M; raise memory: under guest:"
    with pytest.raises(GuestError, match=wanted):
        image.require_memory(found, 128, "red/r1")


def options(command: list[str], name: str) -> list[str]:
    return [command[at + 1] for at, word in enumerate(command) if word == name]


@pytest.mark.parametrize("accelerator", list(Accelerator))
def test_a_machine_has_one_link_and_nothing_that_is_not_asked_for(tmp_path: Path, accelerator: Accelerator) -> None:
    command = machine_command("m", accelerator, Sizes(256, 2), image.load(make_image(tmp_path), "red/r1"))
    assert {"-nodefaults", "-no-user-config", "-no-reboot"} <= set(command)
    (link,) = options(command, "-netdev")
    assert link.startswith("user,id=session,restrict=on,ipv6=off,guestfwd=tcp:10.0.2.100:6654-cmd:")
    assert link.count("guestfwd") == 1
    assert "hostfwd" not in link
    assert options(command, "-sandbox") == ["on,obsolete=deny,elevateprivileges=allow,resourcecontrol=deny"]
    assert (options(command, "-m"), options(command, "-smp")) == (["256"], ["2"])
    assert all("readonly=on" in drive for drive in options(command, "-drive"))
    assert options(command, "-append") == ["quiet console=ttyS0 panic=-1 splitplane.seed=/dev/vdb"]
    assert [name.split(",")[0] for name in options(command, "-accel")] == [accelerator.value]
    assert str(tmp_path) not in " ".join(command)  # all it opens are descriptors


def test_qemu_runs_as_a_user_that_no_vrc_and_nobody_in_a_guest_is() -> None:
    every_vrc = range(vrc_uid(0), vrc_uid(MAX_ROUTERS) + 1)
    every_guest = range(guest_id_base(0), guest_id_base(MAX_ROUTERS) + IDS_OF_A_GUEST)
    every_machine = range(machine_uid(0), machine_uid(MAX_ROUTERS) + 1)
    ranges = sorted((every_guest, every_vrc, every_machine), key=lambda one: one.start)
    assert all(before.stop <= after.start for before, after in pairwise(ranges))
    assert guest_id_base(2) - guest_id_base(1) == IDS_OF_A_GUEST
    assert machine_uid(1) != machine_uid(2)
    command = as_user(machine_uid(1), [108], ["qemu"])
    assert "--no-new-privs" in command
    assert command[command.index("--groups") + 1] == "108"
    assert "--clear-groups" in as_user(machine_uid(1), [], ["qemu"])


def test_a_spec_compares_the_machine_too(tmp_path: Path) -> None:
    def spec(guest: GuestConfig) -> GuestSpec:
        return GuestSpec(1, "red/r1", RouteSource.FPM, Routing(text="!"), 30, tmp_path, tmp_path, tmp_path, guest)

    assert spec(GuestConfig(GuestKind.KVM, 256, 1)) != spec(GuestConfig(GuestKind.KVM, 512, 1))
