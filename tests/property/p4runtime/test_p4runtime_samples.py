"""Digests of samples: each sample comes as it was told, and whatever else comes is none."""

from finsy.proto import p4d, p4r
from hypothesis import given
from hypothesis import strategies as st

from controller.planes.p4runtime.p4info import canonical, golden_pipeline
from controller.planes.p4runtime.samples import SampleDigest

DIGEST = SampleDigest(golden_pipeline().schema)
INTERFACES = st.integers(0, (1 << 32) - 1)
ADDRESSES = st.one_of(
    st.tuples(st.just(4), st.integers(0, (1 << 32) - 1)),
    st.tuples(st.just(6), st.integers(0, (1 << 128) - 1)),
)
BITSTRINGS = st.builds(lambda octets: p4d.P4Data(bitstring=octets), st.binary(max_size=20))
LISTS = st.lists(BITSTRINGS, max_size=6).map(lambda members: p4d.P4StructLike(members=members))
ANYTHING = st.one_of(
    st.just(p4d.P4Data()),
    BITSTRINGS,
    LISTS.map(lambda members: p4d.P4Data(struct=members)),
    LISTS.map(lambda members: p4d.P4Data(tuple=members)),
)


def told(interface_id: int, version: int, dst: int) -> p4d.P4Data:
    members = ((interface_id, 32), (version, 8), (dst, 128), (1, 48))
    octets = (p4d.P4Data(bitstring=canonical(value, bits)) for value, bits in members)
    return p4d.P4Data(struct=p4d.P4StructLike(members=octets))


@given(st.lists(st.tuples(INTERFACES, ADDRESSES), max_size=5))
def test_samples_come_as_they_were_told(samples: list[tuple[int, tuple[int, int]]]) -> None:
    data = [told(interface_id, version, dst) for interface_id, (version, dst) in samples]
    octets = p4r.DigestList(digest_id=DIGEST.id, data=data).SerializeToString()
    expected = []
    for interface_id, (version, dst) in samples:
        length = 4 if version == 4 else 16
        expected.append((interface_id, dst.to_bytes(length, "big") + bytes((8 * length,))))
    assert DIGEST.decode(p4r.DigestList.FromString(octets)) == expected


@given(st.lists(ANYTHING, max_size=5))
def test_what_comes_instead_is_a_sample_of_the_right_shape_or_none(data: list[p4d.P4Data]) -> None:
    samples = DIGEST.decode(p4r.DigestList(digest_id=DIGEST.id, data=data))
    assert len(samples) <= len(data)
    for interface_id, key in samples:
        assert interface_id < 1 << 32
        assert (len(key), key[-1]) in ((5, 32), (17, 128))
