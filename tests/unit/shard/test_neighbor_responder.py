"""What is answered in place of a guest that is away: ARP and Neighbor Solicitations for own addresses."""

import struct
from dataclasses import replace
from ipaddress import IPv6Address

import pytest
from worlds import FakeVrc, interface, mac, router_config

from controller.planes.base import PuntReason
from controller.planes.packet import internet_checksum
from controller.shard.neighbor_responder import answer, is_answer

OWN, ASKER = mac(1), mac(77)
HERE, THERE = bytes((10, 0, 1, 1)), bytes((10, 0, 1, 2))
HERE6, THERE6 = (IPv6Address(text).packed for text in ("2001:db8::1", "2001:db8::2"))
EVERYBODY = b"\xff" * 6


def arp(wanted: bytes = HERE, op: int = 1, sender: bytes = THERE) -> bytes:
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, op) + ASKER + sender + bytes(6) + wanted
    return EVERYBODY + ASKER + b"\x08\x06" + body


def solicitation(wanted: bytes = HERE6, sender: bytes = THERE6, hops: int = 255, error: int = 0) -> bytes:
    to = IPv6Address("ff02::1:ff00:1").packed
    message = struct.pack("!BBHI", 135, 0, 0, 0) + wanted + (b"\x01\x01" + ASKER if any(sender) else b"")
    checksum = internet_checksum(sender + to + struct.pack("!II", len(message), 58) + message) ^ error
    message = message[:2] + checksum.to_bytes(2, "big") + message[4:]
    header = struct.pack("!IHBB", 6 << 28, len(message), 58, hops) + sender + to
    return b"\x33\x33\xff\x00\x00\x01" + ASKER + b"\x86\xdd" + header + message


def test_an_arp_request_is_answered() -> None:
    assert answer(arp(), OWN, {HERE}) == (
        ASKER + OWN + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2) + OWN + HERE + ASKER + THERE
    )


def test_a_neighbor_solicitation_is_answered() -> None:
    found = answer(solicitation(), OWN, {HERE6})
    assert found is not None
    assert found[:14] == ASKER + OWN + b"\x86\xdd"
    header, message = found[14:54], found[54:]
    assert (header[6], header[7], header[8:24], header[24:40]) == (58, 255, HERE6, THERE6)
    assert internet_checksum(HERE6 + THERE6 + struct.pack("!II", len(message), 58) + message) == 0
    assert message[:2] == bytes((136, 0))
    assert message[4:8] == b"\xe0\0\0\0"
    assert message[8:] == HERE6 + b"\x02\x01" + OWN


def test_a_probe_for_an_own_address_is_defended() -> None:
    assert answer(arp(sender=bytes(4)), OWN, {HERE}) is not None
    found = answer(solicitation(sender=bytes(16)), OWN, {HERE6})
    assert found is not None
    assert found[:6] == b"\x33\x33\0\0\0\x01"
    assert found[58:62] == b"\xa0\0\0\0"


def test_an_answer_is_known_from_everything_else() -> None:
    answers = [answer(asked, OWN, {HERE, HERE6}) for asked in (arp(), solicitation(), solicitation(sender=bytes(16)))]
    assert all(frame is not None and is_answer(frame) for frame in answers)
    assert not any(map(is_answer, (arp(), solicitation(), b"\x01" * 13, arp()[:18], solicitation()[:50])))


@pytest.mark.parametrize(
    "frame",
    [
        arp(THERE),
        arp(op=2),
        arp()[:40],
        solicitation(THERE6),
        solicitation(hops=64),
        solicitation(error=1),
        solicitation()[:70],
        b"\x01" * 13,
        EVERYBODY + ASKER + b"\x08\0" + bytes(60),
    ],
)
def test_nothing_else_is_answered(frame: bytes) -> None:
    assert answer(frame, OWN, {HERE, HERE6}) is None


async def test_a_guest_is_stood_in_for_while_it_is_away_and_held(make_world):
    declared = interface(1, addresses=("10.0.1.1/24",))
    world = await make_world(replace(router_config(1, ()), interfaces=(declared,)))
    router = world.router()
    vrc = world.connect()
    router.resync_end(True)
    await world.settle()

    def asked() -> list[bytes]:
        world.plane.packets_out.clear()
        world.plane.punt(1, PuntReason.CONTROL, arp())
        return [frame for _, frame in world.plane.packets_out]

    assert asked() == []  # its own kernel answers
    router.lost(vrc)
    assert asked() == [answer(arp(), mac(1), {HERE})]
    assert router.punts.counters["answered_for_guest"] == 1
    router.open(FakeVrc())
    router.lost(router.vrc)
    world.clock.now += router.config.hold_time_s
    router.tick()
    before = router.punts.counters["drop_no_session"]
    assert asked() == []
    assert router.punts.counters["drop_no_session"] == before + 1


async def test_nobody_stands_in_for_an_address_that_the_guest_could_not_have(make_world):
    declared = interface(1, addresses=("10.0.1.1/24", "2001:db8::1/64"))
    world = await make_world(replace(router_config(1, ()), interfaces=(declared,)))
    router = world.router()
    vrc = world.connect()
    router.interface_states([(1, True, [HERE, HERE6])])
    router.resync_end(True)
    await world.settle()

    def answered() -> int:
        world.plane.packets_out.clear()
        for frame in (arp(), solicitation()):
            world.plane.punt(1, PuntReason.CONTROL, frame)
        return len(world.plane.packets_out)

    router.interface_states([(1, True, [HERE])])  # duplicate address detection failed
    router.lost(vrc)
    assert answered() == 1
    router.open(FakeVrc())
    router.interface_states([(1, True, [HERE])])
    router.resync_end(False)
    router.lost(router.vrc)
    assert answered() == 1
    router.open(FakeVrc())
    router.interface_states([(1, True, [HERE, HERE6])])
    router.lost(router.vrc)
    assert answered() == 2


async def test_a_guest_that_is_back_is_stood_in_for_until_it_has_its_addresses(make_world):
    declared = interface(1, addresses=("10.0.1.1/24",))
    world = await make_world(replace(router_config(1, ()), interfaces=(declared,)))
    router = world.router()
    vrc = world.connect()
    await world.settle()
    router.lost(vrc)

    def answered() -> bool:
        world.plane.packets_out.clear()
        world.plane.punt(1, PuntReason.CONTROL, arp())
        return bool(world.plane.packets_out)

    router.open(FakeVrc())
    assert answered()
    router.interface_states([(1, False, [])])
    assert answered()
    router.interface_states([(1, True, [HERE])])
    assert answered()  # it may take seconds to answer itself
    request = arp()[:6] + OWN + arp(THERE, sender=HERE)[12:].replace(ASKER, OWN)
    assert world.shards.packet_out(router, 1, request) is None
    assert answered()  # it asks, and has not answered yet
    assert world.shards.packet_out(router, 1, answer(arp(), OWN, {HERE})) is None
    assert not answered()
    router.lost(router.vrc)
    router.open(FakeVrc())
    assert answered()
    router.resync_end(False)  # who has not got them by now does without
    assert not answered()
