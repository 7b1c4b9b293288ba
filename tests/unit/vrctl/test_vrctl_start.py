"""vrctl and what runs a command in a machine have to start quickly: neither API's framework nor any back end."""

import subprocess
import sys

import pytest

HEAVY = ("fastapi", "grpc", "os_ken", "pydantic", "httpx", "cryptography", "pyroute2", "sqlite3", "asyncio")


@pytest.mark.parametrize(
    ("program", "light"),
    [
        ("controller.vrctl.cli", "typer"),
        ("controller.guests.machine.exec_client", "controller.guests.machine.terminal"),
    ],
)
def test_starting_imports_nothing_heavy(program: str, light: str) -> None:
    script = f"import sys, {program}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert light in loaded
    assert [name for name in HEAVY if name in loaded] == []
