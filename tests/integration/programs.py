"""Programs of ours that are run to their end."""

import asyncio
import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 540


async def finish(*command: str, limit_s: float = LIMIT_S, **environment: str) -> tuple[int, str]:
    """Run a command to its end and return its exit status and what it printed."""
    pipes = {"stdin": asyncio.subprocess.DEVNULL, "stdout": asyncio.subprocess.PIPE}
    pipes["stderr"] = asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(*command, **pipes, env=os.environ | environment)
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), limit_s)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, printed.decode()


def all_hold(status: int, printed: str) -> None:
    """Assert that `topologies/run --test` found every claim to hold."""
    lines = printed.splitlines()
    assert status == 0, printed
    assert sum(line.startswith("ok ") for line in lines) >= 8
    assert not any(line.startswith("FAIL") for line in lines)
