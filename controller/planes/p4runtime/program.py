"""The contract's entries as rows of the P4 tables, and back. Pure: nothing here touches a socket.

    entry            rows, each an entry of the table of that name in p4src                    also told by
    policer          policer for each class with a rate (meter) · reason: every drop, every punt of such a class
    router interface router_interface · router_interface_egress · l3_admit for each MAC · interface_classifier
                     with a fallback link: fallback_link · interface_classifier (set_egress_router_interface)
    nexthop          nexthop
    nexthop group    nexthop_group (one-shot)

A row is kept as its key, the table's name with the values of the match fields, and its content, a TableEntry in
canonical form. Notes travel in `TableEntry.metadata`, which a device keeps and returns: the `vrf_id` of a router
interface (its classifier entry, which has it too, exists only while it is enabled), the place of a MAC among its
MACs, and the watch ports of a group's members. P4Runtime's own `watch_port` is not used: BMv2 divides by zero, and
ends, when a packet meets a group all of whose ports are down. The controller takes members out instead.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from finsy.proto import p4r

from controller.planes.base import (
    DROP_OF_CODE,
    FallbackLink,
    GroupMember,
    Nexthop,
    NexthopGroup,
    NexthopState,
    Policer,
    PuntClass,
    PuntReason,
    RouterInterface,
    burst,
)
from controller.planes.p4runtime.p4info import Schema, Table, canonical
from controller.planes.punt_class import CLASSES_OF

RowKey = tuple[str, tuple[int, ...]]  # table, values of its match fields
Owner = tuple[str, int]  # an entry of the contract: ("router_interface", 7); ("policer", vrf_id)

_WATCH_PORT = struct.Struct("!I")

NOBODY = 0
"""The `vrf_id` of packets that are no router's; the plane itself keeps their rows."""

SMALL_TABLES = (
    "policer",
    "reason",
    "router_interface",
    "router_interface_egress",
    "fallback_link",
    "l3_admit",
    "interface_classifier",
    "nexthop",
    "nexthop_group",
)

_NEXTHOP_ACTION = {
    NexthopState.FORWARD: "set_neighbor",
    NexthopState.GLEAN: "glean_neighbor",
    NexthopState.DROP: "neighbor_failed",
}
_STATE_OF_ACTION = {action: state for state, action in _NEXTHOP_ACTION.items()}
_WAY_IN, _WAY_BACK = "set_router_interface", "set_egress_router_interface"
_VRF_BITS, _PLACE_BITS = 32, 8  # of the notes
NO_VALUES: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Row:
    """An entry of a P4 table."""

    key: RowKey
    content: bytes


def _number(octets: bytes) -> int:
    return int.from_bytes(octets, "big")


class Program:
    """Makes and reads rows by the names of a P4Info."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._tables = {name: schema.table(name) for name in SMALL_TABLES}
        self._name_of = {table.id: name for name, table in self._tables.items()}

    # -- rows of entries ---------------------------------------------------------------------------------------------
    def _row(
        self,
        table: str,
        key: tuple[int, ...],
        action: p4r.TableAction,
        meter: p4r.MeterConfig | None = None,
        note: bytes = b"",
    ) -> Row:
        each = self._tables[table]
        entry = p4r.TableEntry(
            table_id=each.id, match=each.exact_match(key), action=action, meter_config=meter, metadata=note
        )
        return Row((table, key), entry.SerializeToString(deterministic=True))

    def _plain(
        self, table: str, key: tuple[int, ...], action: str, values: Mapping[str, int] = NO_VALUES, note: bytes = b""
    ) -> Row:
        message = self._tables[table].actions[action].message(values)
        return self._row(table, key, p4r.TableAction(action=message), note=note)

    def egress_rows(self, interface: RouterInterface) -> list[Row]:
        """Return the rows by which packets leave: by the interface, and from it to the fallback plane."""
        port = {"port": interface.port, "vlan_id": interface.vlan, "mtu": min(interface.mtu, 0xFFFF)}
        note = canonical(interface.vrf_id, _VRF_BITS)
        rows = [
            self._plain("router_interface", (interface.id,), "set_port", port, note),
            self._plain("router_interface_egress", (interface.id,), "rewrite", {"src_mac": _number(interface.mac)}),
        ]
        if interface.fallback is not None:
            link = {"port": interface.fallback.port, "vlan_id": interface.fallback.vlan}
            rows.append(self._plain("fallback_link", (interface.id,), "send_to_fallback", link))
        return rows

    def way_back_rows(self, interface: RouterInterface) -> list[Row]:
        """Return the row by which packets that the fallback plane has routed come back, none without a link."""
        if interface.fallback is None:
            return []
        key = (interface.fallback.port, interface.fallback.vlan)
        values = {"router_interface_id": interface.id, "vrf_id": interface.vrf_id}
        return [self._plain("interface_classifier", key, _WAY_BACK, values)]

    def admit_rows(self, interface: RouterInterface) -> list[Row]:
        """Return the rows of the MACs that packets may come to; ValueError where there are too many."""
        macs = (interface.mac, *interface.virtual_macs)
        return [
            self._plain("l3_admit", (interface.id, _number(mac)), "admit", note=canonical(place, _PLACE_BITS))
            for place, mac in enumerate(macs)
        ]

    def classifier_rows(self, interface: RouterInterface) -> list[Row]:
        """Return the row by which packets come in, none for an interface that is not enabled."""
        if not interface.enabled:
            return []
        key = (interface.port, interface.vlan)
        values = {"router_interface_id": interface.id, "vrf_id": interface.vrf_id}
        return [self._plain("interface_classifier", key, _WAY_IN, values)]

    def nexthop_rows(self, nexthop: Nexthop) -> list[Row]:
        """Return the row of a nexthop."""
        values = {"router_interface_id": nexthop.router_interface_id}
        if nexthop.state is NexthopState.FORWARD:
            values["neighbor_mac"] = _number(nexthop.mac)
        return [self._plain("nexthop", (nexthop.id,), _NEXTHOP_ACTION[nexthop.state], values)]

    def group_rows(self, group: NexthopGroup) -> list[Row]:
        """Return the row of a nexthop group."""
        table = self._tables["nexthop_group"]
        member_action = table.actions["set_member_nexthop"]
        members = [
            p4r.ActionProfileAction(
                action=member_action.message({"nexthop_id": member.nexthop_id}),
                weight=member.weight,
            )
            for member in group.members
        ]
        actions = p4r.ActionProfileActionSet(action_profile_actions=members)
        note = b"".join(_WATCH_PORT.pack(member.watch_port) for member in group.members)
        return [self._row(table.name, (group.id,), p4r.TableAction(action_profile_action_set=actions), note=note)]

    def policer_rows(self, policer: Policer) -> list[Row]:
        """Return the rows of a router's policer: a class with rate 0 has none, so that none of it is punted."""
        rows = [
            self._plain("reason", (policer.vrf_id, code), "count_reason")
            for code in (*_punt_codes(policer.rates), *DROP_OF_CODE)
        ]
        for punt_class in PuntClass:
            rate = policer.rates[punt_class]
            if rate:
                size = burst(rate)
                meter = p4r.MeterConfig(cir=rate, cburst=size, pir=rate, pburst=size)
                action = self._tables["policer"].actions["police"].message(NO_VALUES)
                key = (policer.vrf_id, int(punt_class))
                rows.append(self._row("policer", key, p4r.TableAction(action=action), meter))
        return rows

    def own_rows(self) -> list[Row]:
        """Return the rows that the plane itself keeps: the drops of packets that are no router's."""
        return [self._plain("reason", (NOBODY, code), "count_reason") for code in DROP_OF_CODE]

    def key_entry(self, key: RowKey) -> p4r.TableEntry:
        """Return the entry of a key alone, as a DELETE has it."""
        table = self._tables[key[0]]
        return p4r.TableEntry(table_id=table.id, match=table.exact_match(key[1]))

    # -- reading back ------------------------------------------------------------------------------------------------
    def find_row(self, entry: p4r.TableEntry) -> tuple[Row, Owner | None] | None:
        """Return an entry as read as a row and what it belongs to, None for nothing we would write; the row itself
        is None where the entry is not even one of its table's shape."""
        table = self._tables[self._name_of[entry.table_id]]
        key = table.find_key(entry)
        if key is None:
            return None
        return Row((table.name, key), _content(entry)), self._owner(table, key, entry)

    def _owner(self, table: Table, key: tuple[int, ...], entry: p4r.TableEntry) -> Owner | None:
        if table.name in ("policer", "reason"):
            return "policer", key[0]
        if table.name in ("nexthop", "nexthop_group"):
            return table.name, key[0]
        if table.name != "interface_classifier":
            return "router_interface", key[0]
        action = table.find_action(entry.action.action)
        if action is None or action[0] not in (_WAY_IN, _WAY_BACK):
            return None
        return "router_interface", action[1]["router_interface_id"]

    def find_entry(
        self, owner: Owner, rows: Mapping[RowKey, bytes]
    ) -> RouterInterface | Nexthop | NexthopGroup | Policer | None:
        """Return the entry whose rows these are, None where they are not exactly its rows."""
        kind, entry_id = owner
        entries = {key: p4r.TableEntry.FromString(content) for key, content in rows.items()}
        try:
            guess, wanted = self._guess(kind, entry_id, entries)
        except (LookupError, ValueError):
            return None
        return guess if {row.key: row.content for row in wanted} == dict(rows) else None

    def _guess(
        self, kind: str, entry_id: int, entries: Mapping[RowKey, p4r.TableEntry]
    ) -> tuple[RouterInterface | Nexthop | NexthopGroup | Policer, list[Row]]:
        """Return what an entry has to be, and its rows. LookupError, ValueError where it can be none."""
        if kind == "router_interface":
            interface = self._guess_router_interface(entry_id, entries)
            ways_in = self.way_back_rows(interface) + self.classifier_rows(interface)
            return interface, self.egress_rows(interface) + self.admit_rows(interface) + ways_in
        if kind == "nexthop":
            nexthop = self._guess_nexthop(entry_id, entries[kind, (entry_id,)])
            return nexthop, self.nexthop_rows(nexthop)
        if kind == "nexthop_group":
            group = self._guess_group(entry_id, entries[kind, (entry_id,)])
            return group, self.group_rows(group)
        meters = (entries.get(("policer", (entry_id, int(punt_class)))) for punt_class in PuntClass)
        rates = tuple(0 if entry is None else max(1, entry.meter_config.cir) for entry in meters)
        policer = Policer(entry_id, rates)
        return policer, self.policer_rows(policer)

    def _guess_router_interface(self, interface_id: int, entries: Mapping[RowKey, p4r.TableEntry]) -> RouterInterface:
        way_out = entries["router_interface", (interface_id,)]
        port = self._values("router_interface", way_out)
        own_mac = self._values("router_interface_egress", entries["router_interface_egress", (interface_id,)])
        link = entries.get(("fallback_link", (interface_id,)))
        to_fallback = None if link is None else self._values("fallback_link", link)
        admitted = sorted(
            (_number(entry.metadata), key) for (table, key), entry in entries.items() if table == "l3_admit"
        )
        return RouterInterface(
            id=interface_id,
            vrf_id=_number(way_out.metadata),
            port=port["port"],
            vlan=port["vlan_id"],
            mac=own_mac["src_mac"].to_bytes(6, "big"),
            mtu=port["mtu"],
            virtual_macs=tuple(key[1].to_bytes(6, "big") for _, key in admitted[1:]),
            enabled=any(
                table == "interface_classifier" and self.receiver(entry) is not None
                for (table, _), entry in entries.items()
            ),
            fallback=None if to_fallback is None else FallbackLink(to_fallback["port"], to_fallback["vlan_id"]),
        )

    def _guess_nexthop(self, nexthop_id: int, entry: p4r.TableEntry) -> Nexthop:
        found = self._tables["nexthop"].find_action(entry.action.action)
        if found is None:
            raise LookupError
        name, values = found
        mac = values.get("neighbor_mac", 0).to_bytes(6, "big")
        return Nexthop(nexthop_id, values["router_interface_id"], mac, _STATE_OF_ACTION[name])

    def _guess_group(self, group_id: int, entry: p4r.TableEntry) -> NexthopGroup:
        members = []
        actions = entry.action.action_profile_action_set.action_profile_actions
        if len(entry.metadata) != _WATCH_PORT.size * len(actions):
            raise LookupError
        for each, (watch_port,) in zip(actions, _WATCH_PORT.iter_unpack(entry.metadata), strict=True):
            found = self._tables["nexthop_group"].find_action(each.action)
            if found is None or each.weight < 1:
                raise LookupError
            members.append(GroupMember(found[1]["nexthop_id"], each.weight, watch_port))
        return NexthopGroup(group_id, tuple(members))

    def _values(self, table: str, entry: p4r.TableEntry) -> dict[str, int]:
        found = self._tables[table].find_action(entry.action.action)
        if found is None:
            raise LookupError
        return found[1]

    def receiver(self, entry: p4r.TableEntry) -> int | None:
        """Return the router interface that receives what meets a classifier entry, None for a fallback link's."""
        action = self._tables["interface_classifier"].find_action(entry.action.action)
        return action[1]["router_interface_id"] if action is not None and action[0] == _WAY_IN else None


def _punt_codes(rates: Iterable[int]) -> Iterator[int]:
    punted = {one for one, rate in zip(PuntClass, rates, strict=True) if rate}
    return (int(reason) for reason in PuntReason if punted & CLASSES_OF[reason])


def _content(entry: p4r.TableEntry) -> bytes:
    """Return an entry as read in the form in which it would be written."""
    kept = p4r.TableEntry(table_id=entry.table_id, metadata=entry.metadata, priority=entry.priority)
    kept.match.extend(sorted(entry.match, key=lambda match: match.field_id))
    for match in kept.match:
        match.exact.value = _shortest(match.exact.value)
    kept.action.CopyFrom(entry.action)
    for action in _actions(kept.action):
        params = sorted(action.params, key=lambda param: param.param_id)
        del action.params[:]
        action.params.extend(params)
        for param in action.params:
            param.value = _shortest(param.value)
    if entry.HasField("meter_config"):
        kept.meter_config.CopyFrom(entry.meter_config)
    return kept.SerializeToString(deterministic=True)


def _actions(action: p4r.TableAction) -> Iterator[p4r.Action]:
    if action.HasField("action"):
        yield action.action
    for each in action.action_profile_action_set.action_profile_actions:
        yield each.action


def _shortest(octets: bytes) -> bytes:
    return octets.lstrip(b"\0") or b"\0"
