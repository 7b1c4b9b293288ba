"""Programs of the operator's choice in a virtual machine: started again, told of changed files, and logged."""

import re
from typing import Any

import pytest
from machines import BOOT_S, IMAGE, needs_image, remember_accelerator
from rig import Rig, interface, tenant, until
from test_e2e_command import KEEPER, NEAR, OTHER, SCRIPT

pytestmark = pytest.mark.root

ROUTER = "red/r1"


def test_one_that_dies_is_started_again_and_a_changed_file_is_told_by_its_signal() -> None:
    needs_image()
    with Rig() as rig:
        remember_accelerator(rig.state)
        host = rig.host(2, "10.2.0.2/24")

        def red(route: str) -> dict[str, Any]:
            command = {"files": {"keep.sh": f"echo keeper is $$\n{SCRIPT}", "route": route}, "daemons": [KEEPER]}
            guest = {"kind": "kvm", "image": str(IMAGE)}
            interfaces = [interface("eth0", host, "10.2.0.1/24")]
            router = {"name": "r1", "interfaces": interfaces, "command": command, "guest": guest}
            return tenant("red", {host.link: ["untagged"]}, router)

        def started() -> list[str]:
            """Return the process ids that the program has told, as the log has them."""
            return re.findall(r"keeper: keeper is (\d+)", rig.ok("logs", ROUTER))

        def is_forwarded(prefix: str) -> bool:
            return any(route["prefix"] == prefix for route in rig.show("fib", ROUTER))

        rig.apply(red(NEAR))
        rig.up(ROUTER, limit_s=BOOT_S)
        until("the route", lambda: is_forwarded("192.0.2.0/24"), BOOT_S)
        (first,) = started()
        rig.ok("exec", ROUTER, "--", "sh", "-c", f"kill -KILL {first}", text="")
        until("another process", lambda: len(started()) == 2)
        assert "keeper ended: killed by SIGKILL" in rig.ok("logs", ROUTER)
        rig.up(ROUTER)
        rig.apply(red(OTHER))
        until("the new route", lambda: is_forwarded("198.51.100.0/24"))
        assert len(started()) == 2
        rig.verified()
