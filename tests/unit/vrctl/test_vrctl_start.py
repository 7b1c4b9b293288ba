"""vrctl has to start quickly: it imports neither the API's framework nor any back end."""

import subprocess
import sys

HEAVY = ("fastapi", "grpc", "os_ken", "pydantic", "httpx", "cryptography", "pyroute2", "sqlite3", "asyncio")


def test_starting_imports_nothing_heavy() -> None:
    script = "import sys, controller.vrctl.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "typer" in loaded
    assert [name for name in HEAVY if name in loaded] == []
