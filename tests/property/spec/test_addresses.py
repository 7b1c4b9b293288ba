"""However addresses are spread over interfaces: what is wrong is what comparing each with each finds."""

from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from controller.spec.addresses import clashing

texts = st.one_of(
    st.builds("10.0.{}.{}/{}".format, st.integers(0, 3), st.integers(1, 3), st.integers(8, 32)),
    st.builds("169.254.{}.1/{}".format, st.integers(0, 1), st.sampled_from((8, 16, 24))),
    st.builds("fe80::{}/{}".format, st.integers(1, 2), st.sampled_from((8, 9, 10, 64, 128))),
    st.builds(
        "{}::{}/{}".format, st.sampled_from(("fe00", "fec0", "2001:db8")), st.integers(1, 2), st.integers(7, 128)
    ),
)


def clash(one: IPv4Interface | IPv6Interface, other: IPv4Interface | IPv6Interface, same_interface: bool) -> bool:
    if one.version != other.version or (one.is_link_local and not same_interface):
        return False
    return one.ip == other.ip or (not same_interface and one.network.overlaps(other.network))


@given(st.lists(st.tuples(st.builds(ip_interface, texts), st.integers(0, 2)), max_size=8))
def test_it_is_what_comparing_each_with_each_finds(found: list[tuple[IPv4Interface | IPv6Interface, int]]) -> None:
    pairs = combinations(range(len(found)), 2)
    wrong = {at for at, to in pairs if clash(found[at][0], found[to][0], found[at][1] == found[to][1])}
    assert clashing(found) == sorted(wrong)
