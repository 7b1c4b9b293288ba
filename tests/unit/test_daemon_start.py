"""What vr-controller checks before it serves: options, the lock, the supervisor that restarts tasks."""

import argparse
import asyncio
import functools
import gc
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import controller.__main__
from controller import supervisor
from controller.daemon import (
    Daemon,
    Listen,
    device_tls,
    lock_directories,
    main,
    parse_arguments,
    parse_listen,
    switch_tls,
)
from controller.errors import StoreError
from controller.events.log import EventLog
from controller.pki.authority import PKI, system_clock
from controller.pki.planes import PlaneCertificates
from controller.planes.p4runtime.channel import TlsFiles
from controller.store.sqlite import SqliteStore


def test_where_switches_connect() -> None:
    assert parse_listen("tcp:127.0.0.1:6653") == Listen(False, "127.0.0.1", 6653)
    assert parse_listen("ssl:[::1]:0") == Listen(True, "::1", 0)


@pytest.mark.parametrize("text", ["", "tcp:6653", "udp:h:1", "tcp:h:70000", "tcp::1", "tcp:h:x"])
def test_another_address_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--openflow", text])
    assert ended.value.code == 2
    assert "is not tcp:HOST:PORT or ssl:HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(("state", "run", "option"), [("state", "other", "state"), ("other", "run", "run")])
def test_a_second_controller_on_the_same_directory_says_who_has_it(
    tmp_path: Path, state: str, run: str, option: str
) -> None:
    """It would take the sockets away from the first one, in which nothing else hinders it."""

    def close(descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    first = lock_directories(tmp_path / "state", tmp_path / "run")
    with pytest.raises(
        StoreError, match=f"process {os.getpid()} already runs on .*/{option}; stop it, or give another --{option}"
    ):
        lock_directories(tmp_path / state, tmp_path / run)
    close(first)
    close(lock_directories(tmp_path / "state", tmp_path / "run"))


def test_the_switches_tls_needs_files_that_exist(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    pki = PKI(tmp_path, store)
    planes = PlaneCertificates(pki, store, system_clock)
    assert switch_tls(pki, planes, parse_arguments(["--state", str(tmp_path)])).get_ca_certs()
    none = str(tmp_path / "none.pem")
    given = ["--openflow-ca", none, "--openflow-cert", none, "--openflow-key", none]
    with pytest.raises(StoreError, match="OpenFlow TLS: No such file"):
        switch_tls(pki, planes, parse_arguments(given))


def test_devices_are_spoken_to_without_tls_unless_all_three_files_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SqliteStore(tmp_path)
    pki = PKI(tmp_path, store)
    planes = PlaneCertificates(pki, store, system_clock)
    assert device_tls(pki, planes, parse_arguments([])) is None
    with pytest.raises(SystemExit):
        parse_arguments(["--p4runtime-ca", "ca.pem", "--p4runtime-key", "key.pem"])
    assert "--p4runtime-ca, --p4runtime-cert and --p4runtime-key go together" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse_arguments(["--p4runtime-tls", *(f"--p4runtime-{name}=x.pem" for name in ("ca", "cert", "key"))])
    assert "either --p4runtime-tls or the three files" in capsys.readouterr().err
    own = device_tls(pki, planes, parse_arguments(["--p4runtime-tls"]))
    assert own is not None
    assert own("f1") == TlsFiles(planes.trusted("f1"), *pki.own_files())
    directory = pki.directory
    files = {"ca": directory / "ca.pem", "cert": directory / "server.pem", "key": directory / "server.key"}
    given = [text for name, path in files.items() for text in (f"--p4runtime-{name}", str(path))]
    given_tls = device_tls(pki, planes, parse_arguments(given))
    assert given_tls is not None
    assert given_tls("f1") == TlsFiles(**files)
    files["key"].write_text("no key")
    with pytest.raises(StoreError, match=r"^P4Runtime TLS: .*; check --p4runtime-ca, -cert and -key$"):
        device_tls(pki, planes, parse_arguments(given))


async def test_a_task_that_fails_is_told_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTART_S", 0.0)
    events, again = EventLog(), asyncio.Event()
    runs: list[int] = []

    async def task() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise RuntimeError("a bug")
        again.set()
        await asyncio.Event().wait()

    keeper = supervisor.Supervisor(events)
    keeper.spawn("test", task)
    await asyncio.wait_for(again.wait(), 30)
    await keeper.close()
    (event,) = events.recent()
    assert (event.kind, event.subject, event.text) == ("task-failed", "test", "RuntimeError: a bug; started again")


def test_the_daemon_runs_with_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[bool] = []
    monkeypatch.setattr("controller.daemon.main", lambda: ran.append(gc.isenabled()))
    controller.__main__.main()
    assert ran == [True]
    assert gc.get_freeze_count()


@pytest.mark.parametrize("first", ["stopped", "restored"])
async def test_one_that_is_stopped_while_it_restarts_with_a_backup_ends(first: str) -> None:
    daemon = Daemon.__new__(Daemon)  # its end alone
    daemon.stop, daemon.restarting = asyncio.Event(), False
    steps = [daemon._end, daemon._restart]
    for step in steps if first == "stopped" else reversed(steps):
        step()
    await asyncio.wait_for(daemon.stop.wait(), 30)
    assert not daemon.restarting


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What `main` becomes after a restore."""
    begun: list[list[str]] = []

    async def restored(_: argparse.Namespace) -> bool:
        return True

    monkeypatch.setattr("controller.daemon.serve", restored)
    for of_the_process in ("share_cores", "bound_pauses", "budget.raise_descriptors", "logging.basicConfig"):
        monkeypatch.setattr(f"controller.daemon.{of_the_process}", lambda **_: None)
    monkeypatch.setattr(os, "execv", lambda _, argv: begun.append(argv))
    monkeypatch.setattr(sys, "argv", ["vr-controller", "--state", str(tmp_path), "--run", str(tmp_path), "--help"])
    monkeypatch.setattr("controller.daemon.parse_arguments", lambda: parse_arguments(sys.argv[1:-1]))
    return begun


def test_after_a_restore_it_is_the_same_program_wherever_it_was_started(
    tmp_path: Path, begun: list[list[str]]
) -> None:
    main()
    (tmp_path / "controller").mkdir()
    (tmp_path / "controller" / "__init__.py").write_text("raise SystemExit('what lies where it was started')")
    path = {"PYTHONPATH": str(Path(controller.__file__).parents[1])}
    done = subprocess.run(begun[0], cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("usage: vr-controller"), done.stderr


@pytest.mark.parametrize(("safe", "wanted"), [(False, ["-m", "controller"]), (True, ["-P", "-m"])])
def test_a_checkout_s_controller_is_started_again_as_it_was(
    begun: list[list[str]], monkeypatch: pytest.MonkeyPatch, safe: bool, wanted: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [controller.__main__.__file__, *sys.argv[1:]])
    flags = {name: getattr(sys.flags, name) for name in sys.flags.__match_args__}
    with monkeypatch.context() as patched:
        patched.setattr(sys, "flags", SimpleNamespace(**flags | {"safe_path": safe}))
        main()
    assert begun[0][1:3] == wanted


async def test_closing_ends_every_task_also_where_another_ends_meanwhile() -> None:
    supervised = supervisor.Supervisor(EventLog())
    over, ended = asyncio.Event(), []

    async def forever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    for name in ("shards", "convergence", "certificates"):
        supervised.spawn(name, functools.partial(forever, name))
    supervised.spawn("api", over.wait)
    supervised.spawn("service manager", functools.partial(forever, "service manager"))
    await asyncio.sleep(0)
    over.set()
    await supervised.close()
    assert ended == ["service manager", "certificates", "convergence", "shards"]
