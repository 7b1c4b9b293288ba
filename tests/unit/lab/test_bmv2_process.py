"""The BMv2 of a topology: how it is started, and what is said where it does not run. A script takes its place."""

from pathlib import Path

import pytest

from lab.network import NetworkError
from lab.planes import bmv2
from lab.planes.bmv2 import enclosed

SCRIPT = """#!/bin/sh
[ "$1" = --help ] && {{ echo "{help}"; exit 1; }}
echo "$@"
echo "{last}" >&2
exit 3
"""


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bmv2, "_EVERY_S", 0.001)
    monkeypatch.setattr(bmv2, "_RUN", tmp_path / "run")
    monkeypatch.setattr(bmv2, "OWN_SYSFS", ())  # which needs root
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def run(help_text: str, last: str) -> tuple[str, str]:
        program = tmp_path / bmv2.PROGRAM
        program.write_text(SCRIPT.format(help=help_text, last=last))
        program.chmod(0o755)
        switch = enclosed("s1", 7, place=2)
        with pytest.raises(NetworkError) as caught:
            switch.start({"eth1": 1, "eth2": 2})
        return str(caught.value), switch.log.read_text().splitlines()[-2]

    return run


def test_its_last_words_are_told(started) -> None:
    problem, _ = started("", "Error when adding port eth2")
    assert problem == "BMv2 s1 ended: Error when adding port eth2"


def test_it_ends_without_a_word(started) -> None:
    problem, _ = started("--thrift-port", "")
    own = "--no-p4 --device-id 7 --log-level warn -i 1@eth1 -i 2@eth2 --thrift-port 9092 -- "
    assert problem.startswith(f"BMv2 s1 ended: {own}")


def test_options_that_the_build_does_not_have_are_left_out(started) -> None:
    _, plain = started("", "x")
    own = "--no-p4 --device-id 7 --log-level warn -i 1@eth1 -i 2@eth2"
    assert plain == f"{own} -- --grpc-server-addr 127.0.0.1:9561 --cpu-port 510"
    _, full = started("--thrift-port arg --notifications-addr arg", "x")
    assert "--thrift-port 9092 --notifications-addr ipc://" in full
    assert full.endswith(plain.partition(" -- ")[2])
