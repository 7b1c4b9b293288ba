"""Columns of a Routes message: what was packed comes back, and what is no prefix is named."""

import ipaddress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import _columns
from wire.columns import KEY_STRIDE, mask, pack_ids, pack_prefixes, unpack_ids, unpack_prefixes

families = st.sampled_from([4, 6])
columns = families.flatmap(
    lambda family: st.tuples(
        st.just(family), st.lists(st.binary(min_size=KEY_STRIDE[family], max_size=KEY_STRIDE[family]), max_size=5)
    )
)


def plain_is_prefix(key: bytes) -> bool:
    """Tell whether the standard library takes a key for a network."""
    try:
        ipaddress.ip_network((key[:-1], key[-1]))
    except ValueError:
        return False
    return True


@given(columns, st.data())
def test_split(column: tuple[int, list[bytes]], data: st.DataObject) -> None:
    family, keys = column
    for position, key in enumerate(keys):
        if data.draw(st.booleans()):  # random octets are hardly ever a prefix
            bits = data.draw(st.integers(0, len(key) * 8 - 8))
            octets = bytes(a & b for a, b in zip(key, mask(family, bits), strict=False))
            keys[position] = octets + bytes((bits,))
    wrong = next((key for key in keys if not plain_is_prefix(key)), None)
    if wrong is None:
        assert unpack_prefixes(family, pack_prefixes(keys)) == keys
    else:
        with pytest.raises(ValueError, match=f"{wrong.hex()} is not an IPv{family} prefix"):
            unpack_prefixes(family, pack_prefixes(keys))


@pytest.mark.parametrize("family", [4, 6])
def test_a_column_of_one_host_bit(family: int) -> None:
    size = KEY_STRIDE[family] - 1
    for bit, bits in product(range(size * 8), range(size * 8 + 1)):
        key = (1 << bit).to_bytes(size, "big") + bytes((bits,))
        assert (_columns.split(key, size + 1) == [key]) == (bit + bits >= size * 8)


def test_what_is_no_column() -> None:
    with pytest.raises(ValueError, match="family 5 is neither"):
        unpack_prefixes(5, b"")
    with pytest.raises(ValueError, match="no multiple of 17"):
        unpack_prefixes(6, bytes(18))
    with pytest.raises(ValueError, match="no multiple of its stride"):
        _columns.split(bytes(4), 0)


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_ids_survive(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)).tolist() == ids
