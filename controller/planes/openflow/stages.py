"""What a batch becomes: messages in stages, each with the update it is for. Pure, except that it keeps the inventory.

The order of the stages is drawn in `controller.planes.openflow.sender`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from controller.planes.base import (
    Op,
    Policer,
    RouterInterface,
    Update,
    WriteBatch,
    burst,
)
from controller.planes.openflow import codec, messages
from controller.planes.openflow import program as prog
from controller.planes.openflow.codec import Command, Flow, Group, GroupCommand
from controller.planes.openflow.messages import SwitchError
from controller.planes.openflow.policers import meter_rate, policer_flows
from controller.planes.openflow.program import Kind, Table
from controller.planes.openflow.readback import Inventory
from controller.planes.refusals import (
    UpdateKey,
    group_key,
    interface_key,
    nexthop_key,
    policer_key,
)

Encoder = Callable[[int], bytes]  # from a transaction id
Refuse = Callable[[UpdateKey, str, bool], None]  # why, and whether for want of room
Learn = Callable[[SwitchError], None]


class Message(NamedTuple):
    """One message of a stage: the update it is for, and what learns from its refusal."""

    update_key: UpdateKey
    encoder: Encoder
    learn: Learn | None


class Stage:
    """Messages between two barriers."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def add(self, update_key: UpdateKey, encoder: Encoder, learn: Learn | None = None) -> None:
        """Append one message."""
        self.messages.append(Message(update_key, encoder, learn))

    def add_flow(self, update_key: UpdateKey, entry: Flow) -> None:
        """Append the insertion of a flow, which replaces one of the same match with its counters."""
        self.add(update_key, lambda xid: codec.flow_mod(Command.ADD, entry, xid))

    def add_deletion(self, update_key: UpdateKey, table: Table, cookie: int, mask: int) -> None:
        """Append the deletion of a table's flows by cookie."""
        self.add(update_key, lambda xid: codec.delete_by_cookie(table, cookie, mask, xid))

    def add_group(
        self, update_key: UpdateKey, command: GroupCommand, entry: Group, learn: Learn | None = None
    ) -> None:
        """Append a group-mod."""
        self.add(update_key, lambda xid: codec.group_mod(command, entry, xid), learn)


def arrivals(inventory: Inventory, batch: WriteBatch, last: Stage, refuse: Refuse) -> Iterator[Stage]:
    """Yield the stages before the routes and fill ``last``, the one after them, by which packets come in;
    ``refuse`` is told what cannot be sent at all."""
    yield from _policers(inventory, batch.policers, refuse)
    egress, back, gone, nexthops, groups = Stage(), Stage(), Stage(), Stage(), Stage()
    for interface in batch.router_interfaces:
        update_key = interface_key(interface)
        if interface.op is Op.DELETE:
            for table in reversed(prog.INGRESS_TABLES):
                cookie = prog.cookie(Kind.ROUTER_INTERFACE, interface.entry.id)
                gone.add_deletion(update_key, table, cookie, prog.ENTRY_MASK)
            continue
        _put_interface(inventory, egress, back, last, interface)
    for nexthop in batch.nexthops:
        if nexthop.op is not Op.DELETE:
            _put_group(inventory, nexthops, nexthop_key(nexthop), prog.nexthop_group_entry(nexthop.entry))
    for group in batch.groups:
        if group.op is not Op.DELETE:
            _put_group(inventory, groups, group_key(group), prog.member_group_entry(group.entry))
    yield from (egress, back, nexthops, groups, gone)


def _put_interface(
    inventory: Inventory, egress: Stage, back: Stage, ingress: Stage, update: Update[RouterInterface]
) -> None:
    interface, update_key = update.entry, interface_key(update)
    known = (Kind.ROUTER_INTERFACE, interface.id) in inventory.generations
    generation = inventory.next_generation(Kind.ROUTER_INTERFACE, interface.id)
    for entry in prog.egress_flows(interface, generation):
        egress.add_flow(update_key, entry)
    for entry in prog.way_back_flows(interface, generation):
        back.add_flow(update_key, entry)
    for entry in prog.ingress_flows(interface, generation):
        ingress.add_flow(update_key, entry)
    if known:
        tables = (*prog.EGRESS_TABLES, *prog.INGRESS_TABLES)
        _delete_stale(ingress, update_key, tables, Kind.ROUTER_INTERFACE, interface.id, generation)


def _policers(inventory: Inventory, updates: Iterable[Update[Policer]], refuse: Refuse) -> Iterator[Stage]:
    meters, flows, unused = Stage(), Stage(), Stage()
    for update in updates:
        if update.op is Op.DELETE:
            continue
        policer, update_key = update.entry, policer_key(update)
        slot = inventory.take_slot(policer.vrf_id)
        if slot is None:
            full = f"all {inventory.layout.slots} meter slots are taken; let classes share meters (shared_meters)"
            refuse(update_key, full, True)
            continue
        for meter_id, classes in inventory.layout.meters(slot).items():
            _put_meter(inventory, meters, unused, update_key, meter_id, meter_rate(policer, classes))
        known = (Kind.POLICER, policer.vrf_id) in inventory.generations
        generation = inventory.next_generation(Kind.POLICER, policer.vrf_id)
        for entry in policer_flows(policer, slot, generation, inventory.layout):
            flows.add_flow(update_key, entry)
        if known:
            _delete_stale(flows, update_key, (Table.PACKET_IN,), Kind.POLICER, policer.vrf_id, generation)
    yield from (meters, flows, unused)


def _put_meter(
    inventory: Inventory, meters: Stage, unused: Stage, update_key: UpdateKey, meter_id: int, rate: int
) -> None:
    exists = meter_id in inventory.meters
    if rate:
        learn = _keep(inventory.meters, meter_id)
        meters.add(update_key, lambda xid: messages.meter_mod(xid, meter_id, rate, burst(rate), exists), learn)
    elif exists:
        unused.add(update_key, lambda xid: messages.meter_delete(xid, meter_id))
        inventory.meters.discard(meter_id)


def _put_group(inventory: Inventory, stage: Stage, update_key: UpdateKey, entry: Group) -> None:
    command = GroupCommand.MODIFY if entry.id in inventory.groups else GroupCommand.ADD
    stage.add_group(update_key, command, entry, _keep(inventory.groups, entry.id))


def _keep(ids: set[int], written: int) -> Learn:
    """Take the switch to have what is written; what is returned learns from a refusal whether it has."""
    existed = written in ids
    ids.add(written)

    def learn(error: SwitchError) -> None:
        if not error.leaves(existed):
            ids.discard(written)

    return learn


def has_departures(batch: WriteBatch) -> bool:
    """Whether anything of a batch has to wait for the rest of it."""
    ops = [update.op for update in batch.policers]
    ops += [update.op for update in batch.router_interfaces]
    ops += [update.op for update in batch.nexthops]
    ops += [update.op for update in batch.groups]
    return Op.DELETE in ops


def departures(inventory: Inventory, batch: WriteBatch) -> Iterator[Stage]:
    """Yield the stages of the deletes that come last."""
    groups, nexthops, egress, policers = Stage(), Stage(), Stage(), Stage()
    for group in batch.groups:
        if group.op is Op.DELETE:
            _drop_group(inventory, groups, group_key(group), prog.MEMBER_GROUPS | group.entry.id)
    for nexthop in batch.nexthops:
        if nexthop.op is Op.DELETE:
            _drop_group(inventory, nexthops, nexthop_key(nexthop), prog.NEXTHOP_GROUPS | nexthop.entry.id)
    for interface in batch.router_interfaces:
        if interface.op is Op.DELETE:
            cookie = prog.cookie(Kind.ROUTER_INTERFACE, interface.entry.id)
            inventory.generations.pop((Kind.ROUTER_INTERFACE, interface.entry.id), None)
            for table in reversed(prog.EGRESS_TABLES):
                egress.add_deletion(interface_key(interface), table, cookie, prog.ENTRY_MASK)
    for policer in batch.policers:
        if policer.op is Op.DELETE:
            _drop_policer(inventory, policers, policer)
    yield from (groups, nexthops, egress, policers)


def _drop_group(inventory: Inventory, stage: Stage, update_key: UpdateKey, group_id: int) -> None:
    inventory.groups.discard(group_id)
    stage.add_group(update_key, GroupCommand.DELETE, Group(group_id, 0, ()))


def _drop_policer(inventory: Inventory, stage: Stage, update: Update[Policer]) -> None:
    vrf_id, update_key = update.entry.vrf_id, policer_key(update)
    inventory.generations.pop((Kind.POLICER, vrf_id), None)
    stage.add_deletion(update_key, Table.PACKET_IN, prog.cookie(Kind.POLICER, vrf_id), prog.ENTRY_MASK)
    slot = inventory.slots.pop(vrf_id, None)
    for meter_id in () if slot is None else inventory.layout.meters(slot):
        if meter_id in inventory.meters:
            inventory.meters.discard(meter_id)
            stage.add(update_key, lambda xid, meter_id=meter_id: messages.meter_delete(xid, meter_id))  # type: ignore[misc]


def _delete_stale(
    stage: Stage, update_key: UpdateKey, tables: Iterable[Table], kind: Kind, entry_id: int, generation: int
) -> None:
    for table in tables:
        for cookie, mask in prog.stale_cookies(kind, entry_id, generation):
            stage.add_deletion(update_key, table, cookie, mask)
