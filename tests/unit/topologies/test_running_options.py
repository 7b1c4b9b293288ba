"""What topologies/run cannot do with a topology it says in one line."""

import sys

import pytest

from topologies import running


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fallback --plane ovs", "fallback is of Open vSwitch with vr-forwarder behind it; leave --plane out"),
        ("fallback --guest kvm", "the routers of fallback run in namespaces; leave --guest out"),
        ("fallback --routes 1000", "--routes is from 2000 to 190000"),
        (
            "two_tenants --keep /var/tmp/logs",
            "argument --keep: what is in /var/tmp/logs would end with the network; give another directory",
        ),
        (
            "two_tenants --keep /dev/null",
            "argument --keep: /dev/null: File exists; give another directory",
        ),
        ("two_tenants --routes 5000", "the routes of two_tenants are given; leave --routes out"),
    ],
)
def test_an_option_it_has_no_use_for_is_refused(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run", *words.split()])
    monkeypatch.setattr(running, "run_enclosed", lambda *_: 0)
    with pytest.raises(SystemExit) as ended:
        running.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"run: error: {said}"
