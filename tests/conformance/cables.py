"""Ports of a plane as pairs of veth: frames go in and come out at their far ends, tags and all.

┌ namespace of the cables ┐      ┌ namespace of the plane ┐
│ far1 … far4, raw sockets┼─veth─┼ p1 … p4                │
└─────────────────────────┘      └────────────────────────┘
"""

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lab.namespaces import Host, in_namespace, namespace, sh

PORTS = (1, 2, 3, 4)
FRAME_OCTETS = 9500
_RECEIVE_BUFFER = 16 << 20
_SOL_PACKET, _PACKET_AUXDATA, _PACKET_QDISC_BYPASS, _PACKET_IGNORE_OUTGOING = 263, 8, 20, 23
_SO_RCVBUFFORCE = 33
_AUXDATA = struct.Struct("=IIIHHHH")  # struct tpacket_auxdata, packet(7)
_VLAN_VALID, _VLAN_TPID_VALID = 1 << 4, 1 << 6
_ETH_P_ALL = 3
_AT_A_TIME = 64


@dataclass
class FarEnd:
    """The end of a cable that is not the plane's."""

    namespace: str
    device: str
    socket: socket.socket

    @classmethod
    def of(cls, place: str, device: str) -> "FarEnd":
        """Open a device of a namespace, which keeps the socket until `close`."""
        return cls(place, device, in_namespace(place, lambda: _raw_socket(device)))

    def close(self) -> None:
        self.socket.close()

    def send(self, frame: bytes) -> None:
        """Let a frame go to the plane."""
        self.socket.send(frame)

    def receive(self) -> bytes | None:
        """Return one frame as it was on the wire, None where there is none."""
        try:
            frame, ancillary, _, _ = self.socket.recvmsg(FRAME_OCTETS, 64)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.ENETDOWN:  # told once; the socket goes on when the link does
                return None
            raise
        return _with_its_tag(frame, ancillary)

    def set_link(self, up: bool) -> None:
        """Cut the cable at this end, or mend it."""
        sh("ip", "-n", self.namespace, "link", "set", self.device, "up" if up else "down")


def _raw_socket(device: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
    end.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    end.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    # A queue discipline comes some time after the carrier does, and drops without a word until then.
    end.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
    end.bind((device, _ETH_P_ALL))
    end.setblocking(False)
    return end


def _with_its_tag(frame: bytes, ancillary: list[tuple[int, int, bytes]]) -> bytes:
    """Put back the tag that the kernel took off."""
    for level, kind, content in ancillary:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
            status, _, _, _, _, tci, tpid = _AUXDATA.unpack_from(content)
            if status & _VLAN_VALID:
                tpid = tpid if status & _VLAN_TPID_VALID else 0x8100
                return frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
    return frame


@dataclass
class Cables:
    """The far ends of all cables, in the order of PORTS."""

    ends: list[FarEnd]

    def send(self, port: int, frame: bytes) -> None:
        """Let a frame come in by a port of the plane."""
        self.ends[port - 1].send(frame)

    def set_link(self, port: int, up: bool) -> None:
        """Cut the cable of a port, or mend it."""
        self.ends[port - 1].set_link(up)

    @contextlib.contextmanager
    def listening(self, came_out: Callable[[int, bytes], None]) -> Iterator[None]:
        """Call ``came_out`` with port and frame for all that arrives at the far ends."""
        loop = asyncio.get_running_loop()

        def drain(port: int, end: FarEnd) -> None:
            for _ in range(_AT_A_TIME):
                frame = end.receive()
                if frame is None:
                    return
                came_out(port, frame)

        for port, end in zip(PORTS, self.ends, strict=True):
            loop.add_reader(end.socket, drain, port, end)
        try:
            yield
        finally:
            for end in self.ends:
                loop.remove_reader(end.socket)


def near_end(port: int) -> str:
    """Return the plane's device of a port."""
    return f"p{port}"


@contextlib.contextmanager
def cables(plane_namespace: str) -> Iterator[Cables]:
    """Plug cables into a plane's namespace."""
    with namespace("sp-cables") as far, contextlib.ExitStack() as stack:
        for place in (far, plane_namespace):
            sh("ip", "netns", "exec", place, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        ends = []
        for port in PORTS:
            peer = ("type", "veth", "peer", "name", f"far{port}", "netns", far)
            sh("ip", "-n", plane_namespace, "link", "add", near_end(port), "mtu", "9000", *peer)
            for place, device in ((plane_namespace, near_end(port)), (far, f"far{port}")):
                sh("ip", "netns", "exec", place, "ethtool", "-K", device, "tx", "off", "tso", "off", "gso", "off")
                sh("ip", "-n", place, "link", "set", device, "mtu", "9000", "up")
            ends.append(stack.enter_context(contextlib.closing(FarEnd.of(far, f"far{port}"))))
        yield Cables(ends)


@contextlib.contextmanager
def plugged_into(hosts: Sequence[Host]) -> Iterator[Cables]:
    """Take hosts for far ends; their kernels keep quiet."""
    with contextlib.ExitStack() as stack:
        for host in hosts:
            sh("ip", "netns", "exec", host.namespace, "sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=1")
        ends = [stack.enter_context(contextlib.closing(FarEnd.of(host.namespace, "eth0"))) for host in hosts]
        yield Cables(ends)
