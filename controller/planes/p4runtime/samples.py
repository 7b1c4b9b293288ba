"""Samples of what a device routes: a clone session to the controller, which belongs to the plane and to no router.

A device whose pipeline has nothing that clones, or no such sessions, refuses it, and is not asked for more.
"""

from typing import Any

from finsy.proto import p4r

from controller.planes.base import SAMPLE_OCTETS, Op
from controller.planes.p4runtime.channel import Channel, ChannelClosed, RequestRefused, decoded
from controller.planes.p4runtime.messages import entities_of, request_head, update_of

SAMPLE_SESSION = 1
"""The number of the session (docs/forwarder.md)."""

_CPU_PORT = bytes.fromhex("fffffffd")  # SDN_PORT_CPU: P4Runtime 1.4, section 16.2


def sample_session() -> p4r.CloneSessionEntry:
    """Return the session that samples need."""
    return p4r.CloneSessionEntry(
        session_id=SAMPLE_SESSION, replicas=[p4r.Replica(port=_CPU_PORT)], packet_length_bytes=SAMPLE_OCTETS
    )


async def keep_samples(channel: Channel, wanted: bool) -> str:
    """Have the device take samples, or none; returns why it does not, in one line, or nothing.

    ChannelClosed where the device answers a read with something else.
    """
    try:
        found = await _read(channel)
    except RequestRefused as refused:
        return str(refused)
    session = sample_session()
    if not wanted:
        return "" if found is None else await _write(channel, Op.DELETE, session)
    if found == session:
        return ""
    return await _write(channel, Op.INSERT if found is None else Op.MODIFY, session)


def _entity(session: p4r.CloneSessionEntry) -> p4r.Entity:
    return p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(clone_session_entry=session))


async def _read(channel: Channel) -> Any:
    """Return the session as the device has it, None where there is none."""
    found = None
    async for response in channel.read([_entity(p4r.CloneSessionEntry(session_id=SAMPLE_SESSION))]):
        for octets in entities_of(response):
            entity = decoded(p4r.Entity, octets)
            session = entity.packet_replication_engine_entry.clone_session_entry
            if session.session_id != SAMPLE_SESSION:
                raise ChannelClosed("the device answered a read of a clone session with something else")
            found = session
    return found


async def _write(channel: Channel, op: Op, session: p4r.CloneSessionEntry) -> str:
    request = request_head(channel.target.device_id, channel.election_id) + update_of(op, _entity(session))
    problems = await channel.write(request, 1)
    return problems[0].text if problems else ""
