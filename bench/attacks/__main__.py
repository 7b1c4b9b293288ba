"""What a hostile router, switch or client does, one attack at a time; a program of its own.

attacks.py NAME FILE SECONDS: the file is JSON, `Target`. Prints one JSON object: what became of it. The time begins
once what the attack needs to be there is there.

Those of a router speak gRPC with its certificate on its own socket, as root of its guest can. All run at nice 19, so
that others wait for what they make the controller and the switch do, and not for the CPU that they take themselves.
"""

import itertools
import json
import os
import queue
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r

from wire import MAX_ROUTES_PER_MESSAGE, PROTOCOL_VERSION
from wire import splitplane_pb2 as pb
from wire.columns import pack_ids

_CONTROL = "/splitplane.v1.VrcSession/Control"
_P4RUNTIME = "/p4.v1.P4Runtime/StreamChannel"
_ACCEPTED_S = 60.0
_PAUSE_S = 0.1
_CONNECTED, _FORWARD, _BLACKHOLE = pb.NexthopSet.CONNECTED, pb.NexthopSet.FORWARD, pb.NexthopSet.BLACKHOLE
_GATEWAYS = 200
_ASKED = {"api.sock": b"/v1/routers", "control.sock": b"/metrics"}

Bodies = Iterator[dict[str, Any]]
"""What a VRC says after Hello."""
_PREPARED: dict[str, Any] = {}
"""Is no message: the attack itself begins here."""
MOST_PREPARING_S = 90.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where things are that an attacker reaches."""

    router: str
    socket: str
    identity: str
    openflow: tuple[str, int]
    p4runtime: str | None
    device_id: int
    http: list[str]  # Unix sockets
    guest: int  # first process of the hostile router's guest


# ── what a hostile router says ──


def _gateway(number: int) -> bytes:
    return bytes((10, 9, 1 + (number >> 8), number & 255))


def _neighbors(interface: int) -> dict[str, Any]:
    macs = (bytes((2, 9, 0, 0, number >> 8, number & 255)) for number in range(_GATEWAYS))
    known = [pb.Neighbor(interface_id=interface, address=_gateway(n), mac=mac) for n, mac in enumerate(macs)]
    return {"neighbors": pb.Neighbors(neighbors=known)}


def _set(number: int, kind: int, interface: int, gateways: Iterator[int] | range) -> Any:
    members = [pb.Member(interface_id=interface, gateway=_gateway(one), weight=1) for one in gateways]
    return pb.NexthopSet(id=number, kind=kind, members=members)


def _routes(first: int, count: int, ids: Callable[[int], int]) -> Bodies:
    """Announce host routes; an id of 0 withdraws."""
    for start in range(first, first + count, MAX_ROUTES_PER_MESSAGE):
        numbers = range(start, min(start + MAX_ROUTES_PER_MESSAGE, first + count))
        prefixes = b"".join((0x14000000 + number).to_bytes(4, "big") + b"\x20" for number in numbers)
        yield {"routes": pb.Routes(family=4, prefixes=prefixes, sets=pack_ids([ids(n) for n in numbers]))}


def _sets(sets: Iterator[Any], each: int = 2000) -> Bodies:
    while found := list(itertools.islice(sets, each)):
        yield {"nexthop_sets": pb.NexthopSets(sets=found)}


def redefinitions(interface: int) -> Bodies:
    """Sets of eight members until no more are taken, then a known one again and again."""
    yield from _sets(_set(n, _CONNECTED, interface, range(n % 100, n % 100 + 8)) for n in range(1, 65_505))
    yield _PREPARED
    again = pb.NexthopSets(sets=[_set(1, _CONNECTED, interface, range(1, 9))] * 100)
    while True:
        yield {"nexthop_sets": again}


def released_groups(interface: int) -> Bodies:
    """10,000 routes over 64 groups, which are let go for 64 others."""
    yield _neighbors(interface)
    for base in itertools.count(1, 64):
        yield from _sets(_set(base + n, _FORWARD, interface, range(n, n + 2 + base % 60)) for n in range(64))
        yield from _routes(0, 10_000, lambda n: base + n % 64)  # noqa: B023 - used before the next one
        yield {"nexthop_sets": pb.NexthopSets(released=range(max(1, base - 64), base))}


def many_groups(interface: int) -> Bodies:
    """1,024 groups of 128 members, each used by a route; then nothing more."""
    yield _neighbors(interface)
    yield from _sets((_group(n, interface) for n in range(1, 1025)), 60)
    yield from _routes(0, 1024, lambda n: n + 1)


def _group(number: int, interface: int) -> Any:
    """A group of 128 members whose weights no other has."""
    made = _set(number, _FORWARD, interface, range(128))
    for place in range(10):
        made.members[place].weight = 1 + (number >> place & 1)
    return made


def claimed_groups(interface: int) -> Bodies:
    """New groups beside 1,024 that were read from the switch and that nobody claims: the resync never ends."""
    yield _neighbors(interface)
    for number in itertools.count(1):
        yield {"nexthop_sets": pb.NexthopSets(sets=[_set(number, _FORWARD, interface, range(number % 90, 95))])}
        yield from _routes(number % 512, 1, lambda _: number)  # noqa: B023
        if number > 512:
            yield {"nexthop_sets": pb.NexthopSets(released=[number - 512])}


def interface_states(interface: int) -> Bodies:
    """The state of one interface, as often as fits into a message."""
    states = [pb.InterfaceState(id=interface, up=bool(n & 1)) for n in range(174_000)]
    message = pb.InterfaceStates(states=states)
    yield _PREPARED
    while True:
        yield {"interfaces": message}


def full_table_flapping(interface: int) -> Bodies:
    """400,000 routes that come, change their nexthop, and go."""
    yield _neighbors(interface)
    yield {"nexthop_sets": pb.NexthopSets(sets=[_set(n, _FORWARD, interface, range(n, n + 1)) for n in (1, 2)])}
    for number in itertools.cycle((1, 2, 0)):
        yield from _routes(0, 400_000, lambda _: number)  # noqa: B023


def sets_65536(interface: int) -> Bodies:
    """As many sets as there may be, all let go, and again."""
    while True:
        yield from _sets(_set(n, _CONNECTED, interface, range(n % 100, n % 100 + 8)) for n in range(1, 65_535))
        yield {"nexthop_sets": pb.NexthopSets(released=range(1, 65_535))}


def endless_resync(interface: int) -> Bodies:
    """A resync of which the end is never said: the same 10,000 routes again and again."""
    yield {"nexthop_sets": pb.NexthopSets(sets=[pb.NexthopSet(id=1, kind=_BLACKHOLE)])}
    while True:
        yield from _routes(0, 10_000, lambda _: 1)


class HostileRouter:
    """Sessions with a router's own certificate, one after the other, until a moment."""

    def __init__(self, target: Target, seconds: float) -> None:
        self._target, self._seconds = target, seconds
        self._until = time.monotonic() + seconds
        self.messages, self.ends = 0, Counter[str]()

    def run(self, say: Callable[[int], Bodies]) -> dict[str, Any]:
        """Say it, anew where the controller ends the session; returns how often and why it did."""
        if say in _PREPARING:
            self._until += MOST_PREPARING_S
        while time.monotonic() < self._until:
            with suppress(grpc.FutureTimeoutError), self._channel() as link:
                grpc.channel_ready_future(link).result(max(0.1, self._until - time.monotonic()))
                self._session(link, say)
            time.sleep(_PAUSE_S)
        return {"messages": self.messages, "ends": dict(self.ends.most_common(5))}

    def storm(self) -> dict[str, Any]:
        """Connections and sessions that are left as soon as they are made."""
        hello, taken = self._hello(), 0
        while time.monotonic() < self._until:
            with suppress(grpc.FutureTimeoutError, grpc.RpcError), self._channel() as link:
                grpc.channel_ready_future(link).result(5)
                for _ in range(4):
                    call = link.stream_stream(_CONTROL)(iter([hello]))
                    self.messages += 1
                    call.cancel()
            for _ in range(50):
                with suppress(OSError), socket.socket(socket.AF_UNIX) as plain:
                    plain.settimeout(0.05)
                    plain.connect(self._target.socket)
                    taken += 1
        return {"sessions": self.messages, "connections": taken}

    def _channel(self) -> grpc.Channel:
        parts = [Path(self._target.identity, f"{name}.pem").read_bytes() for name in ("ca", "key", "cert")]
        options = [
            ("grpc.ssl_target_name_override", "vr-controller"),
            ("grpc.default_authority", "vr-controller"),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", 500),
        ]
        return grpc.secure_channel(f"unix:{self._target.socket}", grpc.ssl_channel_credentials(*parts), options)

    def _hello(self) -> bytes:
        hello = pb.Hello(protocol=PROTOCOL_VERSION, router=self._target.router, instance="x", source="fpm")
        octets: bytes = pb.VrcMessage(sequence=1, hello=hello).SerializeToString()
        return octets

    def _session(self, link: grpc.Channel, say: Callable[[int], Bodies]) -> None:
        declared: queue.Queue[int] = queue.Queue(1)
        over = threading.Event()

        call = link.stream_stream(_CONTROL)(self._requests(say, declared, over))

        def end() -> None:
            while not over.wait(0.1):
                if time.monotonic() > self._until:
                    call.cancel()
                    return

        threading.Thread(target=end, daemon=True).start()
        try:
            for number, octets in enumerate(call):
                if number == 0:
                    message = pb.ControllerMessage.FromString(octets)
                    declared.put(message.declaration.interfaces[0].id)
            self.ends["ended"] += 1
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.CANCELLED:
                self.ends[str(error.details())[:120]] += 1
        finally:
            over.set()

    def _requests(
        self, say: Callable[[int], Bodies], declared: "queue.Queue[int]", over: threading.Event
    ) -> Iterator[bytes]:
        yield self._hello()
        try:
            interface = declared.get(timeout=_ACCEPTED_S)
        except queue.Empty:
            return
        sequence = 1
        for body in say(interface):
            if over.is_set() or time.monotonic() > self._until:
                break
            if body is _PREPARED:
                self._until = min(self._until, time.monotonic() + self._seconds)
                continue
            self.messages, sequence = self.messages + 1, sequence + 1
            yield pb.VrcMessage(sequence=sequence, **body).SerializeToString()
        over.wait(max(0.0, self._until - time.monotonic()))


# ── what others do ──


def silent_openflow(target: Target, until: float) -> dict[str, Any]:
    """Sixty-four connections that say nothing, each made anew as soon as it is ended."""
    return _openflow(target, until, 64, b"", 0)


def echoing_openflow(target: Target, until: float) -> dict[str, Any]:
    """A peer that greets and then asks for echoes, as fast as it can, without saying which switch it is."""
    hello, echo = struct.pack("!BBHI", 4, 0, 8, 1), struct.pack("!BBHI", 4, 2, 8, 2)
    return _openflow(target, until, 4, hello, 4096, echo)


def _openflow(
    target: Target, until: float, count: int, first: bytes, at_once: int, more: bytes = b""
) -> dict[str, Any]:
    peers: list[socket.socket] = []
    made = sent = 0
    flood = more * at_once
    while time.monotonic() < until:
        while len(peers) < count:
            peer = socket.create_connection(target.openflow, 5)
            peer.setblocking(False)
            with suppress(OSError):
                peer.send(first)
            peers.append(peer)
            made += 1
        for peer in list(peers):
            try:
                while peer.recv(1 << 16):
                    pass
                peers.remove(peer)  # ended
                peer.close()
                continue
            except BlockingIOError:
                pass
            except OSError:
                peers.remove(peer)
                peer.close()
                continue
            with suppress(OSError):
                sent += peer.send(flood) if flood else 0
        time.sleep(0.001)
    return {"connections": made, "octets": sent}


def election_ids(target: Target, until: float) -> dict[str, Any]:
    """A client of the switch that outbids the controller, with the highest election id there is."""
    if target.p4runtime is None:
        return {"skipped": "the switch does not speak P4Runtime"}
    highest = p4r.Uint128(high=(1 << 64) - 1, low=(1 << 64) - 1)
    update = p4r.MasterArbitrationUpdate(device_id=target.device_id, election_id=highest)
    bid = p4r.StreamMessageRequest(arbitration=update).SerializeToString()
    ends: Counter[str] = Counter()
    while time.monotonic() < until:
        with grpc.insecure_channel(target.p4runtime, [("grpc.use_local_subchannel_pool", 1)]) as link:
            over = threading.Event()

            def requests(over: threading.Event = over) -> Iterator[bytes]:
                yield bid
                over.wait(1.0)

            try:
                for octets in link.stream_stream(_P4RUNTIME)(requests()):
                    answer = p4r.StreamMessageResponse.FromString(octets)
                    ends[f"arbitration {answer.arbitration.status.code}"] += 1
            except grpc.RpcError as error:
                ends[str(error.details())[:120]] += 1
            over.set()
        time.sleep(_PAUSE_S)
    return {"answers": dict(ends.most_common(5))}


def http_floods(target: Target, until: float) -> dict[str, Any]:
    """Connections that say nothing and requests as fast as they are answered, to all that serve HTTP."""
    asked: Counter[str] = Counter()
    idle: dict[str, list[socket.socket]] = {path: [] for path in target.http}
    while time.monotonic() < until:
        for path, silent in idle.items():
            while len(silent) >= 40:
                silent.pop(0).close()
            for keep in (True, False):
                with suppress(OSError):
                    client = socket.socket(socket.AF_UNIX)
                    client.settimeout(0.5)
                    client.connect(path)
                    if keep:
                        silent.append(client)
                        continue
                    client.send(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % _ASKED[Path(path).name])
                    asked[f"{Path(path).name}: {client.recv(64).split(b' ')[1:2]}"] += 1
                    client.close()
    return dict(asked)


def disk_filling(target: Target, until: float) -> dict[str, Any]:
    """A guest that writes what it can reach of the host's disk full."""
    own = Path(f"/proc/{target.guest}/root/run/frr/full")
    written = 0
    try:
        with own.open("wb", buffering=0) as file:
            while time.monotonic() < until:
                try:
                    written += file.write(bytes(1 << 20))
                except OSError:  # full: whatever becomes free is taken as well
                    time.sleep(0.02)
    finally:
        own.unlink(missing_ok=True)
    return {"written_mib": written >> 20}


OF_ROUTERS: dict[str, Callable[[int], Bodies]] = {
    "redefinitions": redefinitions,
    "released-groups": released_groups,
    "claimed-groups": claimed_groups,
    "interface-states": interface_states,
    "full-table-flapping": full_table_flapping,
    "sets-65536": sets_65536,
    "endless-resync": endless_resync,
}
OF_OTHERS: dict[str, Callable[[Target, float], dict[str, Any]]] = {
    "reconnect-storm": lambda target, until: HostileRouter(target, until - time.monotonic()).storm(),
    "silent-openflow": silent_openflow,
    "echoing-openflow": echoing_openflow,
    "election-ids": election_ids,
    "http-floods": http_floods,
    "disk-filling": disk_filling,
}
BEFORE = {"many-groups": many_groups}
"""What comes before an attack."""
_PREPARING = (redefinitions, interface_states)


def main() -> None:
    """Do one of them for so long."""
    name, file, seconds = sys.argv[1:4]
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    target, until = Target(**json.loads(Path(file).read_text())), time.monotonic() + float(seconds)
    if name in OF_OTHERS:
        seen = OF_OTHERS[name](target, until)
    else:
        seen = HostileRouter(target, float(seconds)).run((OF_ROUTERS | BEFORE)[name])
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
