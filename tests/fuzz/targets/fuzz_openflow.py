"""What a switch, or who claims to be one, says over OpenFlow: a connection from Hello on, and what is read back.

input: octets of the connection; and, read as the parts of multipart replies, each of their readers.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from controller.planes.base import RouteCounts
from controller.planes.openflow import codec, messages
from controller.planes.openflow.channel import Channel, ChannelClosed
from controller.planes.openflow.codec import MalformedMessage, Multipart, Type
from controller.planes.openflow.pipeline import static_flows
from controller.planes.openflow.plane import OpenFlowPlane
from controller.planes.openflow.policers import MeterLayout
from controller.planes.openflow.readback import Readback, count
from controller.planes.openflow.routes import RouteCounter, RouteReader
from controller.planes.openflow.server import OpenFlowListener

INSTRUMENTED = ("controller.planes.openflow",)
_LIMIT_S = 10
_TURNS = 6  # of the loop after each message: who waited for it asks the next thing


class _Transport:
    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass

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
    channel = Channel(reader, _Writer(), 60, 60)  # type: ignore[arg-type]
    ended = asyncio.create_task(channel.run())
    served = asyncio.create_task(_serve(channel, ended))
    for message in _split(octets):
        reader.feed_data(message)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    reader.feed_eof()
    async with asyncio.timeout(_LIMIT_S):
        await served
        await ended


async def _serve(channel: Channel, ended: "asyncio.Task[str]") -> None:
    """Do with a connection what the listener does."""
    plane = OpenFlowPlane("s1", 1, OpenFlowListener("127.0.0.1", 0))
    with suppress(ChannelClosed):
        await channel.greet(_LIMIT_S)
        await plane.serve(channel, ended)


def _split(octets: bytes) -> Iterator[bytes]:
    """Cut at the ends of messages, so that each answers what was asked after the one before."""
    at = 0
    while at < len(octets):
        size = max(8, int.from_bytes(octets[at + 2 : at + 4], "big"))
        yield octets[at : at + size]
        at += size


def _read_back(body: bytes) -> None:
    asyncio.run(_sort(body))


async def _sort(body: bytes) -> None:
    for name in ("_add_flows", "_add_groups", "_add_meters"):
        readback = Readback(MeterLayout())
        with suppress(MalformedMessage):
            getattr(readback, name)(body)
        if readback.flows:
            await readback.pipeline_changes()
        await readback.installed()
        await count(readback.flows, await readback.inventory(), {})


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
    features = codec.message(Type.FEATURES_REPLY, 2, (1).to_bytes(8, "big") + bytes(16))
    roles = b"".join(codec.message(Type.ROLE_REPLY, xid, bytes(16)) for xid in (5, 6))
    ports = codec.message(Type.MULTIPART_REPLY, 7, Multipart.PORT_DESC.to_bytes(2, "big") + bytes(6) + bytes(64))
    refused = b"".join(codec.message(Type.ERROR, xid, b"\0\1\0\5" + bytes(8)) for xid in (8, 9))
    lists = b"".join(codec.message(Type.MULTIPART_REPLY, xid, b"\0\1" + bytes(6)) for xid in range(10, 20))
    set_up = hello + features + roles + ports + refused + lists
    echo, error = codec.message(Type.ECHO_REQUEST, 9, b"x"), codec.message(Type.ERROR, 3, b"\0\1\0\5" + bytes(8))
    packet_in = codec.message(Type.PACKET_IN, 0, bytes(16) + b"\0\1\0\4" + bytes(6) + bytes(60))
    port = codec.message(Type.PORT_STATUS, 0, bytes(8) + bytes(64))
    part = codec.message(Type.MULTIPART_REPLY, 5, bytes(8))
    flows = [codec.flow_mod(codec.Command.ADD, flow, 1)[8:] for flow in list(static_flows())[:4]]
    stats = [_as_statistics(flow) for flow in list(static_flows())[:6]]
    bucket = codec.Bucket(codec.output(1))
    groups = [
        codec.Group(1, codec.GroupType.INDIRECT, (bucket,)),
        codec.Group(2, codec.GroupType.SELECT, (bucket,) * 2),
    ]
    return [
        set_up,
        hello + features + echo + error + packet_in + port + part,
        *(b"\0" + one for one in stats),
        *(b"\0" + _described(group) for group in groups),
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
