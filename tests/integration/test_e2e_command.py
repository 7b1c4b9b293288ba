"""Programs of the operator's choice in a guest: kept running, told of changed files, ended when unwanted."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_single import FAR, ROUTER, Single, single
from rig import until

from controller.guests.users import guest_id_base

pytestmark = pytest.mark.root

SCRIPT = """trap 'load' HUP
load() { ip route replace $(cat /run/command/etc/route); }
load
while :; do sleep 1000 & wait $!; done
"""
KEEPER = {"name": "keeper", "argv": ["/bin/sh", "/run/command/etc/keep.sh"], "reload": "HUP"}
NEAR, OTHER = "192.0.2.0/24 via 10.2.0.2\n", "198.51.100.0/24 via 10.2.0.2\n"


def command(*daemons: dict[str, Any], route: str = NEAR) -> dict[str, Any]:
    return {"files": {"keep.sh": SCRIPT, "route": route}, "daemons": list(daemons)}


@pytest.fixture(scope="module")
def net() -> Iterator[Single]:
    with single(text={"command": command(KEEPER)}) as found:
        yield found


def declared(net: Single, wanted: dict[str, Any]) -> dict[str, Any]:
    """The tenant with another command."""
    return net.declared | {"routers": [net.declared["routers"][0] | {"command": wanted}]}


def states(net: Single) -> dict[str, str]:
    found: dict[str, str] = net.rig.api.get("routers", "red", "r1", "daemons")
    return found


def prefixes(net: Single) -> set[str]:
    return {one["prefix"] for one in net.rig.show("fib", ROUTER)}


def process(net: Single) -> int:
    return net.rig.process(ROUTER, "keep.sh")


async def test_what_it_writes_to_the_kernel_is_forwarded(net: Single) -> None:
    until("the route", lambda: "192.0.2.0/24" in prefixes(net))
    assert await net.left.ping(FAR, 3) == 3
    until("all is up", lambda: states(net) == {"vrc": "up", "keeper": "up"})
    assert net.rig.show("get", "routers")[0]["suite"] == "command"
    net.rig.verified()


def test_it_is_nobody_with_what_routing_needs_and_no_more(net: Single) -> None:
    status = dict(line.split(":\t") for line in _proc(net, "status").splitlines() if ":\t" in line)
    assert status["Uid"].split() == [str(guest_id_base(1) + 65534)] * 4
    net_bind_service, net_admin, net_raw = 10, 12, 13
    held = sum(1 << one for one in (net_bind_service, net_admin, net_raw))
    assert {int(status[which], 16) for which in ("CapEff", "CapBnd", "CapAmb")} == {held}


def _proc(net: Single, name: str) -> str:
    with open(f"/proc/{process(net)}/{name}") as file:
        return file.read()


def test_a_changed_file_is_told_by_its_signal(net: Single) -> None:
    before = process(net)
    assert net.rig.apply(declared(net, command(KEEPER, route=OTHER))) == "change router red/r1\n    command changed\n"
    until("the new route", lambda: "198.51.100.0/24" in prefixes(net))
    assert process(net) == before


def test_one_that_dies_is_started_again(net: Single) -> None:
    before = process(net)
    os.kill(before, signal.SIGKILL)
    until("another process", lambda: process(net) not in (0, before))
    until("it is up", lambda: states(net)["keeper"] == "up")
    assert "keeper ended: killed by SIGKILL" in net.rig.ok("logs", ROUTER)


def test_one_whose_command_changes_is_replaced_and_one_that_is_gone_ends(net: Single) -> None:
    before = process(net)
    changed = KEEPER | {"argv": [*KEEPER["argv"], "again"]}
    sleeper = {"name": "sleeper", "argv": ["/bin/sleep", "1234567"]}
    net.rig.apply(declared(net, command(changed, sleeper)))
    until("both run", lambda: process(net) not in (0, before) and net.rig.process(ROUTER, "1234567"))
    until("both are up", lambda: states(net) == {"vrc": "up", "keeper": "up", "sleeper": "up"})
    net.rig.apply(declared(net, command(KEEPER)))
    until("the second ends", lambda: not net.rig.process(ROUTER, "1234567"))
    assert "sleeper" not in states(net)


def test_a_reload_that_fails_puts_the_former_files_back(net: Single) -> None:
    reads = KEEPER | {"reload": ["/bin/sh", "-c", "grep -q via /run/command/etc/route || { echo no hop; exit 3; }"]}
    net.rig.apply(declared(net, command(reads)))
    said = net.rig.vrctl("apply", "-f", "-", text=json.dumps(document(net, command(reads, route="203.0.113.0/24\n"))))
    assert "command keeper reload: exit status 3: no hop; the former files are back" in said.stdout + said.stderr
    assert net.guest("cat", "/run/command/etc/route") == NEAR


def test_what_was_told_before_a_reload_failed_is_told_of_the_former_files(net: Single) -> None:
    needs = {"name": "needs", "argv": ["/bin/sleep", "7654321"]}
    needs["reload"] = ["/bin/sh", "-c", "grep -q 192.0.2 /run/command/etc/route"]
    net.rig.apply(declared(net, command(KEEPER, needs)))
    until("both are up", lambda: states(net) == {"vrc": "up", "keeper": "up", "needs": "up"})
    net.guest("ip", "route", "flush", "192.0.2.0/24")
    net.rig.vrctl("apply", "-f", "-", text=json.dumps(document(net, command(KEEPER, needs, route=OTHER))))
    until("the former route", lambda: "192.0.2.0/24" in prefixes(net))
    net.rig.apply(declared(net, command(KEEPER)))


def document(net: Single, wanted: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "planes": [net.rig.switch.declared], "tenants": [declared(net, wanted)]}


def test_one_that_only_dies_is_shown_with_its_last_words(net: Single) -> None:
    dies = {"name": "dies", "argv": ["/bin/sh", "-c", "echo no such peer; exit 1"]}
    # Apply says so itself where it waits long enough to see the last of some deaths in a row.
    net.rig.vrctl("apply", "-f", "-", text=json.dumps(document(net, command(KEEPER, dies))))

    def reason() -> str:
        return str(net.rig.router(ROUTER)["reason"])

    until("it is degraded", lambda: "dies: exit status 1: no such peer" in reason())
    net.rig.apply(declared(net, command(KEEPER)))
    until("it is up again", lambda: net.rig.router(ROUTER)["state"] == "up")


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        (
            command({"argv": ["/usr/sbin/no-such"]}),
            "red/r1: command: /usr/sbin/no-such not found; install its package",
        ),
        (
            command(KEEPER) | {"user": "no-such-user"},
            "red/r1: command: no user 'no-such-user' here; adduser --system",
        ),
        (command({"argv": ["sleep"]}), "argv: 'sleep' is no command; begin with the absolute path of a program"),
        (command(KEEPER, KEEPER), "daemons: 'keeper' is taken; give its daemon another `name`"),
        (command(KEEPER | {"name": "vrc"}), "daemons: 'vrc' is taken"),
        (command(KEEPER) | {"user": "root"}, "user: root is refused"),
        ({"daemons": []}, "daemons: a list should be"),
        (command(KEEPER | {"reload": "KILL"}), "reload: 'KILL' should be"),
    ],
)
def test_what_cannot_run_is_refused_with_the_remedy(net: Single, wanted: dict[str, Any], complaint: str) -> None:
    before = net.rig.ok("get", "routers", "-o", "json"), process(net)
    assert complaint in net.rig.complaint("apply", "-f", "-", text=json.dumps(document(net, wanted)))
    assert (net.rig.ok("get", "routers", "-o", "json"), process(net)) == before
    assert net.rig.apply(declared(net, command(KEEPER))) == "nothing to change\n"  # and none of it was stored
