"""bench/scale: what a controller spends on many routers, routes and planes, over planes that store nothing.

Encoded messages of VRCs go in below gRPC, as `ControlSession` reads them; the case `sessions` has real mTLS streams
from another process instead. Each case is a process of its own.

    us_per_route         from the first message until every route is confirmed, by the number of routes
    put_ms               one changed route of one router until it is confirmed, while all else is idle; median
    put_again_ms         the same right after another router's; not of `sessions`
    loop_stall_ms_max    longest time for which the event loop took no other turn, from the first message on
    peak_mib             largest resident size of the process

The last line is JSON: {"cases": [{"name", "routers", "routes", "planes", "us_per_route", "put_ms",
"put_again_ms", "loop_stall_ms_max", "peak_mib"}]}.
"""

import argparse
import asyncio
import gc
import itertools
import json
import logging
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bench.again import last_line
from bench.null_plane import NullPlane
from controller.events.log import EventLog
from controller.fallback.pace import in_turns
from controller.garbage import bound_pauses
from controller.model import InterfaceConfig, Quota, RouterConfig
from controller.pki.authority import PKI
from controller.sessions.control_stream import ControlSession
from controller.sessions.server import SessionServer
from controller.shard.shards import Shards
from controller.store.sqlite import SqliteStore
from lab.processes import peak_mib
from wire import MAX_ROUTES_PER_MESSAGE, PROTOCOL_VERSION, splitplane_pb2
from wire.columns import pack_ids, pack_prefixes

INTERFACES = 4
WAYS = [*itertools.combinations(range(INTERFACES), 1), *itertools.combinations(range(INTERFACES), 2)]
"""The nexthop sets of each router: one or two of its interfaces, no two alike."""

PUTS = 40
IDLE_S = 3.0
"""How long the loop is watched while nothing happens but time."""

_WATCH_S = 0.002
_CONTROL = "/splitplane.v1.VrcSession/Control"


@dataclass(frozen=True, slots=True)
class Case:
    """So many routers with so many routes each, spread over planes."""

    name: str
    routers: int
    routes: int  # of each router
    planes: int
    mtls: bool = False


CASES = (
    Case("few-large", 100, 1_000, 1),
    Case("many", 1_000, 100, 4),
    Case("very-many", 10_000, 100, 40),
    Case("one-full", 1, 4_000_000, 1),
    Case("sessions", 1_000, 100, 1, mtls=True),
)


# ── what VRCs say ──


def declared(case: Case) -> Iterator[RouterConfig]:
    """Return the declarations of a case's routers."""
    most = case.routers * (max(case.routes, 100) + INTERFACES)
    quota = Quota(ipv4_routes=most, neighbors=most, nexthops=most, groups=most)
    for number in range(case.routers):
        vrf_id = number + 1
        interfaces = tuple(
            InterfaceConfig(
                id=number * INTERFACES + one + 1,
                name=f"eth{one}",
                port=f"p{one}",
                vlan=number // case.planes + 1,
                mac=bytes((2, one, *vrf_id.to_bytes(4, "big"))),
            )
            for one in range(INTERFACES)
        )
        yield RouterConfig(vrf_id, "t", f"r{vrf_id}", f"s{number % case.planes}", quota, interfaces)


def messages(config: RouterConfig, routes: int) -> Iterator[bytes]:
    """Return what a router's VRC says after Hello until all is told, encoded."""
    ids = [one.id for one in config.interfaces]
    links = range(len(ids))
    bodies: list[dict[str, Any]] = [
        {
            "hello": splitplane_pb2.Hello(
                protocol=PROTOCOL_VERSION, router=config.full_name, instance="b", source="fpm"
            )
        },
        {"interfaces": splitplane_pb2.InterfaceStates(states=[_interface_state(i, n) for n, i in enumerate(ids)])},
        {"neighbors": splitplane_pb2.Neighbors(neighbors=[_neighbor(i, n) for n, i in enumerate(ids)])},
        {"nexthop_sets": splitplane_pb2.NexthopSets(sets=[_nexthop_set(n + 1, ids) for n in range(len(WAYS))])},
        {"nexthop_sets": splitplane_pb2.NexthopSets(sets=[_connected(n, i) for n, i in enumerate(ids)])},
        {"routes": _packed([_network(n) for n in links], [_set_of_link(n) for n in links])},
    ]
    sequence = 0
    for body in bodies:
        sequence += 1
        yield splitplane_pb2.VrcMessage(sequence=sequence, **body).SerializeToString()
    for start in range(0, routes, MAX_ROUTES_PER_MESSAGE):
        sequence += 1
        yield _routes(
            sequence, [_prefix(n) for n in range(start, min(start + MAX_ROUTES_PER_MESSAGE, routes))], start
        )
    told = splitplane_pb2.ResyncEnd(daemons_settled=True)
    yield splitplane_pb2.VrcMessage(sequence=sequence + 1, resync_end=told).SerializeToString()


def _interface_state(interface_id: int, number: int) -> Any:
    return splitplane_pb2.InterfaceState(id=interface_id, up=True, addresses=[bytes((192, 0, 2 + number, 1))])


def _neighbor(interface_id: int, number: int) -> Any:
    address, mac = bytes((192, 0, 2 + number, 2)), bytes((2, 0, 0, 0, 1, number))
    return splitplane_pb2.Neighbor(interface_id=interface_id, address=address, mac=mac)


def _nexthop_set(set_id: int, interfaces: list[int]) -> Any:
    members = [
        splitplane_pb2.Member(interface_id=interfaces[way], gateway=bytes((192, 0, 2 + way, 2)), weight=1)
        for way in WAYS[set_id - 1]
    ]
    return splitplane_pb2.NexthopSet(id=set_id, members=members)


def _network(number: int) -> bytes:
    return bytes((192, 0, 2 + number, 0, 24))


def _set_of_link(number: int) -> int:
    return len(WAYS) + 1 + number


def _connected(number: int, interface_id: int) -> Any:
    members = [splitplane_pb2.Member(interface_id=interface_id, weight=1)]
    kind = splitplane_pb2.NexthopSet.CONNECTED
    return splitplane_pb2.NexthopSet(id=_set_of_link(number), kind=kind, members=members)


def _prefix(number: int) -> bytes:
    return (0x0100_0000 + (number << 4)).to_bytes(4, "big") + b"\x1c"  # 1.0.0.0/28, …


def _routes(sequence: int, keys: list[bytes], first: int) -> bytes:
    routes = _packed(keys, [(first + position) % len(WAYS) + 1 for position in range(len(keys))])
    octets: bytes = splitplane_pb2.VrcMessage(sequence=sequence, routes=routes).SerializeToString()
    return octets


def _packed(keys: list[bytes], sets: list[int]) -> Any:
    return splitplane_pb2.Routes(family=4, prefixes=pack_prefixes(keys), sets=pack_ids(sets))


# ── below gRPC ──


class Context:
    """Takes what the controller says to a VRC."""

    async def write(self, message: Any) -> None:
        """Take it."""


class Vrc:
    """One session that says what it is given."""

    def __init__(self, shards: Shards, config: RouterConfig, events: EventLog, first: Iterable[bytes]) -> None:
        self.router = shards.routers[config.vrf_id]
        self._first = first
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._sequence = 0
        session = ControlSession(self.router, Context(), events, shards.loop_share)
        self.tasks = [asyncio.create_task(session.read(self._requests())), asyncio.create_task(session.write())]

    async def _requests(self) -> AsyncIterator[bytes]:
        for octets in self._first:
            self._sequence += 1
            yield octets
        self._first = ()
        while True:
            yield await self._said.get()

    def encode_put(self, number: int, set_number: int) -> bytes:
        """Return the message of another set for one route, which is to be said next."""
        self._sequence += 1
        return _routes(self._sequence, [_prefix(number)], set_number)

    def say(self, octets: bytes) -> None:
        """Say a message."""
        self._said.put_nowait(octets)


class Stall:
    """Watches for how long the event loop takes no turn of another."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        before = time.perf_counter()
        while True:
            await asyncio.sleep(_WATCH_S)
            now = time.perf_counter()
            self.longest_s = max(self.longest_s, now - before - _WATCH_S)
            before = now

    def close(self) -> None:
        """Watch no more."""
        self._task.cancel()


async def _settled(shards: Shards, configs: list[RouterConfig], routes: int) -> None:
    async for config in in_turns(configs):  # or the longest stall of the loop would be this
        router = shards.routers[config.vrf_id]
        while router.fib.learned_counts[4] < routes + INTERFACES or router.holds:  # noqa: ASYNC110 - it tells nobody of this
            await asyncio.sleep(0.005)
        await shards.converged(config.vrf_id)


async def _measure(case: Case, directory: Path) -> dict[str, Any]:
    logging.disable()  # of a thousand sessions that end
    gc.freeze()
    bound_pauses()  # as vr-controller does
    events = EventLog()
    shards = Shards(events)
    ticking = asyncio.create_task(shards.run())
    planes = [NullPlane(f"s{number}", [f"p{one}" for one in range(INTERFACES)]) for number in range(case.planes)]
    for plane in planes:
        await shards.add_plane(plane)
    configs = list(declared(case))
    for config in configs:
        await shards.put_router(config)
    if case.mtls:
        return await _measure_sessions(case, shards, configs, events, directory)
    # Encoded before, so that the VRCs' work is not measured; one full table is too large for that.
    encoded: list[Iterable[bytes]] = [messages(config, case.routes) for config in configs]
    if case.routes <= 100_000:
        encoded = [list(said) for said in encoded]
    stall = Stall()
    await asyncio.sleep(0.05)
    began = time.perf_counter()
    vrcs = []
    for config, said in zip(configs, encoded, strict=True):
        vrcs.append(Vrc(shards, config, events, said))
        await asyncio.sleep(0)  # a listening socket takes them one by one, too
    await _settled(shards, configs, case.routes)
    took = time.perf_counter() - began
    idle_s = await _puts(case, vrcs, planes, IDLE_S / PUTS)
    again_s = await _puts(case, vrcs, planes, 0.0)
    result = _result(case, took, stall.longest_s, put=idle_s, put_again=again_s)
    stall.close()
    for task in [ticking, *(task for vrc in vrcs for task in vrc.tasks)]:
        task.cancel()
    return result


async def _puts(case: Case, vrcs: list[Vrc], planes: list[NullPlane], idle_s: float) -> float:
    """Return how long one changed route takes until it is confirmed, after so long a pause: the median."""
    took = []
    for turn in range(PUTS):
        number = turn * len(vrcs) // PUTS
        # A set that this route does not have, nor has it since the puts before.
        plane, said = planes[number % case.planes], vrcs[number].encode_put(turn, turn + 1 + (not idle_s))
        await asyncio.sleep(idle_s)
        before = plane.routes
        began = time.perf_counter()
        vrcs[number].say(said)
        while plane.routes == before:  # noqa: ASYNC110 - as soon as it can be seen
            await asyncio.sleep(0)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _result(case: Case, took_s: float, stall_s: float, **puts_s: float) -> dict[str, Any]:
    return {
        "name": case.name,
        "routers": case.routers,
        "routes": case.routes,
        "planes": case.planes,
        "us_per_route": round(took_s * 1e6 / (case.routers * case.routes), 2),
        **{f"{name}_ms": round(took * 1e3, 3) for name, took in puts_s.items()},
        "loop_stall_ms_max": round(stall_s * 1e3, 1),
        "peak_mib": round(peak_mib(os.getpid())),
    }


# ── real sessions ──


async def _measure_sessions(
    case: Case, shards: Shards, configs: list[RouterConfig], events: EventLog, directory: Path
) -> dict[str, Any]:
    pki = PKI(directory, SqliteStore(directory))
    server = SessionServer(shards, pki, directory / "sessions", events)
    await pki.issue(configs)
    for config in configs:
        server.admit(config.vrf_id, os.geteuid())
    await server.start()
    command = [sys.executable, "-m", "bench.scale", "--clients", str(directory), "--case", case.name]
    clients = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=-1)
    assert clients.stdin is not None
    assert clients.stdout is not None
    await clients.stdout.readline()  # all is encoded
    stall = Stall()
    began = time.perf_counter()
    clients.stdin.write(b"go\n")
    await _settled(shards, configs, case.routes)
    took = time.perf_counter() - began
    await asyncio.sleep(IDLE_S)
    puts = []
    for _ in range(PUTS):
        clients.stdin.write(b"put\n")
        puts.append(float(await clients.stdout.readline()))
        await asyncio.sleep(IDLE_S / PUTS)
    result = _result(case, took, stall.longest_s, put=statistics.median(puts))
    await server.close()
    clients.terminate()
    await clients.wait()
    return result


async def _run_clients(case: Case, directory: Path) -> None:
    """Be the VRCs: each with a channel, a certificate and a stream of its own."""
    configs = list(declared(case))
    encoded = [list(messages(config, case.routes)) for config in configs]
    streams = []
    for config in configs:
        identity = directory / "pki" / "routers" / str(config.vrf_id)
        key, certificate, authority = ((identity / f"{one}.pem").read_bytes() for one in ("key", "cert", "ca"))
        credentials = grpc.ssl_channel_credentials(authority, key, certificate)
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", "vr-controller")]
        path = directory / "sessions" / str(config.vrf_id) / "session.sock"
        channel = grpc.aio.secure_channel(f"unix:{path}", credentials, options)
        streams.append(channel.stream_stream(_CONTROL, None, None))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    calls = [stream(None) for stream in streams]
    acknowledged = [0] * len(calls)
    changed = asyncio.Event()

    async def say(number: int) -> None:
        for octets in encoded[number]:
            await calls[number].write(octets)

    async def hear(number: int) -> None:
        async for octets in calls[number]:
            message = splitplane_pb2.ControllerMessage.FromString(octets)
            if message.HasField("ack"):
                acknowledged[number] = message.ack.sequence
                changed.set()

    tasks = [asyncio.create_task(one(number)) for number in range(len(calls)) for one in (say, hear)]
    turn = 0
    while await asyncio.to_thread(sys.stdin.readline):
        number, turn = turn * len(calls) // PUTS % len(calls), turn + 1
        sequence = len(encoded[number]) + 1
        encoded[number].append(_routes(sequence, [_prefix(turn - 1)], turn))
        began = time.perf_counter()
        await calls[number].write(encoded[number][-1])
        while acknowledged[number] < sequence:
            changed.clear()
            await changed.wait()
        print(time.perf_counter() - began, flush=True)
    for task in tasks:
        task.cancel()


# ── the command ──


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scale", description=__doc__.splitlines()[0] if __doc__ else None)
    names = [case.name for case in CASES]
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(names)}; all where left out")
    parser.add_argument("--case", choices=names, help=argparse.SUPPRESS)  # in this process
    parser.add_argument("--clients", type=Path, help=argparse.SUPPRESS)  # be the VRCs of it
    options = parser.parse_args()
    if unknown := set(options.cases) - set(names):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def main() -> int:
    """Measure each case in a process of its own."""
    options = _options()
    if options.case is not None:
        case = next(one for one in CASES if one.name == options.case)
        try:
            if options.clients is not None:
                asyncio.run(_run_clients(case, options.clients))
            else:
                signal.signal(signal.SIGTERM, signal.default_int_handler)  # it puts away what it has begun
                # Removed once no thread writes into it any more, which asyncio.run waits for.
                with tempfile.TemporaryDirectory(prefix="splitplane-scale-") as name:
                    print(json.dumps(asyncio.run(_measure(case, Path(name)))))
        except KeyboardInterrupt:
            return 130
        return 0
    results = []
    for case in CASES:
        if options.cases and case.name not in options.cases:
            continue
        print(line := last_line("bench.scale", "--case", case.name), flush=True)
        results.append(json.loads(line))
    print(json.dumps({"cases": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
