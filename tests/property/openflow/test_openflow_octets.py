"""Any octets as the body of a message of a switch."""

import contextlib
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from os_ken.ofproto import ofproto_v1_3 as of13

from controller.planes.openflow import codec, messages
from controller.planes.openflow.codec import MalformedMessage

quick = settings(max_examples=40, deadline=None)

DECODERS = [
    codec.decode_packet_in,
    codec.decode_flow,
    lambda body: [codec.decode_group(entry) for entry in codec.split_entries(body)],
    messages.decode_meters,
    messages.decode_ports,
    messages.decode_port_status,
    messages.decode_features,
    messages.decode_error,
    lambda body: messages.hello_has_version(6, body),
]


@quick
@given(st.sampled_from(DECODERS), st.binary(max_size=200))
def test_decoders_raise_malformed_message_or_nothing(decode: object, body: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        decode(body)  # type: ignore[operator]


@quick
@given(st.binary(max_size=80), st.binary(max_size=40))
def test_packet_ins_are_decoded(frame: bytes, other: bytes) -> None:
    tlvs = codec.oxm(codec.Oxm.IN_PORT, 9) + codec.oxm(codec.Oxm.METADATA, 0x700000003)
    match = struct.pack("!HH", 1, 4 + len(tlvs)) + tlvs
    body = struct.pack("!IHBBQ", codec.NO_BUFFER, len(frame), of13.OFPR_ACTION, 8, 5)
    body += match.ljust((len(match) + 7) & ~7, b"\0") + b"\0\0" + frame
    assert codec.decode_packet_in(body) == codec.PacketIn(5, 0x700000003, frame)
