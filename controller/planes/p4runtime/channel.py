"""One P4Runtime connection: its stream with the arbitration of who is primary, and the requests beside it.

    │ StreamChannel   arbitration ◄─► role        packet-in, digests ─►      packet-out ◄─ bounded queue
    │ Write, Read, Get/SetForwardingPipelineConfig: unary, with a deadline each

All messages are octets here; what a device sends is decoded by whoever asked, through `decoded`. grpc's exceptions
end in this file: they become ChannelClosed, or RequestRefused where the connection lives on.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from finsy.proto import p4r, rpc_code, rpc_status
from google.protobuf.message import DecodeError, Message

from controller.planes.shared_queue import SharedQueue

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

MAX_RECEIVED_OCTETS = 256 << 20
"""Largest message taken: BMv2 answers a read with a single one, some 60 octets for each route."""

MAX_TRAILER_OCTETS = 1 << 20
"""Most that is taken of a status: it holds an error of some 100 octets for each update of a refused request."""

_QUEUED_PACKET_OUTS = 512  # of all routers
_LARGEST_HALF, _LARGEST_ID = (1 << 64) - 1, (1 << 128) - 1
_SERVICE = "/p4.v1.P4Runtime/"
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
_DETAILS = "grpc-status-details-bin"
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_RECEIVED_OCTETS),
    ("grpc.max_send_message_length", MAX_RECEIVED_OCTETS),
    ("grpc.max_metadata_size", MAX_TRAILER_OCTETS),
    ("grpc.absolute_max_metadata_size", MAX_TRAILER_OCTETS),
    ("grpc.use_local_subchannel_pool", 1),  # else a new connection waits for the back-off of the one before
    ("grpc.enable_http_proxy", 0),
)


class ChannelClosed(Exception):
    """The connection is gone, or of no use any more; the text says why."""


class RequestRefused(Exception):
    """The device answered a request with an error."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        super().__init__(f"{text or 'no reason given'} ({code.name})")


@dataclass(frozen=True, slots=True, order=True)
class ElectionId:
    """Who is primary: the largest is. The controller's start, so that a new one wins over what is left of the one
    before it, and its count of connections, so that it wins over what is left of its own."""

    started_ms: int
    connection: int

    def __str__(self) -> str:
        return f"{self.started_ms}.{self.connection}" if self.started_ms else str(self.connection)

    def message(self) -> p4r.Uint128:
        """Return the id as P4Runtime carries it."""
        return p4r.Uint128(high=self.started_ms, low=self.connection)

    def next(self) -> "ElectionId":
        """Return the smallest id that is larger; of the largest that there is, itself: P4Runtime 1.4, section 5.3,
        makes who repeats the highest primary where its holder has gone."""
        number = min((self.started_ms << 64 | self.connection) + 1, _LARGEST_ID)
        return ElectionId(number >> 64, number & _LARGEST_HALF)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the authority that signed the device's certificate, and this side's own certificate and key."""

    ca: Path
    cert: Path
    key: Path

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files; ChannelClosed where one cannot be read."""
        try:
            return grpc.ssl_channel_credentials(*(path.read_bytes() for path in (self.ca, self.key, self.cert)))
        except OSError as problem:
            raise ChannelClosed(f"cannot read {problem.filename}: {problem.strerror}") from problem


@dataclass(frozen=True, slots=True)
class Timing:
    """How long is waited, in seconds."""

    answer_s: float = 30.0  # for anything but reads
    read_s: float = 120.0
    alive_s: float = 10.0  # between questions whether the device is there and still runs our pipeline
    retry_s: float = 0.2  # after the first failure to connect; doubled with each
    retry_max_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where a device is and how it is spoken to; with TLS it has to show a certificate of ``certificate_name``.

    Over a Unix socket there is no TLS: who may use it is a matter of its owner and mode.
    """

    address: str
    device_id: int
    certificate_name: str
    tls: TlsFiles | None = None

    @property
    def local(self) -> bool:
        """Whether the device listens on a Unix socket."""
        return self.address.startswith("unix:")

    def connect(self) -> grpc.aio.Channel:
        """Return a channel that connects when it is used; ChannelClosed where its credentials cannot be read."""
        if self.tls is None or self.local:
            return grpc.aio.insecure_channel(self.address, _OPTIONS)
        named = (*_OPTIONS, ("grpc.ssl_target_name_override", self.certificate_name))
        return grpc.aio.secure_channel(self.address, self.tls.credentials(), named)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why one update of a request was refused."""

    code: int  # google.rpc.Code
    text: str


def decoded(kind: type[M], octets: bytes) -> M:
    """Return a message of the device; ChannelClosed where the octets are none."""
    try:
        return kind.FromString(octets)
    except DecodeError as error:
        raise ChannelClosed(f"the device sent a malformed {kind.DESCRIPTOR.name}") from error


class Channel:
    """The controller's end of one connection.

    `run` serves the stream until it ends; everything else may be used while it runs. ``packet_in_seen`` and
    ``digest_seen`` are called from it, and ``backup_seen`` whenever the device says that this side is not primary.
    ChannelClosed is raised to whoever waits when the connection ends.
    """

    def __init__(
        self,
        target: Target,
        election_id: ElectionId,
        timing: Timing,
        held: ElectionId,
        *,
        packet_in_seen: Callable[[p4r.PacketIn], None],
        digest_seen: Callable[[p4r.DigestList], None],
        backup_seen: Callable[[str], None],
    ) -> None:
        """``held`` is the largest id with which an earlier connection was primary: whoever is with no larger one is
        what is left of it, or was behind it."""
        self.target, self.election_id, self._timing = target, election_id, timing
        self.held = held
        self._grpc: Any = target.connect()  # its stubs know no defaults
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._packet_outs = SharedQueue[bytes](_QUEUED_PACKET_OUTS)
        self._bid = self._arbitration()  # goes before all packet-outs; empty once it is sent
        self._waiting = asyncio.Event()  # a bid or a packet-out does
        self._arbitrated, self._primary, self._backup = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.backup_reason = ""
        self.demotions = 0  # how often the device has said that this side is not primary
        self._packet_in_seen, self._digest_seen, self._backup_seen = packet_in_seen, digest_seen, backup_seen
        self.stream_errors = 0  # packet-outs that the device says it could not send

    @property
    def closed(self) -> str | None:
        """Why the connection ended, None while it lives."""
        return self._ended.result() if self._ended.done() else None

    @property
    def is_primary(self) -> bool:
        """Whether the device takes this side's writes."""
        return self._primary.is_set()

    async def until_primary(self) -> None:
        """Wait until this side is primary; ChannelClosed where the device does not say who is."""
        try:
            async with asyncio.timeout(self._timing.answer_s):
                await self._arbitrated.wait()
        except TimeoutError as error:
            limit_s = self._timing.answer_s
            raise ChannelClosed(f"the device did not say who is primary within {limit_s:g} s") from error
        await self._primary.wait()

    async def demoted_within(self, seconds: float) -> bool:
        """Wait for so long; returns at once with True where this side is primary no more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._backup.wait()
        return self._backup.is_set()

    # -- life --------------------------------------------------------------------------------------------------------
    async def run(self) -> str:
        """Serve the stream until it ends and return why it did."""
        call = self._grpc.stream_stream(_SERVICE + "StreamChannel")()
        sending = asyncio.create_task(self._send(call), name="p4runtime stream out")
        receiving = asyncio.create_task(self._receive(call), name="p4runtime stream in")
        try:
            return await asyncio.shield(self._ended)
        finally:
            self.close("closed by this side")
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
            await self._grpc.close()

    def close(self, reason: str) -> None:
        """End the connection; the first reason stays."""
        if not self._ended.done():
            self._ended.set_result(reason)

    async def _send(self, call: Any) -> None:
        with self._closing():
            while True:
                await call.write(await self._next())

    async def _next(self) -> bytes:
        """Wait for what is to be sent next."""
        while not self._bid and not self._packet_outs:
            self._waiting.clear()
            await self._waiting.wait()
        bid, self._bid = self._bid, b""
        return bid or self._packet_outs.pop()

    async def _receive(self, call: Any) -> None:
        with self._closing():
            while (octets := await call.read()) is not _EOF:
                message = decoded(p4r.StreamMessageResponse, octets)
                match message.WhichOneof("update"):
                    case "arbitration":
                        self._learn_role(message.arbitration)
                    case "packet":
                        self._packet_in_seen(message.packet)
                    case "digest":
                        self._digest_seen(message.digest)
                    case "error":
                        self.stream_errors += 1
            code, text = await call.code(), await call.details()
            raise ChannelClosed(f"the device closed the stream: {text or code.name}")

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        """Close the connection where the stream fails."""
        try:
            with self._wrapped("StreamChannel"):
                yield
        except ChannelClosed as error:
            self.close(str(error))
        except RequestRefused as error:
            self.close(f"the device closed the stream: {error}")

    # -- arbitration -------------------------------------------------------------------------------------------------
    def _arbitration(self) -> bytes:
        update = p4r.MasterArbitrationUpdate(device_id=self.target.device_id, election_id=self.election_id.message())
        return p4r.StreamMessageRequest(arbitration=update).SerializeToString()

    def _learn_role(self, update: p4r.MasterArbitrationUpdate) -> None:
        theirs = ElectionId(update.election_id.high, update.election_id.low)
        if update.status.code == rpc_code.OK:
            self.backup_reason = ""
            self.held = max(self.held, self.election_id)
            self._backup.clear()
            self._primary.set()
            self._arbitrated.set()
            return
        if update.status.code == rpc_code.NOT_FOUND:  # the primary has gone: P4Runtime 1.4, section 5.3
            self.backup_reason = "no controller is primary"
            self._outbid(theirs)
        elif self.election_id <= theirs <= self.held:
            self.backup_reason = "what is left of an earlier connection is primary"
            self._outbid(theirs)
        else:
            self.backup_reason = f"another controller is primary (election id {theirs})"
        self.demotions += 1
        self._primary.clear()
        self._backup.set()
        self._arbitrated.set()
        self._backup_seen(self.backup_reason)

    def _outbid(self, theirs: ElectionId) -> None:
        if self.election_id <= theirs:
            self.election_id = theirs.next()
        self._bid = self._arbitration()
        self._waiting.set()

    # -- requests ----------------------------------------------------------------------------------------------------
    async def write(self, request: bytes, updates: int) -> dict[int, Problem]:
        """Send a WriteRequest of so many updates and return what was refused, by position."""
        try:
            with self._wrapped("Write"):
                await self._grpc.unary_unary(_SERVICE + "Write")(request, timeout=self._timing.answer_s)
                return {}
        except RequestRefused as refused:
            problems = _problems(refused.__cause__, updates)
            if problems is None:
                raise ChannelClosed(f"the device refused a whole request: {refused}") from refused
            return problems

    async def read(self, entities: Sequence[p4r.Entity]) -> AsyncIterator[bytes]:
        """Yield the ReadResponses to a request as octets."""
        request = p4r.ReadRequest(device_id=self.target.device_id, entities=entities).SerializeToString()
        with self._wrapped("Read"):
            call = self._grpc.unary_stream(_SERVICE + "Read")(request, timeout=self._timing.read_s)
        try:
            while True:
                with self._wrapped("Read"):
                    octets = await call.read()
                if octets is _EOF:
                    break
                yield octets
            await self._check_end(call)
        finally:
            call.cancel()

    async def _check_end(self, call: Any) -> None:
        """Raise what a stream of answers ended with: reading it to its end does not."""
        with self._wrapped("Read"):
            code, text = await call.code(), await call.details()
        if code is not grpc.StatusCode.OK:
            raise RequestRefused(code, text)

    async def pipeline_cookie(self) -> int | None:
        """Return the cookie of the pipeline that the device runs, None where it runs none."""
        kind = p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY
        request = p4r.GetForwardingPipelineConfigRequest(device_id=self.target.device_id, response_type=kind)
        try:
            octets = await self._ask("GetForwardingPipelineConfig", request)
        except RequestRefused as refused:
            if refused.code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND):
                return None
            raise
        response = decoded(p4r.GetForwardingPipelineConfigResponse, octets)
        return response.config.cookie.cookie if response.config.HasField("cookie") else None

    async def push_pipeline(self, pipeline: p4r.ForwardingPipelineConfig) -> None:
        """Have the device run a pipeline; RequestRefused where it does not take it."""
        await self._ask(
            "SetForwardingPipelineConfig",
            p4r.SetForwardingPipelineConfigRequest(
                device_id=self.target.device_id,
                election_id=self.election_id.message(),
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=pipeline,
            ),
        )

    def send_packet(self, vrf_id: int, packet: p4r.PacketOut) -> bool:
        """Queue a packet-out of a router; False where too many of it wait."""
        if not self._packet_outs.push(vrf_id, p4r.StreamMessageRequest(packet=packet).SerializeToString()):
            return False
        self._waiting.set()
        return True

    async def _ask(self, method: str, request: Message) -> bytes:
        call = self._grpc.unary_unary(_SERVICE + method)
        with self._wrapped(method):
            answer: bytes = await call(request.SerializeToString(), timeout=self._timing.answer_s)
        return answer

    @contextlib.contextmanager
    def _wrapped(self, method: str) -> Iterator[None]:
        """Turn what grpc raises into ChannelClosed or RequestRefused."""
        if self.closed is not None:
            raise ChannelClosed(self.closed)
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._meaning(method, error) from error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:  # used after its end
            raise ChannelClosed(self.closed or f"{method} on a connection that has ended") from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ChannelClosed(self.closed or f"{method} was cut off") from None

    def _meaning(self, method: str, error: grpc.aio.AioRpcError) -> Exception:
        code, text = error.code(), _one_line(error.details() or "")
        if self.closed is not None:
            return ChannelClosed(self.closed)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            limit_s = self._timing.read_s if method == "Read" else self._timing.answer_s
            return ChannelClosed(f"the device did not answer {method} within {limit_s:g} s")
        if code is grpc.StatusCode.UNAVAILABLE:
            innermost = text.rpartition(": ")[2]  # of causes that name each other
            plain = self.target.tls is None and not self.target.local
            hint = " (vr-forwarder needs TLS on TCP: --p4runtime-tls)" if plain else ""
            return ChannelClosed(f"not reachable at {self.target.address}: {innermost}{hint}")
        if code is grpc.StatusCode.CANCELLED:
            return ChannelClosed(f"the device cut {method} off: {text}")
        if code is grpc.StatusCode.PERMISSION_DENIED:
            return ChannelClosed(self.backup_reason or f"the device refused {method}: {text}")
        return RequestRefused(code, text)


def _problems(cause: BaseException | None, updates: int) -> dict[int, Problem] | None:
    """Return the errors of a refused WriteRequest by position, None where the status does not tell them all:
    P4Runtime 1.4, section 12.3."""
    if not isinstance(cause, grpc.aio.AioRpcError):
        return None
    metadata: Any = cause.trailing_metadata()
    trailer = dict(metadata or ()).get(_DETAILS)
    if not isinstance(trailer, bytes):
        return None
    status = decoded(rpc_status.Status, trailer)
    if len(status.details) != updates:
        return None
    problems = {}
    for position, detail in enumerate(status.details):
        error = decoded(p4r.Error, detail.value)
        if error.canonical_code != rpc_code.OK:
            text = _one_line(error.message) or f"no reason given (code {error.canonical_code})"
            problems[position] = Problem(error.canonical_code, text)
    return problems


def _one_line(text: str) -> str:
    return " ".join(text.split())
