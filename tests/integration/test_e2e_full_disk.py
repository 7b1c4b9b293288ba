"""No guest fills the disk of the controller's state; a full one locks nobody out, and the controller starts on it."""

import subprocess

import pytest
from rig import Rig, interface, tenant, until

from lab.namespaces import sh

pytestmark = pytest.mark.root

SIZE = "24m"


class SmallDisk(Rig):
    """A rig whose state is on a small file system of its own."""

    def _start_first_process(self) -> None:
        super()._start_first_process()
        self.state.mkdir(mode=0o700, exist_ok=True)
        sh("nsenter", "--target", str(self.first), "--mount", "--", *self._mount())

    def _mount(self) -> tuple[str, ...]:
        return ("mount", "-n", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(self.state))

    def fill(self) -> str:
        """Leave no octet of it; returns what was said of that."""
        script = f"cat /dev/zero >{self.state}/fill; rm -f {self.state}/rest; cat /dev/zero >{self.state}/rest"
        command = ("nsenter", "--target", str(self.first), "--mount", "--", "sh", "-c", script)
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    def authorities(self) -> int:
        """How many certificates of authorities all guests have been given, together."""
        script = f"cat {self.state}/guests/*/identity/ca.pem | grep -c BEGIN"
        return int(sh("nsenter", "--target", str(self.first), "--mount", "--", "sh", "-c", script))

    def empty(self) -> None:
        """Take that away again."""
        sh("nsenter", "--target", str(self.first), "--mount", "--", "rm", f"{self.state}/fill", f"{self.state}/rest")


def certificates(rig: Rig) -> list[str]:
    return [one["serial"] for one in rig.show("get", "certificates")]


def test_a_full_disk_locks_nobody_out_and_no_guest_makes_it_so() -> None:
    with SmallDisk() as rig:
        host = rig.host(1, "10.1.0.2/24")
        routers = [{"name": name, "interfaces": []} for name in ("r2",)]
        routers.append({"name": "r1", "interfaces": [interface("eth0", host, "10.1.0.1/24")]})
        rig.apply(tenant("red", {host.link: ["untagged"]}, *routers))
        rig.up("red/r1", "red/r2")
        before = certificates(rig)
        fill = "cat /dev/zero >/run/frr/fill; rm -f /run/frr/rest; cat /dev/zero >/run/frr/rest"
        assert "No space left" in rig.vrctl("exec", "red/r2", "--", "sh", "-c", fill).stderr
        rig.ok("pki", "rotate")
        until("all have what is trusted now", lambda: rig.vrctl("pki", "retire").returncode == 0)
        before, former = certificates(rig), before
        assert set(before).isdisjoint(former)
        until("each guest has the one that is left", lambda: rig.authorities() == len(routers))

        assert "No space left" in rig.fill()
        refusal = rig.complaint("pki", "rotate")
        assert "No space left on device" in refusal
        assert certificates(rig) == before
        rig.up("red/r1", "red/r2")
        rig.kill_controller()
        rig.start_controller()
        rig.up("red/r1", "red/r2")  # both VRCs have a new session

        rig.empty()
        rig.ok("pki", "rotate")
        until("all have what is trusted now", lambda: rig.vrctl("pki", "retire").returncode == 0)
        assert set(certificates(rig)).isdisjoint(before)
        rig.kill_controller()
        rig.start_controller()
        rig.up("red/r1", "red/r2")
