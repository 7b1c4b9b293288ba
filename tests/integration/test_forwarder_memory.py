"""vr-forwarder with its engine in memory: a P4Runtime device for whoever tries a controller, without privileges."""

import contextlib
import os
import resource
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from openflow_net import RATES, VRF, Recorder, columns, mac, via

from controller.model import PlaneConfig, PlaneKind, PlanePort, Share
from controller.planes.base import Capability, Nexthop, Op, Policer, RouterInterface, Update, WriteBatch
from controller.planes.p4runtime.channel import Timing
from controller.planes.p4runtime.plane import P4RuntimePlane
from controller.planes.shares import ShareEntries, ShareEntry
from lab.commands import output, wait_for
from lab.planes.forwarder import Forwarder
from wire.columns import prefix_key

pytestmark = [pytest.mark.root, pytest.mark.asyncio]  # root only to be somebody else

NOBODY = 65534
WHO = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all")
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
_LIMIT_S = 60.0
PORTS = {"eth1": 1, "eth2": 2}  # of which there are none


@pytest.fixture
def forwarder(tmp_path: Path) -> Forwarder:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, NOBODY, NOBODY)
    for parent in (tmp_path, *tmp_path.parents):
        if "pytest-of-" in str(parent):
            parent.chmod(0o755)
    return Forwarder("vr-forwarder", "unused", 1, state, tmp_path / "log", WHO)


@contextlib.asynccontextmanager
async def connected(forwarder: Forwarder) -> AsyncIterator[P4RuntimePlane]:
    """Start it and connect a plane to it."""
    ports = tuple(PlanePort(name, number) for name, number in PORTS.items())
    config = PlaneConfig("edge", PlaneKind.P4RUNTIME, address=forwarder.address, device_id=1, ports=ports)
    plane, heard = P4RuntimePlane(config, timing=Timing(retry_s=0.02)), Recorder()
    try:
        forwarder.start(PORTS, "--engine", "memory")
        await plane.start(heard)
        await heard.until(lambda: plane.connected)
        yield plane
    finally:
        await plane.close()
        forwarder.stop()


async def test_it_takes_shares_and_has_them_after_it_was_killed(forwarder: Forwarder) -> None:
    shares: ShareEntries = {
        ("router_share", VRF): ShareEntry(Share(2, 100_000, 400_000), 9_000),
        ("router_share", 70_000): ShareEntry(Share(), 9_000),
        ("slice_share", 9_000): ShareEntry(Share(1_000, 0, 1_000_000)),
    }
    async with connected(forwarder) as plane:
        assert Capability.SHARES in plane.capabilities
        assert await plane.write_shares(shares, ()) == {}
        why = "router_share 7: weight 0 is not from 1 to 1000"
        assert await plane.write_shares({("router_share", 7): ShareEntry(Share(0))}, ()) == {("router_share", 7): why}
        assert await plane.share_use() == {}, "there are no packets"
    async with connected(forwarder) as plane:
        assert await plane.read_shares() == shares
        changed: ShareEntries = {("router_share", VRF): ShareEntry(Share(5), 9_000)}
        assert await plane.write_shares(changed, [("router_share", 70_000), ("slice_share", 9_000)]) == {}
        assert await plane.read_shares() == changed


async def test_it_takes_entries_and_has_them_after_it_was_killed(forwarder: Forwarder) -> None:
    batch = WriteBatch(
        policers=[Update(Op.INSERT, Policer(VRF, RATES))],
        router_interfaces=[Update(Op.INSERT, RouterInterface(1, VRF, 1, 0, mac("02:00:00:00:00:01"), 1500))],
        nexthops=[Update(Op.INSERT, Nexthop(5, 1, mac("02:00:00:00:00:02")))],
        routes=columns({"20.1.0.0/16": via(5)}),
    )
    async with connected(forwarder) as plane:
        assert await plane.write(batch) == []
        before = await plane.read()
    assert before.routes == {VRF: {prefix_key("20.1.0.0/16"): via(5)}}
    assert [nexthop.id for nexthop in before.nexthops.values()] == [5]
    async with connected(forwarder) as plane:
        assert await plane.read() == before


async def test_connections_beyond_its_descriptors_keep_nobody_out_for_good(forwarder: Forwarder) -> None:
    forwarder.prefix = ("prlimit", "--nofile=512:512", *WHO)
    async with connected(forwarder) as plane:
        with contextlib.ExitStack() as many:
            for _ in range(800):
                one = many.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                one.connect(str(forwarder.state / "p4rt.sock"))
            assert "vr-forwarder" in output(forwarder.command("status"), 10), "others have their descriptors"
        assert await plane.write(WriteBatch(policers=[Update(Op.INSERT, Policer(VRF, RATES))])) == []
        assert f"vrf_id={VRF}" in output(forwarder.command("dump", "policer"), 30), "over a connection of its own"


async def test_a_journal_that_cannot_be_written_is_told_and_tried_again(
    forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "300000")  # it looks three times in that
    forwarder.prefix = ("sh", "-c", 'trap "" XFSZ && exec "$@"', "sh")  # prlimit(2) is for one's own
    journal, log = forwarder.state / "journal", forwarder.log

    def logged(what: str) -> None:
        wait_for(what, lambda: f"warning the journal {journal} {what}" in log.read_text(), _LIMIT_S, 0.05, [log])

    async with connected(forwarder) as plane:
        full = (journal.stat().st_size + 10, resource.RLIM_INFINITY)
        resource.prlimit(forwarder.pid, resource.RLIMIT_FSIZE, full)
        assert await plane.write(WriteBatch(policers=[Update(Op.INSERT, Policer(VRF, RATES))])) == []
        logged("cannot be written")
        assert "cannot be written" in output(forwarder.command("status"), 10)
        resource.prlimit(forwarder.pid, resource.RLIMIT_FSIZE, UNLIMITED)
        logged("is written again")
        assert "cannot be written" not in output(forwarder.command("status"), 10)
        before = await plane.read()
    async with connected(forwarder) as plane:
        assert await plane.read() == before
