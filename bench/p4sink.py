"""A P4Runtime server that makes everybody primary and only decodes what is written; a process of its own.

    python -m bench.p4sink ADDRESS COOKIE

Prints a line when it listens, and how many routes it was given when it is told to end (SIGTERM).
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from finsy.proto import p4r, rpc_status

from controller.planes.p4runtime.p4info import golden_pipeline

_OPTIONS = (("grpc.max_receive_message_length", 64 << 20), ("grpc.so_reuseport", 0))


class Sink:
    """Its methods, by their names in P4Runtime."""

    def __init__(self, cookie: int) -> None:
        self._cookie = p4r.ForwardingPipelineConfig.Cookie(cookie=cookie)
        self._route_table = golden_pipeline().schema.table("ipv4_route").id
        self.routes = 0

    async def write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:
        """Take a request, which grpc has decoded; its updates are all of one table."""
        if request.updates[0].entity.table_entry.table_id == self._route_table:
            self.routes += len(request.updates)
        return p4r.WriteResponse()

    async def read(self, request: p4r.ReadRequest, context: Any) -> AsyncIterator[p4r.ReadResponse]:
        """Hold nothing."""
        yield p4r.ReadResponse()

    async def pipeline(self, request: Any, context: Any) -> p4r.GetForwardingPipelineConfigResponse:
        """Run the pipeline that is wanted."""
        return p4r.GetForwardingPipelineConfigResponse(config=p4r.ForwardingPipelineConfig(cookie=self._cookie))

    async def stream(
        self, requests: AsyncIterator[p4r.StreamMessageRequest], context: Any
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        """Say to everybody that it is primary."""
        async for request in requests:
            update = request.arbitration
            update.status.CopyFrom(rpc_status.Status())
            yield p4r.StreamMessageResponse(arbitration=update)


async def serve(address: str, cookie: int) -> None:
    """Listen until the process is told to end."""
    sink, ended = Sink(cookie), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    kinds: dict[str, tuple[Any, Any, Any]] = {
        "Write": (grpc.unary_unary_rpc_method_handler, sink.write, p4r.WriteRequest),
        "Read": (grpc.unary_stream_rpc_method_handler, sink.read, p4r.ReadRequest),
        "GetForwardingPipelineConfig": (
            grpc.unary_unary_rpc_method_handler,
            sink.pipeline,
            p4r.GetForwardingPipelineConfigRequest,
        ),
        "StreamChannel": (grpc.stream_stream_rpc_method_handler, sink.stream, p4r.StreamMessageRequest),
    }
    methods = {
        name: make(method, request_deserializer=kind.FromString, response_serializer=_encode)
        for name, (make, method, kind) in kinds.items()
    }
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("p4.v1.P4Runtime", methods),))
    server.add_insecure_port(address)
    await server.start()
    print("listening", flush=True)
    await ended.wait()
    print(sink.routes, flush=True)
    await server.stop(None)


def _encode(message: Any) -> bytes:
    octets: bytes = message.SerializeToString()
    return octets


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
