"""A relay between a controller and a P4Runtime device: passes octets on, counts requests, and can be cut.

It can also refuse what the device behind it would take, as a device does that supports less.

vr-controller ──► unix:relay.sock ──► unix:p4rt.sock   BMv2
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from finsy.proto import p4r, rpc_code, rpc_status

_SERVICE = "/p4.v1.P4Runtime/"
_STREAMED = {"StreamChannel": (True, True), "Read": (False, True)}  # requests, answers; the others are one and one
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.absolute_max_metadata_size", 1 << 20),
    ("grpc.use_local_subchannel_pool", 1),
)
_DETAILS = "grpc-status-details-bin"
_END_S = 5.0
_FOR_EVER_S = 1e6  # a request without a deadline has one in some centuries


class P4RuntimeRelay:
    """Listens at ``address`` while it is open and asks ``device``; `requests` counts by method."""

    def __init__(self, address: str, device: str) -> None:
        self.address, self._device = address, device
        self.requests: Counter[str] = Counter()
        self.unsupported: Callable[[p4r.Entity], bool] | None = None
        self._server: grpc.Server | None = None
        self._channel: grpc.Channel | None = None

    def open(self) -> None:
        """Begin to pass on; harmless when repeated."""
        if self._server is not None:
            return
        self._channel = grpc.insecure_channel(self._device, _OPTIONS)
        self._server = grpc.server(ThreadPoolExecutor(8), (_Passing(self._channel, self),), options=_OPTIONS)
        self._server.add_insecure_port(self.address)
        self._server.start()

    def close(self) -> None:
        """Cut both ends; harmless when repeated."""
        if self._server is None or self._channel is None:
            return
        self._channel.close()
        self._server.stop(0).wait(_END_S)
        self._server = self._channel = None


class _Passing(grpc.GenericRpcHandler):
    """Passes every method on, as octets, except updates that are not supported."""

    def __init__(self, channel: grpc.Channel, relay: P4RuntimeRelay) -> None:
        self._channel, self._relay, self._requests = channel, relay, relay.requests

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        name = details.method.rpartition("/")[2]
        asked, answered = (("stream" if one else "unary") for one in _STREAMED.get(name, (False, False)))
        call = getattr(self._channel, f"{asked}_{answered}")(details.method)
        serve = getattr(grpc, f"{asked}_{answered}_rpc_method_handler")
        return serve(self._stream(name, call) if answered == "stream" else self._single(name, call))

    def _single(self, name: str, call: Callable[..., bytes]) -> Callable[..., bytes]:
        def passed(request: bytes, context: grpc.ServicerContext) -> bytes:
            self._requests[name] += 1
            try:
                if name == "Write" and self._relay.unsupported is not None:
                    return _write(call, request, context, self._relay.unsupported)
                return call(request, timeout=_left(context))
            except (grpc.RpcError, ValueError) as error:
                return _failed(error, context)

        return passed

    def _stream(self, name: str, call: Callable[..., Any]) -> Callable[..., Iterator[bytes]]:
        def passed(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
            self._requests[name] += 1
            try:
                asked = request if isinstance(request, bytes) else _until_gone(request)
                answers = call(asked, timeout=_left(context))
                context.add_callback(answers.cancel)
                yield from answers
            except (grpc.RpcError, ValueError) as error:
                _failed(error, context)

        return passed


def _write(
    call: Callable[..., bytes], request: bytes, context: grpc.ServicerContext, unsupported: Callable[[Any], bool]
) -> bytes:
    """Have the device take what is supported, and answer for each update (P4Runtime 1.4, section 12.3)."""
    rest = p4r.WriteRequest.FromString(request)
    updates = list(rest.updates)
    refused = [update.type != p4r.Update.DELETE and unsupported(update.entity) for update in updates]
    del rest.updates[:]
    rest.updates.extend(update for update, no in zip(updates, refused, strict=True) if not no)
    errors = iter([p4r.Error() for _ in rest.updates])
    try:
        answer = call(rest.SerializeToString(), timeout=_left(context)) if rest.updates else b""
    except grpc.RpcError as error:
        status = rpc_status.Status.FromString(dict(error.trailing_metadata() or ()).get(_DETAILS, b""))
        if len(status.details) != len(rest.updates):
            raise
        errors = iter([_unpacked(one) for one in status.details])
    else:
        if not any(refused):
            return answer
    status = rpc_status.Status(code=rpc_code.UNKNOWN, message="some updates were refused")
    no = p4r.Error(canonical_code=rpc_code.UNIMPLEMENTED, message="the relay does not support this")
    for one in refused:
        status.details.add().Pack(no if one else next(errors))
    context.set_trailing_metadata(((_DETAILS, status.SerializeToString()),))
    context.set_code(grpc.StatusCode.UNKNOWN)
    return b""


def _unpacked(detail: Any) -> p4r.Error:
    return p4r.Error.FromString(detail.value)


def _until_gone(requests: Iterator[bytes]) -> Iterator[bytes]:
    """Walk over what the controller sends until it ends the stream or is killed."""
    with contextlib.suppress(grpc.RpcError):
        yield from requests


def _left(context: grpc.ServicerContext) -> float | None:
    """Return the seconds that the controller still waits, None where it waits for ever."""
    left = context.time_remaining()
    return left if left is not None and left < _FOR_EVER_S else None


def _failed(error: Exception, context: grpc.ServicerContext) -> bytes:
    """Answer with the device's own error, details for each update included; ValueError is of a relay that was cut."""
    if isinstance(error, grpc.Call):
        context.set_trailing_metadata(tuple(error.trailing_metadata() or ()))
        context.set_code(error.code())
        context.set_details(error.details() or "")
    else:
        context.set_code(grpc.StatusCode.UNAVAILABLE)
    return b""


def read_entries(address: str, device_id: int = 1) -> list[bytes]:
    """Return every table entry of a device, encoded and sorted, without counters."""
    request = p4r.ReadRequest(device_id=device_id)
    request.entities.add().table_entry.SetInParent()
    with grpc.insecure_channel(address, _OPTIONS) as channel:
        read = channel.unary_stream(
            f"{_SERVICE}Read",
            request_serializer=p4r.ReadRequest.SerializeToString,
            response_deserializer=p4r.ReadResponse.FromString,
        )
        answers = list(read(request, timeout=60))
    return sorted(
        entity.table_entry.SerializeToString(deterministic=True) for answer in answers for entity in answer.entities
    )
