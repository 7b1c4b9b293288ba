"""Routes as updates of a WriteRequest and ReadResponses as routes: the two hot paths of this plane.

An update of a route is protobuf's own encoding, made once for each operation, prefix length and action, and cut at
the address, which alone differs:

    │ updates: tag, length │ type │ table_id, match: vrf_id, match: lpm, value: │ address │ prefix_len, action │

The value is canonical, so an address with leading zero octets is a shorter one; a prefix of length 0 has no lpm match
at all (P4Runtime 1.4, section 9.1.1). An entry read back is cut around its address the same way: what is left of it
is one of few values and names the VRF, the prefix length and the action.
"""

from collections.abc import Callable, Iterable

from finsy.proto import p4r

from controller.planes import base
from controller.planes.base import ROUTE_TABLE_NAME, Op, RouteCounts, RouteKind, RouteTraffic, route_action
from controller.planes.p4runtime.channel import ChannelClosed, decoded
from controller.planes.p4runtime.messages import update_of
from controller.planes.p4runtime.p4info import Field, Schema, Table
from wire.columns import ADDRESS_BYTES, mask

_MAX_KEPT = 1 << 16  # combinations, each some 60 octets

_PLAIN_ACTION = {
    base.LOCAL: "punt_local",
    base.GLEAN: "punt_glean",
    base.UNREACHABLE: "punt_unreachable",
    base.BLACKHOLE: "blackhole",
    base.FALLBACK: "fallback",
}
_PLAIN_OF_NAME = {name: action for action, name in _PLAIN_ACTION.items()}
_OBJECT_ACTION = {
    RouteKind.NEXTHOP: ("set_nexthop", "nexthop_id"),
    RouteKind.GROUP: ("set_nexthop_group", "nexthop_group_id"),
}
_OBJECT_OF_NAME = {name: (kind, param) for kind, (name, param) in _OBJECT_ACTION.items()}

Objection = Callable[[int], str | None]
"""Tells why a route may not have an action now, None where it may."""


def _route_fields(table: Table, family: int) -> tuple[Field, Field]:
    return table.fields["vrf_id"], table.fields[f"ipv{family}_dst"]


class RouteEncoder:
    """Encodes the routes of one VRF and family; `forget` when what ``objection`` says may have changed."""

    def __init__(self, schema: Schema, vrf_id: int, family: int, objection: Objection) -> None:
        self._table = schema.table(ROUTE_TABLE_NAME[family])
        self._vrf_id, self._family, self._objection = vrf_id, family, objection
        self._kept: dict[tuple[Op, int, int, int], tuple[bytes, bytes]] = {}

    def forget(self) -> None:
        """Ask anew for each action."""
        self._kept.clear()

    def encode(self, ops: list[Op], keys: list[bytes], actions: list[int]) -> tuple[bytes, dict[int, str]]:
        """Return the updates of a WriteRequest, and the positions that are left out with the reason why."""
        parts: list[bytes] = []
        left_out: dict[int, str] = {}
        kept = self._kept
        for position, (op, key, action) in enumerate(zip(ops, keys, actions, strict=True)):
            address = key[:-1] if key[0] else key[:-1].lstrip(b"\0") or b"\0"
            try:
                head, tail = kept[op, key[-1], action, len(address)]
            except KeyError:
                reason = None if op is Op.DELETE else self._objection(action)
                if reason is not None:
                    left_out[position] = reason
                    continue
                head, tail = self._keep(op, key[-1], action, len(address))
            parts += (head, address, tail) if key[-1] else (head,)
        return b"".join(parts), left_out

    def _keep(self, op: Op, length: int, action: int, octets: int) -> tuple[bytes, bytes]:
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        pieces = self._kept[op, length, action, octets] = self._cut(op, length, action, octets)
        return pieces

    def _cut(self, op: Op, length: int, action: int, octets: int) -> tuple[bytes, bytes]:
        """Cut one update at its address."""
        vrf, destination = _route_fields(self._table, self._family)
        match = [p4r.FieldMatch(field_id=vrf.id, exact=p4r.FieldMatch.Exact(value=vrf.octets(self._vrf_id)))]
        if length:
            prefix = p4r.FieldMatch.LPM(value=bytes(octets), prefix_len=length)
            match.append(p4r.FieldMatch(field_id=destination.id, lpm=prefix))
        behind = p4r.TableEntry() if op is Op.DELETE else p4r.TableEntry(action=self._action(action))
        entry = p4r.TableEntry(table_id=self._table.id, match=match)
        entry.MergeFrom(behind)
        framed = update_of(op, entry)
        if not length:
            return framed, b""
        end = len(framed) - behind.ByteSize() - p4r.FieldMatch.LPM(prefix_len=length).ByteSize()
        return framed[: end - octets], framed[end:]

    def _action(self, action: int) -> p4r.TableAction:
        name, values = _PLAIN_ACTION.get(action), {}
        if name is None:
            name, param = _OBJECT_ACTION[base.action_kind(action)]
            values = {param: base.action_value(action)}
        return p4r.TableAction(action=self._table.actions[name].message(values))


def is_route_action(action: int) -> bool:
    """Tell whether this plane's routes can have an action."""
    return action in _PLAIN_ACTION or action >> 28 in _OBJECT_ACTION


class RouteReader:
    """Collects the routes of one route table from ReadResponses."""

    def __init__(self, schema: Schema, family: int, routes: dict[int, dict[bytes, int]]) -> None:
        self._table = schema.table(ROUTE_TABLE_NAME[family])
        self._family, self._routes = family, routes
        self._size = ADDRESS_BYTES[family]
        vrf, _ = _route_fields(self._table, family)
        match = p4r.FieldMatch(field_id=vrf.id, exact=p4r.FieldMatch.Exact(value=b"\xff"))
        entry = p4r.TableEntry(table_id=self._table.id, match=[match])
        # The octet that says how long the vrf_id is; from its end to the address there are four tags with a length
        # or number each: match, field_id, lpm, value.
        self._vrf_size_at = p4r.Entity(table_entry=entry).ByteSize() - 2
        self._to_address = 1 + 8
        self._known: dict[bytes, tuple[dict[bytes, int], bytes, int]] = {}
        self.foreign = 0

    def add(self, entities: Iterable[bytes]) -> None:
        """Take some entities of a ReadResponse; ChannelClosed where one is no entry of this table."""
        known, size, vrf_size_at, to_address = self._known, self._size, self._vrf_size_at, self._to_address
        for entity in entities:
            # The address is here if every length is one octet and all fields come in their order. Where they do not,
            # no cut is kept and every entry is decoded in full.
            start = vrf_size_at + to_address + (entity[vrf_size_at] if len(entity) > vrf_size_at else 0)
            end = start + size
            found = known.get(entity[:start] + entity[end:])
            if found is None:
                self._decode(entity, start)
            else:
                found[0][entity[start:end] + found[1]] = found[2]

    def count(self, entities: Iterable[bytes], counts: RouteCounts) -> None:
        """Take what routes have met instead; ChannelClosed as for `add`. A count makes each entry differ from others,
        so all are decoded in full."""
        for entity in entities:
            entry = self._entry(entity)
            found = self._find_prefix(entry)
            if found is not None:
                into = counts.covers if self._find_action(entry.action) == base.FALLBACK else counts.routes
                into.setdefault(found[0], {})[found[1]] = entry.counter_data.packet_count

    def traffic(self, entities: Iterable[bytes], vrf_id: int, traffic: RouteTraffic) -> None:
        """Take what the routes of one router have met; ChannelClosed as for `add`."""
        for entity in entities:
            entry = self._entry(entity)
            found = self._find_prefix(entry)
            if found is not None and found[0] == vrf_id and self._find_action(entry.action) != base.FALLBACK:
                traffic[found[1]] = entry.counter_data.packet_count, entry.counter_data.byte_count

    def _entry(self, octets: bytes) -> p4r.TableEntry:
        entry = decoded(p4r.Entity, octets).table_entry
        if entry.table_id != self._table.id:
            raise ChannelClosed(f"the device answered a read of {self._table.name} with something else")
        return entry

    def _decode(self, octets: bytes, start: int) -> None:
        entry = self._entry(octets)
        found = self._find_prefix(entry)
        if found is None:
            self.foreign += 1
            return
        vrf_id, key = found
        routes, action = self._routes.setdefault(vrf_id, {}), self._find_action(entry.action)
        routes[key] = action
        end = start + self._size
        if key[-1] and octets[start - 1] == self._size and octets[start:end] == key[:-1]:
            if len(self._known) >= _MAX_KEPT:
                self._known.clear()
            self._known[octets[:start] + octets[end:]] = routes, key[-1:], action

    def _find_prefix(self, entry: p4r.TableEntry) -> tuple[int, bytes] | None:
        """Return the vrf_id and prefix key of an entry, None where it is not exactly a route."""
        vrf, destination = _route_fields(self._table, self._family)
        matches = {match.field_id: match for match in entry.match}
        prefix = matches.pop(destination.id, p4r.FieldMatch(lpm=p4r.FieldMatch.LPM()))
        if matches.keys() != {vrf.id} or not matches[vrf.id].HasField("exact") or not prefix.HasField("lpm"):
            return None
        address, length = int.from_bytes(prefix.lpm.value, "big"), prefix.lpm.prefix_len
        if not 0 <= length <= self._size * 8 or address >> self._size * 8:
            return None
        octets = address.to_bytes(self._size, "big")
        if address & ~int.from_bytes(mask(self._family, length), "big"):
            return None
        return int.from_bytes(matches[vrf.id].exact.value, "big"), octets + bytes((length,))

    def _find_action(self, message: p4r.TableAction) -> int:
        """Return a route's action, UNKNOWN_ACTION where we would not write it."""
        found = self._table.find_action(message.action)
        if found is None:
            return base.UNKNOWN_ACTION
        name, values = found
        if name in _PLAIN_OF_NAME:
            return _PLAIN_OF_NAME[name]
        kind, param = _OBJECT_OF_NAME.get(name, (None, ""))
        value = values.get(param, 0)
        return base.UNKNOWN_ACTION if kind is None or value > base.MAX_OBJECT_ID else route_action(kind, value)
