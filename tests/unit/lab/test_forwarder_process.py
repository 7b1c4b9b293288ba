"""A topology's vr-forwarder: its command line, and what is said where it does not run. A script takes its place."""

import json
from pathlib import Path

import pytest

from lab.network import NetworkError
from lab.planes import forwarder
from lab.planes.forwarder import ForwarderPlanes, enclosed

SCRIPT = """#!/bin/sh
[ "$1" = status ] && exit 1
echo "$@"
echo "vr-forwarder: {last}" >&2
exit 1
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "vr-forwarder"
    monkeypatch.setattr(forwarder, "PROGRAM", path)
    monkeypatch.setattr(forwarder, "_RUN", tmp_path)
    monkeypatch.setattr(forwarder, "mount_bpffs", lambda: None)  # which needs root
    return path


def test_its_command_and_its_last_words(program: Path, tmp_path: Path) -> None:
    program.write_text(SCRIPT.format(last="port 1: eth1 is no interface"))
    program.chmod(0o755)
    switch = enclosed("s1", 7)
    with pytest.raises(NetworkError) as caught:
        switch.start({"eth1": 1, "eth2": 2})
    assert str(caught.value) == "vr-forwarder s1 ended: vr-forwarder: port 1: eth1 is no interface"
    own = f"run --state {tmp_path}/vr-forwarder-s1 --instance vr-forwarder-s1 --device-id 7 --listen {switch.address}"
    assert switch.log.read_text().splitlines()[0] == f"{own} --port 1=eth1 --port 2=eth2"


def test_what_is_not_built_is_said(program: Path) -> None:
    assert ForwarderPlanes().missing() == f"{program} is missing; run: make setup"
    program.touch()
    assert not ForwarderPlanes().missing()


def test_what_it_has_forwarded_is_the_sum_of_its_interfaces(program: Path) -> None:
    counters = {"1": {"sent": {"packets": 3}}, "2": {"sent": {"packets": 4}}}
    program.write_text(f"#!/bin/sh\necho '{json.dumps({'interfaces': counters})}'\n")
    program.chmod(0o755)
    assert enclosed("s1", 7).sent() == 7


def test_counters_of_one_that_has_ended_are_no_traceback(program: Path) -> None:
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(NetworkError, match=r"^vr-forwarder s1 does not answer; see "):
        enclosed("s1", 7).sent()
