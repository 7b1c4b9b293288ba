"""A session that is lost and comes back: everything is told again, nothing withdrawn; acks bound what is sent."""

import pytest
from vrc_guest import Controller, guest, interface, make_identities

from vrc.stream import ROUTE_MESSAGES_AHEAD
from wire import splitplane_pb2 as pb

pytestmark = pytest.mark.root


async def test_reconnect_resyncs() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: "10.1.0.0/24" in controller.routes)
        await g.run("ip", "route", "add", "10.50.0.0/24", "via", "10.1.0.2")
        await controller.until(lambda: "10.50.0.0/24" in controller.routes)
        routes = dict(controller.routes)

        await controller.stop()
        await g.run("ip", "route", "add", "10.51.0.0/24", "via", "10.1.0.2")
        await g.run("ip", "route", "del", "10.50.0.0/24")
        again = Controller(interface(1, "10.1.0.1/24"))
        await again.start(g.directory)
        try:
            await again.until(lambda: len(again.resync_ends) == 1)
            assert again.hellos[0].instance == controller.hellos[0].instance
            assert set(again.routes) == set(routes) - {"10.50.0.0/24"} | {"10.51.0.0/24"}
            assert again.interfaces[1].up
            assert [ways for _, ways in again.writes if not ways] == []
        finally:
            await again.stop()


async def test_a_new_identity_is_used_without_a_restart() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: len(controller.resync_ends) == 1)
        await controller.stop()
        make_identities(g.directory)  # of another authority: the old one would be refused
        again = Controller(interface(1, "10.1.0.1/24"))
        await again.start(g.directory)
        try:
            await again.until(lambda: len(again.resync_ends) == 1)
            assert again.hellos[0].instance == controller.hellos[0].instance
        finally:
            await again.stop()


async def test_declaration_before_acks_and_a_refusal() -> None:
    controller = Controller(interface(1, "10.1.0.1/24"))
    controller.acknowledge = False
    async with guest(controller) as g:
        await g.start_vrc("--source", "netlink")
        await controller.until(lambda: "10.1.0.0/24" in controller.routes)
        for number in range(60):
            await g.run("ip", "route", "add", f"10.60.{number}.0/24", "via", "10.1.0.2")
            if controller.route_messages < ROUTE_MESSAGES_AHEAD:  # each its own message, until the window is full
                await controller.until(lambda number=number: f"10.60.{number}.0/24" in controller.routes)
        assert controller.route_messages == ROUTE_MESSAGES_AHEAD
        # Routes wait, neighbors and interfaces do not.
        await g.run("ip", "neigh", "add", "10.1.0.77", "lladdr", "02:00:00:00:00:aa", "dev", "eth0")
        await controller.until(lambda: (1, "10.1.0.77") in controller.neighbors)
        assert len(controller.routes) < 61
        await controller.send(ack=pb.Ack(sequence=controller.sequences[-1]))
        await controller.until(lambda: len(controller.routes) == 61)
        await controller.send(refusal=pb.Refusal(reason="quota"))
        await g.run("ip", "route", "del", "10.60.0.0/24")
        controller.acknowledge = True
        await controller.until(lambda: len(controller.routes) == 60)
        assert await g.stop_vrc() == 0
