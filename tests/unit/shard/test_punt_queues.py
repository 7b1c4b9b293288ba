"""Frames that wait for a guest that reads slowly: the most urgent class first, equal shares of the interfaces."""

from controller.planes.base import PuntClass, PuntReason
from controller.shard.punt_relay import OTHER_QUEUE_FRAMES, Punt, RouterPunts


class Slow:
    """A guest that takes nothing until it is told to."""

    def __init__(self) -> None:
        self.writable = False
        self.taken: list[Punt] = []

    def write(self, punts: list[Punt]) -> None:
        self.taken += punts


def frame(number: int) -> bytes:
    return bytes(14) + number.to_bytes(2, "big")


def relay() -> tuple[RouterPunts, Slow]:
    punts, guest = RouterPunts(), Slow()
    punts.connect(guest)
    return punts, guest


def taken(punts: RouterPunts, guest: Slow) -> list[tuple[int, PuntReason]]:
    guest.writable = True
    punts.flush()
    return [(interface_id, reason) for interface_id, reason, _ in guest.taken]


def test_the_most_urgent_class_goes_first() -> None:
    punts, guest = relay()
    arp, isis = bytes(12) + b"\x08\x06", bytes(12) + b"\x00\x28" + bytes(40)
    punts.deliver(1, PuntReason.TTL_EXPIRED, frame(1))
    punts.deliver(1, PuntReason.CONTROL, arp)
    punts.deliver(2, PuntReason.CONTROL, isis)
    assert taken(punts, guest) == [(2, PuntReason.CONTROL), (1, PuntReason.CONTROL), (1, PuntReason.TTL_EXPIRED)]
    assert [each for _, _, each in guest.taken[:2]] == [isis, arp]


def test_a_flooded_interface_leaves_room_to_another() -> None:
    punts, guest = relay()
    for number in range(3 * OTHER_QUEUE_FRAMES):
        punts.deliver(1, PuntReason.GLEAN, frame(number))
    for number in range(OTHER_QUEUE_FRAMES):
        punts.deliver(2, PuntReason.GLEAN, frame(number))
    assert punts.counters["drop_queue_full_glean"] == 3 * OTHER_QUEUE_FRAMES
    half = OTHER_QUEUE_FRAMES // 2
    assert punts.lost == {(1, PuntClass.GLEAN): 2 * OTHER_QUEUE_FRAMES + half, (2, PuntClass.GLEAN): half}
    interfaces = [interface_id for interface_id, _ in taken(punts, guest)]
    assert interfaces == [1, 2] * (OTHER_QUEUE_FRAMES // 2)
    first = [each for interface_id, _, each in guest.taken if interface_id == 1]
    assert first == [frame(number) for number in range(OTHER_QUEUE_FRAMES // 2)], "what came first goes first"


def test_more_interfaces_than_room_lose_what_comes_last() -> None:
    punts, guest = relay()
    for interface_id in range(1, OTHER_QUEUE_FRAMES + 10):
        punts.deliver(interface_id, PuntReason.MTU_EXCEEDED, frame(interface_id))
    assert punts.counters["drop_queue_full_mtu"] == 9
    assert [interface_id for interface_id, _ in taken(punts, guest)] == list(range(1, OTHER_QUEUE_FRAMES + 1))


def test_what_waits_for_a_guest_that_has_gone_is_counted() -> None:
    punts, guest = relay()
    punts.deliver(1, PuntReason.GLEAN, frame(1))
    punts.deliver(2, PuntReason.GLEAN, frame(2))
    punts.clear()
    assert punts.counters["drop_no_session"] == 2
    assert punts.lost == {(1, PuntClass.GLEAN): 1, (2, PuntClass.GLEAN): 1}
    assert taken(punts, guest) == []
