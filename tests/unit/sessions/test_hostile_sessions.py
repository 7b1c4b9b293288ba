"""A hostile guest with a good certificate: what it fills has a bound, a counter and a name, and costs it alone."""

import asyncio
import re
from dataclasses import replace

import grpc
import pytest
from peers import Peer, end_of, refusals
from worlds import FakeVrc, gateway, mac, router_config

from controller.errors import NoSuch, SessionRefused
from controller.events.log import MAX_TEXT, REPORT_EVERY_S, REPORTS_AT_ONCE, EventLog
from controller.events.token_bucket import TokenBucket
from controller.model import Quota
from controller.routing import fib, fib_state, rib
from controller.routing.rib import SetKind
from controller.sessions import server as sessions
from controller.shard import loop_share
from wire import MAX_MESSAGE_BYTES
from wire import splitplane_pb2 as pb

# -- what is no message ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "octets", "reason"),
    [
        ("Control", b"\xff\xff\xff\xff", "4 octets that are no VrcMessage"),
        ("Control", bytes(MAX_MESSAGE_BYTES + 1), f"a message of {MAX_MESSAGE_BYTES + 1} octets"),
        ("Fly", b"", "a stream that is not Control"),
    ],
)
async def test_what_is_no_message_is_refused_by_name(service, red, method, octets, reason):
    world, _, _ = service
    call = red.channel.stream_stream(f"/splitplane.v1.VrcSession/{method}")()
    await call.write(octets)
    assert reason in await end_of(call)
    assert [text for text in refusals(world) if reason in text]
    assert world.router().punts.counters["streams_refused"] == 1


async def test_what_is_compressed_stays_so(service, red):
    """It would be a thousand times as long in memory before its length is looked at again."""
    call = red.channel.stream_stream("/splitplane.v1.VrcSession/Control")(compression=grpc.Compression.Gzip)
    await call.write(bytes(16 * MAX_MESSAGE_BYTES))
    assert re.fullmatch(r"\d{1,6} octets that are no VrcMessage", await end_of(call))


async def test_words_of_a_guest_are_short_and_printable_in_events(service, red):
    world, _, _ = service
    await red.hello(router="\x1b[2J" * 100_000)
    assert "with the certificate of red/r1" in await red.refusal()
    for event in world.events.recent():
        assert len(event.text) <= MAX_TEXT
        assert event.text.isprintable()


async def test_words_of_a_guest_that_has_no_snapshot_are_printable(service, red):
    """An operator who compares is shown them."""
    world, _, _ = service
    await red.begin()
    await world.until(lambda: world.router().vrc is not None)
    waiting = asyncio.create_task(world.shards.of_plane("s1").snapshot(world.router()))
    while (asked := await red.control.read()).WhichOneof("body") != "snapshot_request":
        pass
    words = "\x1b]52;c;cm0gLXJmIH4K\x07"
    await red.say(snapshot=pb.Snapshot(id=asked.snapshot_request.id, end=True, error=words * 1000))
    with pytest.raises(NoSuch) as refused:
        await waiting
    assert "?]52;c;cm0gLXJmIH4K?" in str(refused.value)
    assert str(refused.value).isprintable()


# -- too many streams ------------------------------------------------------------------------------------------------


async def test_streams_beyond_a_rate_are_refused_and_others_are_not(service, red, monkeypatch):
    world, server, pki = service
    monkeypatch.setattr(sessions, "REFUSAL_PAUSE_S", 0.0)
    await red.hello(router="red/r2")
    await red.refusal()  # its own stream is over
    reasons = []
    server._streams[1] = TokenBucket(1e-6, sessions.STREAMS_AT_ONCE)  # however long this takes
    for number in range(sessions.STREAMS_AT_ONCE + 2):
        stream = red.stub.Control()
        if number < sessions.STREAMS_AT_ONCE:  # the others are refused at once, perhaps before anything is written
            await stream.write(pb.VrcMessage(sequence=1))
        reasons.append(await end_of(stream))
    assert sum(f"more than {sessions.STREAMS_AT_ONCE} streams" in reason for reason in reasons) == 2
    assert world.router().punts.counters["streams_refused"] == len(reasons) + 1
    blue = Peer(server, pki.identity(2), 2)
    await blue.begin("blue/r2")
    await blue.channel.close()


@pytest.mark.parametrize("why", ["too many", "unknown", "revoked"])
async def test_who_ends_a_refused_stream_early_has_to_connect_anew(service, red, monkeypatch, why):
    """Else it would have the next stream at once, thousands a second, and each costs the event loop."""
    world, server, pki = service
    monkeypatch.setattr(sessions, "REFUSAL_PAUSE_S", 1000.0)
    server._streams[1] = TokenBucket(1e-6, 0)
    if why == "revoked":
        pki._store.revoke_certificates(1)
    calls = [red.control]
    if why == "unknown":
        calls.append(red.channel.stream_stream("/splitplane.v1.VrcSession/Fly")())
    connections = server._sockets._listeners[1]._open
    await world.until(lambda: len(refusals(world)) == len(calls))
    assert len(connections) == 1
    calls[-1].cancel()
    await world.until(lambda: not connections)


async def test_a_refused_stream_keeps_its_place_for_a_while(service, red, monkeypatch):
    paused = asyncio.Event()

    async def pause(seconds: float) -> None:
        assert seconds == sessions.REFUSAL_PAUSE_S
        paused.set()

    monkeypatch.setattr(sessions.asyncio, "sleep", pause)
    await red.hello(protocol=99)
    assert "protocol 99" in await red.refusal()
    await paused.wait()


async def test_what_a_guest_sends_into_a_stream_that_is_not_read_is_kept_within_its_window(service, red, monkeypatch):
    """Else gRPC lets the window grow with the rate at which it is filled, to megabytes for each stream."""
    world, server, _ = service
    monkeypatch.setattr(sessions, "REFUSAL_PAUSE_S", 1000.0)
    await red.hello(protocol=99)
    await world.until(lambda: refusals(world))
    raw = red.channel.stream_stream("/splitplane.v1.VrcSession/Control")()
    server._streams[1] = TokenBucket(1e-6, 0)
    written = 0
    while True:
        write = asyncio.ensure_future(raw.write(bytes(16384)))
        if not (await asyncio.wait([write], timeout=0.5))[0]:
            break
        written += 16384
    raw.cancel()
    assert written <= 4 * 65536


# -- events ----------------------------------------------------------------------------------------------------------


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_reports_are_held_back_and_counted_each_share_for_itself():
    clock = Clock()
    events = EventLog(clock)
    for number in range(1000):
        events.report("error", "refused", "red/r1", f"no {number}")
        list(events.telling_held())
    events.report("error", "refused", "blue/r1", "another subject")
    events.report("error", "vrc-x", "red/r1", "another share", share="notice")
    assert len(events.recent()) == REPORTS_AT_ONCE + 2
    clock.now += REPORT_EVERY_S
    list(events.telling_held())
    last = events.recent()[-1]
    assert (last.kind, last.subject) == ("refused", "red/r1")
    assert last.text == f"{1000 - REPORTS_AT_ONCE} more, the last one: no 999"
    clock.now += REPORT_EVERY_S
    list(events.telling_held())
    assert events.recent()[-1] is last


def test_what_is_quiet_is_forgotten():
    clock = Clock()
    events = EventLog(clock)
    for number in range(1000):
        events.report("error", "refused", f"red/r{number}", "no")
    for _ in range(int(REPORT_EVERY_S) - 1):
        clock.now += 1.0
        assert not list(events.telling_held())  # none is looked at before it is time to
    clock.now += 1.0
    assert len(list(events.telling_held())) == 1000
    assert not events._reports


def test_what_is_held_is_told_as_soon_as_one_may_be_whenever_that_began():
    clock = Clock()
    events = EventLog(clock)
    for _ in range(REPORTS_AT_ONCE):
        events.report("error", "refused", "red/r1", "no")
    clock.now += REPORT_EVERY_S + 10  # there is one for a third of the time already
    events.report("error", "refused", "red/r1", "told")
    events.report("error", "refused", "red/r1", "held")
    list(events.telling_held())
    assert events.recent()[-1].text == "told"
    for after_s, text in ((REPORT_EVERY_S * 2 / 3 - 1, "told"), (2.0, "held")):
        clock.now += after_s
        list(events.telling_held())
        assert events.recent()[-1].text == text
    for _ in range(100):
        clock.now += REPORT_EVERY_S
        list(events.telling_held())
    assert not events._reports
    assert not events._due


async def test_refused_packets_are_counted_by_reason_and_told_of_within_bounds(service, red):
    world, _, _ = service
    await red.begin()
    await world.settle()
    forged = bytes(6) + mac(3) + b"\x08\x00" + bytes(46)
    frames = await red.frames()
    for _ in range(10):
        await frames.send(*[(1, forged)] * 60)
    await frames.send((1, b"short"))
    counters = world.router().punts.counters
    await world.until(lambda: counters["refused_frame_size"] == 1)
    assert counters["refused_foreign_mac"] == 600
    told = refusals(world, "packet-out-refused")
    assert len(told) == REPORTS_AT_ONCE + 1
    assert told[-1].startswith("frame_size")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"interfaces": pb.InterfaceStates(states=[pb.InterfaceState(id=1)] * 4097)}, "4097 interface states"),
        ({"neighbors": pb.Neighbors(neighbors=[pb.Neighbor(interface_id=1)] * 4097)}, "4097 neighbors"),
        ({"nexthop_sets": pb.NexthopSets(sets=[pb.NexthopSet(id=1)] * 4097)}, "4097 nexthop sets"),
        ({"nexthop_sets": pb.NexthopSets(released=[1] * 4097)}, "4097 released nexthop sets"),
        ({"nexthop_sets": pb.NexthopSets(sets=[pb.NexthopSet(members=[pb.Member()] * 257)] * 64)}, "16448 members"),
    ],
)
async def test_a_message_has_a_bound_on_each_kind_of_item(service, red, body, reason):
    await red.begin()
    await red.say(**body)
    assert (await red.refusal()).startswith(f"{reason} in one message; at most ")


# -- memory ----------------------------------------------------------------------------------------------------------


def prefixes(count: int, first: int = 0) -> list[bytes]:
    return [(0x14000000 + (first + i << 8)).to_bytes(4, "big") + b"\x18" for i in range(count)]


@pytest.fixture
async def small(make_world, monkeypatch):
    monkeypatch.setattr(fib_state, "SPARE_ROUTES", 50)
    return await make_world(router_config(1, (1,), quota=Quota(ipv4_routes=100)))


async def test_routes_far_beyond_the_quota_are_counted_and_not_kept(small):
    vrc = small.connect()
    router = small.router()
    router.define_set(1, SetKind.BLACKHOLE, [])
    for first in range(0, 1000, 100):
        router.routes(4, prefixes(100, first), [1] * 100)
    assert router.fib.learned_counts[4] == len(router.fib.learned) == 150
    assert router.punts.counters["ipv4_routes_not_kept"] == 850
    assert refusals(small, "routes-not-kept")[0] == "50 of a message, too far beyond quota ipv4_routes"
    router.resync_end(True)
    router.processed(1)
    await small.settle()
    assert router.state == ("degraded", "quota ipv4_routes of 100")
    with pytest.raises(SessionRefused, match="nexthop set 7, which is not defined"):
        router.routes(4, prefixes(1, 5000), [7])
    router.routes(4, [*prefixes(1), *prefixes(2, 500)], [0, 1, 1])  # a withdrawal makes room for the next message
    router.routes(4, prefixes(2, 500), [1, 1])
    assert router.fib.learned_counts[4] == 150
    small.shards.routers[1].tick()
    assert vrc.closed is None


async def test_what_was_not_kept_is_asked_for_again_once_there_is_room(small):
    vrc, router = small.connect(), small.router()
    router.define_set(1, SetKind.BLACKHOLE, [])
    router.routes(4, prefixes(200), [1] * 200)
    router.routes(4, prefixes(49), [0] * 49)
    router.tick()
    assert vrc.closed is None  # one of the spare room is still taken
    router.routes(4, prefixes(1, 49), [0])
    router.tick()
    assert vrc.closed == "there is room again for what was not kept"
    again = FakeVrc()
    router.open(again)
    router.tick()
    assert again.closed is None


async def test_a_raised_quota_makes_room_for_what_was_not_kept(small):
    vrc, router = small.connect(), small.router()
    router.define_set(1, SetKind.BLACKHOLE, [])
    router.routes(4, prefixes(200), [1] * 200)
    await small.shards.put_router(replace(router.config, quota=Quota(ipv4_routes=300)))
    router.tick()
    assert vrc.closed == "there is room again for what was not kept"


async def test_sets_that_were_let_go_make_room_for_others(make_world, monkeypatch):
    monkeypatch.setattr(rib, "MAX_KEPT_SETS", 100)
    world = await make_world(router_config(1, (1,)))
    world.connect()
    await world.settle()
    router = world.router()
    for set_id in range(1, 1000):
        router.define_set(set_id, SetKind.CONNECTED, [(1, set_id.to_bytes(4, "big"), 1)])
        router.fib._rib.release([set_id])
        assert len(list(router.fib._rib.sets)) <= 100


async def test_sets_and_their_members_are_bounded(make_world, monkeypatch):
    monkeypatch.setattr(rib, "MAX_KEPT_MEMBERS", 1000)
    world = await make_world(router_config(1, (1,)))
    world.connect()
    await world.settle()
    router = world.router()

    def define(set_id: int) -> None:
        router.define_set(set_id, SetKind.CONNECTED, [(1, bytes((set_id,)) * 4, weight) for weight in range(1, 257)])

    for set_id in range(1, 4):
        define(set_id)
    with pytest.raises(SessionRefused, match="or 1000 members of them"):
        define(4)
    assert sum(len(one.members) for one in router.fib._rib.sets) <= 1000


async def test_neighbors_refused_before_a_session_do_not_count_in_it(make_world):
    world = await make_world(router_config(1, (1,), quota=Quota(neighbors=1)))
    world.connect()
    router = world.router()
    list(router.neighbors([(1, gateway(9), mac(9), False)]))
    router.resync_end(True)
    await world.settle()
    assert router.state == ("degraded", "quota neighbors of 1")
    router.open(FakeVrc())
    router.resync_end(True)
    assert router.state == ("up", "")


async def test_acknowledgements_of_messages_that_change_nothing_take_no_room(make_world):
    world = await make_world(router_config(1, (1,)))
    vrc = world.connect()
    world.router().define_set(1, SetKind.BLACKHOLE, [])
    await world.settle()
    world.plane.gate.clear()
    world.learn({"20.0.0.0/8": 1})
    for sequence in range(2, 1000):
        world.router().processed(sequence)
    assert len(world.router()._acks) == 1
    world.plane.gate.set()
    await world.settle()
    assert vrc.acknowledged == 999


async def test_a_router_far_ahead_of_its_plane_is_not_read_from(make_world, monkeypatch):
    monkeypatch.setattr(fib_state, "LOST_AHEAD", 1000)
    world = await make_world(router_config(1, (1,)))
    world.connect()
    router = world.router()
    router.define_set(1, SetKind.BLACKHOLE, [])
    await world.settle()
    await asyncio.wait_for(router.caught_up(), 30)
    world.plane.disconnect()
    for first in range(0, 6000, 500):
        router.routes(4, prefixes(500, first), [1] * 500)
        router.routes(4, prefixes(500, first), [0] * 500)
        router.processed(first + 1)
    waiting = asyncio.create_task(router.caught_up())
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    world.plane.connect()
    await asyncio.wait_for(waiting, 30)


# -- time ------------------------------------------------------------------------------------------------------------


async def test_interfaces_and_neighbors_of_a_message_are_followed_in_one_pass(service, red, monkeypatch):
    world, _, _ = service
    await red.begin()
    passes = []
    followed = fib.Fib._refresh
    monkeypatch.setattr(fib.Fib, "_refresh", lambda self, *rest: (passes.append(1), followed(self, *rest))[1])
    states = [pb.InterfaceState(id=1, up=bool(number & 1)) for number in range(1001)]
    await red.say(interfaces=pb.InterfaceStates(states=states))
    neighbors = [
        pb.Neighbor(interface_id=1, address=gateway(1), mac=mac(7) if number & 1 else b"") for number in range(1000)
    ]
    await red.say(neighbors=pb.Neighbors(neighbors=neighbors))
    own = world.router().fib
    await world.until(lambda: (1, gateway(1)) in own.neighbors)
    assert not own.interfaces[1].guest_up
    assert own.neighbors[1, gateway(1)].mac == mac(7)
    assert len(passes) == 2


async def test_a_message_that_took_long_is_an_event_that_names_its_router(service, red, monkeypatch):
    monkeypatch.setattr(loop_share, "LONG_SLICE_S", 0.0)
    world, _, _ = service
    await red.begin()
    await red.say(nexthop_sets=pb.NexthopSets(released=[7]))
    told = " ms of the event loop, meant is 20 at most"
    await world.until(lambda: any(text.endswith(told) for text in refusals(world, "loop-held")))
    subjects = {event.subject for event in world.events.recent() if event.kind == "loop-held"}
    assert subjects == {"red/r1"}
    assert world.shards.loop_share.account(world.router().config).spent_s > 0.0
