"""The command line, the identity, and the rule by which the daemons have settled."""

import os
from pathlib import Path

import pytest

from vrc.agent import Options, main, parse, process_age_s
from vrc.errors import BadIdentity
from vrc.session import Identity

REQUIRED = ["--router", "red/r1", "--session", "unix:/s", "--identity", "/i"]


def test_options() -> None:
    assert parse(REQUIRED) == (Options("red/r1", "unix:/s", "/i"), "info")
    options, level = parse([*REQUIRED, "--source", "netlink", "--fpm-listen", "[::1]:2621", "--log-level", "debug"])
    assert options == Options("red/r1", "unix:/s", "/i", "netlink", ("::1", 2621))
    assert level == "debug"


@pytest.mark.parametrize("listen", ["2620", ":2620", "127.0.0.1:", "127.0.0.1:70000"])
def test_bad_listen_address(listen: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*REQUIRED, "--fpm-listen", listen])
    assert "is not HOST:PORT" in capsys.readouterr().err


def test_identity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text(name)
    with pytest.raises(BadIdentity, match=r"ca\.pem: No such file"):
        Identity.read(str(tmp_path))
    (tmp_path / "ca.pem").write_text("ca")
    assert Identity.read(str(tmp_path)) == Identity(b"cert.pem", b"key.pem", b"ca")
    arguments = [
        "--router",
        "a/b",
        "--session",
        "unix:/s",
        "--identity",
        str(tmp_path / "none"),
        "--source",
        "netlink",
    ]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("vrc: identity ")
    assert error.count("\n") == 1


def test_age_of_a_process() -> None:
    name = Path("/proc/self/comm").read_text().strip()
    age = process_age_s(name)
    assert age is not None
    assert age >= 0.0
    assert process_age_s(f"no-such-{os.getpid()}") is None
