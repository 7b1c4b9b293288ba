"""What is known of links, addresses and neighbors of the guest's kernel, by what it says and by what a dump lists."""

import socket
import struct
from collections.abc import Callable

import pytest
from netlink_bytes import address, attribute, message

from vrc import kernel
from vrc.interfaces import IFF_LOWER_UP, IFF_UP, Interfaces
from vrc.kernel import GuestKernel
from vrc.neighbors import Neighbors
from vrc.netlink.requests import RTM_DELADDR, RTM_NEWADDR, RTM_NEWLINK, link_request

MAC = bytes((2, 0, 0, 0, 0, 1))
UP = IFF_UP | IFF_LOWER_UP


class Monitor:
    """Hands on at once what the kernel says, or, while it is paused, when it goes on."""

    def __init__(self, _groups: tuple[int, ...], received: Callable[[bytes], None], _overrun: object) -> None:
        self.paused = True
        self._received = received
        self._waiting: list[bytes] = []

    def say(self, *messages: bytes) -> None:
        self._waiting += messages
        self._hand_on()

    def start(self) -> None:
        self.paused = False
        self._hand_on()

    def pause(self) -> None:
        self.paused = True

    def _hand_on(self) -> None:
        while self._waiting and not self.paused:
            self._received(self._waiting.pop(0))


class World:
    """A kernel's monitor, and what is known."""

    def __init__(self) -> None:
        self.interfaces = Interfaces(declared={"eth0": 102})
        self.neighbors = Neighbors(self.interfaces)
        nothing = lambda *_: None  # noqa: E731
        self.kernel = GuestKernel(self, self.interfaces, self.neighbors, nothing, nothing, nothing)  # type: ignore[arg-type]
        self.monitor: Monitor = self.kernel._monitor  # type: ignore[assignment]

    @property
    def own(self) -> tuple[bytes, ...]:
        return self.interfaces.statuses()[102].addresses


def link(flags: int = UP) -> bytes:
    return message(RTM_NEWLINK, link_request(2, flags=flags, mtu=1500, mac=MAC, name="eth0"))


def own_address(text: str, peer: str = "", *, kind: int = RTM_NEWADDR) -> bytes:
    local, _, bits = text.partition("/")
    ends = attribute(1, address(peer or local)) + attribute(2, address(local))
    return message(kind, struct.pack("=BBBBi", socket.AF_INET, int(bits), 0, 0, 2) + ends)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(kernel, "Monitor", Monitor)
    made = World()
    made.monitor.start()
    return made


def test_an_address_whose_prefix_length_changes_stays(world: World) -> None:
    world.monitor.say(link(), own_address("10.7.0.1/24"), own_address("10.7.0.1/25"))
    world.monitor.say(own_address("10.7.0.1/25", peer="10.7.0.9"))
    for gone in (own_address("10.7.0.1/24", kind=RTM_DELADDR), own_address("10.7.0.1/25", kind=RTM_DELADDR)):
        world.monitor.say(gone)
        assert world.own == (address("10.7.0.1"),)
    world.monitor.say(own_address("10.7.0.1/25", peer="10.7.0.9", kind=RTM_DELADDR))
    assert world.own == ()
