"""The session service over real mTLS: what a VRC may not say is refused, named, and changes nothing."""

import asyncio
import gc
import os

import grpc
import pytest
from peers import Peer, refusals
from stores import store_in
from worlds import World, gateway, mac, router_config

from controller.pki.authority import PKI
from controller.planes.base import PuntReason
from controller.sessions.control_stream import whole
from controller.sessions.server import SessionServer
from wire import MAX_ITEMS_PER_MESSAGE, MAX_MESSAGE_BYTES, PROTOCOL_VERSION
from wire import splitplane_pb2 as pb
from wire.columns import pack_ids, prefix_key


async def test_declaration_routes_and_acknowledgement(service, red):
    world, _, _ = service
    declaration = await red.begin()
    assert [one.name for one in declaration.interfaces] == ["eth1", "eth2"]
    assert all(one.port_up for one in declaration.interfaces)
    await red.say(interfaces=pb.InterfaceStates(states=[pb.InterfaceState(id=1, up=True)]))
    neighbor = pb.Neighbor(interface_id=1, address=gateway(1), mac=mac(9))
    await red.say(neighbors=pb.Neighbors(neighbors=[neighbor]))
    member = pb.Member(interface_id=1, gateway=gateway(1), weight=1)
    await red.say(nexthop_sets=pb.NexthopSets(sets=[pb.NexthopSet(id=5, members=[member])]))
    await red.routes(["20.0.0.0/8"], 5)
    while (message := await red.control.read()).ack.sequence < red.sequence:
        assert message.WhichOneof("body") == "ack"
    assert prefix_key("20.0.0.0/8") in world.installed()


async def test_wrong_router_name(service, red):
    world, _, _ = service
    await red.hello("blue/r2")
    assert "certificate of red/r1" in await red.refusal()
    assert refusals(world)
    assert world.router(2).vrc is None


async def test_another_routers_certificate_is_good_for_nothing_on_this_socket(service):
    world, server, pki = service
    peer = Peer(server, pki.identity(2), 1)
    assert "this certificate is of another router" in await peer.refusal()
    assert refusals(world) == ["the certificate of blue/r2 on the session socket of red/r1"]
    assert world.router(1).punts.counters["streams_refused"] == 1
    assert world.router(2).vrc is None
    await peer.channel.close()


async def test_the_service_s_own_socket_is_no_router_s(service):
    world, server, pki = service
    direct = server.directory_for(1)
    direct.joinpath("session.sock").unlink()
    direct.joinpath("session.sock").symlink_to("../session.sock")
    peer = Peer(server, pki.identity(1), 1)
    assert "this certificate is of another router" in await peer.refusal()
    assert refusals(world) == ["the certificate of red/r1 on the session socket of unknown"]
    await peer.channel.close()


async def test_nobody_but_the_guest_s_user_reaches_its_socket(service):
    _, server, _ = service
    for directory in (server.directory_for(1), server.directory_for(1).parent):
        assert directory.stat().st_mode & 0o077 == 0
    for path in (server.directory_for(1) / "session.sock", server.directory_for(1).parent / "session.sock"):
        assert path.stat().st_mode & 0o777 == 0o600


async def test_revoked_certificate(service, red):
    world, _, pki = service
    pki._store.revoke_certificates(1)
    # It says nothing itself: a write after the end would put gRPC's own words in the place of the status.
    assert "not valid for any router" in await red.refusal()
    assert refusals(world) == ["the certificate of router 1 is revoked or unknown"]
    assert world.router().punts.counters["streams_refused"] == 1


async def test_a_guest_whose_plane_is_not_in_use_is_told_to_wait_and_called_no_intruder(service, red):
    world, _, _ = service
    del world.shards.routers[1]
    assert "plane is not in use" in await red.refusal()
    assert refusals(world) == []


async def test_certificate_of_another_authority(service, tmp_path):
    world, server, _ = service
    store = store_in(tmp_path / "other")
    foreign = PKI(tmp_path / "other", store)
    await foreign.issue([router_config(1, (1, 2))])
    peer = Peer(server, foreign.identity(1), 1)
    with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
        await peer.hello()
    assert world.router().vrc is None
    await peer.channel.close()
    store.close()


async def test_a_rotation_needs_no_new_listener(service):
    """Who has the old files and who has the new ones both get a session, until the old authority is retired."""
    world, server, pki = service
    config = world.router().config
    old = Peer(server, pki.identity(1), 1)  # it connects after the rotation
    pki.rotate()
    assert (await old.begin()).interfaces
    await old.channel.close()
    await pki.issue([config])
    new = Peer(server, pki.identity(1), 1)
    assert (await new.begin()).interfaces
    await new.channel.close()
    pki.retire()
    late = Peer(server, pki.identity(1), 1)
    assert (await late.begin()).interfaces
    await late.channel.close()


FORGERIES = {
    "another router's interface": (
        {"interfaces": pb.InterfaceStates(states=[pb.InterfaceState(id=3, up=True)])},
        "interface 3 is not one of router red/r1",
    ),
    "a neighbor on another's interface": (
        {"neighbors": pb.Neighbors(neighbors=[pb.Neighbor(interface_id=3, address=gateway(3), mac=mac(1))])},
        "interface 3",
    ),
    "a neighbor with a multicast MAC": (
        {"neighbors": pb.Neighbors(neighbors=[pb.Neighbor(interface_id=1, address=gateway(1), mac=b"\1\0\0\0\0\1")])},
        "malformed",
    ),
    "a route out of another's port": (
        {
            "nexthop_sets": pb.NexthopSets(
                sets=[pb.NexthopSet(id=1, members=[pb.Member(interface_id=3, gateway=gateway(3), weight=1)])]
            )
        },
        "interface 3",
    ),
    "an undefined set": (
        {"routes": pb.Routes(family=4, prefixes=prefix_key("20.0.0.0/8"), sets=pack_ids([77]))},
        "nexthop set 77",
    ),
    "a family that is none": ({"routes": pb.Routes(family=5)}, "family 5"),
    "host bits": (
        {"routes": pb.Routes(family=4, prefixes=b"\x0a\0\0\1\x08", sets=pack_ids([0]))},
        "is not an IPv4 prefix",
    ),
    "half a prefix": ({"routes": pb.Routes(family=4, prefixes=b"\x0a\0\0", sets=b"")}, "no multiple of 5"),
    "columns of unequal length": (
        {"routes": pb.Routes(family=4, prefixes=prefix_key("20.0.0.0/8"), sets=b"")},
        "1 prefixes with 0",
    ),
    "a snapshot nobody asked for": (
        {
            "snapshot": pb.Snapshot(
                id=4, routes=pb.Routes(family=4, prefixes=prefix_key("20.0.0.0/8"), sets=pack_ids([1]))
            )
        },
        "snapshot 4 was not asked for",
    ),
    "too many lost frames": (
        {"frame_losses": pb.FrameLosses(losses=[pb.FrameLoss()] * (MAX_ITEMS_PER_MESSAGE + 1))},
        "4097 frame losses in one message",
    ),
    "a second Hello": (
        {"hello": pb.Hello(protocol=PROTOCOL_VERSION, router="red/r1")},
        "Hello comes first, and once",
    ),
    "an empty message": ({}, "no known body"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_forged_message(service, red, forgery):
    world, _, _ = service
    await red.begin()
    before = dict(world.installed(1)), dict(world.installed(2))
    body, expected = FORGERIES[forgery]
    await red.say(**body)
    assert expected in await red.refusal()
    (text,) = refusals(world)
    assert expected in text
    assert (world.installed(1), world.installed(2)) == before
    await world.until(lambda: world.router(1).vrc is None)


async def test_sequence_that_jumps(service, red):
    await red.begin()
    red.sequence += 5
    await red.say(resync_end=pb.ResyncEnd())
    assert "message 7 after 1" in await red.refusal()


async def test_oversized_message(service, red):
    world, _, _ = service
    await red.begin()
    await red.say(notice=pb.Notice(kind="x", text="y" * (MAX_MESSAGE_BYTES + 1)))
    assert await red.refusal()
    await world.until(lambda: world.router(1).vrc is None)


async def test_notices_of_older_guests_become_events_of_uniform_kinds(service, red):
    world, _, _ = service
    await red.begin()
    await red.say(notice=pb.Notice(kind="fpm-lost", text="closed"))
    await red.say(notice=pb.Notice(kind="daemon_restart", text="again"))
    kinds = ["vrc-fpm-lost", "vrc-daemon-restart"]
    await world.until(lambda: [e.kind for e in world.events.recent() if e.kind in kinds] == kinds)


FRAME = bytes(6) + mac(1) + b"\x08\x00" + bytes(46)


@pytest.mark.parametrize(
    ("interface_id", "frame", "reason"),
    [
        (3, FRAME, "foreign_interface"),
        (1, bytes(6) + mac(3) + b"\x08\x00" + bytes(46), "foreign_mac"),
        (1, bytes(6) + mac(1) + b"\x81\x00\x00\x64\x08\x00" + bytes(46), "foreign_vlan"),
        (1, b"\x01\x80\xc2\x00\x00\x00" + mac(1) + b"\x00\x26" + bytes(46), "reserved_mac"),
        (1, b"\x01\x80\xc2\x00\x00\x0f" + mac(1) + b"\x88\x09" + bytes(46), "reserved_mac"),
        (1, b"\x01\x80\xc2\x00\x00\x21" + mac(1) + b"\x88\xf5" + bytes(46), "reserved_mac"),
        (1, b"\x01\x00\x0c\xcc\xcc\xcc" + mac(1) + b"\x00\x26" + bytes(46), "reserved_mac"),
        (1, b"\x01\x00\x0c\xcc\xcc\xcd" + mac(1) + b"\x00\x26" + bytes(46), "reserved_mac"),
        (1, mac(9) + mac(1) + b"\x88\x08\x00\x01\xff\xff" + bytes(42), "mac_control"),
        (1, FRAME + bytes(1500), "frame_size"),
        (1, b"short", "frame_size"),
    ],
    ids=["interface", "mac", "vlan", "first", "last", "vlans", "udld", "pvst", "pause", "long", "short"],
)
async def test_forged_packet_out(service, red, interface_id, frame, reason):
    world, _, _ = service
    await red.begin()
    await world.settle()
    frames = await red.frames()
    await frames.send((interface_id, frame), (1, FRAME))
    await world.until(lambda: world.plane.packets_out)
    assert [sent for _, sent in world.plane.packets_out] == [FRAME]
    assert world.router().punts.counters[f"refused_{reason}"] == 1
    assert any(reason in text for text in refusals(world, "packet-out-refused"))


async def test_a_guest_that_is_up_before_its_interface_does_no_wrong(service, red):
    world, _, _ = service
    await red.begin()
    await world.settle()
    frames = await red.frames()
    world.plane.fault = lambda table, key, op: "no room" if table == "router_interface" else None
    await world.shards.put_router(router_config(1, (1, 2, 4)))
    await frames.send((4, bytes(6) + mac(4) + FRAME[12:]))
    counters = world.router().punts.counters
    await world.until(lambda: counters["drop_interface_not_on_plane"])
    assert refusals(world, "packet-out-refused") == []


async def test_a_frame_under_way_when_its_interface_is_deleted_is_no_forged_one(service, red):
    world, _, _ = service
    await red.begin()
    await world.settle()
    frames = await red.frames()
    await world.shards.put_router(router_config(1, (1,)))
    await frames.send((2, bytes(6) + mac(2) + FRAME[12:]), (1, FRAME))
    await world.until(lambda: world.plane.packets_out)
    assert [sent for _, sent in world.plane.packets_out] == [FRAME]
    assert refusals(world, "packet-out-refused") == []
    assert world.router().punts.counters["drop_interface_not_on_plane"] == 1


@pytest.mark.parametrize("group", ["0180c2000010", "0180c2000014", "0180c2000015", "0180c2000030", "09002b000005"])
async def test_groups_of_routers_leave_the_guest(service, red, group):
    """IS-IS has the second and third, ISO/IEC 10589 section 8.4.8."""
    world, _, _ = service
    await red.begin()
    await world.settle()
    frames = await red.frames()
    hello = bytes.fromhex(group) + mac(1) + b"\x00\x26" + bytes(46)
    await frames.send((1, hello))
    await world.until(lambda: world.plane.packets_out)
    assert [sent for _, sent in world.plane.packets_out] == [hello]


async def test_a_write_under_way_is_not_cancelled():
    sent, begun = asyncio.Event(), asyncio.Event()
    written: list[str] = []

    async def write() -> None:
        begun.set()
        await sent.wait()
        written.append("whole")

    task = asyncio.create_task(whole(write()))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    sent.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert written == ["whole"]


async def test_a_write_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr("controller.sessions.control_stream.LAST_WORDS_S", 0.0)
    begun, given_up = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    task = asyncio.create_task(whole(write()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert given_up.is_set()


async def test_a_write_that_fails_after_its_session_is_no_error_of_ours():
    """A router is deleted: its session is cancelled, and once more by gRPC, as its guest ends meanwhile."""
    ended, begun = asyncio.Event(), asyncio.Event()
    logged: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context["message"]))

    async def write() -> None:
        begun.set()
        await ended.wait()
        raise ConnectionError

    task = asyncio.create_task(whole(write()))
    await begun.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    ended.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
    gc.collect()
    assert not logged


async def test_punts_wait_for_the_connection_of_frames(service, red):
    world, _, _ = service
    await red.begin()
    frames = [bytes([number]) * 60 for number in range(40)]
    for frame in frames:
        world.plane.punt(1, PuntReason.CONTROL, frame)
    assert world.router().punts.counters["to_guest"] == 0
    connection = await red.frames()
    assert [frame for _, _, frame in await connection.read(len(frames))] == frames


async def test_punts_reach_their_router_alone(service, red):
    world, server, pki = service
    blue = Peer(server, pki.identity(2), 2)
    await red.begin()
    await blue.begin("blue/r2")
    to_red, to_blue = await red.frames(), await blue.frames()
    world.plane.punt(1, PuntReason.CONTROL, b"for red")
    world.plane.punt(3, PuntReason.LOCAL, b"for blue")
    assert await to_red.read() == [(1, PuntReason.CONTROL, b"for red")]
    assert await to_blue.read() == [(3, PuntReason.LOCAL, b"for blue")]
    assert world.router(1).punts.counters["to_guest"] == 1
    await blue.channel.close()


async def test_revoked_router_is_cut(service, red):
    world, server, _ = service
    await red.begin()
    server.revoke(1)
    await red.refusal()
    await world.until(lambda: world.router(1).vrc is None)
    assert not server.directory_for(1).exists()


async def test_nothing_is_learned_before_the_plane_is_known(tmp_path):
    """A VRC that is back before the switch must not get ids that the switch uses for something else."""
    world = World()
    await world.shards.add_plane(world.plane)
    config = router_config(1, (1, 2))
    await world.shards.put_router(config)
    store = store_in(tmp_path / "state")
    pki = PKI(tmp_path / "state", store)
    await pki.issue([config])
    server = SessionServer(world.shards, pki, tmp_path / "sessions", world.events)
    server.admit(1, os.geteuid())
    await server.start()
    peer = Peer(server, pki.identity(1), 1)
    await peer.hello()
    await peer.say(interfaces=pb.InterfaceStates(states=[pb.InterfaceState(id=1, up=True)]))
    declared = asyncio.create_task(peer.control.read())
    done, _ = await asyncio.wait([declared], timeout=0.2)
    assert not done
    assert world.router().fib.interfaces[1].guest_up is None
    world.plane.set_port(1, "p1", True)
    world.plane.connect()
    assert (await declared).declaration.interfaces[0].port_up
    await peer.channel.close()
    await server.close()
    await world.close()
    store.close()


async def test_interface_that_was_removed_lately_may_still_be_named(service, red):
    world, _, _ = service
    await red.begin()
    await world.shards.put_router(router_config(1, (1,)))
    await red.say(interfaces=pb.InterfaceStates(states=[pb.InterfaceState(id=2, up=True)]))
    member = pb.Member(interface_id=2, gateway=gateway(2), weight=1)
    await red.say(nexthop_sets=pb.NexthopSets(sets=[pb.NexthopSet(id=5, members=[member])]))
    await red.routes(["20.0.0.0/8"], 5)
    while (message := await red.control.read()).ack.sequence < red.sequence:
        assert message.WhichOneof("body") != "refusal"
    assert prefix_key("20.0.0.0/8") not in world.installed()


async def test_admitted_twice_leaves_nothing_when_revoked(service):
    _, server, _ = service
    server.admit(1, os.geteuid())
    server.revoke(1)
    assert not server.directory_for(1).exists()
