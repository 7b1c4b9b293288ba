"""Sessions with a hostile router's own certificate, on its own socket, as root of its guest can open them."""

import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from bench.attacks.messages import PREPARED, PREPARING, Bodies
from bench.attacks.target import Target
from wire import PROTOCOL_VERSION
from wire import splitplane_pb2 as pb
from wire.frames import MAGIC, pack_frame

MOST_PREPARING_S = 90.0
_CONTROL = "/splitplane.v1.VrcSession/Control"
_ACCEPTED_S = 60.0
_PAUSE_S = 0.1
_EXPERIMENTAL = b"\x88\xb5"  # an EtherType that is nobody's (IEEE 802, section 9.2.4)
_FRAMES_AT_ONCE = 64


class HostileRouter:
    """Sessions with a router's own certificate, one after the other, until a moment."""

    def __init__(self, target: Target, seconds: float) -> None:
        self._target, self._seconds = target, seconds
        self._until = time.monotonic() + seconds
        self.messages, self.ends = 0, Counter[str]()

    def run(self, say: Callable[[int], Bodies]) -> dict[str, Any]:
        """Say it, anew where the controller ends the session; returns how often and why it did."""
        if say in PREPARING:
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
                    call = link.stream_stream(_CONTROL, None, None)(iter([hello]))
                    self.messages += 1
                    call.cancel()  # type: ignore[no-untyped-call]  # the stubs do not say what it returns
            for _ in range(50):
                with suppress(OSError), socket.socket(socket.AF_UNIX) as plain:
                    plain.settimeout(0.05)
                    plain.connect(self._target.socket)
                    taken += 1
        return {"sessions": self.messages, "connections": taken}

    def packet_outs(self) -> dict[str, Any]:
        """As many frames to the plane as are read, on the connection that a session's ticket opens."""
        sent, over = 0, threading.Event()

        def requests() -> Iterator[bytes]:
            yield self._hello()
            over.wait()

        with self._channel() as link:
            call = link.stream_stream(_CONTROL, None, None)(requests())
            declaration = pb.ControllerMessage.FromString(next(iter(call))).declaration
            own = declaration.interfaces[0]
            frame = b"\xff" * 6 + own.mac + _EXPERIMENTAL + bytes(46)
            with suppress(OSError), socket.socket(socket.AF_UNIX) as frames:
                frames.settimeout(_PAUSE_S)
                frames.connect(self._target.socket)
                frames.sendall(MAGIC + declaration.frame_ticket)
                octets = memoryview(pack_frame(own.id, frame) * _FRAMES_AT_ONCE)
                taken = 0  # of these octets, which are sent again and again
                while time.monotonic() < self._until:
                    with suppress(TimeoutError):
                        taken += frames.send(octets[taken:])
                    if taken == len(octets):
                        sent, taken = sent + _FRAMES_AT_ONCE, 0
            over.set()
            call.cancel()  # type: ignore[no-untyped-call]  # the stubs do not say what it returns
        return {"frames": sent, "per_s": round(sent / self._seconds)}

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

        call = link.stream_stream(_CONTROL, None, None)(self._requests(say, declared, over))

        def end() -> None:
            while not over.wait(0.1):
                if time.monotonic() > self._until:
                    call.cancel()  # type: ignore[no-untyped-call]  # the stubs do not say what it returns
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
            if body is PREPARED:
                self._until = min(self._until, time.monotonic() + self._seconds)
                continue
            self.messages, sequence = self.messages + 1, sequence + 1
            yield pb.VrcMessage(sequence=sequence, **body).SerializeToString()
        over.wait(max(0.0, self._until - time.monotonic()))


OF_CERTIFICATE: dict[str, Callable[[HostileRouter], dict[str, Any]]] = {
    "reconnect-storm": HostileRouter.storm,
    "packet-outs": HostileRouter.packet_outs,
}
