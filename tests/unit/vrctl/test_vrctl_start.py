"""vrctl and what runs a command in a machine have to start quickly: neither API's framework nor any back end."""

import subprocess
import sys

import pytest

HEAVY = ("fastapi", "grpc", "os_ken", "pydantic", "httpx", "cryptography", "pyroute2", "sqlite3", "asyncio")


@pytest.mark.parametrize(
    ("program", "light"),
    [
        ("from controller.vrctl import cli; cli.commands()", "typer"),
        ("import controller.guests.machine.exec_client", "controller.guests.machine.terminal"),
    ],
)
def test_starting_imports_nothing_heavy(program: str, light: str) -> None:
    loaded = loaded_by(program)
    assert light in loaded
    assert [name for name in HEAVY if name in loaded] == []


def loaded_by(program: str) -> list[str]:
    script = f"{program}; import sys; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_ctrl_c_while_vrctl_starts_is_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that takes long is imported where main has taken over."""
    from controller.vrctl import cli

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "commands", interrupt)
    with pytest.raises(SystemExit) as ended:
        cli.main(["get", "routers"])
    assert (ended.value.code, capsys.readouterr().err) == (130, "")
    ours = [name for name in loaded_by("import controller.vrctl.cli") if name.startswith(("typer", "controller."))]
    assert ours == ["controller.vrctl", "controller.vrctl.cli"]
