"""vr-host as a process for tests, as its unit confines it, and who asks it as the controller's unit confines that."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machines import IMAGE

ROOT = Path(__file__).parents[2]
USER, LIMIT_S = "nobody", 120
ASKED = """
import asyncio, json, sys
from pathlib import Path
from controller.guests.base import GuestSpec
from controller.guests.host.client import HostDriver, VrHost
from controller.guests.machine.accelerator import AcceleratorProbe
from controller.guests.machine.qemu import QemuDriver
from controller.guests.netns import NetnsDriver
from controller.model import GuestConfig, GuestKind, RouteSource, Routing, Suite

async def main(base, op, kind):
    text = Routing(Suite.IP, "route add blackhole 10.5.0.0/24\\n")
    at = (base / "state/guests/1", base / "pki", base / "run/sessions/1")
    spec = GuestSpec(1, "red/r1", RouteSource.NETLINK, text, 30, *at, GuestConfig(GuestKind(kind), 256, 1))
    local = {"netns": NetnsDriver(), "kvm": QemuDriver(base / "image", AcceleratorProbe(base))}
    driver = HostDriver(VrHost(base / "own/host.sock"), local[kind])
    await getattr(driver, op)(spec)
    status = await driver.status(spec)
    pid = driver.running(spec)
    inside = driver.exec_argv(spec, pid, ["hostname"]) if pid else []
    print(json.dumps({"pid": pid, "running": status.running, "daemons": status.daemons, "exec": inside}))
    await driver.close()

asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
"""


class Host:
    """vr-host as a process, and its guests' directories."""

    def __init__(self, base: Path, kind: str) -> None:
        self.base, self.kind = base, kind
        for place in ("pki", "run/sessions/1"):
            (base / place).mkdir(parents=True)
        for name in ("cert.pem", "key.pem", "ca.pem"):
            (base / "pki" / name).write_text(name)
        self.start()

    def start(self) -> None:
        """Start it, and wait until it says that it serves."""
        places = (word for name in ("state", "run", "own") for word in (f"--{name}", str(self.base / name)))
        unit = (ROOT / "docs/vr-host.service").read_text().replace("\\\n", " ")
        (names,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
        kept = ",".join(("-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in names.split())))
        confined = ("setpriv", f"--bounding-set={kept}", "--no-new-privs", sys.executable, "-m")
        image = ("--guest-image", str(IMAGE))
        command = (*confined, "controller.guests.host.daemon", *places, *image, "--user", USER)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
            notices = self.base / "notify"
            notices.unlink(missing_ok=True)
            heard.bind(str(notices))
            heard.settimeout(LIMIT_S)
            self.process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"NOTIFY_SOCKET": str(notices)})
            assert heard.recv(100) == b"READY=1"

    def end(self, how: signal.Signals) -> None:
        """Signal it and wait for its end."""
        self.process.send_signal(how)
        self.process.wait(LIMIT_S)

    def asked(self, op: str) -> dict[str, Any]:
        """Have the controller's user do something to red/r1; returns what it sees afterwards."""
        files = "-all,+chown,+dac_override,+fowner"
        command = ("setpriv", "--reuid", USER, "--regid", "nogroup", "--clear-groups", "--no-new-privs")
        capabilities = (f"--{which}={files}" for which in ("bounding-set", "inh-caps", "ambient-caps"))
        program = (sys.executable, "-c", ASKED, str(self.base), op, self.kind)
        done = subprocess.run(
            (*command, *capabilities, *program),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


@contextmanager
def vr_host(kind: str) -> Iterator[Host]:
    """Run vr-host for a guest of this kind, which is gone afterwards."""
    base = Path(tempfile.mkdtemp(prefix="splitplane-test-", dir="/var/lib"))
    made = Host(base, kind)
    try:
        yield made
        made.asked("delete")
        made.end(signal.SIGTERM)
    finally:
        if made.process.poll() is None:
            made.end(signal.SIGKILL)
        shutil.rmtree(base)
