"""What one life of the Control stream says, and in which order; the call is a pair of queues."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from netlink_bytes import by_gateway, route

from vrc.interfaces import IFF_LOWER_UP, IFF_UP, Interfaces, Link
from vrc.neighbors import Neighbors
from vrc.netlink.link_messages import NUD_REACHABLE, KernelNeighbor
from vrc.netlink.route_messages import RTM_DELROUTE, Batch, scan
from vrc.packets import PacketRelay
from vrc.routes.nexthops import NexthopSets
from vrc.routes.snapshot import DumpInterrupted
from vrc.routes.table import Columns, RouteTable
from vrc.stream import ROUTE_MESSAGES_AHEAD, ControlStream, Known, SessionOwner
from wire import LOSSES_PROTOCOL_VERSION, MAX_MESSAGE_BYTES
from wire import splitplane_pb2 as pb
from wire.columns import prefix_key, unpack_ids

MAC = bytes((2, 0, 0, 0, 0, 1))


class Call:
    def __init__(self) -> None:
        self.sent: list[pb.VrcMessage] = []
        self.inbox: asyncio.Queue[pb.ControllerMessage] = asyncio.Queue()

    async def write(self, request: pb.VrcMessage) -> None:
        self.sent.append(request)

    async def __aiter__(self) -> AsyncIterator[pb.ControllerMessage]:
        while True:
            yield await self.inbox.get()

    def kinds(self) -> list[str]:
        return [message.WhichOneof("body") or "" for message in self.sent]


class Owner(SessionOwner):
    def __init__(self) -> None:
        self.settled_s = 0.0
        self.declarations: list[pb.Declaration] = []
        self.columns: list[Columns] = []
        self.ports: list[tuple[int, bool]] = []

    async def declared(self, declaration: pb.Declaration) -> None:
        self.declarations.append(declaration)

    def port_changed(self, interface_id: int, up: bool) -> None:
        self.ports.append((interface_id, up))

    def settled_in_s(self) -> float:
        return self.settled_s

    async def snapshot(self) -> AsyncIterator[Columns]:
        for columns in self.columns:
            yield columns
        if not self.columns:
            raise DumpInterrupted("the table keeps changing")


class World:
    """A stream with everything around it."""

    def __init__(self) -> None:
        links = {2: Link(2, "eth0", IFF_UP | IFF_LOWER_UP, 1500, MAC)}
        interfaces, sets = Interfaces(links, declared={"eth0": 102}), NexthopSets()
        table = RouteTable(sets, interfaces.usable)
        self.known = Known(interfaces, Neighbors(interfaces), sets, table, PacketRelay())
        self.call, self.owner, self.wake, self.connected = Call(), Owner(), asyncio.Event(), asyncio.Event()
        self.stream = ControlStream(self.call, self.known, self.owner, self.wake, self.connected)
        self.scope = table.open_scope()

    def learn(self, *messages: bytes) -> None:
        batch, buffer = Batch(), b"".join(messages)
        scan(buffer, 0, len(buffer), batch)
        self.known.table.apply(batch.changes, self.scope)

    async def hear(self, **body: object) -> list[str]:
        """Let the controller say something (or nothing) and return what is said since."""
        before = len(self.call.sent)
        if body:
            self.call.inbox.put_nowait(pb.ControllerMessage(**body))
        self.wake.set()
        for _ in range(400):
            await asyncio.sleep(0)
        return self.call.kinds()[before:]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    tasks = [asyncio.ensure_future(w) for w in (world.stream.receive(), world.stream.apply(), world.stream.send())]
    yield world
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_order_of_a_resync(world: World) -> None:
    world.known.neighbors.observe(KernelNeighbor(2, bytes((10, 1, 0, 2)), MAC, NUD_REACHABLE))
    world.learn(route("10.0.0.0/8", by_gateway("10.1.0.2", 2)), route("::/0", by_gateway("fe80::1", 2)))
    assert await world.hear() == []  # nothing before the declaration
    said = await world.hear(declaration=pb.Declaration())
    assert said == ["interfaces", "neighbors", "nexthop_sets", "routes", "nexthop_sets", "routes", "resync_end"]
    assert [message.sequence for message in world.call.sent] == list(range(1, 8))
    assert world.call.sent[-1].resync_end.daemons_settled
    assert await world.hear(declaration=pb.Declaration(hold_time_s=9)) == []  # no second resync
    assert len(world.owner.declarations) == 2


async def test_daemons_that_settle_later(world: World) -> None:
    world.owner.settled_s = 60.0
    assert await world.hear(declaration=pb.Declaration()) == ["interfaces", "resync_end"]
    world.owner.settled_s = 0.0
    assert await world.hear() == ["resync_end"]
    assert [message.resync_end.daemons_settled for message in world.call.sent[1:]] == [False, True]


async def test_a_resync_ends_when_the_source_is_complete(world: World) -> None:
    complete = False
    world.owner.complete = lambda: complete  # type: ignore[method-assign]
    assert await world.hear(declaration=pb.Declaration()) == ["interfaces"]
    world.learn(route("10.0.0.0/8", by_gateway("10.1.0.2", 2)))
    assert await world.hear() == ["nexthop_sets", "routes"]
    complete = True
    assert await world.hear() == ["resync_end"]


async def test_sets_are_released_after_their_last_use(world: World) -> None:
    world.learn(route("10.0.0.0/8", by_gateway("10.1.0.2", 2)))
    await world.hear(declaration=pb.Declaration())
    world.learn(route("10.0.0.0/8", by_gateway("10.1.0.3", 2)))
    world.known.table.sweep()
    assert await world.hear() == ["nexthop_sets", "routes", "nexthop_sets"]
    assert world.call.sent[-1].nexthop_sets.released == [1]
    world.learn(route("10.0.0.0/8", kind=RTM_DELROUTE))
    assert await world.hear() == ["routes"]
    assert list(unpack_ids(world.call.sent[-1].routes.sets)) == [0]


async def test_the_window_holds_routes_back_and_nothing_else(world: World) -> None:
    await world.hear(declaration=pb.Declaration())
    for number in range(ROUTE_MESSAGES_AHEAD):
        world.learn(route(f"20.0.{number}.0/24", by_gateway("10.1.0.2", 2)))
        assert "routes" in await world.hear()
    world.learn(route("30.0.0.0/8", by_gateway("10.1.0.3", 2)))
    world.known.notices.append(("overrun", "text"))
    assert await world.hear() == ["notice"]
    world.learn(route("30.0.0.0/8", by_gateway("10.1.0.2", 2)))  # coalesced: sent once, as it is now
    assert await world.hear(ack=pb.Ack(sequence=world.call.sent[-1].sequence)) == ["routes"]
    assert world.call.sent[-1].routes.prefixes == prefix_key("30.0.0.0/8")


async def test_a_snapshot(world: World) -> None:
    await world.hear(declaration=pb.Declaration())
    set_id = world.known.sets.hold((1, ((102, b"", 1),)))
    world.owner.columns = [Columns(4, [prefix_key("10.0.0.0/8")], [set_id])] * 2
    said = await world.hear(snapshot_request=pb.SnapshotRequest(id=7))
    assert said == ["nexthop_sets", "snapshot", "snapshot", "snapshot"]
    assert world.call.sent[-1].snapshot == pb.Snapshot(id=7, end=True)
    world.owner.columns = []
    assert await world.hear(snapshot_request=pb.SnapshotRequest(id=8)) == ["snapshot"]
    assert world.call.sent[-1].snapshot.error == "the table keeps changing"


async def test_too_many_snapshots_are_refused(world: World) -> None:
    for snapshot_id in range(6):  # none can begin before the declaration
        await world.hear(snapshot_request=pb.SnapshotRequest(id=snapshot_id))
    assert [message.snapshot.error for message in world.call.sent] == ["too many snapshots at once"] * 2


async def test_ports_and_interfaces(world: World) -> None:
    await world.hear(declaration=pb.Declaration())
    await world.hear(port_states=pb.PortStates(states=[pb.PortState(interface_id=102, up=False)]))
    assert world.owner.ports == [(102, False)]
    world.known.interfaces.links[2].flags = IFF_UP
    world.known.interfaces.version += 1
    assert await world.hear() == ["interfaces"]
    assert not world.call.sent[-1].interfaces.states[0].up
    assert await world.hear(refusal=pb.Refusal(reason="quota")) == []


async def test_no_message_is_longer_than_the_controller_takes_however_many_addresses_there_are(world: World) -> None:
    interfaces, ids = world.known.interfaces, range(1, 301)
    interfaces.links = {n: Link(n, f"e{n}", IFF_UP | IFF_LOWER_UP, 1500, MAC) for n in ids}
    interfaces.declared = {f"e{n}": n for n in ids}
    interfaces.addresses = {n: {(bytes(13) + bytes((n >> 8, n & 255, i)), 128, b"") for i in range(256)} for n in ids}
    said = await world.hear(declaration=pb.Declaration())
    assert said == ["interfaces"] * 5 + ["resync_end"]
    assert max(message.ByteSize() for message in world.call.sent) < MAX_MESSAGE_BYTES
    told = {state.id: len(state.addresses) for message in world.call.sent for state in message.interfaces.states}
    assert told == dict.fromkeys(ids, 256)


async def test_interfaces_are_looked_at_where_they_changed_and_not_at_every_message(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    statuses = Interfaces.statuses
    monkeypatch.setattr(Interfaces, "statuses", lambda self: looked.append(self.version) or statuses(self))
    await world.hear(declaration=pb.Declaration())
    world.learn(route("10.0.0.0/8", by_gateway("10.1.0.2", 2)))
    assert await world.hear() == ["nexthop_sets", "routes"]
    world.known.interfaces.version += 1
    assert await world.hear() == []
    assert looked == [0, 1]


async def test_a_port_that_changes_while_a_declaration_is_applied(world: World) -> None:
    applied = asyncio.Event()

    async def declared(declaration: pb.Declaration) -> None:
        await applied.wait()
        world.owner.ports.clear()  # set as declared

    world.owner.declared = declared  # type: ignore[method-assign]
    await world.hear(declaration=pb.Declaration())
    await world.hear(port_states=pb.PortStates(states=[pb.PortState(interface_id=102, up=False)]))
    applied.set()
    await world.hear()
    assert world.owner.ports == [(102, False)]
    await world.hear(declaration=pb.Declaration())
    assert world.owner.ports == []


async def test_lost_frames_are_told_once_and_to_no_controller_that_does_not_know_them(world: World) -> None:
    losses = world.known.relay.losses
    await world.hear(declaration=pb.Declaration(protocol=LOSSES_PROTOCOL_VERSION - 1))
    losses.add(102, "interface_down", 1 << 40)
    losses.add(0, "no_session", 7)
    assert losses.look({}, "")
    assert await world.hear() == []
    assert await world.hear(declaration=pb.Declaration(protocol=LOSSES_PROTOCOL_VERSION)) == ["frame_losses"]
    told = [(one.interface_id, one.reason, one.frames) for one in world.call.sent[-1].frame_losses.losses]
    assert told == [(102, pb.FrameLoss.INTERFACE_DOWN, (1 << 32) - 1), (0, pb.FrameLoss.NO_SESSION, 7)]
    assert await world.hear() == []


@pytest.mark.parametrize("again", [False, True])  # it ended before the daemons had settled
async def test_a_resync_ends_after_all_that_was_known_by_then_however_far_the_plane_is_behind(
    world: World, again: bool
) -> None:
    looked: list[float] = []

    def settled_in_s() -> float:
        looked.append(world.owner.settled_s)
        return looked[-1]

    world.owner.settled_in_s = settled_in_s  # type: ignore[method-assign]
    world.owner.complete = lambda: again or world.owner.settled_s == 0.0  # type: ignore[method-assign]
    world.owner.settled_s = 60.0
    await world.hear(declaration=pb.Declaration())
    assert world.call.kinds().count("resync_end") == again
    for number in range(ROUTE_MESSAGES_AHEAD):
        world.learn(route(f"20.0.{number}.0/24", by_gateway("10.1.0.2", 2)))
        assert "routes" in await world.hear()
    world.learn(route("30.0.0.0/8", by_gateway("10.1.0.2", 2)), route("20.0.0.0/24", kind=RTM_DELROUTE))
    world.learn(route("::/0", by_gateway("fe80::1", 2)))
    world.owner.settled_s = 0.0
    looked.clear()
    assert await world.hear() == []
    assert len(looked) < 10  # the controller's word is waited for
    routes = [message for message in world.call.sent if message.WhichOneof("body") == "routes"]
    for number, message in enumerate(routes[:8]):  # the plane goes on, and so do the daemons
        world.learn(route(f"40.{number}.0.0/16", by_gateway("10.1.0.2", 2)))
        await world.hear(ack=pb.Ack(sequence=message.sequence))
    kinds = world.call.kinds()
    last = len(kinds) - 1 - kinds[::-1].index("resync_end")
    assert world.call.sent[last].resync_end.daemons_settled
    before = b"".join(message.routes.prefixes for message in world.call.sent[:last])
    assert prefix_key("30.0.0.0/8") in before
    assert prefix_key("::/0") in before
    assert prefix_key("40.7.0.0/16") not in before
