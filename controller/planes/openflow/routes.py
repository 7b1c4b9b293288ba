"""Routes as flow-mods and flow statistics as routes: the two hot paths of this plane.

A flow-mod of a route is seven pieces, of which only the transaction id and the address are its own; the others depend
on operation, prefix length and action, and are kept:

    │ bundle-add: version, type, length │ xid │ experimenter, flags, flow-mod: version, type, length │ xid │
    │ cookie … priority, match up to the address │ address │ mask, padding, instructions │

A flow read back is cut around its address the same way: what is left of it is one of few values and names the VRF,
the prefix length and the action.

A switch answers a request for flows in one go, and Open vSwitch forwards nothing meanwhile. So the lowest bits of a
route's cookie hold a share that its address gives, and routes are read share by share.
"""

import struct
from collections.abc import Iterable

from controller.planes.base import FALLBACK, Op, RouteCounts, RouteTraffic, RouteUpdates
from controller.planes.openflow import codec
from controller.planes.openflow.codec import METADATA_VRF, Command, Oxm, oxm
from controller.planes.openflow.program import (
    OWNER,
    OWNER_MASK,
    ROUTE_PRIORITY,
    ROUTE_TABLE,
    Kind,
    cookie,
    cookie_id,
    cookie_is_ours,
    cookie_kind,
    find_route_action,
    route_instructions,
)
from wire.columns import ADDRESS_BYTES, mask

_COMMANDS = {
    Op.INSERT: (Command.ADD, 0),
    Op.MODIFY: (Command.MODIFY_STRICT, OWNER_MASK),
    Op.DELETE: (Command.DELETE_STRICT, OWNER_MASK),
}
_ETHERTYPE = {4: 0x0800, 6: 0x86DD}
_DESTINATION = {4: Oxm.IPV4_DST, 6: Oxm.IPV6_DST}
_XID = struct.Struct("4s")
_MAX_KEPT = 1 << 16  # combinations, each a few hundred octets

SHARES = 16
SHARE_MASK = SHARES - 1
SHARE_AT = {4: (1, 2), 6: (4, 5)}  # octets of an address that differ most between the routes of one table

_Pieces = tuple[bytes, bytes, bytes, bytes]


class RouteEncoder:
    """Encodes the routes of one VRF and family."""

    def __init__(self, vrf_id: int, family: int) -> None:
        self._vrf_id, self._family = vrf_id, family
        self._kept: dict[tuple[Op, int, int, int], _Pieces | None] = {}

    def encode(
        self, updates: RouteUpdates, positions: range, first_xid: int, bundled: bool
    ) -> tuple[bytes, list[int]]:
        """Return the messages for the updates at ``positions``, xids counted from ``first_xid`` in their order, and
        the positions whose action this plane does not know, which are left out."""
        parts: list[bytes] = []
        unknown: list[int] = []
        kept, ops, keys, actions = self._kept, updates.ops, updates.keys, updates.actions
        first, second = SHARE_AT[self._family]
        xids = struct.pack(f"!{len(positions)}I", *range(first_xid, first_xid + len(positions)))
        for (xid,), position in zip(_XID.iter_unpack(xids), positions, strict=True):
            op, key, action = ops[position], keys[position], actions[position]
            share = (key[first] ^ key[second]) & SHARE_MASK
            try:
                pieces = kept[op, key[-1], action, share]
            except KeyError:
                pieces = self._keep(op, key[-1], action, share)
            if pieces is None:
                unknown.append(position)
            elif bundled:
                outer, between, head, tail = pieces
                parts += (outer, xid, between, xid, head, key[:-1], tail)
            else:
                parts += (pieces[1][-4:], xid, pieces[2], key[:-1], pieces[3])
        return b"".join(parts), unknown

    def _keep(self, op: Op, length: int, action: int, share: int) -> _Pieces | None:
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        pieces = self._kept[op, length, action, share] = self._cut(op, length, action, share)
        return pieces

    def _cut(self, op: Op, length: int, action: int, share: int) -> _Pieces | None:
        """Cut one flow-mod at its xids and its address; None where the action is not known."""
        instructions = b"" if op is Op.DELETE else route_instructions(action)
        if instructions is None:
            return None
        command, cookie_mask = _COMMANDS[op]
        table, mark = ROUTE_TABLE[self._family], cookie(Kind.ROUTE, self._vrf_id, share)
        fixed = codec.flow_mod_fixed(
            command, table, ROUTE_PRIORITY + length, OWNER if cookie_mask else mark, cookie_mask
        )
        size = ADDRESS_BYTES[self._family]
        tlvs = (
            oxm(Oxm.METADATA, self._vrf_id << 32, METADATA_VRF)
            + oxm(Oxm.ETH_TYPE, _ETHERTYPE[self._family])
            + oxm(_DESTINATION[self._family], bytes(size), mask(self._family, length))
        )
        match_size = 4 + len(tlvs)
        match = (struct.pack("!HH", 1, match_size) + tlvs).ljust((match_size + 7) & ~7, b"\0")
        inner = codec.message(codec.Type.FLOW_MOD, 0, fixed + match + instructions)
        outer = codec.message(codec.Type.EXPERIMENTER, 0, codec.BUNDLE_ADD_HEAD + inner)
        address_at = 8 + len(fixed) + match_size - 2 * size
        between = codec.BUNDLE_ADD_HEAD + inner[:4]
        return outer[:4], between, inner[8:address_at], inner[address_at + size :]


class RouteReader:
    """Collects the routes of one route table from flow statistics."""

    def __init__(self, family: int, routes: dict[int, dict[bytes, int]]) -> None:
        self._family, self._routes = family, routes
        self._size = ADDRESS_BYTES[family]
        self._headers = [(_DESTINATION[family] | masked).to_bytes(4, "big")[:3] for masked in (0, 0x100)]
        self._known: dict[bytes, tuple[dict[bytes, int], bytes, int]] = {}
        self.foreign = 0

    def add(self, body: bytes) -> None:
        """Take one part of a flow statistics reply; MalformedMessage where its entries do not fit."""
        known, end = self._known, 62 + self._size
        at, total = 0, len(body)
        while at < total:
            length = body[at] << 8 | body[at + 1] if at + 1 < total else 0
            if length < 56 or at + length > total:
                raise codec.MalformedMessage("a flow entry does not fit its message")
            entry = body[at : at + length]
            at += length
            # Open vSwitch writes a match in the order EtherType, address, metadata: the address stands at 62. Should
            # it not, then no cut is kept and every entry is decoded in full.
            found = known.get(entry[12:32] + entry[48:62] + entry[end:])
            if found is None:
                self._decode(entry)
            else:
                found[0][entry[62:end] + found[1]] = found[2]

    def _decode(self, entry: bytes) -> None:
        flow = codec.decode_flow(entry).flow
        if not cookie_is_ours(flow.cookie):
            self.foreign += 1
            return
        if cookie_kind(flow.cookie) == Kind.STATIC:
            return
        vrf_id = cookie_id(flow.cookie)
        key = self._key(vrf_id, flow)
        if key is None:
            self.foreign += 1  # our cookie on what is no route: somebody else's doing
            return
        action = find_route_action(flow.instructions)
        routes = self._file(vrf_id, key, action, entry)
        end = 62 + self._size
        if entry[58:61] in self._headers and entry[62:end] == key[:-1]:
            if len(self._known) >= _MAX_KEPT:
                self._known.clear()
            self._known[entry[12:32] + entry[48:62] + entry[end:]] = routes, key[-1:], action

    def _file(self, vrf_id: int, key: bytes, action: int, _entry: bytes) -> dict[bytes, int]:
        """Take one route, and return where others are kept that differ in their address alone."""
        routes = self._routes.setdefault(vrf_id, {})
        routes[key] = action
        return routes

    def _key(self, vrf_id: int, flow: codec.Flow) -> bytes | None:
        """Return the prefix key of a flow, None where it is not exactly a route of its VRF."""
        fields = codec.oxm_fields(flow.match)
        address, netmask = fields.pop(_DESTINATION[self._family], (bytes(self._size), bytes(self._size)))
        length = self._size * 8 if netmask is None else int.from_bytes(netmask, "big").bit_count()
        expected: Iterable[tuple[int, tuple[bytes, bytes | None]]] = (
            (Oxm.METADATA, ((vrf_id << 32).to_bytes(8, "big"), METADATA_VRF.to_bytes(8, "big"))),
            (Oxm.ETH_TYPE, (_ETHERTYPE[self._family].to_bytes(2, "big"), None)),
        )
        exact = netmask is None or netmask == mask(self._family, length)
        if exact and fields == dict(expected) and flow.priority == ROUTE_PRIORITY + length:
            return address + bytes((length,))
        return None


class RouteCounter(RouteReader):
    """Collects what the routes of one route table have met from the same flow statistics."""

    def __init__(self, family: int, counts: RouteCounts) -> None:
        super().__init__(family, {})
        self._counts = counts

    def add(self, body: bytes) -> None:
        """Take one part of a flow statistics reply; MalformedMessage where its entries do not fit."""
        known, end = self._known, 62 + self._size
        for entry in codec.split_entries(body):
            found = known.get(entry[12:32] + entry[48:62] + entry[end:])
            if found is None:
                self._decode(entry)
            else:
                found[0][entry[62:end] + found[1]] = _packets(entry)

    def _file(self, vrf_id: int, key: bytes, action: int, entry: bytes) -> dict[bytes, int]:
        into = self._counts.covers if action == FALLBACK else self._counts.routes
        counts = into.setdefault(vrf_id, {})
        counts[key] = _packets(entry)
        return counts


class TrafficReader(RouteReader):
    """Collects what the routes of one router have met, packets and octets, from the flow statistics of one table."""

    def __init__(self, family: int, vrf_id: int, traffic: RouteTraffic) -> None:
        super().__init__(family, {})
        self._vrf_id, self._traffic = vrf_id, traffic

    def add(self, body: bytes) -> None:
        """Take one part of a flow statistics reply; MalformedMessage where its entries do not fit."""
        for each in map(codec.decode_flow, codec.split_entries(body)):
            ours = cookie_is_ours(each.flow.cookie) and cookie_kind(each.flow.cookie) == Kind.ROUTE
            key = self._key(self._vrf_id, each.flow) if ours and cookie_id(each.flow.cookie) == self._vrf_id else None
            if key is not None and find_route_action(each.flow.instructions) != FALLBACK:
                self._traffic[key] = each.packets, each.octets


def _packets(entry: bytes) -> int:
    """Return the packet count of a flow statistics entry (OpenFlow 1.3, section 7.3.5.2)."""
    return int.from_bytes(entry[32:40], "big")
