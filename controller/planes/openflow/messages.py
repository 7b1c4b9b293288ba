"""Messages sent or read once per connection, port or router; os-ken encodes them."""

import struct
from dataclasses import dataclass
from typing import Any

from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from controller.planes.base import PortState
from controller.planes.openflow.codec import MalformedMessage, split_entries

of13: Any = ofproto_v1_3
parser: Any = ofproto_v1_3_parser
_PROTOCOL: Any = ProtocolDesc(4)  # type: ignore[no-untyped-call]


def _encode(message: Any, xid: int) -> bytes:
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)


def hello(xid: int) -> bytes:
    """Return a Hello that offers version 1.3 alone."""
    element = parser.OFPHelloElemVersionBitmap(versions=[of13.OFP_VERSION])
    return _encode(parser.OFPHello(_PROTOCOL, [element]), xid)


def hello_failed(xid: int, text: str) -> bytes:
    """Return the error for a switch without version 1.3."""
    error = parser.OFPErrorMsg(
        _PROTOCOL, of13.OFPET_HELLO_FAILED, of13.OFPHFC_INCOMPATIBLE, text.encode("ascii", "replace")
    )
    return _encode(error, xid)


def set_config(xid: int) -> bytes:
    """Return a Set-Config: fragments as they are, packet-ins in full."""
    return _encode(parser.OFPSetConfig(_PROTOCOL, of13.OFPC_FRAG_NORMAL, of13.OFPCML_NO_BUFFER), xid)


def set_async(xid: int) -> bytes:
    """Return a Set-Async: what flows send up, and every change of a port; no flow-removed."""
    packets = 1 << of13.OFPR_ACTION
    ports = 1 << of13.OFPPR_ADD | 1 << of13.OFPPR_DELETE | 1 << of13.OFPPR_MODIFY
    return _encode(parser.OFPSetAsync(_PROTOCOL, [packets, packets], [ports, ports], [0, 0]), xid)


def role_request(xid: int, generation: int | None) -> bytes:
    """Return a request to be master under a generation id, or, without one, a question for the current id."""
    role = of13.OFPCR_ROLE_NOCHANGE if generation is None else of13.OFPCR_ROLE_MASTER
    return _encode(parser.OFPRoleRequest(_PROTOCOL, role, generation or 0), xid)


def meter_mod(xid: int, meter_id: int, rate: int, burst: int, exists: bool) -> bytes:
    """Return a meter-mod that adds or modifies a meter of ``rate`` packets per second."""
    command = of13.OFPMC_MODIFY if exists else of13.OFPMC_ADD
    bands = [parser.OFPMeterBandDrop(rate=rate, burst_size=burst)]
    return _encode(parser.OFPMeterMod(_PROTOCOL, command, _METER_FLAGS, meter_id, bands), xid)


def meter_delete(xid: int, meter_id: int) -> bytes:
    """Return a meter-mod that deletes a meter."""
    return _encode(parser.OFPMeterMod(_PROTOCOL, of13.OFPMC_DELETE, 0, meter_id, []), xid)


_METER_FLAGS = of13.OFPMF_PKTPS | of13.OFPMF_BURST
METER_ALL = struct.pack("!I4x", of13.OFPM_ALL)


_TABLE_FEATURES = struct.Struct("!HB5x32s8x8x4xI")


def decode_table_sizes(body: bytes) -> dict[int, int]:
    """Return how many entries each table has room for, from a table features reply (A.3.5.5); 0 says nothing."""
    sizes = {}
    at = 0
    while at + _TABLE_FEATURES.size <= len(body):
        length, table, _, most = _TABLE_FEATURES.unpack_from(body, at)
        if length < _TABLE_FEATURES.size:
            raise MalformedMessage("a table features reply has a wrong length")
        if most:
            sizes[table] = most
        at += length
    return sizes


_METER_STATS = struct.Struct("!IH6xIQQII")
_BAND_STATS = struct.Struct("!QQ")


@dataclass(frozen=True, slots=True)
class MeterCounts:
    """What a meter has met, and how many of these packets its first band, which drops, has taken."""

    packets: int = 0
    octets: int = 0
    dropped: int = 0


def decode_meter_counts(body: bytes) -> dict[int, MeterCounts]:
    """Return the counts of each meter, from a meter statistics reply (A.3.5.13)."""
    counts = {}
    offset = 0
    while offset + _METER_STATS.size <= len(body):
        meter_id, length, _, packets, octets, _, _ = _METER_STATS.unpack_from(body, offset)
        band = offset + _METER_STATS.size
        has_band = band + _BAND_STATS.size <= min(offset + length, len(body))
        dropped = _BAND_STATS.unpack_from(body, band)[0] if has_band else 0
        counts[meter_id] = MeterCounts(packets, octets, dropped)
        offset += max(length, _METER_STATS.size)
    return counts


def decode_meters(body: bytes) -> dict[int, tuple[int, int]]:
    """Return rate and burst by meter id from a meter configuration reply; a meter of another form has (-1, -1)."""
    meters = {}
    for entry in split_entries(body):
        _, flags, meter_id = struct.unpack_from("!HHI", entry)
        meters[meter_id] = (-1, -1)
        if flags & ~of13.OFPMF_STATS == _METER_FLAGS and len(entry) == 24:
            kind, _, rate, burst = struct.unpack_from("!HHII", entry, 8)
            if kind == of13.OFPMBT_DROP:
                meters[meter_id] = rate, burst
    return meters


_PORT = struct.Struct("!I4x6s2x16sII24x")


def decode_ports(body: bytes) -> list[PortState]:
    """Return the ports of a port description reply; ports of the switch itself are left out."""
    if len(body) % _PORT.size:
        raise MalformedMessage("a port description is cut off")
    ports = [_port(body[at : at + _PORT.size]) for at in range(0, len(body), _PORT.size)]
    return [port for port in ports if port.number <= of13.OFPP_MAX]


def decode_port_status(body: bytes) -> PortState | None:
    """Return the port of a port status message, None for a port of the switch itself."""
    if len(body) != 8 + _PORT.size:
        raise MalformedMessage("a port status has the wrong length")
    port = _port(body[8:], body[0] != of13.OFPPR_DELETE)
    return port if port.number <= of13.OFPP_MAX else None


def _port(octets: bytes, present: bool = True) -> PortState:
    number, _, name, config, state = _PORT.unpack(octets)
    up = present and not config & of13.OFPPC_PORT_DOWN and not state & of13.OFPPS_LINK_DOWN
    return PortState(number, name.rstrip(b"\0").decode("utf-8", "replace"), up, present)


_FULL = {
    (of13.OFPET_FLOW_MOD_FAILED, of13.OFPFMFC_TABLE_FULL),
    (of13.OFPET_GROUP_MOD_FAILED, of13.OFPGMFC_OUT_OF_GROUPS),
    (of13.OFPET_GROUP_MOD_FAILED, of13.OFPGMFC_OUT_OF_BUCKETS),
    (of13.OFPET_METER_MOD_FAILED, of13.OFPMMFC_OUT_OF_METERS),
    (of13.OFPET_METER_MOD_FAILED, of13.OFPMMFC_OUT_OF_BANDS),
}

_EXISTS = {
    (of13.OFPET_GROUP_MOD_FAILED, of13.OFPGMFC_GROUP_EXISTS),
    (of13.OFPET_METER_MOD_FAILED, of13.OFPMMFC_METER_EXISTS),
}
_UNKNOWN = {
    (of13.OFPET_GROUP_MOD_FAILED, of13.OFPGMFC_UNKNOWN_GROUP),
    (of13.OFPET_METER_MOD_FAILED, of13.OFPMMFC_UNKNOWN_METER),
}


@dataclass(frozen=True, slots=True)
class SwitchError:
    """What a switch said about one message."""

    type: int
    code: int

    @property
    def full(self) -> bool:
        """Whether it refused for want of room."""
        return (self.type, self.code) in _FULL

    def leaves(self, existed: bool) -> bool:
        """Whether the group or meter of a refused message is there, which ``existed`` before as far as was known."""
        said = self.type, self.code
        return said in _EXISTS or (existed and said not in _UNKNOWN)

    @property
    def text(self) -> str:
        """The specification's names for it."""
        kind = of13.ofp_error_type_to_str(self.type)
        return f"{kind}: {of13.ofp_error_code_to_str(self.type, self.code)}"


@dataclass(frozen=True, slots=True)
class Features:
    """What a switch says about itself."""

    datapath_id: int
    tables: int
    auxiliary: int


def decode_features(body: bytes) -> Features:
    """Decode a features reply (A.3.1)."""
    if len(body) != 24:
        raise MalformedMessage("a features reply has the wrong length")
    datapath_id, _, tables, auxiliary = struct.unpack_from("!QIBB", body)
    return Features(datapath_id, tables, auxiliary)


def decode_error(body: bytes) -> SwitchError:
    """Decode an error message (A.4.4)."""
    if len(body) < 4:
        raise MalformedMessage("an error message is cut off")
    return SwitchError(*struct.unpack_from("!HH", body))


def hello_has_version(version: int, body: bytes) -> bool:
    """Whether a Hello leads to version 1.3 (A.5.1): by its bitmap, or by its version where it has none."""
    at = 0
    while at + 4 <= len(body):
        kind, size = struct.unpack_from("!HH", body, at)
        if kind == of13.OFPHET_VERSIONBITMAP and size >= 8 and at + 8 <= len(body):
            (bitmap,) = struct.unpack_from("!I", body, at + 4)
            return bool(bitmap >> of13.OFP_VERSION & 1)
        at += (max(size, 4) + 7) & ~7
    return bool(version >= of13.OFP_VERSION)
