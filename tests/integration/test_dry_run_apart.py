"""A tenant's text is parsed where there is no network: what takes a parser over reaches nothing of the host."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from controller.guests.suites.config_text import dry_run

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]

REACH = """
import os, socket, sys
print("interfaces", [name for _, name in socket.if_nameindex()])
tcp, unix = ("127.0.0.1", int(sys.argv[1])), sys.argv[2].replace("@", chr(0))
for family, address in ((socket.AF_INET, tcp), (socket.AF_UNIX, unix)):
    with socket.socket(family) as one:
        try:
            one.connect(address)
            print("reached", address)
        except OSError as problem:
            print("refused")
print("text", open(sys.argv[3]).read(), "uid", os.getuid())
"""


async def test_a_parser_reaches_no_listener_of_the_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        name = f"splitplane-test-{tcp.getsockname()[1]}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        words = ("/usr/bin/python3", "-c", REACH, str(tcp.getsockname()[1]), f"@{name}", "{text}")
        status, said = await dry_run(words, "of a tenant")
    assert status == 0, said
    assert said.splitlines() == ["interfaces ['lo']", "refused", "refused", "text of a tenant uid 65534"]


LIMITS = (
    "import resource as r; print([r.getrlimit(each)[1] for each in (r.RLIMIT_AS, r.RLIMIT_FSIZE, r.RLIMIT_CORE)])"
)
DRY_RUN = """
import asyncio, sys
from controller.guests.suites.config_text import dry_run
print(asyncio.run(dry_run(("/usr/bin/python3", "-c", sys.argv[1]), ""))[1], end="")
"""


@pytest.mark.parametrize(("most", "core"), [("1000", 1), ("0", 0)])
def test_a_parser_has_a_gigabyte_of_memory_writes_no_file_and_starts_nothing_by_a_crash(most: str, core: int) -> None:
    """The kernel starts what takes dumps with any limit but one of one octet (core(5)), which nobody may raise to."""
    command = ("/usr/bin/prlimit", f"--core={most}", "--", sys.executable, "-c", DRY_RUN, LIMITS)
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{[1 << 30, 0, core]}\n", "")
