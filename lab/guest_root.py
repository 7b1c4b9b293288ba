"""Root of a guest in namespaces, in its control groups: what a tenant is who has taken over its own guest."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from controller.guests import limits
from controller.vrctl.client import Client, path_of
from lab.commands import NetworkError
from lab.control import SOCKET


class GuestRoot:
    """Root of a router's guest, whose own ``directory`` is on the host.

    What vrctl exec runs is in no group of the guest's; this is, as what the guest itself has started. NetworkError
    where it has none.
    """

    def __init__(self, router: str, directory: Path) -> None:
        self._router = router
        self._groups = [group / "cgroup.procs" for group in limits.groups(directory)]
        if not self._groups:
            raise NetworkError(f"{router} is in no control groups; mount them below {limits.ROOT}")

    def start(self, argv: Sequence[str], descriptors: Sequence[int] = ()) -> "subprocess.Popen[bytes]":
        """Start a command, which keeps ``descriptors`` of ours; its standard streams are pipes."""
        resource = path_of("routers", *self._router.split("/"), "exec")
        command: list[str] = Client(SOCKET).call("POST", resource, {"argv": list(argv)})["argv"]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=descriptors,
            preexec_fn=self._enter,
        )

    def run(self, argv: Sequence[str], limit_s: float, stdin: bytes, descriptors: Sequence[int] = ()) -> str:
        """Run one to its end; returns how it failed, empty where it did not. NetworkError where it does not end."""
        with self.start(argv, descriptors) as process:
            try:
                _, err = process.communicate(stdin, limit_s)
            except subprocess.TimeoutExpired:
                raise NetworkError(f"{self._router}: {argv[0]} did not end within {limit_s:g} s") from None
            finally:
                process.kill()
        return f"; status {process.returncode}: {err.decode(errors='replace')[-200:]}" if process.returncode else ""

    def _enter(self) -> None:
        for group in self._groups:
            group.write_text("0")
