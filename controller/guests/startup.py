"""The start of a guest's first process: by a launcher of ours, which returns when that runs."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from controller.errors import GuestError

LIMIT_S = 30.0
KILL_LIMIT_S = 5.0
RUNS_ALREADY = 75
"""The launcher's exit status where the guest runs already."""


async def launch(
    directory: Path, router: str, what: str, root: Path, command: Sequence[str], told: bytes | None = None
) -> None:
    """Run a module of ours, below ``root``, in a guest's directory until the guest runs.

    ``command`` is the module and its options, ``told`` its standard input. GuestError, of ``what``, in its words
    where it fails. It gets as little of Python as there is (-S -s -P): what it becomes is there for every guest.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-s", "-P", "-m", *command),
        cwd=directory,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(root)},
        stdin=asyncio.subprocess.DEVNULL if told is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            _, said = await process.communicate(told)
    except TimeoutError as error:
        # Its session: a child of it may hold the guest's lock.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_LIMIT_S):
                await process.wait()
        raise GuestError(f"{router}: {what} did not start in {LIMIT_S:.0f} s; see the logs in {directory}") from error
    if process.returncode == RUNS_ALREADY:
        raise GuestError(f"{router}: another controller is starting {what}; try again")
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines()
        raise GuestError(f"{router}: {what} did not start: {lines[-1] if lines else 'no reason given'}")
