"""A tenant's text is parsed where there is no network: what takes a parser over reaches nothing of the host."""

import socket

import pytest

from controller.guests.suites.config_text import dry_run

pytestmark = pytest.mark.root

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


async def test_a_parser_has_a_gigabyte_of_memory_and_writes_no_file() -> None:
    program = "import resource as r; print([r.getrlimit(each)[1] for each in (r.RLIMIT_AS, r.RLIMIT_FSIZE)])"
    assert await dry_run(("/usr/bin/python3", "-c", program), "") == (0, f"[{1 << 30}, 0]\n")
