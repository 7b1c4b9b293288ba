"""The columns of a Routes message: prefixes of fixed stride and 32-bit nexthop set ids.

A prefix key is the network address followed by one octet of prefix length: 5 octets for IPv4, 17 for IPv6. Keys
travel, are stored and are compared as these bytes; nothing on the hot path turns them into objects.
"""

import ipaddress
import sys
from array import array
from collections.abc import Sequence

from wire import _columns

KEY_STRIDE = {4: 5, 6: 17}
ADDRESS_BYTES = {4: 4, 6: 16}

_MASKS = {
    family: [(((1 << length) - 1) << (size * 8 - length)).to_bytes(size, "big") for length in range(size * 8 + 1)]
    for family, size in ADDRESS_BYTES.items()
}


def prefix_key(text: str) -> bytes:
    """Return the key of ``"10.0.0.0/8"`` or ``"2001:db8::/32"``; ValueError where host bits are set."""
    network = ipaddress.ip_network(text)
    return network.network_address.packed + bytes((network.prefixlen,))


def prefix_text(key: bytes) -> str:
    """Return a key as people write it."""
    return f"{ipaddress.ip_address(key[:-1])}/{key[-1]}"


def family_of(key: bytes) -> int:
    """Return 4 or 6."""
    return 4 if len(key) == 5 else 6


def mask(family: int, length: int) -> bytes:
    """Return the network mask of ``length`` bits, 4 or 16 octets."""
    return _MASKS[family][length]


def pack_prefixes(keys: Sequence[bytes]) -> bytes:
    """Join keys of one family into a column."""
    return b"".join(keys)


def unpack_prefixes(family: int, column: bytes) -> list[bytes]:
    """Split a column into keys.

    ValueError names what is wrong: a family other than 4 and 6, a column that is no multiple of the stride, a
    prefix longer than its address or with bits set beyond its length (RFC 4632 section 3.1).
    """
    if family not in KEY_STRIDE:
        raise ValueError(f"family {family} is neither 4 nor 6")
    stride = KEY_STRIDE[family]
    if len(column) % stride:
        raise ValueError(f"{len(column)} octets of IPv{family} prefixes are no multiple of {stride}")
    keys = _columns.split(column, stride)
    if isinstance(keys, int):
        raise ValueError(f"{column[keys * stride : (keys + 1) * stride].hex()} is not an IPv{family} prefix")
    return keys


def pack_ids(ids: Sequence[int]) -> bytes:
    """Return 32-bit ids as a little-endian column."""
    column = array("I", ids)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def unpack_ids(column: bytes) -> "array[int]":
    """Return the ids of a column; ValueError where it is no multiple of four octets."""
    ids = array("I")
    ids.frombytes(column)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
