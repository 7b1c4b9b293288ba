"""vr-controller: puts the parts together and runs them until SIGTERM.

On the way down sessions and channels are closed; guests run on and planes forward on. On the way up everything
stored is handed to the shards before a switch or a VRC can connect, so that nothing installed is taken for stale.
"""

import argparse
import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import ssl
import sys
from dataclasses import dataclass
from math import inf
from pathlib import Path

from controller.api.app import make_app
from controller.api.server import ApiServer
from controller.audit.log import AuditLog
from controller.diagnostics.diagnostics import Diagnostics
from controller.diagnostics.operator_views import OperatorViews
from controller.errors import SplitplaneError, StoreError
from controller.events.log import EventLog
from controller.garbage import bound_pauses
from controller.guests.fleet import GuestFleet
from controller.guests.host.client import VrHost, asked_of
from controller.guests.host.options import add_options, make_drivers, parse_octets
from controller.model import RouterConfig
from controller.notify import keep_notifying, notify_service
from controller.operations import backups, budget
from controller.operations.certificates import Certificates
from controller.operations.convergence import Convergence
from controller.operations.operations import Operations
from controller.pki.authority import PKI, system_clock
from controller.pki.planes import PlaneCertificates
from controller.pki.switches import SwitchContext, server_context
from controller.planes.openflow.server import OpenFlowListener
from controller.planes.p4runtime.channel import TlsFiles
from controller.sessions.server import SessionServer
from controller.shard.cpu_pressure import CpuPressure
from controller.shard.mirror import AUDIT_INTERVAL_S
from controller.shard.plane_factory import PlaneFactory, TlsOf
from controller.shard.shards import Shards
from controller.store.sqlite import SqliteStore
from controller.supervisor import Supervisor
from wire.scheduling import share_cores

DEFAULT_OPENFLOW = "tcp:127.0.0.1:6653"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where switches connect."""

    secure: bool
    host: str
    port: int


def parse_listen(text: str) -> Listen:
    """Return what ``tcp:HOST:PORT`` or ``ssl:HOST:PORT`` means; ValueError where it is neither."""
    scheme, _, rest = text.partition(":")
    host, _, port = rest.rpartition(":")
    if scheme not in ("tcp", "ssl") or not host or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} is not tcp:HOST:PORT or ssl:HOST:PORT")
    return Listen(scheme == "ssl", host.strip("[]"), int(port))


def parse_interval(text: str) -> float:
    """Return a positive number of seconds; ArgumentTypeError where it is none."""
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < inf:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="vr-controller", description="The controller of Splitplane.")
    add = parser.add_argument
    add_options(parser)
    host = "socket of vr-host, which makes guests then; without, this process does"
    add("--vr-host", type=Path, metavar="SOCKET", help=host)
    add("--openflow", default=DEFAULT_OPENFLOW, metavar="tcp|ssl:HOST:PORT", help="(default: %(default)s)")
    for name, what in (("ca", "authority of the switches"), ("cert", "certificate"), ("key", "its key")):
        add(f"--openflow-{name}", type=Path, metavar="PEM", help=f"{what}; default: the controller's own")
    for name, what in (("ca", "authority of the P4Runtime devices"), ("cert", "certificate"), ("key", "its key")):
        add(f"--p4runtime-{name}", type=Path, metavar="PEM", help=f"{what}; default: no TLS")
    own = "TLS to P4Runtime devices with the controller's own certificate and those that it issued to planes"
    add("--p4runtime-tls", action="store_true", help=own)
    audit = "seconds between two audits, which read a plane back and repair it (default: %(default)g)"
    add("--audit-interval", type=parse_interval, default=AUDIT_INTERVAL_S, metavar="SECONDS", help=audit)
    memory = "what all slices may make the controller keep, such as 4G (default: half of the memory there is)"
    add(
        "--memory", type=parse_octets, default=int(budget.of_process().memory_bytes) // 2, metavar="SIZE", help=memory
    )
    options = parser.parse_args(argv)
    try:
        options.openflow = parse_listen(options.openflow)
    except ValueError as problem:
        parser.error(str(problem))
    for kind in ("openflow", "p4runtime"):
        given = [getattr(options, f"{kind}_{name}") for name in ("ca", "cert", "key")]
        if any(given) and not all(given):
            parser.error(f"--{kind}-ca, --{kind}-cert and --{kind}-key go together")
    if options.p4runtime_tls and options.p4runtime_ca is not None:
        parser.error("give either --p4runtime-tls or the three files")
    return options


def lock_directories(state: Path, run: Path) -> list[int]:
    """Take both directories for this process, until it ends; StoreError where another one has one of them."""
    return [_lock(state, "lock", "state", 0o700), _lock(run, "run.lock", "run", 0o755)]


def _lock(directory: Path, name: str, option: str, mode: int) -> int:
    try:
        directory.mkdir(mode=mode, parents=True, exist_ok=True)
        descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(descriptor, 32).decode(errors="replace").strip()
            remedy = f"stop it, or give another --{option}"
            raise StoreError(f"process {pid} already runs on {directory}; {remedy}") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except OSError as problem:
        raise StoreError(
            f"{option} directory {directory}: {problem.strerror}; give another with --{option}"
        ) from None
    return descriptor


def switch_tls(pki: PKI, planes: PlaneCertificates, options: argparse.Namespace) -> ssl.SSLContext:
    """Return the TLS context that switches meet: both sides show certificates."""
    if options.openflow_ca is None:
        return SwitchContext(pki, planes, system_clock).context
    context = server_context()
    try:
        context.load_cert_chain(options.openflow_cert, options.openflow_key)
        context.load_verify_locations(options.openflow_ca)
    except OSError as problem:  # ssl.SSLError is one
        raise StoreError(
            f"OpenFlow TLS: {problem.strerror or problem}; check --openflow-ca, -cert and -key"
        ) from None
    return context


def device_tls(pki: PKI, planes: PlaneCertificates, options: argparse.Namespace) -> TlsOf | None:
    """Return the files for TLS to P4Runtime devices, None for plaintext; StoreError where they are of no use."""
    if options.p4runtime_tls:
        return lambda plane: TlsFiles(planes.trusted(plane), *pki.own_files())
    if options.p4runtime_ca is None:
        return None
    try:
        context = ssl.create_default_context(cafile=options.p4runtime_ca)
        context.load_cert_chain(options.p4runtime_cert, options.p4runtime_key)
    except OSError as problem:  # ssl.SSLError is one
        raise StoreError(
            f"P4Runtime TLS: {problem.strerror or problem}; check --p4runtime-ca, -cert and -key"
        ) from None
    files = TlsFiles(options.p4runtime_ca, options.p4runtime_cert, options.p4runtime_key)
    return lambda _: files


class Daemon:
    """All parts of one controller."""

    def __init__(self, options: argparse.Namespace) -> None:
        state: Path = options.state
        backups.adopt(state)
        self.restarting = False
        self.stop = asyncio.Event()
        self.events = EventLog()
        self.store = SqliteStore(state)
        self.pki = PKI(state, self.store)
        self.shards = Shards(self.events, audit_s=options.audit_interval, crowded=CpuPressure().crowded)
        self.sessions = SessionServer(self.shards, self.pki, options.run / "sessions", self.events)
        listen: Listen = options.openflow
        planes = PlaneCertificates(self.pki, self.store, system_clock)
        tls = switch_tls(self.pki, planes, options) if listen.secure else None
        self.listen = listen
        self.listener = OpenFlowListener(listen.host, listen.port, tls)
        self.fleet = fleet = self._make_fleet(options)
        named = listen.secure and options.openflow_ca is None
        plane_factory = PlaneFactory(self.listener, named=named, p4runtime_tls=device_tls(self.pki, planes, options))
        self.convergence = Convergence(self.store, self.shards, plane_factory, fleet, self.events, options.memory)
        views = OperatorViews(self.convergence, Diagnostics(self.shards), fleet)
        self.certificates = Certificates(self.pki, planes, self.convergence, fleet, self.events)
        audit = AuditLog(state / "audit", self.events)
        self.operations = Operations(
            state, self.store, self.certificates, self.convergence, views, fleet, self.events, audit, self._restart
        )
        self.api = ApiServer(make_app(self.operations, views), options.run)
        self.supervisor = Supervisor(self.events)

    def _make_fleet(self, options: argparse.Namespace) -> GuestFleet:
        state: Path = options.state
        known = make_drivers(options)
        if options.vr_host is not None:
            known = asked_of(VrHost(options.vr_host), known.drivers)
        return GuestFleet(state, known.drivers, known.checks, self.pki, self.sessions, self.events, self._connected)

    def _connected(self, router: RouterConfig) -> bool:
        """Whether a router's VRC has a session; one that no shard knows yet is not missed."""
        known = self.shards.routers.get(router.vrf_id)
        return known is None or known.vrc is not None

    def _status(self) -> str:
        """What `systemctl status` shows."""
        shards, routers = self.shards.by_plane.values(), self.shards.routers.values()
        planes = f"{sum(shard.plane.connected for shard in shards)} of {len(shards)} planes connected"
        return f"{planes}, {sum(router.vrc is not None for router in routers)} of {len(routers)} routers in session"

    def _end(self) -> None:
        """End, also where it is about to restart: whoever stops a service waits for its end."""
        self.restarting = False
        self.stop.set()

    def _restart(self) -> None:
        if self.stop.is_set():  # the next start finds the backup
            return
        self.restarting = True
        asyncio.get_running_loop().call_later(0.2, self.stop.set)  # the answer goes out first

    async def run(self) -> None:
        """Serve until `stop` is set."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        await self.convergence.start()
        await self.sessions.start()
        try:
            await self.listener.start()
        except OSError as problem:
            raise StoreError(
                f"cannot listen for switches on {self.listen.host}:{self.listen.port}: "
                f"{problem.strerror or problem}; give another address with --openflow"
            ) from None
        self.supervisor.spawn("shards", self.shards.run)
        self.supervisor.spawn("convergence", self.convergence.run)
        self.supervisor.spawn("certificates", self.certificates.run)
        self.supervisor.spawn("api", self.api.run)
        notify_service("READY=1")
        self.supervisor.spawn("service manager", lambda: keep_notifying(self._status))
        self.events.emit("info", "started", "vr-controller", f"serving {self.api.path}")
        await self.stop.wait()

    async def close(self) -> None:
        """Close channels and sessions; guests run on, planes forward on."""
        if not self.restarting:  # the service does not end then
            notify_service("STOPPING=1")
        self.api.close()
        await self.supervisor.close()
        await self.fleet.close()
        await self.sessions.close()
        await self.shards.close()
        await self.listener.close()
        self.store.close()


async def serve(options: argparse.Namespace) -> bool:
    """Run one controller; tells whether it wants to be started again."""
    daemon = Daemon(options)
    try:
        await daemon.run()
    finally:
        await daemon.close()
    return daemon.restarting


def main() -> None:
    """Entry point: exit status 1 with one line where the controller cannot start."""
    options = parse_arguments()
    level = getattr(logging, options.log_level.upper())
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    share_cores()
    bound_pauses()
    budget.raise_descriptors()
    try:
        descriptors = lock_directories(options.state, options.run)
        restarting = asyncio.run(serve(options))
    except SplitplaneError as problem:
        print(f"vr-controller: {problem}", file=sys.stderr)
        raise SystemExit(1) from None
    if restarting:
        in_checkout = sys.argv[0] == str(Path(__file__).with_name("__main__.py")) and not sys.flags.safe_path
        safe = [] if in_checkout else ["-P"]  # what lies where it was started is another program
        os.execv(sys.executable, [sys.executable, *safe, "-m", "controller", *sys.argv[1:]])
    for descriptor in descriptors:
        os.close(descriptor)
