"""A P4Runtime server in this process: keeps entries by its P4Info, arbitrates, and fails where it is told to.

It takes and gives octets, so that it can say what is no message at all.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from finsy.proto import p4d, p4r, rpc_code, rpc_status

from controller.planes.p4runtime import shares
from controller.planes.p4runtime.lost_frames import EXTERN_ID as LOST_FRAMES
from controller.planes.p4runtime.lost_punts import EXTERN_ID as LOST_PUNTS
from controller.planes.p4runtime.p4info import golden_pipeline

SERVICE = "p4.v1.P4Runtime"
DEVICE_ID = 1
Refusal = tuple[int, str]


@dataclass(eq=False)
class Stream:
    """One client's stream."""

    election_id: tuple[int, int] = (0, 0)
    outbox: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)

    def say(self, **update: Any) -> None:
        self.outbox.put_nowait(p4r.StreamMessageResponse(**update).SerializeToString())


@dataclass
class Device:
    """What a device knows and does; tests read and change it while it runs."""

    path: Path
    entries: dict[bytes, p4r.TableEntry] = field(default_factory=dict)  # by serialized table id and match
    pipeline: p4r.ForwardingPipelineConfig | None = None
    samples: p4r.DigestEntry | None = None
    pushes: int = 0
    reads: int = 0
    writes: list[p4r.WriteRequest] = field(default_factory=list)
    packets_out: list[p4r.PacketOut] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    refuse: Callable[[p4r.Update], Refusal | None] = lambda _update: None
    refuse_read: Callable[[p4r.Entity], tuple[grpc.StatusCode, str] | None] = lambda _wanted: None
    garbage: dict[str, bytes] = field(default_factory=dict)  # what a method answers instead
    aborts: dict[str, tuple[grpc.StatusCode, str]] = field(default_factory=dict)  # what a method fails with
    silent: bool = False  # nothing is said on the stream
    lost_punts: list[p4r.ExternEntry] | None = None  # None: it does not tell
    lost_frames: list[p4r.ExternEntry] | None = None  # the same
    features: list[p4r.ExternEntry] | None = None  # the same
    shares: dict[tuple[int, bytes], p4r.ExternEntry] = field(default_factory=dict)  # by extern and whose it is
    share_use: list[p4r.ExternEntry] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # methods of all requests, in order
    gate: asyncio.Event = field(default_factory=asyncio.Event)  # cleared: requests wait
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _server: Any = None
    _port: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}" if self._port else f"unix:{self.path}"

    # -- life --------------------------------------------------------------------------------------------------------
    async def start(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        unary, answers, both = (
            grpc.unary_unary_rpc_method_handler,
            grpc.unary_stream_rpc_method_handler,
            grpc.stream_stream_rpc_method_handler,
        )
        methods = {
            "Write": unary(self._write),
            "Read": answers(self._read),
            "SetForwardingPipelineConfig": unary(self._set_pipeline),
            "GetForwardingPipelineConfig": unary(self._get_pipeline),
            "StreamChannel": both(self._stream),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        if credentials is None:
            self._server.add_insecure_port(self.address)
        else:
            self._port = self._server.add_secure_port("127.0.0.1:0", credentials)
        await self._server.start()

    async def stop(self) -> None:
        """Go away at once; entries stay."""
        self.streams.clear()
        await self._server.stop(None)

    async def restart_empty(self) -> None:
        await self.stop()
        self.entries.clear()
        self.shares.clear()
        self.pipeline = self.samples = None
        await self.start()

    def close_streams(self) -> None:
        for stream in self.streams:
            stream.outbox.put_nowait(None)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something that a client did makes the condition true."""
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    # -- arbitration and packets -------------------------------------------------------------------------------------
    @property
    def primary(self) -> Stream | None:
        return max(self.streams, key=lambda stream: stream.election_id, default=None)

    def arbitrate(self) -> None:
        """Tell everybody who is primary."""
        first = self.primary
        for stream in self.streams:
            assert first is not None
            code = rpc_code.OK if stream is first else rpc_code.ALREADY_EXISTS
            self.tell_role(stream, code, first.election_id)

    def tell_role(self, stream: Stream, code: int, election_id: tuple[int, int]) -> None:
        high, low = election_id
        stream.say(
            arbitration=p4r.MasterArbitrationUpdate(
                device_id=DEVICE_ID,
                election_id=p4r.Uint128(high=high, low=low),
                status=rpc_status.Status(code=code),
            )
        )

    def rival(self, election_id: tuple[int, int]) -> Stream:
        """Let another controller come; it becomes primary where its id is the largest."""
        other = Stream(election_id)
        self.streams.append(other)
        self.arbitrate()
        return other

    def leave(self, stream: Stream) -> None:
        self.streams.remove(stream)
        self.arbitrate()

    def punt(self, router_interface_id: int, reason: int, payload: bytes) -> None:
        """Send a packet-in to the primary, with the header that P4Info describes."""
        header = golden_pipeline().schema.header("packet_in")
        self.send_packet_in(
            {
                header["router_interface_id"].id: header["router_interface_id"].octets(router_interface_id),
                header["punt_reason"].id: header["punt_reason"].octets(reason),
            },
            payload,
        )

    def send_packet_in(self, metadata: dict[int, bytes], payload: bytes) -> None:
        """Send any packet-in to the primary."""
        parts = [p4r.PacketMetadata(metadata_id=part, value=value) for part, value in metadata.items()]
        assert self.primary is not None
        self.primary.say(packet=p4r.PacketIn(payload=payload, metadata=parts))

    def send_digests(self, *members: tuple[bytes, ...], digest_id: int | None = None) -> None:
        """Send a list of digests to the primary, each of such members; of samples unless another is named."""
        sample_id = golden_pipeline().schema.digest("sample").id
        found = p4r.DigestList(digest_id=sample_id if digest_id is None else digest_id, list_id=1)
        for octets in members:
            found.data.add().struct.members.extend(p4d.P4Data(bitstring=one) for one in octets)
        assert self.primary is not None
        self.primary.say(digest=found)

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        stream = Stream()
        listening = asyncio.create_task(self._listen(stream, requests))
        try:
            while (message := await stream.outbox.get()) is not None:
                yield message
            await context.abort(grpc.StatusCode.ABORTED, "the device has had enough")
        finally:
            listening.cancel()
            if stream in self.streams:
                self.leave(stream)

    async def _listen(self, stream: Stream, requests: AsyncIterator[bytes]) -> None:
        async for octets in requests:
            request = p4r.StreamMessageRequest.FromString(octets)
            if request.HasField("packet"):
                self.packets_out.append(request.packet)
            elif "StreamChannel" in self.garbage:
                stream.outbox.put_nowait(self.garbage["StreamChannel"])
            elif not self.silent:
                wanted = request.arbitration.election_id
                stream.election_id = (wanted.high, wanted.low)
                if stream not in self.streams:
                    self.streams.append(stream)
                self.arbitrate()
            self.changed.set()

    # -- requests ----------------------------------------------------------------------------------------------------
    async def _before(self, method: str, context: Any) -> bytes | None:
        self.asked.append(method)
        self.changed.set()
        await self.gate.wait()
        if method in self.aborts:
            await context.abort(*self.aborts[method])
        return self.garbage.get(method)

    async def _write(self, octets: bytes, context: Any) -> bytes:
        request = p4r.WriteRequest.FromString(octets)
        self.writes.append(request)
        self.changed.set()
        garbage = await self._before("Write", context)
        first = self.primary
        asked_by = (request.election_id.high, request.election_id.low)
        if first is None or asked_by != first.election_id:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "Not primary")
        if self.pipeline is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no pipeline")
        errors = [self._apply(update) for update in request.updates]
        if any(code for code, _ in errors):
            status = rpc_status.Status(code=rpc_code.UNKNOWN)
            for code, text in errors:
                status.details.add().Pack(p4r.Error(canonical_code=code, message=text, space="test"))
            trailer = status.SerializeToString() if garbage is None else garbage
            context.set_trailing_metadata((("grpc-status-details-bin", trailer),))
            await context.abort(grpc.StatusCode.UNKNOWN, "some updates failed")
        return b""

    def _apply(self, update: p4r.Update) -> Refusal:
        refusal = self.refuse(update)
        if refusal is not None:
            return refusal
        if update.entity.HasField("digest_entry"):
            return self._apply_digest(update.type, update.entity.digest_entry)
        if update.entity.HasField("extern_entry"):
            return self._apply_share(update.type, update.entity.extern_entry)
        entry = update.entity.table_entry
        known = p4r.TableEntry(table_id=entry.table_id, match=entry.match).SerializeToString(deterministic=True)
        if update.type == p4r.Update.INSERT and known in self.entries:
            return rpc_code.ALREADY_EXISTS, "exists"
        if update.type != p4r.Update.INSERT and known not in self.entries:
            return rpc_code.NOT_FOUND, "does not exist"
        if update.type == p4r.Update.DELETE:
            del self.entries[known]
        else:
            self.entries[known] = entry
        return rpc_code.OK, ""

    def _apply_digest(self, op: p4r.Update.Type.ValueType, entry: p4r.DigestEntry) -> Refusal:
        if entry.digest_id != golden_pipeline().schema.digest("sample").id:
            return rpc_code.NOT_FOUND, "no such digest"
        if op == p4r.Update.INSERT and self.samples is not None:
            return rpc_code.ALREADY_EXISTS, "exists"
        if op != p4r.Update.INSERT and self.samples is None:
            return rpc_code.NOT_FOUND, "not configured"
        self.samples = None if op == p4r.Update.DELETE else entry
        return rpc_code.OK, ""

    def _apply_share(self, op: p4r.Update.Type.ValueType, entry: p4r.ExternEntry) -> Refusal:
        data = p4d.P4Data()
        assert entry.extern_type_id == shares.EXTERN_TYPE
        assert entry.entry.Unpack(data)
        key = entry.extern_id, data.struct.members[0].bitstring
        if op == p4r.Update.INSERT and key in self.shares:
            return rpc_code.ALREADY_EXISTS, "exists"
        if op != p4r.Update.INSERT and key not in self.shares:
            return rpc_code.NOT_FOUND, "does not exist"
        if op == p4r.Update.DELETE:
            del self.shares[key]
        else:
            self.shares[key] = entry
        return rpc_code.OK, ""

    def _told(self, wanted: p4r.ExternEntry) -> list[p4r.ExternEntry] | None:
        if wanted.extern_type_id == shares.EXTERN_TYPE:
            if wanted.extern_id == shares.USE_ID:
                return self.share_use
            return [one for (extern_id, _), one in self.shares.items() if extern_id == wanted.extern_id]
        return {LOST_PUNTS: self.lost_punts, LOST_FRAMES: self.lost_frames}.get(wanted.extern_id, self.features)

    async def _read(self, octets: bytes, context: Any) -> AsyncIterator[bytes]:
        request = p4r.ReadRequest.FromString(octets)
        self.reads += 1
        garbage = await self._before("Read", context)
        if garbage is not None:
            yield garbage
            return
        for wanted in request.entities:
            refusal = self.refuse_read(wanted)
            if refusal is not None:
                await context.abort(*refusal)
            response = p4r.ReadResponse()
            if wanted.HasField("extern_entry"):
                told = self._told(wanted.extern_entry)
                if told is None:
                    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no extern support yet")
                response.entities.extend(p4r.Entity(extern_entry=one) for one in told or ())
            if wanted.HasField("digest_entry") and self.samples is not None:
                response.entities.add().digest_entry.CopyFrom(self.samples)
            for entry in list(self.entries.values()):
                if entry.table_id == wanted.table_entry.table_id:
                    known = response.entities.add().table_entry
                    known.CopyFrom(entry)
                    if not wanted.table_entry.HasField("meter_config"):
                        known.ClearField("meter_config")
                    if not wanted.table_entry.HasField("counter_data"):
                        known.ClearField("counter_data")
            yield response.SerializeToString()

    async def _get_pipeline(self, octets: bytes, context: Any) -> bytes:
        garbage = await self._before("GetForwardingPipelineConfig", context)
        if garbage is not None:
            return garbage
        if self.pipeline is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no pipeline")
        config = p4r.ForwardingPipelineConfig(cookie=self.pipeline.cookie)
        return p4r.GetForwardingPipelineConfigResponse(config=config).SerializeToString()

    async def _set_pipeline(self, octets: bytes, context: Any) -> bytes:
        await self._before("SetForwardingPipelineConfig", context)
        request = p4r.SetForwardingPipelineConfigRequest.FromString(octets)
        assert request.action == p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        self.pipeline, self.pushes = request.config, self.pushes + 1
        self.entries.clear()
        self.shares.clear()
        self.samples = None
        self.changed.set()
        return b""

    # -- looking in --------------------------------------------------------------------------------------------------
    def rows(self, table: str) -> list[p4r.TableEntry]:
        """Return what is in a table."""
        table_id = golden_pipeline().schema.table(table).id
        return [entry for entry in self.entries.values() if entry.table_id == table_id]

    def ops(self, table: str) -> list[int]:
        """Return the types of all updates of a table so far."""
        table_id = golden_pipeline().schema.table(table).id
        return [
            update.type
            for request in self.writes
            for update in request.updates
            if update.entity.table_entry.table_id == table_id
        ]


@contextlib.asynccontextmanager
async def device(directory: Path, credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[Device]:
    """A device that listens on a Unix socket below ``directory``; with credentials on TCP."""
    one = Device(directory / "p4rt.sock")
    await one.start(credentials)
    try:
        yield one
    finally:
        await one.stop()
