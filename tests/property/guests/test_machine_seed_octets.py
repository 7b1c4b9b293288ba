"""Any octets as the seed of a machine."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from seeds import archive

from vrc.machine.seed import SeedError, parse_seed, unpack


@given(st.binary(max_size=2048), st.integers(0, len(archive())))
def test_any_octets_give_a_seed_or_one_line(octets: bytes, place: int) -> None:
    good = archive()
    for damaged in (octets, good[:place] + octets + good[place + len(octets) :]):
        with contextlib.suppress(SeedError):  # nothing else may come of it
            parse_seed(unpack(damaged))
