"""Open vSwitch's two daemons with a database, sockets and logs in one directory, so that none is in another's way."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.commands import checked, ended, ran, spawned, still_runs, wait_for
from lab.namespaces import sh
from lab.processes import prefer

_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
_ENVIRONMENT = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
_VSCTL_LIMIT_S = 50
_EVERY_S = 0.02


class OvsDaemons:
    """ovsdb-server and ovs-vswitchd, which forwards in user space."""

    def __init__(self, directory: Path, prefix: Sequence[str] = ()) -> None:
        """``prefix`` begins the command of each daemon: the namespace that it runs in."""
        self._directory, self._prefix = directory, prefix
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which programs of Open vSwitch find these daemons."""
        return {**os.environ, **dict.fromkeys(_ENVIRONMENT, str(self._directory))}

    @property
    def logs(self) -> list[Path]:
        """What both write."""
        return sorted(self._directory.glob("ovs*.log"))

    @property
    def pid(self) -> int:
        """The process of ovs-vswitchd."""
        return self._processes["ovs-vswitchd"].pid

    def start(self) -> None:
        """Start both, with the configuration they had; returns when the switch takes orders. NetworkError.

        The switch runs at nice -10, as with Debian's ovs-ctl: its main thread takes orders and packets, and what a
        port's socket has no room for meanwhile is lost.
        """
        database = self._directory / "conf.db"
        if not database.exists():
            checked(["ovsdb-tool", "create", str(database), _SCHEMA])
        self._spawn("ovsdb-server", str(database), f"--remote=p{self._database}")
        wait_for("ovsdb-server", self._answers, 60, _EVERY_S, self.logs)
        # One thread for upcalls and one for revalidation are plenty here, and leave the cores to the routers.
        threads = ("other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1")
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *threads)
        self._spawn("ovs-vswitchd", self._database)
        self.vsctl("init")  # waits until the switch has read it
        prefer(self.pid)

    def kill(self) -> None:
        """Kill the switch and its database at once; harmless when repeated."""
        for name, process in reversed(self._processes.items()):
            process.kill()
            ended(name, process)
        self._processes.clear()
        (self._directory / "db.sock").unlink(missing_ok=True)

    def vsctl(self, *arguments: str) -> str:
        """Run ovs-vsctl, which waits until the switch has done it. NetworkError."""
        options = (f"--db={self._database}", f"--timeout={_VSCTL_LIMIT_S}")
        return sh("ovs-vsctl", *options, *arguments, env=self.environment, logs=self.logs).strip()

    @property
    def _database(self) -> str:
        return f"unix:{self._directory}/db.sock"

    def _answers(self) -> bool:
        still_runs("ovsdb-server", self._processes["ovsdb-server"], self._directory / "ovsdb-server.log")
        asked = ["ovs-vsctl", f"--db={self._database}", "--timeout=1", "--no-wait", "init"]
        return ran(asked, 10, environment=self.environment).returncode == 0

    def _spawn(self, program: str, *arguments: str) -> None:
        own = (f"--pidfile={self._directory}/{program}.pid", f"--log-file={self._directory}/{program}.log")
        quiet = ("-vconsole:off", "-vsyslog:off", f"--unixctl={self._directory}/{program}.ctl")
        command = [*self._prefix, program, *arguments, *own, *quiet]
        self._processes[program] = spawned(command, self._directory / f"{program}.out", self.environment)
