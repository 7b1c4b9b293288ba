"""What the kernel refuses of interfaces and gateways holds up nothing else, and is not forgotten."""

import asyncio
import errno
from collections.abc import AsyncIterator
from ipaddress import ip_address

import pytest
from netlink_bytes import by_gateway, route
from route_tables import changes

from vrc import agent
from vrc.agent import Agent, Options
from vrc.errors import KernelRefused
from vrc.interfaces import IFF_LOWER_UP, IFF_UP, Link
from vrc.neighbors import Ask
from vrc.taps import Tap
from wire import splitplane_pb2 as pb


@pytest.fixture
async def one() -> AsyncIterator[Agent]:
    made = Agent(Options("red/r1", "unix:/none", "/none", "netlink"))
    yield made
    made.relay.close()
    made.kernel.close()
    made.source.close()
    made.netlink.close()


async def test_an_interface_that_came_late_is_taken_once_the_kernel_lets_links_be_read(one, monkeypatch) -> None:
    monkeypatch.setattr(agent, "_RESTART_S", 0.0)
    asked, taken = 0, asyncio.Event()

    async def apply(_declared: object) -> list[str]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise KernelRefused("dump of links", errno.ENOBUFS)
        taken.set()
        return []

    monkeypatch.setattr(one.taps, "apply", apply)
    task = asyncio.create_task(one._supervise("interfaces", one._take_late_interfaces))
    try:
        one._appeared.set()
        async with asyncio.timeout(10):
            await taken.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_gateway_that_was_refused_is_asked_for_again_though_no_route_changes(one, monkeypatch) -> None:
    monkeypatch.setattr(agent, "_SWEEP_S", 0.01)
    one.interfaces.links = {2: Link(2, "eth0", IFF_UP | IFF_LOWER_UP, 1500, bytes(6))}
    one.interfaces.declared = {"eth0": 102}
    one.neighbors.want({(2, ip_address("10.1.0.2").packed)})
    ask = one.neighbors.asks.popleft()
    one.neighbors.refused(ask)
    task = asyncio.create_task(one._sweep())
    try:
        async with asyncio.timeout(5):
            await one.kernel._asks.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert list(one.neighbors.asks) == [ask]


async def test_a_gateway_that_only_a_dump_tells_of_is_asked_for(one, monkeypatch) -> None:
    """As after an overrun: there are as many routes as before."""
    monkeypatch.setattr(agent, "_GATEWAYS_S", 0.01)
    one.interfaces.links = {2: Link(2, "eth0", IFF_UP | IFF_LOWER_UP, 1500, bytes(6))}
    one.interfaces.declared = {"eth0": 102}
    task = asyncio.create_task(one._follow_gateways())
    try:
        for gateway in ("10.1.0.2", "10.1.0.3"):
            dumped = one.table.open_scope(inline_first=True)
            one.table.apply_kernel(changes(route("10.5.0.0/24", by_gateway(gateway, 2))), dumped)
            one.table.keep_only(dumped)
            async with asyncio.timeout(5):
                await one.kernel._asks.wait()
            one.kernel._asks.clear()
            assert one.neighbors.asks.popleft() == Ask(2, ip_address(gateway).packed, True, create=True)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_of_addresses_that_are_repeated_a_refused_one_is_told_and_the_others_follow(one, monkeypatch) -> None:
    addresses = {ifindex: ip_address(f"10.{ifindex}.0.1").packed for ifindex in (2, 3, 4)}
    for ifindex, address in addresses.items():
        tap = Tap(f"eth{ifindex}", -1, ifindex, pb.Interface(), late=True, ours={(address, 24)})
        one.taps.open[tap.name] = tap
    repeated: list[bytes] = []

    async def change(what: str, _kind: int, _flags: int, body: bytes) -> None:
        for ifindex, code in ((2, errno.ENODEV), (3, errno.EINVAL)):
            if addresses[ifindex] in body:
                raise KernelRefused(what, code)
        repeated.append(body)

    monkeypatch.setattr(one.netlink, "change", change)
    assert await one.taps.repeat_addresses() == ["repeat an address of eth3: Invalid argument"]
    assert [addresses[4] in body for body in repeated] == [True]
