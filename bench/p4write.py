"""bench/p4write: how many routes a second the P4Runtime driver writes, and vr-forwarder takes.

    P4RuntimePlane.write ─gRPC─► a sink that only decodes        sink_entries_per_s
    P4RuntimePlane.write ─gRPC─► BMv2, empty                     bmv2_entries_per_s
    P4RuntimePlane.write ─gRPC─► vr-forwarder, empty             forwarder_driver_entries_per_s
    encoded before       ─gRPC─► vr-forwarder, empty             forwarder_entries_per_s

Batches are those of the mirror: as large, and as many under way. The driver has one core and the other side another.
What is encoded before goes in requests of 1,000 INSERTs, four under way; vr-forwarder has no ports, and its tables
are the kernel's maps.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
from finsy.proto import p4r

from controller.model import PlaneConfig, PlaneKind
from controller.planes.base import (
    Nexthop,
    Op,
    Plane,
    PortState,
    PuntReason,
    RouteKind,
    RouteUpdates,
    Update,
    WriteBatch,
    route_action,
)
from controller.planes.p4runtime.channel import ElectionId
from controller.planes.p4runtime.messages import request_head
from controller.planes.p4runtime.p4info import golden_pipeline
from controller.planes.p4runtime.plane import P4RuntimePlane
from controller.planes.p4runtime.routes import RouteEncoder
from controller.shard.mirror import BATCH_ROUTES, WRITES_IN_FLIGHT
from lab.commands import NetworkError
from lab.planes import forwarder as vr_forwarder
from lab.planes.bmv2 import PROGRAM, Bmv2
from lab.planes.forwarder import Forwarder
from lab.planes.p4runtime import Device
from lab.prefixes import announcements
from lab.processes import machine_s

_UPDATES_PER_REQUEST, _REQUESTS_UNDER_WAY = 1000, 4
_NEXTHOPS = 64
_VRF = 7
_CONNECT_S = 30.0


class Connected:
    """A PlaneListener that waits for the connection, and for nothing else."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def plane_connected(self, plane: Plane) -> None:
        """Go on."""
        self.event.set()

    def plane_disconnected(self, plane: Plane, reason: str) -> None:
        """It tries again, and the time for that is bounded."""

    def port_changed(self, plane: Plane, port: PortState) -> None:
        """There are no ports."""

    def packet_in(self, plane: Plane, router_interface_id: int, reason: PuntReason, frame: bytes) -> None:
        """There are no packets."""

    def noticed(self, plane: Plane, severity: str, kind: str, text: str) -> None:
        """It has nothing to tell."""


def say(text: str) -> None:
    """Tell people how far it is."""
    print(f"p4write: {text}", file=sys.stderr, flush=True)


def batches(count: int, seed: int) -> list[WriteBatch]:
    """Return that many routes in batches of the mirror's size."""
    keys = [one.network.to_bytes(4, "big") + bytes((one.length,)) for one in announcements(count, seed)]
    actions = [route_action(RouteKind.NEXTHOP, 1 + position % _NEXTHOPS) for position in range(count)]
    columns = (
        RouteUpdates(_VRF, 4, [Op.INSERT] * len(part), part, actions[start : start + BATCH_ROUTES])
        for start in range(0, count, BATCH_ROUTES)
        if (part := keys[start : start + BATCH_ROUTES])
    )
    return [WriteBatch(routes=[updates]) for updates in columns]


async def write_all(plane: P4RuntimePlane, work: list[WriteBatch]) -> float:
    """Write batches as the mirror does, so many under way, and return how long it took."""
    under_way: deque[asyncio.Task[Any]] = deque()
    start = time.perf_counter()
    for batch in work:
        if len(under_way) == WRITES_IN_FLIGHT:
            _expect_none(await under_way.popleft())
        under_way.append(asyncio.create_task(plane.write(batch)))
    for writing in under_way:
        _expect_none(await writing)
    return time.perf_counter() - start


def _expect_none(refused: list[Any]) -> None:
    if refused:
        raise SystemExit(f"p4write: {len(refused)} routes refused, the first: {refused[0].reason}")


async def measure(address: str, work: list[WriteBatch], keeps: bool) -> dict[str, float]:
    """Connect, write everything once and return entries per second and the driver's own CPU time for each; what
    ``keeps`` routes has to hold all of them."""
    config = PlaneConfig("bench", PlaneKind.P4RUNTIME, address=address, device_id=1)
    plane, connected = P4RuntimePlane(config), Connected()
    await plane.start(connected)
    try:
        async with asyncio.timeout(_CONNECT_S):
            await connected.event.wait()
        nexthops = [Update(Op.INSERT, Nexthop(1 + number, 1, bytes(6))) for number in range(_NEXTHOPS)]
        await plane.write(WriteBatch(nexthops=nexthops))
        cpu_s, count = time.process_time(), sum(len(batch.routes[0]) for batch in work)
        took_s = await write_all(plane, work)
        cpu_s = time.process_time() - cpu_s
        if keeps and len((await plane.read()).routes[_VRF]) != count:
            raise SystemExit("p4write: routes are missing")
    finally:
        await plane.close()
    return {"entries_per_s": count / took_s, "cpu_us_per_entry": cpu_s / count * 1e6}


@contextlib.contextmanager
def other_side() -> Iterator[list[str]]:
    """Stay on the first core until the context ends; yields what begins a command that runs on the last one."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    try:
        yield ["taskset", "-c", str(cores[-1])]
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def sink(routes: int) -> Iterator[str]:
    """A sink, which has to have seen so many routes at the end; its address."""
    with tempfile.TemporaryDirectory(prefix="sp-p4write-") as directory, other_side() as prefix:
        address = f"unix:{directory}/p4rt.sock"
        command = (*prefix, sys.executable, "-m", "bench.p4sink", address, str(golden_pipeline().cookie))
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
            try:
                if process.stdout is None or not process.stdout.readline():
                    raise SystemExit("p4write: the sink did not start")
                yield address
                process.terminate()
                seen = int(process.stdout.readline())
                if seen != routes:
                    raise SystemExit(f"p4write: the sink saw {seen} of {routes} routes")
            finally:
                process.kill()


@contextlib.contextmanager
def bmv2(routes: int) -> Iterator[str]:
    """A BMv2 without ports, in a network namespace of its own; its address."""
    with tempfile.TemporaryDirectory(prefix="sp-p4write-") as directory, other_side() as prefix:
        own = (f"unix:{directory}/p4rt.sock", 9090, Path(directory, "bmv2.log"), (*prefix, "unshare", "--net"))
        device = Bmv2("p4write", 1, *own, log_level="off")
        with started(device):
            yield device.address


@contextlib.contextmanager
def forwarder(routes: int) -> Iterator[str]:
    """A vr-forwarder without ports, in namespaces of its own, with which all goes that it pins; its address."""
    with tempfile.TemporaryDirectory(prefix="sp-p4write-") as directory, other_side() as prefix:
        own = ("unshare", "--net", "--mount", "sh", "-c", 'mount -n -t bpf bpf /sys/fs/bpf && exec "$@"', "sh")
        place = Path(directory)
        device = Forwarder("vr-forwarder", "p4write", 1, place / "state", place / "log", (*prefix, *own))
        with started(device):
            yield device.address


@contextlib.contextmanager
def started(device: Device) -> Iterator[None]:
    """Have a device run until the context ends."""
    try:
        device.start({})
        yield
    except NetworkError as error:
        raise SystemExit(f"p4write: {error}") from None
    finally:
        device.stop()


class _Primary:
    """A controller that only sends what was encoded before."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel: Any = channel
        self._election_id = ElectionId(0, 1)

    async def start(self) -> None:
        """Become primary of a device and have it run the pipeline, empty."""
        election_id = self._election_id.message()
        self._stream = self._channel.stream_stream("/p4.v1.P4Runtime/StreamChannel")()
        update = p4r.MasterArbitrationUpdate(device_id=1, election_id=election_id)
        await self._stream.write(p4r.StreamMessageRequest(arbitration=update).SerializeToString())
        await self._stream.read()
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=1,
            election_id=election_id,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=golden_pipeline().message,
        )
        call = self._channel.unary_unary("/p4.v1.P4Runtime/SetForwardingPipelineConfig")
        await call(request.SerializeToString())

    def requests(self, work: list[WriteBatch]) -> list[bytes]:
        """Return the WriteRequests of all routes."""
        columns = [updates for batch in work for updates in batch.routes]
        ops, keys = [op for one in columns for op in one.ops], [key for one in columns for key in one.keys]
        actions = [action for one in columns for action in one.actions]
        encoder = RouteEncoder(golden_pipeline().schema, _VRF, 4, lambda action: None)
        head = request_head(1, self._election_id)
        parts = (slice(at, at + _UPDATES_PER_REQUEST) for at in range(0, len(keys), _UPDATES_PER_REQUEST))
        return [head + encoder.encode(ops[part], keys[part], actions[part])[0] for part in parts]

    async def write_all(self, requests: list[bytes]) -> float:
        """Write them, so many under way, and return how long it took."""
        write, waiting = self._channel.unary_unary("/p4.v1.P4Runtime/Write"), iter(requests)

        async def one_after_the_other() -> None:
            for request in waiting:
                await write(request)

        start = time.perf_counter()
        await asyncio.gather(*(one_after_the_other() for _ in range(_REQUESTS_UNDER_WAY)))
        return time.perf_counter() - start


async def encoded_before(options: argparse.Namespace, work: list[WriteBatch]) -> float:
    """Return the median of the entries per second that vr-forwarder takes."""
    rates: list[float] = []
    for number in range(options.runs):
        with forwarder(options.routes) as address:
            async with grpc.aio.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
                primary = _Primary(channel)
                await primary.start()
                rates.append(options.routes / await primary.write_all(primary.requests(work)))
        say(f"vr-forwarder, encoded before, {number + 1} of {options.runs}: {rates[-1]:,.0f} entries/s")
    return sorted(rates)[(len(rates) - 1) // 2]


async def median(options: argparse.Namespace, kind: Any, work: list[WriteBatch], name: str) -> dict[str, float]:
    """Measure so often, each time with a new other side, and return the run of median rate."""
    results = []
    for number in range(options.runs):
        with kind(sum(len(batch.routes[0]) for batch in work)) as address:
            results.append(await measure(address, work, keeps=kind is not sink))
        say(f"{name} {number + 1} of {options.runs}: {results[-1]['entries_per_s']:,.0f} entries/s")
    return sorted(results, key=lambda result: result["entries_per_s"])[(len(results) - 1) // 2]


async def program(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and return the result. All in one event loop: grpc keeps to the first that it has seen."""
    before = machine_s()
    say(f"{options.routes} routes into a sink")
    to_sink = await median(options, sink, batches(options.routes, options.seed), "sink")
    to_bmv2 = None
    if shutil.which(PROGRAM) is None:
        say(f"{PROGRAM} is not on PATH: bmv2_entries_per_s is null")
    else:
        say(f"{options.bmv2_routes} routes into BMv2")
        to_bmv2 = await median(options, bmv2, batches(options.bmv2_routes, options.seed), "BMv2")
    to_forwarder, encoded = None, None
    if not vr_forwarder.PROGRAM.exists():
        say(f"{vr_forwarder.PROGRAM} is not built: forwarder_entries_per_s is null; run make setup")
    else:
        say(f"{options.routes} routes into vr-forwarder")
        work = batches(options.routes, options.seed)
        to_forwarder = await median(options, forwarder, work, "vr-forwarder")
        encoded = await encoded_before(options, work)
    return {
        "routes": options.routes,
        "bmv2_routes": options.bmv2_routes,
        "runs": options.runs,
        "driver_cpu_us_per_entry": round(to_sink["cpu_us_per_entry"], 2),
        "machine_s": {name: round(now - before[name], 2) for name, now in machine_s().items()},
        "sink_entries_per_s": round(to_sink["entries_per_s"]),
        "bmv2_entries_per_s": None if to_bmv2 is None else round(to_bmv2["entries_per_s"]),
        "forwarder_driver_entries_per_s": None if to_forwarder is None else round(to_forwarder["entries_per_s"]),
        "forwarder_entries_per_s": None if encoded is None else round(encoded),
    }


def main() -> int:
    """Print the result as the last line."""
    parser = argparse.ArgumentParser(prog="p4write", description="P4Runtime driver: routes written per second")
    parser.add_argument("--routes", type=int, default=200_000, help="routes into the sink and vr-forwarder")
    parser.add_argument("--bmv2-routes", type=int, default=20_000, help="routes into BMv2")
    parser.add_argument("--runs", type=int, default=5, help="runs of each; the median is reported")
    parser.add_argument("--seed", type=int, default=1)
    logging.getLogger("controller").setLevel(logging.ERROR)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as by Ctrl-C, it puts away what it has begun
    try:
        print(json.dumps(asyncio.run(program(options))), flush=True)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
