"""What a machine's root can reach over its only link: the session of its router, and QEMU's own answers.

Everything is tried from the first process's namespace, where that link is; the tenant's daemons do not even see it.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_world import FAR, NEAR_FEED, World, world
from machine_root import run, run_program
from machines import BOOT_S, IMAGE, machine_of, needs_image

pytestmark = pytest.mark.root

OUTSIDE = ("10.1.0.1", "10.1.0.2", "10.2.0.2", "10.3.0.2", FAR, NEAR_FEED, "127.0.0.1", "169.254.169.254")
EMULATED = {
    "arp": ["arp 10.0.2.100", "arp 10.0.2.2", "arp 10.0.2.3"],
    "arp as another": ["arp 10.0.2.100", "arp 10.0.2.2", "arp 10.0.2.3"],
    "ping": ["icmp 0 10.0.2.2", "icmp 0 10.0.2.3"],
    "dhcp": ["udp 10.0.2.2:67"],
    "tftp": ["tftp 5 10.0.2.2"],  # an error: there is nothing to be had
    "ncsi": ["ethertype 88f8"],
    # Every connection that is not to the session is reset, to whatever address.
    **{name: ["tcp reset"] for name in ("dns", "smb", "tcp", "tcp near", "tcp outside")},
}
"""What QEMU's user network answers by itself, with ``restrict=on``; all else is silence."""


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    needs_image()
    guest = {"kind": "kvm"}
    with world("--guest-image", str(IMAGE), hold_time_s=120, red_guest=guest, limit_s=BOOT_S) as found:
        try:
            yield found
        finally:
            found.rig.ok("delete", "tenant", "red")


def own_addresses() -> list[str]:
    """The addresses of the host that runs this test."""
    links = json.loads(subprocess.run(["ip", "-j", "-4", "address"], capture_output=True, check=True).stdout)
    return [one["local"] for link in links for one in link["addr_info"]]


def test_nothing_answers_but_the_emulated_stack(running: World) -> None:
    machine = running.rig.state / "guests" / "1"
    found = run_program(machine, "reach_guest.py", *OUTSIDE, *own_addresses())
    assert len(found) > len(EMULATED)
    assert {name: answers for name, answers in found.items() if answers} == EMULATED


def test_the_machine_has_one_link_and_qemu_none(running: World) -> None:
    machine = running.rig.state / "guests" / "1"
    links = json.loads(run(machine, "ip", "-j", "-4", "address"))
    assert {link["ifname"]: [one["local"] for one in link["addr_info"]] for link in links} == {
        "lo": ["127.0.0.1"],
        "eth0": ["10.0.2.15"],
    }
    routes = json.loads(run(machine, "ip", "-j", "route"))
    assert [route["dst"] for route in routes] == ["10.0.2.0/24"]
    qemu = machine_of(running.rig.state, "red/r1")
    lines = Path(f"/proc/{qemu}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in lines] == ["lo"]
    assert Path(f"/proc/{qemu}/net/route").read_text().count("\n") == 1  # the heading
