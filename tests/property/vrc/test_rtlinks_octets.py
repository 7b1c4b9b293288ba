"""Any octets as a link, an address or a neighbor."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from netlink_bytes import attribute, u32

from vrc.errors import MalformedNetlink
from vrc.netlink.link_messages import decode_address, decode_link, decode_neighbor


@given(st.binary(max_size=120))
def test_any_bytes_are_decoded_or_malformed(body: bytes) -> None:
    for decode in (decode_link, decode_address, decode_neighbor):
        with contextlib.suppress(MalformedNetlink):
            decode(body)
        with contextlib.suppress(MalformedNetlink):
            decode(b"\x02" + bytes(15) + attribute(18, attribute(1, body)) + u32(0) + body)
