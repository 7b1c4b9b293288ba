"""An operator's text for a suite: what no suite takes, and the dry run of a suite's own parser over it."""

import asyncio
import os
import re
import resource
from collections.abc import Sequence

from controller.errors import GuestError
from controller.guests.users import as_user

MAX_TEXT_BYTES = 1 << 20
CHECK_LIMIT_S = 30.0
FILE = "{text}"
"""The word of a command that stands for the path of the text."""

NOBODY = 65534
_APART = ("/usr/bin/unshare", "--net", "--ipc", "--")
_PRLIMIT = ("/usr/bin/prlimit", "--as=1073741824", "--fsize=0")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def refuse_unfit(router: str, suite: str, text: str) -> None:
    """Raise GuestError where a text is too long, or with the line where it has a control character."""
    if len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
        raise GuestError(f"{router}: {suite} is longer than {MAX_TEXT_BYTES >> 20} MiB")
    for number, line in enumerate(text.split("\n"), 1):  # splitlines would take some of them for ends of lines
        if _CONTROL.search(line.removesuffix("\r")):
            raise GuestError(f"{router}: {suite} line {number}: control character")


async def dry_run(command: Sequence[str], text: str) -> tuple[int, str]:
    """Return a parser's exit status and what it says of a text; TimeoutError after CHECK_LIMIT_S.

    It parses a text of somebody else's here: as nobody, without a capability, in an empty environment, with a network
    of its own that has nothing, so that a parser which was taken over reaches no listener of this host. One that
    crashes does not start what the host takes dumps with, which it does with any limit but one octet (core(5)).
    """
    file = os.memfd_create("text")
    path = f"/proc/self/fd/{file}"
    words = [path if word == FILE else word for word in command]
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    core = f"--core={1 if most else 0}"  # nobody may raise what is nothing
    argv = [*_APART, *as_user(NOBODY, (), [*_PRLIMIT, core, "--", *words])]
    try:
        os.write(file, text.encode())
        os.fchmod(file, 0o644)
        return await _run(argv, file)
    finally:
        os.close(file)


async def _run(argv: list[str], passed: int) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        cwd="/",
        pass_fds=(passed,),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(CHECK_LIMIT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, output.decode(errors="replace")
