"""What a hostile tenant with root runs inside its own guest.

    python3 - ATTACK ROUTER [ARGUMENT] < hostile_root.py        what became of it: JSON on the last line

It speaks gRPC with the certificate of its router, and says whatever it wants. The honest VRC is stopped meanwhile.
"""

import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import grpc

from wire import (
    MAX_FRAME_BYTES,
    MAX_ITEMS_PER_MESSAGE,
    MAX_MESSAGE_BYTES,
    MAX_ROUTES_PER_MESSAGE,
    PROTOCOL_VERSION,
)
from wire import splitplane_pb2 as pb
from wire.frames import MAGIC, TICKET_BYTES, pack_frame

SOCKET = "/run/splitplane/session/session.sock"
IDENTITY = "/run/splitplane/identity"
SERVICE = "/splitplane.v1.VrcSession"
BLACKHOLE = pb.NexthopSet.BLACKHOLE
CONNECTED = pb.NexthopSet.CONNECTED
FLOOD_FRAMES = 64  # sent at once
CONNECTIONS, WAITED_FOR = 100, 50
SESSIONS_S, ROUTES_S, FINISH_S = 15.0, 6.0, 30.0


def channel():
    """A connection with our own certificate, once there is one: places are free some time after they were left."""
    parts = [Path(f"{IDENTITY}/{name}.pem").read_bytes() for name in ("ca", "key", "cert")]
    options = [
        ("grpc.ssl_target_name_override", "vr-controller"),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]
    link = grpc.secure_channel(f"unix:{SOCKET}", grpc.ssl_channel_credentials(*parts), options)
    grpc.channel_ready_future(link).result(60)
    return link


class Stream:
    """One stream of octets: what is put is sent, what comes back is kept, and how it ended."""

    def __init__(self, link, method="Control"):
        self._outbound, self._ended, self._finished = [], threading.Event(), False
        self._ready = threading.Condition()
        self.received, self.end = [], ""
        self.sent = 0
        self._call = link.stream_stream(f"{SERVICE}/{method}")(self._requests())
        threading.Thread(target=self._read, daemon=True).start()

    def _requests(self):
        while not self._ended.is_set():
            with self._ready:
                self._ready.wait_for(lambda: self._outbound or self._finished or self._ended.is_set(), 0.2)
                if not self._outbound:
                    if self._finished:
                        return
                    continue
                octets = self._outbound.pop(0)
                self._ready.notify_all()
            self.sent += 1
            yield octets

    def _read(self):
        try:
            for octets in self._call:
                if len(self.received) < 8:
                    self.received.append(octets)
            self.end = "ended"
        except grpc.RpcError as error:
            self.end = error.details()
        self._ended.set()

    def put(self, octets):
        """Send octets once those before have been taken; False where the stream has ended."""
        with self._ready:
            self._ready.wait_for(lambda: not self._outbound or self._ended.is_set())
            self._outbound.append(octets)
            self._ready.notify_all()
        return not self._ended.is_set()

    def finish(self):
        """Say that nothing more comes: the controller ends the stream once it has followed all of it."""
        with self._ready:
            self._finished = True
            self._ready.notify_all()

    def ends(self, limit_s=15):
        """Wait for its end; returns why it ended."""
        return self.end if self._ended.wait(limit_s) else "still open"

    def cancel(self):
        self._call.cancel()


class Session:
    """A session of ours: says Hello and learns which interfaces there are."""

    def __init__(self, link, router):
        self.stream, self._sequence = Stream(link), itertools.count(1)
        self.say(hello=pb.Hello(protocol=PROTOCOL_VERSION, router=router, instance="x", source="fpm"))
        while not self.stream.received and not self.stream.end:
            time.sleep(0.01)
        assert self.stream.received, self.stream.end
        declaration = pb.ControllerMessage.FromString(self.stream.received[0]).declaration
        self.declared, self.ticket = declaration.interfaces, declaration.frame_ticket

    def say(self, **body):
        return self.stream.put(pb.VrcMessage(sequence=next(self._sequence), **body).SerializeToString())


def frame(source, kind=b"\x08\x00", size=60):
    return b"\xff" * 6 + source + kind + bytes(size - 14)


class Frames:
    """A connection of frames, with whatever ticket."""

    def __init__(self, ticket):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(FINISH_S)
        self._socket.connect(SOCKET)
        self.put(MAGIC + ticket)

    def put(self, octets):
        """Send octets; False where the connection has ended."""
        try:
            self._socket.sendall(octets)
        except OSError:
            return False
        return True

    def finish(self):
        """Say that nothing more comes: the controller ends the connection once it has read all of it."""
        self._socket.shutdown(socket.SHUT_WR)

    def ends(self, limit_s=15):
        """Wait for its end; returns whether it came."""
        self._socket.settimeout(limit_s)
        try:
            while self._socket.recv(1 << 16):
                pass
        except TimeoutError:
            return "still open"
        except OSError:
            pass
        return "ended"


# -- attacks ---------------------------------------------------------------------------------------------------------


def malformed(router):
    """What is no message, or means nothing: each on a stream of its own."""
    hello = pb.VrcMessage(sequence=1, hello=pb.Hello(protocol=PROTOCOL_VERSION, router=router)).SerializeToString()
    second = {
        "a route of an unknown set": pb.VrcMessage(
            sequence=2, routes=pb.Routes(family=4, prefixes=b"\x14\0\0\0\x08", sets=b"\x07\0\0\0")
        ),
        "half a prefix": pb.VrcMessage(sequence=2, routes=pb.Routes(family=4, prefixes=b"\x14\0")),
        "a family that is none": pb.VrcMessage(sequence=2, routes=pb.Routes(family=7)),
        "a foreign interface": pb.VrcMessage(
            sequence=2, interfaces=pb.InterfaceStates(states=[pb.InterfaceState(id=1 << 30, up=True)])
        ),
        "a neighbor of a million octets": pb.VrcMessage(
            sequence=2, neighbors=pb.Neighbors(neighbors=[pb.Neighbor(interface_id=1, address=bytes(1 << 19))])
        ),
        "a sequence that jumps": pb.VrcMessage(sequence=99, resync_end=pb.ResyncEnd()),
    }
    first = {
        "octets that are no message": b"\xff" * 64,
        "a message that is cut short": hello[:-1],
        "a long name": pb.VrcMessage(sequence=1, hello=pb.Hello(protocol=2, router="\x1b[2J" * 100_000)),
        "a message that is too long": pb.VrcMessage(
            sequence=1, hello=pb.Hello(protocol=2, instance="x" * (MAX_MESSAGE_BYTES + 1))
        ),
        "another's name": pb.VrcMessage(sequence=1, hello=pb.Hello(protocol=PROTOCOL_VERSION, router="blue/r1")),
        "no Hello": pb.VrcMessage(sequence=1, resync_end=pb.ResyncEnd()),
        "nothing": b"",
    }
    ends = {}
    with channel() as link:
        for name, message in first.items():
            stream = Stream(link)
            stream.put(message if isinstance(message, bytes) else message.SerializeToString())
            ends[name] = stream.ends()
        for name, message in second.items():
            stream = Stream(link)
            stream.put(hello)
            stream.put(message.SerializeToString())
            ends[name] = stream.ends()
        stream = Stream(link, "Anything")
        stream.put(b"")
        ends["another method"] = stream.ends()
        ends["another's ticket"] = Frames(bytes(TICKET_BYTES)).ends()
        frames = Frames(Session(link, router).ticket)
        frames.put(pack_frame(1, bytes(MAX_FRAME_BYTES + 1)))
        ends["a frame that is too long"] = frames.ends()
    return ends


def spoof(router, victim_mac, each="50"):
    """Frames that are not ours to send: another's MAC, tags, interfaces, sizes; each so many times."""
    with channel() as link:
        session = Session(link, router)
        own = session.declared[0]
        forged = {
            "foreign_mac": (own.id, frame(bytes.fromhex(victim_mac))),
            "foreign_vlan": (own.id, frame(own.mac, b"\x81\0\0\x64\x08\0")),
            "foreign_vlan ": (own.id, frame(own.mac, b"\x88\xa8\0\x64\x08\0")),
            "reserved_mac": (own.id, bytes.fromhex("0180c2000000") + frame(own.mac)[6:]),
            "mac_control": (own.id, frame(own.mac, b"\x88\x08\x00\x01\xff\xff")),
            "foreign_interface": (1 << 20, frame(own.mac)),
            "frame_size": (own.id, frame(own.mac, size=own.mtu + 15)),
        }
        sent, frames = Counter(), Frames(session.ticket)
        for reason, forgery in forged.items():
            for _ in range(int(each)):
                frames.put(pack_frame(*forgery))
                sent[reason.strip()] += 1
        frames.finish()
        return {"sent": sent, "ended": frames.ends(FINISH_S)}


def flood(router, seconds="3"):
    """As many packet-outs as go: broadcasts out of our own port."""
    with channel() as link:
        session = Session(link, router)
        own = session.declared[0]
        octets = pack_frame(own.id, frame(own.mac, b"\x88\xb5")) * FLOOD_FRAMES
        frames, sent = Frames(session.ticket), 0
        began = time.monotonic()
        while time.monotonic() < began + float(seconds) and frames.put(octets):
            sent += FLOOD_FRAMES
        frames.finish()
        ended = frames.ends(FINISH_S)
        return {"frames": sent, "ended": ended, "seconds": time.monotonic() - began}


def sessions(router, count="1000"):
    """A thousand sessions: connections at once, then streams one after the other, most of them cut at once."""
    taken = []
    for _ in range(CONNECTIONS):
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        one.connect_ex(SOCKET)
        taken.append(one)
    time.sleep(3)
    for one in taken:
        one.close()
    hello = pb.VrcMessage(sequence=1, hello=pb.Hello(protocol=PROTOCOL_VERSION, router=router)).SerializeToString()
    began, ends, opened = time.monotonic(), Counter(), 0
    with channel() as link:
        while opened < int(count) and time.monotonic() < began + SESSIONS_S:
            stream = Stream(link)
            stream.put(hello)
            opened += 1
            if opened % WAITED_FOR:
                stream.cancel()
            else:
                ends[stream.ends(2)] += 1
    return {"opened": opened, "ends": ends, "seconds": round(time.monotonic() - began, 1)}


def routes(router, count="10000000", limit_s=str(ROUTES_S)):
    """Ten million prefixes of 32 bits, or what goes within a time, without waiting for acknowledgements."""
    size, began = MAX_ROUTES_PER_MESSAGE, time.monotonic()
    columns = bytearray(5 * size)
    columns[3::5] = bytes(i & 255 for i in range(size))
    columns[4::5] = b"\x20" * size
    third = bytes(i >> 8 for i in range(size))
    with channel() as link:
        session = Session(link, router)
        session.say(nexthop_sets=pb.NexthopSets(sets=[pb.NexthopSet(id=1, kind=BLACKHOLE)]))
        ids, announced = (1).to_bytes(4, "little") * size, 0
        for number in range(-(-int(count) // size)):
            columns[0::5] = bytes((20 + (number >> 12),)) * size
            columns[1::5] = bytes((number >> 4 & 255,)) * size
            columns[2::5] = third.translate(bytes(((number & 15) << 4 | low) & 255 for low in range(256)))
            message = pb.Routes(family=4, prefixes=bytes(columns), sets=ids)
            if not session.say(routes=message):
                break
            announced += size
            if time.monotonic() > began + float(limit_s):
                break
        seconds = time.monotonic() - began
        session.stream.finish()
        return {"announced": announced, "ended": session.stream.ends(FINISH_S), "seconds": round(seconds, 1)}


def churn(router, seconds="3"):
    """Messages that cost much to follow: interfaces and neighbors that come and go, sets made and let go."""
    with channel() as link:
        session, rounds = Session(link, router), 0
        own, address = session.declared[0], bytes((10, 1, 0, 1))
        each = range(MAX_ITEMS_PER_MESSAGE)
        states = [pb.InterfaceState(id=own.id, up=bool(i & 1), addresses=[address]) for i in each]
        hosts = [bytes((10, 1, 2 + (i >> 8), i & 255)) for i in each]
        come, go = ([pb.Neighbor(interface_id=own.id, address=h, mac=mac) for h in hosts] for mac in (own.mac, b""))
        began = time.monotonic()
        while time.monotonic() < began + float(seconds):
            base = 1 + 600 * rounds
            sets = [
                pb.NexthopSet(
                    id=base + i,
                    kind=CONNECTED,
                    members=[
                        pb.Member(interface_id=own.id, gateway=(base + i).to_bytes(4, "big"), weight=1 + w)
                        for w in range(20)
                    ],
                )
                for i in range(600)
            ]
            alive = (
                session.say(interfaces=pb.InterfaceStates(states=states))
                and session.say(neighbors=pb.Neighbors(neighbors=come))
                and session.say(neighbors=pb.Neighbors(neighbors=go))
                and session.say(nexthop_sets=pb.NexthopSets(sets=sets))
                and session.say(nexthop_sets=pb.NexthopSets(released=range(base, base + 600)))
            )
            if not alive:
                break
            rounds += 1
        return {"rounds": rounds, "ended": session.stream.end}


def honest():
    """The processes of the router's own VRC."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if b"vrc.agent" in path.read_bytes():
            yield int(path.parent.name)


if __name__ == "__main__":
    attacks = {attack.__name__: attack for attack in (malformed, spoof, flood, sessions, routes, churn)}
    stopped = list(honest())
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        print(json.dumps(attacks[sys.argv[1]](*sys.argv[2:])))
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)
