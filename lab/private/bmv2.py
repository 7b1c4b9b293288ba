"""A private BMv2 (simple_switch_grpc) with hosts, each in a network namespace of its own.

    ┌ namespace of the switch ───────┐      ┌ namespace of a host ┐
    │ simple_switch_grpc --no-p4     │      │                     │
    │   port N ─── pN ────────── veth┼──────┼ eth0                │
    └───────┬────────────────────────┘      └─────────────────────┘
            │ P4Runtime on a Unix socket: not bound to the namespace

Nothing is left when the context ends, however it ends.
"""

from dataclasses import dataclass, field

from lab.planes.bmv2 import Bmv2
from lab.private.device import PrivateDevice


@dataclass
class PrivateBmv2(PrivateDevice):
    """BMv2 in a namespace: ``with PrivateBmv2(2) as bmv2``; it knows no pipeline until one is pushed."""

    device_id: int = 1
    thrift_port: int = 9090  # differs between switches that share a namespace
    server_options: tuple[str, ...] = ()  # TLS
    more_ports: dict[int, str] = field(default_factory=dict)  # devices that are there already, by number
    kind = "bmv2"

    @property
    def address(self) -> str:
        """Where its P4Runtime server listens."""
        return f"unix:{self.directory}/p4rt.sock"

    def power_on(self) -> None:
        """Start it without a pipeline and wait until it listens. NetworkError with its last words."""
        inside = ("ip", "netns", "exec", str(self.namespace))
        own = (self.address, self.thrift_port, self.log_file, inside, self.server_options)
        self.process = Bmv2("bmv2", self.device_id, *own)
        ports = {host.link: host.port for host in self.hosts} | {name: port for port, name in self.more_ports.items()}
        self.process.start(ports)

    def power_off(self) -> None:
        """Kill it at once; its ports stay."""
        if self.process is not None:
            self.process.stop()
