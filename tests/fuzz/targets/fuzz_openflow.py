"""What a switch, or who claims to be one, says over OpenFlow: a connection from Hello on, and what is read back.

input: octets of the connection; and, read as the parts of multipart replies, each of their readers.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from controller.planes.base import RouteCounts
from controller.planes.openflow import codec, messages
from controller.planes.openflow.channel import Channel, ChannelClosed
from controller.planes.openflow.codec import MalformedMessage, Type
from controller.planes.openflow.pipeline import static_flows
from controller.planes.openflow.readback import Readback, count
from controller.planes.openflow.routes import RouteCounter, RouteReader

INSTRUMENTED = ("controller.planes.openflow",)
_LIMIT_S = 10


class _Transport:
    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        pass


class _Writer:
    transport = _Transport()

    def write(self, octets: bytes) -> None:
        pass

    def close(self) -> None:
        pass

    async def drain(self) -> None:
        pass

    def get_extra_info(self, name: str) -> Any:
        return None


def try_one(octets: bytes) -> None:
    """Hear it as a connection, then as parts of replies; only `MalformedMessage` is raised, by the latter."""
    if octets[:1] == b"\4" or not octets:
        _loop.run_until_complete(_connection(octets))
        return
    for read in _READERS:
        with suppress(MalformedMessage):
            read(octets[1:])


async def _connection(octets: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(octets)
    reader.feed_eof()
    channel = Channel(reader, _Writer(), 60, 60)  # type: ignore[arg-type]
    channel.listen(lambda packet: None, lambda body: messages.decode_port_status(body))
    greeting = asyncio.create_task(channel.greet(_LIMIT_S))
    asked = [
        channel.ask(lambda xid, kind=kind: codec.message(kind, xid))
        for kind in (Type.BARRIER_REQUEST, Type.MULTIPART_REQUEST)
    ]  # type: ignore[misc]
    async with asyncio.timeout(_LIMIT_S):
        await channel.run()
        with suppress(ChannelClosed):
            await greeting
    for one in asked:
        if one.done() and not one.cancelled():
            one.exception()


def _read_back(body: bytes) -> None:
    for name in ("_add_flows", "_add_groups", "_add_meters"):
        readback = Readback()
        with suppress(MalformedMessage):
            getattr(readback, name)(body)
        if readback.flows:
            readback.pipeline_changes()
        readback.inventory()
        readback.installed()
        count(readback.flows, {}, {})


def _routes(body: bytes) -> None:
    for family in (4, 6):
        for reader in (RouteReader(family, {}), RouteCounter(family, RouteCounts())):
            with suppress(MalformedMessage):
                reader.add(body)


_READERS = (
    _read_back,
    _routes,
    codec.decode_packet_in,
    messages.decode_table_sizes,
    messages.decode_meter_counts,
    messages.decode_meters,
    messages.decode_ports,
    messages.decode_port_status,
    messages.decode_features,
    messages.decode_error,
)
logging.disable()
_loop = asyncio.new_event_loop()


def seeds() -> list[bytes]:
    """A greeting with an echo, a packet-in and an error; flows and groups of ours."""
    hello = codec.message(Type.HELLO, 1)
    features = codec.message(Type.FEATURES_REPLY, 4, bytes(24))
    echo, error = codec.message(Type.ECHO_REQUEST, 9, b"x"), codec.message(Type.ERROR, 3, b"\0\1\0\5" + bytes(8))
    packet_in = codec.message(Type.PACKET_IN, 0, bytes(16) + b"\0\1\0\4" + bytes(6) + bytes(60))
    port = codec.message(Type.PORT_STATUS, 0, bytes(8) + bytes(64))
    part = codec.message(Type.MULTIPART_REPLY, 5, bytes(8))
    flows = [codec.flow_mod(codec.Command.ADD, flow, 1)[8:] for flow in list(static_flows())[:4]]
    stats = [_as_statistics(flow) for flow in list(static_flows())[:6]]
    group = codec.Group(1, codec.GroupType.INDIRECT, ()) if hasattr(codec.GroupType, "INDIRECT") else None
    described = [] if group is None else [b"\0" + _described(group)]
    return [
        hello + features + echo + error + packet_in + port + part,
        *(b"\0" + one for one in stats),
        *described,
        *(b"\0" + one for one in flows),
    ]


def _as_statistics(flow: codec.Flow) -> bytes:
    mod = codec.flow_mod(codec.Command.ADD, flow, 1)
    match = mod[8 + 40 :]  # the match and the instructions of a flow-mod are those of flow statistics
    head = (56 - 8 + len(match)).to_bytes(2, "big") + bytes((flow.table, 0)) + bytes(8)
    return head + flow.priority.to_bytes(2, "big") + bytes(10) + flow.cookie.to_bytes(8, "big") + bytes(16) + match


def _described(group: codec.Group) -> bytes:
    mod = codec.group_mod(codec.GroupCommand.ADD, group, 1)[8:]
    return len(mod).to_bytes(2, "big") + mod[2:]
