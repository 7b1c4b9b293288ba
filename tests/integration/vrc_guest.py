"""What the VRC's integration tests stand on: a controller in this process, and a guest in namespaces of its own."""

import asyncio
import contextlib
import datetime
import ipaddress
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from controller.sessions.sockets import FrameProtocol, SessionSockets
from wire import splitplane_pb2 as pb
from wire import splitplane_pb2_grpc as pb_grpc
from wire.columns import prefix_text, unpack_ids, unpack_prefixes
from wire.frames import MAGIC, TICKET_BYTES, Frame, FrameReader, pack_frame

ROUTER = "red/r1"
DEADLINE_S = 60.0
FRR = "/usr/lib/frr"
HERE = Path(__file__).parent
TREE = HERE.parents[1]
FORWARDING = "echo 1 | tee /proc/sys/net/ipv4/ip_forward > /proc/sys/net/ipv6/conf/all/forwarding; "
MGMTD = Path(FRR, "mgmtd").exists()  # from FRR 9 on
PRIVATE = "mkdir -p /run/frr; " + "".join(
    f"mount -t tmpfs tmpfs {place}; chown frr:frr {place}; "
    for place in ("/run/frr", "/var/lib/frr")
    if place == "/run/frr" or Path(place).is_dir()
)
"""mgmtd has its sockets where it was compiled to have them, and FRR 10 keeps state in the other place."""

Ways = tuple[str, ...]
"""What a set does, as text: ``("via 10.1.0.2 dev 1 weight 1", ...)``, ``("dev 1",)``, ``("blackhole",)``."""


def make_identities(directory: Path) -> None:
    """Write ca.pem, and certificates and keys of the controller (server-*.pem) and the router (cert.pem, key.pem)."""
    now = datetime.datetime.now(datetime.UTC)

    def issue(common_name: str, issuer: str, issuer_key: ec.EllipticCurvePrivateKey | None, ca: bool) -> tuple:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(common_name)]), critical=False)
        )
        certificate = builder.sign(issuer_key or key, hashes.SHA256())
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return key, pem, secret

    ca_key, ca_pem, _ = issue("test CA", "test CA", None, True)
    (directory / "ca.pem").write_bytes(ca_pem)
    for common_name, prefix in (("vr-controller", "server-"), ("router", "")):
        _, pem, secret = issue(common_name, "test CA", ca_key, False)
        (directory / f"{prefix}cert.pem").write_bytes(pem)
        (directory / f"{prefix}key.pem").write_bytes(secret)


class GuestFrames(FrameProtocol):
    """The connection of a guest's frames, with whatever ticket."""

    def __init__(self, heard: Callable[[list[Frame]], None], gone: Callable[[], object]) -> None:
        self._heard, self._gone = heard, gone
        self._reader, self._begun = FrameReader(), False
        self._transport: asyncio.Transport | None = None

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def send(self, interface_id: int, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(pack_frame(interface_id, frame, 1))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._heard([])

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._begun = self._begun or self._reader.octets(len(MAGIC) + TICKET_BYTES) is not None
        if self._begun and (frames := self._reader.frames(1000)):
            self._heard(frames)

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._gone()


class Controller(pb_grpc.VrcSessionServicer):
    """The controller's side of a session, which only remembers."""

    def __init__(self, *interfaces: pb.Interface, hold_time_s: int = 120, neighbor_limit: int = 100) -> None:
        self.declaration = pb.Declaration(
            interfaces=interfaces, hold_time_s=hold_time_s, neighbor_limit=neighbor_limit
        )
        self.acknowledge = True
        self.hellos: list[pb.Hello] = []
        self.sequences: list[int] = []
        self.sets: dict[int, Ways] = {}
        self.released: list[int] = []
        self.routes: dict[str, Ways] = {}
        self.route_messages = 0
        self.writes: list[tuple[str, Ways]] = []
        self.interfaces: dict[int, pb.InterfaceState] = {}
        self.interface_history: list[pb.InterfaceState] = []
        self.neighbors: dict[tuple[int, str], pb.Neighbor] = {}
        self.resync_ends: list[bool] = []
        self.notices: list[str] = []
        self.snapshots: dict[int, dict[str, Ways]] = {}
        self.snapshot_ends: dict[int, str] = {}
        self.frames: deque[Frame] = deque(maxlen=2000)
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._control: grpc.aio.ServicerContext | None = None
        self._frames: GuestFrames | None = None
        self._server: grpc.aio.Server | None = None
        self._sockets: SessionSockets | None = None

    async def start(self, directory: Path) -> str:
        """Listen; returns the gRPC target."""
        read = lambda name: (directory / name).read_bytes()  # noqa: E731
        credentials = grpc.ssl_server_credentials(
            [(read("server-key.pem"), read("server-cert.pem"))], read("ca.pem"), require_client_auth=True
        )
        self._server = grpc.aio.server()
        pb_grpc.add_VrcSessionServicer_to_server(self, self._server)
        self._server.add_secure_port(f"unix:{directory}/grpc.sock", credentials)
        await self._server.start()
        (directory / "1").mkdir(exist_ok=True)
        self._sockets = SessionSockets(directory, directory / "grpc.sock", self._take_frames, lambda _: None)
        self._sockets.open(1, os.geteuid())
        return f"unix:{directory}/1/session.sock"

    def _take_frames(self, _vrf_id: int, gone: Callable[[], object]) -> FrameProtocol:
        self._frames = GuestFrames(self._heard_frames, gone)
        return self._frames

    def _heard_frames(self, frames: list[Frame]) -> None:
        self.frames += frames
        self._hearing = asyncio.ensure_future(self._heard())

    async def stop(self) -> None:
        if self._sockets is not None:
            self._sockets.close_all()
        if self._server is not None:
            await self._server.stop(None)

    async def Control(self, requests: AsyncIterator[pb.VrcMessage], context: grpc.aio.ServicerContext) -> None:
        self._control = context
        self.sequences = []
        self.route_messages = 0
        async for message in requests:
            self.sequences.append(message.sequence)
            body = message.WhichOneof("body")
            self.route_messages += body == "routes"
            self._take(body, getattr(message, body))
            if body == "hello":
                self.declaration.frame_ticket = bytes(TICKET_BYTES)
                await self.send(declaration=self.declaration)
            if self.acknowledge:
                await self.send(ack=pb.Ack(sequence=message.sequence))
            await self._heard()

    async def _heard(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _take(self, body: str, value: object) -> None:
        getattr(self, f"_take_{body}")(value)

    def _take_hello(self, hello: pb.Hello) -> None:
        self.hellos.append(hello)
        self.sets.clear()

    def _take_interfaces(self, states: pb.InterfaceStates) -> None:
        self.interface_history += states.states
        self.interfaces |= {state.id: state for state in states.states}

    def _take_neighbors(self, neighbors: pb.Neighbors) -> None:
        self.neighbors |= {(n.interface_id, address_text(n.address)): n for n in neighbors.neighbors}

    def _take_nexthop_sets(self, sets: pb.NexthopSets) -> None:
        for one in sets.sets:
            assert one.id not in self.sets, "a set was defined twice"
            self.sets[one.id] = ways(one)
        for set_id in sets.released:
            del self.sets[set_id]
            self.released.append(set_id)

    def _take_routes(self, routes: pb.Routes, into: dict[str, Ways] | None = None) -> None:
        keys = unpack_prefixes(routes.family, routes.prefixes)
        for key, set_id in zip(keys, unpack_ids(routes.sets), strict=True):
            prefix = prefix_text(key)
            if into is not None:
                into[prefix] = self.sets[set_id]
            elif set_id:
                self.routes[prefix] = self.sets[set_id]
                self.writes.append((prefix, self.sets[set_id]))
            else:
                self.routes.pop(prefix, None)
                self.writes.append((prefix, ()))

    def _take_resync_end(self, end: pb.ResyncEnd) -> None:
        self.resync_ends.append(end.daemons_settled)

    def _take_notice(self, notice: pb.Notice) -> None:
        self.notices.append(notice.kind)

    def _take_snapshot(self, snapshot: pb.Snapshot) -> None:
        into = self.snapshots.setdefault(snapshot.id, {})
        if snapshot.HasField("routes"):
            self._take_routes(snapshot.routes, into)
        if snapshot.end:
            self.snapshot_ends[snapshot.id] = snapshot.error

    async def send(self, **body: object) -> None:
        assert self._control is not None
        async with self._writing:  # gRPC takes one write at a time
            await self._control.write(pb.ControllerMessage(**body))

    async def send_frame(self, interface_id: int, frame: bytes) -> None:
        await self.until(lambda: self._frames is not None)
        assert self._frames is not None
        self._frames.send(interface_id, frame)

    async def until(self, condition: Callable[[], bool], timeout_s: float = DEADLINE_S) -> None:
        """Wait until the VRC has said enough for a condition to hold."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            raise AssertionError(f"not within {timeout_s} s: {self.__dict__}") from None


def ways(one: pb.NexthopSet) -> Ways:
    if one.kind in (pb.NexthopSet.BLACKHOLE, pb.NexthopSet.UNREACHABLE):
        return (pb.NexthopSet.Kind.Name(one.kind).lower(),)
    if one.kind == pb.NexthopSet.CONNECTED:
        return tuple(f"dev {m.interface_id}" for m in one.members)
    return tuple(f"via {address_text(m.gateway)} dev {m.interface_id} weight {m.weight}" for m in one.members)


def address_text(address: bytes) -> str:
    return str(ipaddress.ip_address(address)) if address else ""


class Guest:
    """Network, mount and PID namespaces with a VRC and daemons in them."""

    def __init__(self, pid: int, directory: Path, target: str) -> None:
        self.pid, self.directory, self.target = pid, directory, target
        self.vrc: asyncio.subprocess.Process | None = None
        self._first: asyncio.subprocess.Process | None = None

    async def make_interfaces(self, declared: Iterable[pb.Interface]) -> None:
        """Have these interfaces in the guest, as its first process makes them."""
        if self._first is None:
            log = (self.directory / "interfaces.log").open("ab")
            self._first = await asyncio.create_subprocess_exec(
                "nsenter", "-t", str(self.pid), "-n", "--", sys.executable, str(HERE / "interfaces_program.py"),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                env=os.environ | {"PYTHONPATH": str(TREE)},
            )  # fmt: skip
            log.close()
        fields = [
            {"name": i.name, "mac": i.mac.hex(), "mtu": i.mtu, "addresses": list(i.addresses), "admin_up": i.admin_up}
            for i in declared
        ]
        self._first.stdin.write(json.dumps(fields).encode() + b"\n")
        assert await self._first.stdout.readline() == b"made\n", (self.directory / "interfaces.log").read_text()

    async def end(self) -> None:
        """Kill VRC and interfaces."""
        if self.vrc is not None:
            await self.stop_vrc(signal.SIGKILL)
        if self._first is not None:
            self._first.stdin.close()
            await self._first.wait()

    async def run(self, *command: str, check: bool = True) -> str:
        status, output = await self._run(*command)
        assert not check or status == 0, f"{command}: {output}"
        return output

    async def _run(self, *command: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            "nsenter", "-t", str(self.pid), "-n", "-m", "-p", "--", *command,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output = (await process.communicate())[0].decode()
        return process.returncode, output

    async def start_vrc(self, *options: str) -> None:
        log = (self.directory / "vrc.log").open("ab")
        self.vrc = await asyncio.create_subprocess_exec(
            "nsenter", "-t", str(self.pid), "-n", "-m", "--", sys.executable, "-m", "vrc.agent",
            "--router", ROUTER, "--session", self.target, "--identity", str(self.directory), *options,
            stderr=log, stdout=log, env=os.environ | {"PYTHONPATH": str(TREE)},
        )  # fmt: skip
        log.close()

    async def stop_vrc(self, number: int = signal.SIGTERM) -> int:
        assert self.vrc is not None
        if self.vrc.returncode is None:
            self.vrc.send_signal(number)
        return await self.vrc.wait()

    async def start_daemon(self, name: str, config: str, *options: str) -> None:
        """Start a daemon of FRR; its configuration comes by vtysh, as from FRR 9 on mgmtd keeps some of it."""
        await self._start(name, *options)
        directory = self.directory / "frr"
        (directory / f"{name}.conf").write_text(config)
        await self.run("vtysh", "--vty_socket", str(directory), "-f", str(directory / f"{name}.conf"))

    async def _start(self, name: str, *options: str) -> None:
        directory = self.directory / "frr"
        if not directory.exists():
            directory.mkdir()
            shutil.chown(directory, "frr", "frr")
        (directory / "none.conf").touch()
        # mgmtd, and who has all its text from there, knows no such option.
        text = () if MGMTD and name in ("mgmtd", "staticd") else ("-f", f"{directory}/none.conf")
        # A daemon keeps its standard output, which nobody may be waiting for.
        await self.run(
            "sh", "-c", f'"$@" >{directory}/{name}.out 2>&1', "sh",
            f"{FRR}/{name}", "-d", *text, "-i", f"{directory}/{name}.pid",
            "-z", f"{directory}/zserv", "--vty_socket", str(directory), "--log", f"file:{directory}/{name}.log",
            *options,
        )  # fmt: skip

    async def start_zebra(self, *options: str) -> None:
        if MGMTD:
            await self._start("mgmtd")
        await self.start_daemon("zebra", "fpm address 127.0.0.1 port 2620\n", "-M", "dplane_fpm_nl", *options)

    async def kill_zebra(self) -> None:
        """Kill zebra and who keeps its text, as a guest's supervisor does."""
        for name in ("zebra", "staticd", *(["mgmtd"] if MGMTD else [])):
            await self.kill_daemon(name)

    async def kill_daemon(self, name: str, number: int = signal.SIGKILL) -> None:
        pid = (self.directory / "frr" / f"{name}.pid").read_text().strip()
        await self.run("kill", f"-{int(number)}", pid)

    async def vtysh(self, *commands: str) -> str:
        options = [word for command in commands for word in ("-c", command)]
        async with asyncio.timeout(DEADLINE_S):
            while True:
                status, output = await self._run("vtysh", "--vty_socket", str(self.directory / "frr"), *options)
                if "could not lock" not in output:  # mgmtd is still at what came before
                    break
        assert status == 0, f"{commands}: {output}"
        return output

    async def until(self, *command: str, has: str, timeout_s: float = DEADLINE_S) -> str:
        """Repeat a command until its output has a text."""
        async with asyncio.timeout(timeout_s):
            while True:
                output = await self.run(*command, check=False)
                if has in output:
                    return output
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def guest(controller: Controller) -> AsyncIterator[Guest]:
    """A fresh guest and its controller; everything in it ends with the block."""
    directory = Path(tempfile.mkdtemp(prefix="vrc-test-"))
    directory.chmod(0o755)
    make_identities(directory)
    keeper = await asyncio.create_subprocess_exec(
        "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
        "sh", "-ec", f"{PRIVATE}{FORWARDING}ip link set lo up; echo up; exec sleep infinity",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    made = None
    try:
        await keeper.stdout.readline()
        children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()
        made = Guest(int(children[0]), directory, await controller.start(directory))
        await made.make_interfaces(controller.declaration.interfaces)
        yield made
    except BaseException:
        with contextlib.suppress(OSError):
            print((directory / "vrc.log").read_text())
        raise
    finally:
        if made is not None:
            await made.end()
        await controller.stop()
        keeper.kill()
        await keeper.wait()
        shutil.rmtree(directory, ignore_errors=True)


def interface(interface_id: int, *addresses: str, name: str = "", **fields: object) -> pb.Interface:
    """An interface eth<id-1> that is up, with a MAC that ends in its id."""
    defaults = {"mtu": 1500, "port_up": True, "admin_up": True, "mac": bytes((2, 0, 0, 0, 0, interface_id))}
    return pb.Interface(
        id=interface_id, name=name or f"eth{interface_id - 1}", addresses=addresses, **(defaults | fields)
    )
