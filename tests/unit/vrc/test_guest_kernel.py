"""What is known of links, addresses and neighbors of the guest's kernel, by what it says and by what a dump lists."""

import asyncio
import errno
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from netlink_bytes import address, attribute, message

from vrc import kernel
from vrc.errors import KernelRefused
from vrc.interfaces import IFF_LOWER_UP, IFF_UP, Interfaces
from vrc.kernel import GuestKernel
from vrc.neighbors import Neighbors, Report
from vrc.netlink.link_messages import NUD_REACHABLE
from vrc.netlink.requests import (
    RTM_DELADDR,
    RTM_GETADDR,
    RTM_GETLINK,
    RTM_GETNEIGH,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWNEIGH,
    link_request,
)

MAC = bytes((2, 0, 0, 0, 0, 1))
UP = IFF_UP | IFF_LOWER_UP


class Monitor:
    """Hands on at once what the kernel says, or, while it is paused, when it goes on."""

    def __init__(
        self, _groups: tuple[int, ...], received: Callable[[bytes], None], overrun: Callable[[], None]
    ) -> None:
        self.paused = True
        self.overrun = overrun
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

    def say_unread(self, *messages: bytes) -> None:
        """Say what is read only in the next turn of the event loop."""
        self._waiting += messages

    def catch_up(self) -> None:
        while self._waiting:
            self._received(self._waiting.pop(0))

    def _hand_on(self) -> None:
        while self._waiting and not self.paused:
            self._received(self._waiting.pop(0))


class World:
    """A kernel's dumps and its monitor, and what is known."""

    def __init__(self) -> None:
        self.dumps: dict[int, list[bytes]] = {RTM_GETLINK: [link()], RTM_GETADDR: [], RTM_GETNEIGH: []}
        self.meanwhile: dict[int, list[bytes]] = {}
        self.heard_in_dumps = False
        self.interfaces = Interfaces(declared={"eth0": 102})
        self.neighbors = Neighbors(self.interfaces)
        self.links_changed, self.addresses_changed = asyncio.Event(), asyncio.Event()
        self.notices: list[str] = []
        self.requests: list[str] = []
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        known = (self.interfaces, self.neighbors)
        changed = (lambda: None, self.links_changed.set, self.addresses_changed.set)
        self.kernel = GuestKernel(self, *known, *changed, lambda kind, _: self.notices.append(kind))  # type: ignore[arg-type]
        self.monitor: Monitor = self.kernel._monitor  # type: ignore[assignment]

    async def dump(self, _what: str, kind: int, _body: bytes) -> AsyncIterator[bytes]:
        """List what was there at the beginning, with what is said meanwhile."""
        for listed in self.dumps[kind]:
            yield listed
        self.monitor.say(*self.meanwhile.pop(kind, []))
        await asyncio.sleep(0)
        self.heard_in_dumps |= not self.monitor.paused

    async def change(self, what: str, *_: object) -> None:
        """Carry out a request as soon as `answer` is set."""
        self.asked.set()
        await self.answer.wait()
        self.requests.append(what)

    @property
    def own(self) -> tuple[bytes, ...]:
        return self.interfaces.statuses()[102].addresses


def link(flags: int = UP, name: str = "eth0") -> bytes:
    return message(RTM_NEWLINK, link_request(2, flags=flags, mtu=1500, mac=MAC, name=name))


def own_address(text: str, peer: str = "", *, kind: int = RTM_NEWADDR) -> bytes:
    local, _, bits = text.partition("/")
    ends = attribute(1, address(peer or local)) + attribute(2, address(local))
    return message(kind, struct.pack("=BBBBi", socket.AF_INET, int(bits), 0, 0, 2) + ends)


def neighbor(mac: bytes) -> bytes:
    ends = attribute(1, address("10.7.0.2")) + attribute(2, mac)
    return message(RTM_NEWNEIGH, struct.pack("=BxxxiHBB", socket.AF_INET, 2, NUD_REACHABLE, 0, 1) + ends)


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


async def test_an_address_that_somebody_else_has_is_no_own_address_and_told_of(world: World) -> None:
    def said(flags: int) -> bytes:
        body = struct.pack("=BBBBi", socket.AF_INET6, 64, flags, 0, 2) + attribute(1, address("2001:db8::5"))
        return message(RTM_NEWADDR, body)

    tentative, failed = 0xC0, 0xC8
    world.monitor.say(link(), said(tentative))
    assert (world.own, world.notices) == ((address("2001:db8::5"),), [])
    world.monitor.say(said(failed))
    assert (world.own, world.notices) == ((), ["duplicate-address"])
    world.dumps[RTM_GETADDR] = [said(failed)]
    await world.kernel.look()
    assert world.own == ()


async def test_what_is_said_while_a_dump_is_read_is_newer_than_it(world: World) -> None:
    world.meanwhile = {RTM_GETLINK: [link(IFF_UP)], RTM_GETADDR: [own_address("10.7.0.1/24")]}
    await world.kernel.look()
    assert not world.interfaces.links[2].up
    assert world.own == (address("10.7.0.1"),)
    other = bytes((2, 0, 0, 0, 0, 9))
    world.dumps[RTM_GETNEIGH] = [neighbor(MAC)]
    world.meanwhile = {RTM_GETNEIGH: [neighbor(other)]}
    await world.kernel.look_at_neighbors()
    assert world.neighbors.reports() == {(102, address("10.7.0.2")): Report(other)}


async def test_what_was_said_before_a_dump_is_no_newer_than_it(world: World) -> None:
    world.monitor.say_unread(link(IFF_UP))
    await world.kernel.look()
    assert world.interfaces.links[2].up


async def test_a_link_whose_name_a_dump_tells_before_a_message_does_is_told_of(world: World) -> None:
    await world.kernel.look()
    for name, told in (("eth0", False), ("eth1", True), ("eth1", False)):
        world.links_changed.clear()
        world.dumps[RTM_GETLINK] = [link(name=name)]
        await world.kernel.look()
        world.monitor.say(link(name=name))
        assert world.links_changed.is_set() is told


async def test_an_address_that_comes_or_goes_is_told_of_also_where_that_was_lost(world: World) -> None:
    for kind in (RTM_NEWADDR, RTM_DELADDR):
        world.monitor.say(own_address("10.7.0.1/24", kind=kind))
        assert world.addresses_changed.is_set()
        world.addresses_changed.clear()
    for listed, told in (([own_address("10.7.0.1/24")], True), ([own_address("10.7.0.1/24")], False), ([], True)):
        world.dumps[RTM_GETADDR] = listed
        await world.kernel.look()
        assert world.addresses_changed.is_set() is told
        world.addresses_changed.clear()


async def test_of_two_looks_at_once_none_ends_the_others_pause(world: World) -> None:
    await asyncio.gather(world.kernel.look(), world.kernel.look_at_neighbors(), world.kernel.look())
    assert not world.heard_in_dumps
    assert not world.monitor.paused


async def refuse(*_: object) -> AsyncIterator[bytes]:
    raise KernelRefused("dump of links", errno.ENOBUFS)
    yield b""


async def test_a_refused_dump_leaves_nothing_unheard(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "dump", refuse)
    with pytest.raises(KernelRefused):
        await world.kernel.look()
    world.monitor.say(link())
    assert world.interfaces.links[2].up


async def test_what_was_lost_is_looked_for_until_the_kernel_lets_it_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump, refused = world.dump, [refuse] * 3

    def dump_at_last(*asked: Any) -> AsyncIterator[bytes]:
        return (refused.pop() if refused else dump)(*asked)

    monkeypatch.setattr(world, "dump", dump_at_last)
    monkeypatch.setattr(kernel, "_RETRY_S", 0.0)
    world.monitor.overrun()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        following = tasks.create_task(world.kernel.run())
        await world.links_changed.wait()
        following.cancel()
    assert world.interfaces.links[2].up
    assert (refused, world.notices) == ([], ["overrun", "dump-failed"])


async def test_a_link_that_went_and_came_back_unheard_is_told_of_as_its_routes_went_without_a_message(
    world: World,
) -> None:
    await world.kernel.look()
    world.links_changed.clear()
    world.addresses_changed.clear()
    following = asyncio.ensure_future(world.kernel.run())
    world.monitor.overrun()
    try:
        async with asyncio.timeout(10):
            await world.links_changed.wait()
            await world.addresses_changed.wait()
    finally:
        following.cancel()


async def test_a_request_under_way_when_following_ends_is_carried_out_when_it_begins_again(world: World) -> None:
    world.monitor.say(link())
    world.neighbors.want({(2, address("10.7.0.2"))})
    world.kernel.neighbors_changed()
    async with asyncio.timeout(10):
        for answered in (False, True):
            following = asyncio.create_task(world.kernel.run())
            await world.asked.wait()
            world.asked.clear()
            if answered:
                world.answer.set()
                while world.neighbors.asks:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    assert world.requests == ["keep neighbor probed"]


def test_a_message_that_does_not_decode_is_counted_and_takes_no_others_with_it(world: World) -> None:
    world.monitor.say(message(RTM_NEWLINK, b"") + link())
    assert world.interfaces.links[2].up
    assert world.kernel.malformed == 1


async def test_every_change_of_links_and_addresses_gives_interfaces_another_version(world: World) -> None:
    versions = [world.interfaces.version]
    for said in (link(), own_address("10.7.0.1/24"), own_address("10.7.0.1/24", kind=RTM_DELADDR), link(IFF_UP)):
        world.monitor.say(said)
        versions.append(world.interfaces.version)
    await world.kernel.look()
    versions.append(world.interfaces.version)
    world.monitor.say(neighbor(MAC))
    assert versions == sorted(set(versions))
    assert world.interfaces.version == versions[-1]
