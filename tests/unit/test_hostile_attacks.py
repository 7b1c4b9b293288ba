"""What bench/hostile's attacker says is what a session takes: else it would measure refusals."""

import socket
import threading
import time
from dataclasses import asdict
from ipaddress import ip_address, ip_network
from itertools import islice
from pathlib import Path

import pytest

from bench.attacks import guest_root
from bench.attacks.floods import BEYOND, COUNT, OF_HOSTS, ROUTER, SWEPT, CameOf, Link
from bench.attacks.messages import BEFORE, OF_ROUTERS
from bench.attacks.target import Target
from bench.watched_controller import StallFile
from controller.planes.base import PuntClass, PuntReason
from controller.planes.packet import Frame, IpPacket, internet_checksum
from controller.planes.punt_class import punt_class
from lab.generator import HEAD_BYTES
from wire import MAX_ITEMS_PER_MESSAGE, MAX_MEMBERS_PER_MESSAGE, MAX_MESSAGE_BYTES, MAX_ROUTES_PER_MESSAGE
from wire import splitplane_pb2 as pb

SAID = 50
LINK = Link(host=bytes((2, 9, 0, 0, 0, 1)), router=bytes((2, 9, 0, 0, 0, 2)))
FLOODED = {
    "arp-flood": (PuntReason.CONTROL, PuntClass.ARP),
    "nd-flood": (PuntReason.CONTROL, PuntClass.ARP),
    "ping-own": (PuntReason.LOCAL, PuntClass.ICMP),
}
"""Floods of what is for the router itself, and what a plane is to take them for."""


@pytest.mark.parametrize("name", [*OF_ROUTERS, *BEFORE])
def test_messages_are_as_long_as_a_session_takes(name: str) -> None:
    defined: dict[int, bytes] = {}
    for body in islice((OF_ROUTERS | BEFORE)[name](1), SAID):
        message = pb.VrcMessage(sequence=1 << 40, **body)
        assert message.ByteSize() <= MAX_MESSAGE_BYTES
        assert len(message.routes.sets) <= 4 * MAX_ROUTES_PER_MESSAGE
        sets, states = message.nexthop_sets, message.interfaces.states
        assert max(len(sets.sets), len(sets.released), len(states)) <= MAX_ITEMS_PER_MESSAGE
        assert sum(len(one.members) for one in sets.sets) <= MAX_MEMBERS_PER_MESSAGE
        for one in message.nexthop_sets.sets:
            assert defined.setdefault(one.id, one.SerializeToString()) == one.SerializeToString()
        for released in message.nexthop_sets.released:
            del defined[released]
        used = {
            int.from_bytes(message.routes.sets[at : at + 4], "little") for at in range(0, len(message.routes.sets), 4)
        }
        assert used <= {0, *defined}


def test_the_longest_stall_is_seen_by_another_process(tmp_path: Path) -> None:
    watched, reader = StallFile(tmp_path / "stalls"), StallFile(tmp_path / "stalls")
    for stall in ((0.1, 0.1, 0.0), (0.3, 0.05, 0.2), (0.2, 0.2, 0.0)):
        watched.note(*stall)
    assert reader.longest_s() == (0.3, 0.05, 0.2)
    reader.forget()
    watched.note(0.05, 0.01, 0.03)
    assert reader.longest_s() == (0.05, 0.01, 0.03)


def test_a_target_is_read_as_it_was_written(tmp_path: Path) -> None:
    target = Target("hostile/r", "/s", "/i", ("127.0.0.1", 6653), None, 0, "/api", None, 7)
    target.write(tmp_path / "target")
    assert asdict(Target.read(tmp_path / "target")) == asdict(target) | {"openflow": ["127.0.0.1", 6653]}


@pytest.mark.parametrize("name", OF_HOSTS)
def test_a_flood_is_what_the_generator_takes(name: str) -> None:
    heads = OF_HOSTS[name].heads(LINK)
    assert len(heads) == COUNT * HEAD_BYTES
    assert COUNT & (COUNT - 1) == 0
    assert 60 <= OF_HOSTS[name].length <= 1514


@pytest.mark.parametrize("name", FLOODED)
def test_a_flood_of_the_router_is_of_its_class(name: str) -> None:
    reason, its_class = FLOODED[name]
    assert {punt_class(reason, frame) for frame in frames(name)} == {its_class}


def test_solicitations_carry_their_checksum() -> None:
    for frame in frames("nd-flood"):
        packet = found(frame)
        message = packet.octets[packet.header_octets : packet.length]
        pseudo = packet.src + packet.dst + len(message).to_bytes(4, "big") + bytes((0, 0, 0, packet.protocol))
        assert internet_checksum(pseudo + message) == 0
        assert packet.ttl == 255


@pytest.mark.parametrize("name", ["ping-own", "ping-others", "ttl-1", "too-big", "glean-sweep"])
def test_packets_of_a_flood_are_whole(name: str) -> None:
    network = {"ping-own": ROUTER, "ping-others": "10.0.0.0/8", "glean-sweep": SWEPT}.get(name, BEYOND)
    for frame in frames(name):
        packet = found(frame)
        assert packet.checksum_holds
        assert packet.length == OF_HOSTS[name].length - 14
        assert (packet.ttl == 1) == (name == "ttl-1")
        assert ip_address(packet.dst) in ip_network(network)


def test_a_sweep_asks_for_no_address_twice() -> None:
    assert len({found(frame).dst for frame in frames("glean-sweep")}) == COUNT


def test_lines_are_counted_that_a_daemon_has_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "vty"))
        listening.listen()
        monkeypatch.setattr(guest_root, "_ZEBRA", str(tmp_path / "vty"))

        def answer() -> None:
            vty, _ = listening.accept()
            with vty:
                while octets := vty.recv(1 << 16):
                    vty.sendall(b"\0\0\0\0" * octets.count(b"\0"))

        zebra = threading.Thread(target=answer)
        zebra.start()
        guest_root.log_flood(time.monotonic() + 0.05, counted.append)
        zebra.join()
    assert counted
    assert set(counted) == {guest_root.LINES_AT_ONCE}


def frames(name: str) -> list[bytes]:
    """The frames of a flood as they leave the host: what is behind their heads is zero."""
    flood = OF_HOSTS[name]
    heads = flood.heads(LINK)
    cut = [heads[at : at + HEAD_BYTES] for at in range(0, len(heads), HEAD_BYTES)]
    return [head[: flood.length].ljust(flood.length, b"\0") for head in cut]


def found(frame: bytes) -> IpPacket:
    """The IP packet in a frame."""
    packet = IpPacket.find(Frame.read(frame))
    assert packet is not None
    return packet


def test_a_flood_says_what_kept_it_from_its_rate() -> None:
    reached = CameOf(frames=990_000, took_s=1.0, busy_s=0.6, refused=0).told(1_000_000)
    assert "990,000 of 1,000,000 a second, 0% of them refused" in reached
    waited = CameOf(frames=500_000, took_s=1.0, busy_s=0.4, refused=250_000).told(1_000_000)
    assert "had 40% of a core: others had its core meanwhile), 50% of them refused" in waited
    assert "had 100% of a core: one core makes no more" in CameOf(4_000_000, 1.0, 1.01, 0).told(5_000_000)
