"""What a guest's directory holds of one that ran before, and guest.json of one that still runs."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from controller.guests.base import GuestSpec
from controller.guests.guest_files import make_directory, replace_file, take_over
from controller.guests.guest_json import Place, enclosure_of, guest_config, vrc_command
from controller.model import RouteSource, Routing
from vrc.guest import namespaces
from vrc.guest.kernel import EnclosureError
from vrc.guest.namespaces import IDS, GuestIds, has_ids
from vrc.guest.supervisor import GuestConfig


def config_of(directory: Path, text: str = "!\n") -> dict[str, Any]:
    spec = GuestSpec(7, "red/r1", RouteSource.FPM, Routing(text=text), 30, directory, directory, directory)
    code = (("/opt/vrc", "/run/splitplane/app/vrc"),)
    place = Place(
        "/state/guests/7", "/run/s/7", "/state/guests/7/identity", code, ("/state",), "/app", [101, 103, 104]
    )
    return guest_config(spec, place, vrc_command(spec, "/usr/bin/python3"))


def of_the_version_before(config: dict[str, Any]) -> dict[str, Any]:
    """guest.json as it was when folders were among the binds, and ids those of the host."""
    own = config["directory"]
    session, identity, *code = ([*bind, False] for bind in config["binds"])
    binds = [session, identity, [f"{own}/etc", "/etc/frr", False], [f"{own}/run", "/run/frr", True], *code]
    left_out = ("folders", "id_base")
    return {name: value for name, value in config.items() if name not in left_out} | {"binds": binds}


def test_a_guest_of_the_version_before_runs_on(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    former = of_the_version_before(config)
    assert enclosure_of(former) == enclosure_of(config)
    former["binds"][-1][0] = "/opt/elsewhere"
    assert enclosure_of(former) != enclosure_of(config)


def test_a_guest_is_given_its_ids_and_folders(tmp_path: Path) -> None:
    found = GuestConfig.parse(config_of(tmp_path))
    assert found.ids == GuestIds(0x40070000, 0x70000007)
    assert found.ids.mapping == "0 1074200576 65536\n1879048199 1879048199 1\n"
    assert (found.folders.etc, found.folders.run, found.folders.owner) == ("/etc/frr", "/run/frr", (101, 103))


@pytest.mark.parametrize(
    ("given", "taken"),
    [("core", "core"), ("r" * 65, "r" * 64), ("ü" * 40, "ü" * 32), ("r" + "ü" * 40, "r" + "ü" * 31)],
)
def test_a_name_is_cut_to_the_octets_that_the_kernel_takes(tmp_path: Path, given: str, taken: str) -> None:
    assert config_of(tmp_path, f"hostname {given}\n")["hostname"] == taken


@pytest.mark.parametrize(
    ("base", "vrc"), [(0, 1 << 31), (1 << 30, 0), (1 << 30, IDS - 1), (1 << 32, 1 << 31), (-1, 1)]
)
def test_ids_of_the_host_are_none_of_a_guest(base: int, vrc: int) -> None:
    with pytest.raises(ValueError, match="none of a guest"):
        GuestIds(base, vrc)


def test_a_guest_has_no_user_beyond_its_range() -> None:
    ids = GuestIds(1 << 30, 1 << 31)
    assert ids.on_host(IDS - 1) == (1 << 30) + IDS - 1
    for number in (-1, IDS):
        with pytest.raises(ValueError, match="a guest has the ids 0 to 65535"):
            ids.on_host(number)


@pytest.mark.parametrize(
    ("mapping", "there"),
    [
        ("         0          0 4294967295\n", True),
        ("0 100000 65536\n", False),
        ("0 100000 65536\n1073741824 200000 65536\n", True),
        ("0 100000 65536\n1073741824 200000 65535\n", False),
        ("", False),
    ],
)
def test_a_container_has_the_ids_of_a_guest_or_not(mapping: str, there: bool) -> None:
    assert has_ids(mapping, 1 << 30, IDS) is there


def test_a_host_without_user_namespaces_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_flags: int) -> None:
        raise EnclosureError("unshare: No space left on device")

    users: list[int] = []
    monkeypatch.setattr(namespaces, "become_user", users.append)
    monkeypatch.setattr(namespaces, "unshare", refuse)
    with pytest.raises(EnclosureError, match=r"^no user namespace: unshare: No space .*; raise user.max_user_names"):
        namespaces.leave_users_and_network(GuestIds(1 << 30, 1 << 31))
    assert users == [1 << 30]  # root of the guest makes it


def test_what_could_lead_astray_is_removed_and_nothing_behind_it(tmp_path: Path) -> None:
    directory, precious = tmp_path / "7", tmp_path / "precious"
    (directory / "etc/deep").mkdir(parents=True)
    (directory / "identity").mkdir()
    precious.mkdir()
    (precious / "file").write_text("precious")
    (directory / "etc/deep/link").symlink_to(precious)
    (directory / "run").symlink_to(precious)
    (directory / "guest.log").symlink_to(precious / "file")
    (directory / "guest.json").write_text("{}")
    os.mkfifo(directory / "guest.pid.new")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "control.sock"))
    take_over(directory, ("identity",))
    assert {path.name for path in directory.iterdir()} == {"identity", "guest.json", "control.sock"}
    assert (precious / "file").read_text() == "precious"


def test_a_directory_that_is_not_there_needs_no_taking_over(tmp_path: Path) -> None:
    take_over(tmp_path / "none", ())


def test_a_link_is_followed_to_no_directory_and_to_no_file(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "file").write_text("precious")
    (tmp_path / "identity").symlink_to(tmp_path / "precious")
    (tmp_path / "guest.json.new").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        make_directory(tmp_path / "identity", os.getuid(), os.getgid(), 0o700)
    replace_file(tmp_path / "guest.json", b"{}", os.getuid(), 0o600)
    assert (tmp_path / "guest.json").read_text() == "{}"
    assert (tmp_path / "file").read_text() == "precious"
