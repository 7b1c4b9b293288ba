"""A router in a virtual machine, with the controller and a switch: routes arrive, it comes back, it leaves nothing.

red/r1 (machine)                          blue/r1 (namespaces)
  left  10.1.0.1/24 ── red.left             left  10.1.0.1/24 ── blue.left
  right 10.2.0.1/24 ── red.right, FAR       right 10.2.0.1/24 ── blue.right, FAR
  feed  10.3.0.1/24 ── feeder (BIRD)

What its root can reach over its only link is the session of its router, and QEMU's own answers. That is tried from
the first process's namespace, where that link is; the tenant's daemons do not even see it.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e_world import BGP, FAR, NEAR_FEED, OWN_ROUTES, STATIC, World, world
from machines import BOOT_S, IMAGE, control_groups, machines_of, needs_image
from rig import Rig, document, unbroken, until
from terminals import Operator

from lab.machine_root import run, run_program
from lab.namespaces import sh

pytestmark = pytest.mark.root

HOLD_S = 120
ROUTES = OWN_ROUTES + 1  # the feeder's is the last
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


@dataclass
class Machines:
    """A world in which red's guest is a machine."""

    world: World
    routes: int = ROUTES

    @property
    def rig(self) -> Rig:
        return self.world.rig

    @property
    def qemu(self) -> int:
        (pid,) = machines_of(self.rig.state)
        return pid

    def up(self) -> None:
        self.rig.up("red/r1", routes=self.routes, limit_s=BOOT_S)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    needs_image()
    guest = {"kind": "kvm", "memory": "256M"}
    with world("--guest-image", str(IMAGE), hold_time_s=HOLD_S, red_guest=guest, limit_s=BOOT_S) as found:
        try:
            yield Machines(found)
        finally:
            directory = found.rig.state / "guests" / "1"
            found.rig.ok("delete", "tenant", "red")
            until("its control groups are gone", lambda: not control_groups(directory))


def test_routes_of_a_machine_s_daemons_are_forwarded_by_the_plane(machines: Machines) -> None:
    rig = machines.rig
    rig.verified()
    kinds = {view["router"]: view["guest"] for view in rig.api.get("routers")}
    assert kinds["blue/r1"] == "netns"
    assert kinds["red/r1"] in ("kvm", "kvm (emulated)")
    assert set(rig.api.get("routers", "red", "r1", "daemons").items()) >= {
        *(("machine", "up"), ("vrc", "up"), ("zebra", "up"), ("bgpd", "up")),
    }
    with unbroken(rig, *machines.world.ways):
        sh("ip", "netns", "exec", machines.world.red.left.namespace, "ping", "-q", "-c", "20", "-i", "0.05", FAR)


def test_a_command_runs_inside_and_brings_back_output_and_status(machines: Machines) -> None:
    rig = machines.rig
    routes = rig.ok("exec", "red/r1", "--", "vtysh", "-c", "show ip route bgp", text="")
    assert "198.51.100.0/24" in routes
    assert rig.ok("exec", "red/r1", "--", "cat", text="typed") == "typed"
    failed = rig.vrctl("exec", "red/r1", "--", "sh", "-c", "echo no >&2; exit 7", text="")
    assert (failed.returncode, failed.stdout, failed.stderr) == (7, "", "no\n")
    # Its own link is not in the guest: there are the router's interfaces and nothing else.
    links = {
        line.split(":")[1].strip()
        for line in rig.ok("exec", "red/r1", "--", "ip", "-o", "link", text="").splitlines()
    }
    assert links == {"lo", "left", "right", "feed"}


def test_of_frr_only_what_would_spin_is_no_batch_work(machines: Machines) -> None:
    """The image's kernel is Debian's, which lets root become another user less easily than newer ones do."""
    shown = machines.rig.ok("exec", "red/r1", "--", "ps", "-L", "-u", "frr", "-o", "cls=,comm=", text="")
    threads = [line.split(maxsplit=1) for line in shown.splitlines()]
    assert {name for _, name in threads} >= {"zebra", "bgpd", "dplane_fpm_nl"}
    assert [name for policy, name in threads if policy != "B"] == ["dplane_fpm_nl"]


def operator(rig: Rig, *command: str) -> contextlib.closing[Operator]:
    """Somebody who runs vrctl from a terminal."""
    return contextlib.closing(Operator(rig.command(*command), rig.environment))


def test_vtysh_has_a_terminal_and_nobody_has_to_wait_for_it(machines: Machines) -> None:
    rig = machines.rig
    with operator(rig, "exec", "red/r1", "--", "vtysh") as at:
        at.sees(b"red-r1# ")
        at.type(b"show ip route bgp\r")
        at.sees(b"198.51.100.0/24")
        at.sees(b"red-r1# ")
        at.type(b"configure terminal\r")
        at.sees(b"red-r1(config)# ")
        at.type(b"\x03")  # vtysh begins a new line
        at.sees(b"red-r1(config)# ")
        at.type(b"end\r")
        at.sees(b"red-r1# ")
        assert rig.ok("exec", "red/r1", "--", "hostname", text="") == "red-r1\n"
        assert rig.api.get("routers", "red", "r1", "daemons")["machine"] == "up"
        at.type(b"exit\r")
        assert at.ends() == 0


def test_what_is_run_inside_is_under_the_filter_of_the_guest_s_daemons(machines: Machines) -> None:
    rig = machines.rig
    confined = ("grep", "-c", "-e", "^Seccomp:.2$", "-e", "^NoNewPrivs:.1$", "/proc/self/status")
    assert rig.ok("exec", "red/r1", "--", *confined, text="") == "2\n"
    refused = rig.vrctl("exec", "red/r1", "--", "mount", "-t", "tmpfs", "none", "/mnt", text="")
    assert refused.returncode != 0
    with operator(rig, "exec", "red/r1", "--", *confined) as at:
        at.sees(b"2")
        assert at.ends() == 0
    with operator(rig, "console", "red/r1") as at:
        at.sees(b"# ", typing=b"\r")
        at.type(b"echo $((40 + 2))=$(grep -c ^Seccomp:.2$ /proc/self/status)\r")
        at.sees(b"42=1")
        at.type(b"exit\r\x1d")
        assert at.ends() == 0


def test_control_c_does_not_end_vtysh_in_a_namespace_either(machines: Machines) -> None:
    with operator(machines.rig, "exec", "blue/r1", "--", "vtysh") as at:
        at.sees(b"blue-r1# ")
        at.type(b"configure terminal\r")
        at.sees(b"blue-r1(config)# ")
        at.type(b"\x03")
        at.sees(b"blue-r1(config)# ")
        at.type(b"end\r")
        at.sees(b"blue-r1# ")
        at.type(b"exit\r")
        assert at.ends() == 0


def test_a_command_at_a_terminal_is_interrupted_and_resized_and_ends_with_its_status(machines: Machines) -> None:
    rig = machines.rig
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done"
    with operator(rig, "exec", "red/r1", "--", "sh", "-c", script) as at:
        at.sees(b"ready")
        at.resize(50, 132)
        at.sees(b"50 132")
        at.type(b"\x03")
        assert at.ends() == 128 + signal.SIGINT
    with operator(rig, "exec", "red/r1", "--", "sh", "-c", "test -t 0 -a -t 1 && exit 7") as at:
        assert at.ends() == 7
    assert rig.vrctl("exec", "red/r1", "--", "sh", "-c", "kill -TERM $$", text="").returncode == 128 + signal.SIGTERM


def test_who_goes_away_from_a_terminal_hangs_up(machines: Machines) -> None:
    rig = machines.rig
    script = "trap 'echo $0 >/tmp/told; exit' HUP; echo ready; while :; do sleep 0.1; done"
    with operator(rig, "exec", "red/r1", "--", "sh", "-c", script, "hung up") as at:
        at.sees(b"ready")
    told = ("exec", "red/r1", "--", "cat", "/tmp/told")
    until("it is told", lambda: rig.vrctl(*told, text="").stdout == "hung up\n")


def test_the_console_is_a_terminal_and_its_log_can_be_read(machines: Machines) -> None:
    rig = machines.rig
    with operator(rig, "console", "red/r1") as at:
        at.sees(b"Connected")
        at.sees(b"This is the guest.", typing=b"\r")
        at.sees(b"# ")
        at.type(b"hostname; echo $((6 * 7))x\r")
        at.sees(b"red-r1")
        at.sees(b"42x")
        at.type(b"exit\r\x1d")
        assert at.ends() == 0
    assert "42x" in rig.ok("logs", "red/r1")
    assert rig.complaint("console", "blue/r1") == (
        "vrctl: blue/r1: a guest in a namespace has no console; try vrctl exec blue/r1 -- bash"
    )


def own_addresses() -> list[str]:
    """The addresses of the host that runs this test."""
    links = json.loads(subprocess.run(["ip", "-j", "-4", "address"], capture_output=True, check=True).stdout)
    return [one["local"] for link in links for one in link["addr_info"]]


def test_nothing_answers_but_the_emulated_stack(machines: Machines) -> None:
    machine = machines.rig.state / "guests" / "1"
    found = run_program(machine, Path(__file__).with_name("reach_guest.py"), *OUTSIDE, *own_addresses())
    assert len(found) > len(EMULATED)
    assert {name: answers for name, answers in found.items() if answers} == EMULATED


def test_the_machine_has_one_link_and_qemu_none(machines: Machines) -> None:
    machine = machines.rig.state / "guests" / "1"
    links = json.loads(run(machine, "ip", "-j", "-4", "address"))
    assert {link["ifname"]: [one["local"] for one in link["addr_info"]] for link in links} == {
        "lo": ["127.0.0.1"],
        "eth0": ["10.0.2.15"],
    }
    routes = json.loads(run(machine, "ip", "-j", "route"))
    assert [route["dst"] for route in routes] == ["10.0.2.0/24"]
    lines = Path(f"/proc/{machines.qemu}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in lines] == ["lo"]
    assert Path(f"/proc/{machines.qemu}/net/route").read_text().count("\n") == 1  # the heading


def test_a_changed_configuration_is_loaded_without_a_restart(machines: Machines) -> None:
    rig, before = machines.rig, machines.qemu
    red = machines.world.declared["red"]

    def text(frr: str) -> dict[str, Any]:
        return red | {"routers": [red["routers"][0] | {"frr": frr}]}

    refused = text("router bgp 65000\n neighbr 10.3.0.2\n")
    done = rig.vrctl("apply", "-f", "-", text=document(refused, plane=rig.switch.declared))
    assert done.returncode == 1
    assert "frr line 2: unknown command: neighbr 10.3.0.2" in done.stderr
    rig.apply(text(STATIC + BGP + "ip route 203.0.113.0/24 10.2.0.2\n"))
    machines.routes += 1
    machines.up()
    assert machines.qemu == before


def test_a_restarted_controller_finds_its_machine(machines: Machines) -> None:
    before = machines.qemu
    with unbroken(machines.rig, (machines.world.red.left, FAR)):
        machines.rig.kill_controller()
        machines.rig.start_controller()
        machines.up()
    assert machines.qemu == before
    assert machines.rig.ok("exec", "red/r1", "--", "hostname", text="") == "red-r1\n"


def test_a_machine_that_is_killed_comes_back_and_the_plane_forwards_meanwhile(machines: Machines) -> None:
    rig, before = machines.rig, machines.qemu
    with unbroken(rig, (machines.world.red.left, FAR), (machines.world.blue.left, FAR)):
        os.kill(before, signal.SIGKILL)
        until("it is noticed", lambda: "guest-died red/r1" in rig.ok("events"))
        machines.up()
        until("every route is learned anew", lambda: not any(r["stale"] for r in rig.show("routes", "red/r1")))
    assert machines.qemu != before
    rig.verified("red/r1")


def test_a_deleted_machine_leaves_nothing(machines: Machines) -> None:
    rig = machines.rig
    directory = rig.state / "guests" / "1"
    rig.ok("delete", "router", "red/r1")
    until("it is buried", lambda: "router-removed red/r1" in rig.ok("events"))
    assert machines_of(rig.state) == []
    assert not control_groups(directory)
    assert [path.name for path in (rig.state / "guests").iterdir()] == [str(2)]
    assert [path.name for path in (rig.run / "sessions").iterdir() if path.is_dir()] == [str(2)]
