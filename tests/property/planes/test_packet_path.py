"""The octets under the model of the contract, and what the fake plane adds to it."""

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.events.token_bucket import TokenBucket
from controller.planes.base import (
    Capability,
    Installed,
    Policer,
    PuntClass,
    PuntPlace,
    PuntReason,
    RouterInterface,
    same_rate,
)
from controller.planes.fake_path import FakePath, refill
from controller.planes.packet import Frame, IpPacket, internet_checksum, with_tag
from controller.planes.reference_pipeline import Forwarded, Punted, forward

quick = settings(max_examples=2 * settings.default.max_examples, deadline=None)
MAC = bytes(range(2, 8))
INTERFACE = RouterInterface(1, 1, 1, 0, MAC, 1500)


def ipv4_header(rest: bytes, ttl: int) -> bytes:
    """A header with a right checksum, made of random octets."""
    header = bytearray(b"\x45" + rest[:19])
    header[2:4], header[8], header[10:12] = b"\0\x14", ttl, bytes(2)
    header[10:12] = internet_checksum(bytes(header)).to_bytes(2, "big")
    return bytes(header)


def packet_of(octets: bytes) -> IpPacket:
    found = IpPacket.find(Frame.read(bytes(12) + b"\x08\0" + octets))
    assert found is not None
    return found


@quick
@given(st.binary(min_size=19, max_size=19), st.integers(2, 255))
def test_a_hop_keeps_the_checksum_right(rest: bytes, ttl: int) -> None:
    there = packet_of(packet_of(ipv4_header(rest, ttl)).one_hop_on())
    assert there.ttl == ttl - 1
    header = bytearray(there.octets)
    header[10:12] = bytes(2)
    assert there.octets[10:12] == internet_checksum(bytes(header)).to_bytes(2, "big")


@quick
@given(st.binary(min_size=19, max_size=19), st.integers(2, 255), st.integers(1, 0xFFFE))
def test_a_hop_keeps_the_checksum_wrong(rest: bytes, ttl: int, error: int) -> None:
    header = bytearray(ipv4_header(rest, ttl))
    header[10:12] = (int.from_bytes(header[10:12], "big") ^ error).to_bytes(2, "big")
    assume(internet_checksum(bytes(header)))
    assert not packet_of(packet_of(bytes(header)).one_hop_on()).checksum_holds


@quick
@given(st.binary(min_size=14, max_size=120), st.sampled_from([b"\x08\0\x45", b"\x86\xdd\x60", b"\x81\0\0"]))
def test_no_frame_is_too_strange(octets: bytes, kind: bytes) -> None:
    entries = Installed(router_interfaces={1: INTERFACE}, routes={1: {}})
    verdict = forward(entries, frozenset(Capability), {1}, 1, MAC + octets[:6] + kind + octets)
    assert not isinstance(verdict.ways[0].outcome, Forwarded)


@pytest.mark.parametrize("octets", [0, 1, 13])
def test_less_than_a_header_is_no_frame(octets: int) -> None:
    with pytest.raises(ValueError, match=f"^{octets} octets"):
        Frame.read(bytes(octets))


@given(st.binary(min_size=14, max_size=60), st.integers(1, 4094))
def test_a_tag_is_read_as_it_was_put_on(frame: bytes, vlan: int) -> None:
    read = Frame.read(with_tag(vlan, frame))
    assert (read.vlan, read.untagged) == (vlan, frame)


weights = st.dictionaries(st.integers(1, 50), st.integers(1, 256), min_size=1, max_size=12)


@quick
@given(weights, weights)
def test_slots_are_divided_by_weight_and_move_only_where_they_must(
    before: dict[int, int], after: dict[int, int]
) -> None:
    old = refill([0] * 4096, before)
    new = refill(old, after)
    had, counts = Counter(old), Counter(new)
    assert set(counts) <= set(after)
    assert all(abs(counts[each] - 4096 * weight / sum(after.values())) < 1 for each, weight in after.items())
    kept = sum(min(had[each], counts[each]) for each in after)
    assert sum(a == b for a, b in zip(old, new, strict=True)) == kept


def test_a_bucket_lets_its_rate_pass_and_a_burst_at_once() -> None:
    now = 0.0
    bucket = TokenBucket(200, 20, lambda: now)
    assert sum(bucket.take() for _ in range(100)) == 20
    passed = 0
    for number in range(1000):
        now = 1.0 + number / 1000
        passed += bucket.take()
    assert passed == pytest.approx(220, abs=1)


def test_punts_are_counted_before_they_are_policed_and_not_at_all_at_rate_0() -> None:
    entries = Installed(router_interfaces={1: INTERFACE}, policers={1: Policer(1, same_rate(10))})
    path = FakePath(lambda: 0.0)
    arp = MAC + bytes(6) + b"\x08\x06"
    outcomes = [path.take(entries, frozenset(), {1}, 1, arp) for _ in range(15)]
    assert outcomes.count((Punted(PuntReason.CONTROL, arp), 1)) == 10
    assert outcomes.count((None, 1)) == 5
    assert path.counters.punts == {(1, PuntReason.CONTROL): (15, 15 * 14)}
    assert path.counters.router_interfaces[1].rx_packets == 15


def test_a_flood_takes_nothing_of_another_interfaces_share() -> None:
    """Ten times the router's rate by one interface, and of another a tenth of its share."""
    others = {number: RouterInterface(number, 1, number, 0, MAC, 1500) for number in (1, 2, 3, 4)}
    entries = Installed(router_interfaces=others, policers={1: Policer(1, same_rate(100))})
    now = 0.0
    path = FakePath(lambda: now)
    arp = MAC + bytes(6) + b"\x08\x06"
    passed = dict.fromkeys(others, 0)
    for number in range(10_000):
        now = number / 1000
        passed[1] += path.take(entries, frozenset(Capability), {1}, 1, arp)[0] is not None
        if number % 400 == 399:
            passed[2] += path.take(entries, frozenset(Capability), {1}, 2, arp)[0] is not None
    assert passed[2] == 25
    assert passed[1] == pytest.approx(100 * 10 + 10 - 25, abs=2), "rate and burst, less what the other one had"
    assert path.counters.lost_punts == {(1, PuntClass.ARP, PuntPlace.POLICER): 10_000 - passed[1]}


def test_an_interface_that_goes_leaves_its_share_to_the_others() -> None:
    interfaces = {number: RouterInterface(number, 1, number, 0, MAC, 1500) for number in (1, 2)}
    entries = Installed(router_interfaces=interfaces, policers={1: Policer(1, same_rate(100))})
    path = FakePath(lambda: 0.0)
    arp = MAC + bytes(6) + b"\x08\x06"

    def passed(port: int) -> int:
        outcomes = [path.take(entries, frozenset(Capability), {1}, port, arp)[0] for _ in range(20)]
        return sum(outcome is not None for outcome in outcomes)

    assert passed(1) == 10
    assert passed(2) == 5, "half of the burst"
    del interfaces[1]
    path.forget_policer(1)
    assert passed(2) == 10
