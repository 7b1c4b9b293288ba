"""FPM framing: whole frames only, in batches."""

import asyncio

import pytest
from netlink_bytes import by_nexthop, frame, message, route

from vrc.errors import MalformedFrame
from vrc.netlink.route_messages import RTM_DELROUTE, RTM_NEWROUTE, Batch
from vrc.routes.fpm import FpmServer, scan_frames
from wire.columns import prefix_key

REPLACE = frame(route("10.0.0.0/8", kind=RTM_DELROUTE), route("10.0.0.0/8", by_nexthop(1)))
ADD = frame(route("11.0.0.0/8", by_nexthop(1)))


def test_the_limit_never_splits_a_frame() -> None:
    batch = Batch()
    assert scan_frames(REPLACE + ADD, 0, 1, batch) == len(REPLACE)
    assert [kind for kind, _, _, _ in batch.changes] == [RTM_DELROUTE, RTM_NEWROUTE]


def test_what_is_no_frame_is_refused() -> None:
    for head in (b"\x02\x01\x00\x10", b"\x01\x01\x00\x03"):
        with pytest.raises(MalformedFrame, match=head.hex()):
            scan_frames(head + bytes(40), 0, 100, Batch())


def test_bad_content_costs_its_frame_only() -> None:
    batch = Batch()
    bad = b"\x01\x01\x00\x1c" + b"\xff" * 24
    other = b"\x01\x02\x00\x08abcd"  # protobuf
    assert scan_frames(bad + other + ADD, 0, 100, batch) == len(bad + other + ADD)
    assert batch.malformed == 1
    assert [key for _, key, _, _ in batch.changes] == [prefix_key("11.0.0.0/8")]


@pytest.mark.parametrize("kind", [16, 20, 28, 36, 112])
def test_messages_that_are_no_routes_are_passed_over(kind: int) -> None:
    """As FRR 10 may send them of EVPN (neighbors, links) and of what comes after it."""
    batch = Batch()
    frames = frame(message(kind, bytes(40))) + frame(message(kind, b""), route("11.0.0.0/8", by_nexthop(1)))
    assert scan_frames(frames, 0, 100, batch) == len(frames)
    assert [key for _, key, _, _ in batch.changes] == [prefix_key("11.0.0.0/8")]
    assert batch.malformed == 0


def test_a_replacement_of_frr_10_is_one_change() -> None:
    batch = Batch()
    replaced = frame(route("10.0.0.0/8", by_nexthop(2), flags=0x501))  # NLM_F_REQUEST, CREATE, REPLACE
    scan_frames(ADD + replaced, 0, 100, batch)
    assert [(kind, key) for kind, key, _, _ in batch.changes] == [
        (RTM_NEWROUTE, prefix_key("11.0.0.0/8")),
        (RTM_NEWROUTE, prefix_key("10.0.0.0/8")),
    ]


class Heard:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.closed = asyncio.Event()

    def fpm_opened(self) -> None:
        self.said.append("opened")

    def fpm_batch(self, batch: Batch) -> None:
        self.said.append(f"{len(batch.changes)} changes")

    def fpm_closed(self, reason: str) -> None:
        self.said.append(reason)
        self.closed.set()


async def test_the_server_reads_one_zebra_after_another() -> None:
    heard = Heard()
    server = FpmServer("127.0.0.1", 0, heard)
    task = asyncio.ensure_future(server.run())
    try:
        for content in (REPLACE + ADD, b"\x09\x09\x09\x09"):
            heard.closed.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(content)
            writer.write_eof()
            await asyncio.wait_for(heard.closed.wait(), 30)
            writer.close()
    finally:
        task.cancel()
        server.close()
    assert heard.said == ["opened", "3 changes", "closed by zebra", "opened", "0 changes", "FPM header 09090909"]
