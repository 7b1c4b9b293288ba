"""BMv2 (simple_switch_grpc) as planes driven by P4Runtime, each a process of its own."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mininet.net import Mininet
from mininet.node import Node, Switch

from topologies.network import NetworkError, wait_for

PROGRAM = "simple_switch_grpc"
CPU_PORT = 510  # p4src/v1model
_RUN = Path("/run/bmv2")
_OWN_SYSFS = ("unshare", "--mount", "sh", "-c", 'mount -n -t sysfs sysfs /sys && exec "$@"', "sh")
"""BMv2 looks for the carrier of its ports in sysfs, where the enclosure's interfaces do not show; a group whose ports
are all down ends it with SIGFPE."""
_FIRST_GRPC_PORT, _FIRST_THRIFT_PORT = 9559, 9090


class Bmv2:
    """One simple_switch_grpc without a program: whoever connects pushes one. It listens on loopback."""

    def __init__(self, name: str, device_id: int, place: int) -> None:
        """``place`` tells the switches of one network namespace apart: each has TCP ports of its own."""
        self.name, self.device_id = name, device_id
        self.grpc_port, self._thrift_port = _FIRST_GRPC_PORT + place, _FIRST_THRIFT_PORT + place
        self.log = _RUN / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where its P4Runtime server listens."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "start comes first"
        return self._process.pid

    def start(self, ports: Mapping[str, int]) -> None:
        """Start it on these interfaces and wait until it listens."""
        _RUN.mkdir(exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(ports), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(f"BMv2 {self.name} listening on {self.address}", self._listens, 20, 0.1)

    def stop(self) -> None:
        """End it; harmless when repeated."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _command(self, ports: Mapping[str, int]) -> list[str]:
        interfaces = [part for port, number in ports.items() for part in ("-i", f"{number}@{port}")]
        own = ["--no-p4", "--device-id", str(self.device_id), *interfaces, *self._optional()]
        return [*_OWN_SYSFS, PROGRAM, *own, "--", "--grpc-server-addr", self.address, "--cpu-port", str(CPU_PORT)]

    def _optional(self) -> list[str]:
        """Return the options that a build may have or not: those of Thrift and of nanomsg, which writes to /tmp."""
        options = {"--thrift-port": str(self._thrift_port), "--notifications-addr": f"ipc://{_RUN}/{self.name}.ipc"}
        known = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=False)
        offered = known.stdout + known.stderr
        return [part for name, value in options.items() if name in offered for part in (name, value)]

    def _listens(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            said = self.log.read_text(errors="replace").strip().splitlines()
            raise NetworkError(f"BMv2 {self.name} ended: {said[-1] if said else self._process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.grpc_port), 1):
            return True
        return False


class Bmv2Switch(Switch):  # type: ignore[misc]
    """A BMv2 as a Mininet switch."""

    def __init__(self, name: str, bmv2: Bmv2, **params: object) -> None:
        super().__init__(name, dpid=f"{bmv2.device_id:016x}", **params)
        self.bmv2 = bmv2

    def numbers(self) -> dict[str, int]:
        """Return the numbers of the ports by name."""
        return {str(port): number for number, port in self.intfs.items() if str(port) != "lo"}

    def start(self, controllers: object) -> None:
        """Start it on the interfaces it has been given."""
        self.bmv2.start(self.numbers())

    def stop(self, deleteIntfs: bool = True) -> None:
        """End it."""
        self.bmv2.stop()
        super().stop(deleteIntfs)


class Bmv2Planes:
    """BMv2 switches on the interfaces of the enclosure; a link inside one is a veth pair between two ports.

    A BMv2 one of whose interfaces is set down receives nothing more on any of them. So cables are cut at their
    other end.
    """

    title = "BMv2"
    needs_cables = True

    def __init__(self) -> None:
        self._switches: dict[str, Bmv2Switch] = {}

    def missing(self) -> str:
        """Say what to install where simple_switch_grpc is not on PATH."""
        if shutil.which(PROGRAM):
            return ""
        return (
            f"{PROGRAM} is not on PATH; install p4lang's package p4lang-bmv2, "
            "as https://github.com/p4lang/behavioral-model documents"
        )

    def switch(self, mininet: Mininet, name: str, number: int) -> Bmv2Switch:
        """Add a switch."""
        bmv2 = Bmv2(name, number, place=len(self._switches))
        switch = mininet.addSwitch(name, cls=Bmv2Switch, bmv2=bmv2)
        self._switches[name] = switch
        return switch

    def join(self, mininet: Mininet, switch: Bmv2Switch, port: str, other_port: str) -> None:
        """Add a veth pair; Mininet would give both ends the same number."""
        number = switch.newPort()
        ends = {"intfName1": port, "intfName2": other_port, "port1": number, "port2": number + 1}
        mininet.addLink(switch, switch, **ends)

    def loose_end(self, switch: Bmv2Switch, port: str) -> tuple[Node, str]:
        """Return the other end of the veth pair."""
        own = switch.nameToIntf[port]
        other = own.link.intf2 if own.link.intf1 is own else own.link.intf1
        return other.node, other.name

    def started(self) -> None:
        """Have nothing left to do."""

    def declared(self) -> list[dict[str, Any]]:
        """Declare each by its address, with the interfaces that tell the states of its ports."""
        return [
            {
                "name": name,
                "kind": "p4runtime",
                "address": switch.bmv2.address,
                "device_id": switch.bmv2.device_id,
                "ports": {port: {"number": number, "device": port} for port, number in switch.numbers().items()},
            }
            for name, switch in self._switches.items()
        ]

    def process(self, name: str) -> int:
        """Return the switch's own process."""
        return self._switches[name].bmv2.pid

    def logs(self) -> Iterable[Path]:
        """Return what each printed."""
        return [switch.bmv2.log for switch in self._switches.values()]
