"""Shares on a device that has them, as vr-forwarder takes and tells them.

forwarder/server/shares.h:

    ExternEntry{0x82, 0x82000001, P4Data: struct{slice_id, weight, guarantee, ceiling}}
    ExternEntry{0x82, 0x82000002, P4Data: struct{vrf_id, slice_id, weight, guarantee, ceiling}}
    ExternEntry{0x82, 0x82000003, P4Data: struct{vrf_id, core_ns, over_share_packets_core, over_share_packets_link}}

The pipeline has no such externs: a device says that it has them by the name of a capability (`features.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping

from finsy.proto import p4d, p4r, rpc_code
from google.protobuf.message import DecodeError

from controller.model import Share
from controller.planes.base import Op
from controller.planes.p4runtime.channel import Channel, ChannelClosed, Problem, decoded
from controller.planes.p4runtime.messages import entities_of, request_head, update_of
from controller.planes.shares import ROUTER_SHARE, SLICE_SHARE, ShareEntries, ShareEntry, ShareKey, ShareUse

EXTERN_TYPE = 0x82
EXTERN_IDS = {SLICE_SHARE: 0x82000001, ROUTER_SHARE: 0x82000002}
USE_ID = 0x82000003

UPDATES_PER_REQUEST = 1000

_TABLES = {extern_id: table for table, extern_id in EXTERN_IDS.items()}
_NUMBERS = {EXTERN_IDS[SLICE_SHARE]: 4, EXTERN_IDS[ROUTER_SHARE]: 5, USE_ID: 4}
_NUMBER_OCTETS = 8
_ENTITIES_AT_ONCE = 100
_OTHER_OP: dict[tuple[Op, int], Op] = {
    (Op.INSERT, rpc_code.ALREADY_EXISTS): Op.MODIFY,
    (Op.MODIFY, rpc_code.NOT_FOUND): Op.INSERT,
}
_GONE_ALREADY = (Op.DELETE, rpc_code.NOT_FOUND)

_Change = tuple[Op, ShareKey, ShareEntry | None]


async def read_shares(channel: Channel) -> ShareEntries:
    """Read the shares of all routers and slices. ChannelClosed for what is no answer."""
    entries: ShareEntries = {}
    for extern_id in EXTERN_IDS.values():
        async for entity in _entities(channel, extern_id):
            key, entry = share_of(entity)
            entries[key] = entry
    return entries


async def read_share_use(channel: Channel) -> dict[int, ShareUse]:
    """Read what routers have had, by vrf_id. ChannelClosed for what is no answer."""
    use: dict[int, ShareUse] = {}
    async for entity in _entities(channel, USE_ID):
        vrf_id, had = use_of(entity)
        use[vrf_id] = had
    return use


async def write_shares(
    channel: Channel, put: Mapping[ShareKey, ShareEntry], gone: Collection[ShareKey], known: set[ShareKey]
) -> dict[ShareKey, str]:
    """Put and delete shares; ``known`` is what the device holds, as far as one knows, and follows. Where it knows
    better, an INSERT becomes a MODIFY and the other way round."""
    changes: list[_Change] = [(Op.MODIFY if key in known else Op.INSERT, key, entry) for key, entry in put.items()]
    changes += [(Op.DELETE, key, None) for key in gone]
    refused: dict[ShareKey, str] = {}
    turned: list[_Change] = []
    async for (op, key, entry), problem in _ask(channel, changes):
        other = None if problem is None else _OTHER_OP.get((op, problem.code))
        if other is None:
            _settle(op, key, problem, known, refused)
        else:
            turned.append((other, key, entry))
    async for (op, key, _), problem in _ask(channel, turned):
        _settle(op, key, problem, known, refused)
    return refused


def _settle(
    op: Op, key: ShareKey, problem: Problem | None, known: set[ShareKey], refused: dict[ShareKey, str]
) -> None:
    if problem is not None and (op, problem.code) != _GONE_ALREADY:
        refused[key] = problem.text
    elif op is Op.DELETE:
        known.discard(key)
    else:
        known.add(key)


async def _ask(channel: Channel, changes: list[_Change]) -> AsyncIterator[tuple[_Change, Problem | None]]:
    """Send changes, in as many requests as they need, and yield each with what the device says."""
    head = request_head(channel.target.device_id, channel.election_id)
    for start in range(0, len(changes), UPDATES_PER_REQUEST):
        some = changes[start : start + UPDATES_PER_REQUEST]
        updates = b"".join(update_of(op, entity_of(key, entry)) for op, key, entry in some)
        problems = await channel.write(head + updates, len(some))
        for position, change in enumerate(some):
            yield change, problems.get(position)


async def _entities(channel: Channel, extern_id: int) -> AsyncIterator[p4r.Entity]:
    wanted = p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=EXTERN_TYPE, extern_id=extern_id))
    async for response in channel.read([wanted]):
        for count, octets in enumerate(entities_of(response), 1):
            yield decoded(p4r.Entity, octets)
            if count % _ENTITIES_AT_ONCE == 0:
                await asyncio.sleep(0)


def entity_of(key: ShareKey, entry: ShareEntry | None) -> p4r.Entity:
    """Return a share as the device takes it; without an entry what names it alone."""
    table, whose = key
    numbers = [whose]
    if entry is not None:
        share = entry.share
        numbers += [entry.slice_id] if table == ROUTER_SHARE else []
        numbers += [share.weight, share.guarantee, share.ceiling]
    extern = p4r.ExternEntry(extern_type_id=EXTERN_TYPE, extern_id=EXTERN_IDS[table])
    extern.entry.Pack(p4d.P4Data(struct=p4d.P4StructLike(members=_members(numbers))))
    return p4r.Entity(extern_entry=extern)


def _members(numbers: Iterable[int]) -> Iterator[p4d.P4Data]:
    for number in numbers:
        yield p4d.P4Data(bitstring=number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big"))


def share_of(entity: p4r.Entity) -> tuple[ShareKey, ShareEntry]:
    """Return the share that an entity tells. ChannelClosed for what is none."""
    extern_id = entity.extern_entry.extern_id
    table = _TABLES.get(extern_id)
    if table is None:
        raise ChannelClosed(f"the device answered a read of shares with extern {extern_id:#x}")
    whose, *numbers = _numbers(entity, extern_id)
    slice_id = numbers.pop(0) if table == ROUTER_SHARE else 0
    return (table, whose), ShareEntry(Share(*numbers), slice_id)


def use_of(entity: p4r.Entity) -> tuple[int, ShareUse]:
    """Return the vrf_id and what an entity tells of that router. ChannelClosed for what is no such thing."""
    vrf_id, *numbers = _numbers(entity, USE_ID)
    return vrf_id, ShareUse(*numbers)


def _numbers(entity: p4r.Entity, extern_id: int) -> list[int]:
    data = p4d.P4Data()
    try:
        told = entity.extern_entry.entry.Unpack(data)
    except DecodeError as error:
        raise ChannelClosed(f"the device answered a read of shares with {error}") from error
    members = [member.bitstring for member in data.struct.members]
    if not told or len(members) != _NUMBERS[extern_id] or max(map(len, members)) > _NUMBER_OCTETS:
        raise ChannelClosed("the device answered a read of shares with something else")
    return [int.from_bytes(member, "big") for member in members]
