"""finsy, a P4Runtime client that knows nothing of Splitplane, drives vr-forwarder like any switch."""

import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from ipaddress import IPv4Network
from pathlib import Path

import finsy as fy
import pytest
from finsy.switch import SwitchFailFastError

from lab.private.forwarder import PrivateForwarder

pytestmark = pytest.mark.root

GOLDEN = Path(__file__).parents[2] / "p4src" / "golden"
election_ids = itertools.count(10)
PROGRAM = {"p4info": GOLDEN / "v1model.p4info.txtpb", "p4blob": GOLDEN / "v1model.json"}


@pytest.fixture(scope="module")
def forwarder() -> Iterator[PrivateForwarder]:
    with PrivateForwarder() as found:
        yield found


@contextlib.asynccontextmanager
async def connected(forwarder: PrivateForwarder, **options: object) -> AsyncIterator[fy.Switch]:
    """A client of its own election id: the device may not have noticed yet that the one before has left."""
    chosen = fy.SwitchOptions(initial_election_id=next(election_ids), **options)
    async with fy.Switch("edge", forwarder.address, chosen) as switch:
        yield switch


def route(prefix: str, nexthop: int, vrf: int = 7) -> fy.P4TableEntry:
    match = fy.P4TableMatch(vrf_id=vrf, ipv4_dst=prefix)
    return fy.P4TableEntry("ipv4_route", match=match, action=fy.P4TableAction("set_nexthop", nexthop_id=nexthop))


async def routes(switch: fy.Switch) -> dict[str, int]:
    found = {}
    async for entry in switch.read(fy.P4TableEntry("ipv4_route")):
        assert isinstance(entry, fy.P4TableEntry)
        assert isinstance(entry.action, fy.P4TableAction)
        address, length = str(entry.match_dict(switch.p4info)["ipv4_dst"]).split("/")
        found[str(IPv4Network((int(address, 16), int(length))))] = entry.action.args["nexthop_id"]
    return found


async def test_it_pushes_the_pipeline_and_sees_it(forwarder: PrivateForwarder) -> None:
    async with connected(forwarder, **PROGRAM, p4force=True) as switch:
        assert switch.is_primary
        assert "ipv4_route" in {table.alias for table in switch.p4info.tables}
    async with connected(forwarder) as switch:  # without a pipeline of its own it takes the device's
        assert "nexthop_group" in {table.alias for table in switch.p4info.tables}


async def test_it_inserts_reads_modifies_and_deletes_routes(forwarder: PrivateForwarder) -> None:
    async with connected(forwarder, **PROGRAM) as switch:
        await switch.delete_all()
        await switch.write([+route(f"10.{n}.0.0/16", n) for n in range(1, 200)])
        assert await routes(switch) == {f"10.{n}.0.0/16": n for n in range(1, 200)}
        await switch.write([~route("10.1.0.0/16", 99), -route("10.2.0.0/16", 2)])
        after = await routes(switch)
        assert (after["10.1.0.0/16"], "10.2.0.0/16" in after, len(after)) == (99, False, 198)
        await switch.delete_all()
        assert await routes(switch) == {}


async def test_dump_tells_members_and_groups_of_the_action_profile(forwarder: PrivateForwarder) -> None:
    profile, to_nexthop = "nexthop_group_selector", fy.P4TableAction("set_member_nexthop", nexthop_id=5)
    group = fy.P4ActionProfileGroup(profile, group_id=4, max_size=8, members=[fy.P4Member(3, weight=1)])
    ways = {1: fy.P4IndirectAction(member_id=3), 2: fy.P4IndirectAction(group_id=4)}
    async with connected(forwarder, **PROGRAM) as switch:
        await switch.insert([fy.P4ActionProfileMember(profile, member_id=3, action=to_nexthop)])
        await switch.insert([group])
        await switch.insert(
            [
                fy.P4TableEntry("nexthop_group", match=fy.P4TableMatch(nexthop_group_id=number), action=way)
                for number, way in ways.items()
            ]
        )
        assert sorted(forwarder.run("dump", "nexthop_group").stdout.splitlines()) == [
            "nexthop_group nexthop_group_id=1 -> member id=3",
            "nexthop_group nexthop_group_id=2 -> group id=4",
        ]


async def test_what_is_refused_is_told_by_update(forwarder: PrivateForwarder) -> None:
    async with connected(forwarder, **PROGRAM) as switch:
        await switch.delete_all()
        await switch.write([+route("10.1.0.0/16", 1)])
        with pytest.raises(fy.P4ClientError) as caught:
            await switch.write([+route("10.1.0.0/16", 1), +route("10.2.0.0/16", 2), -route("10.3.0.0/16", 3)])
        details = caught.value.details
        assert {index: error.canonical_code.name for index, error in details.items()} == {
            0: "ALREADY_EXISTS",
            2: "NOT_FOUND",
        }
        assert await routes(switch) == {"10.1.0.0/16": 1, "10.2.0.0/16": 2}


async def test_another_pipeline_is_refused_by_name(
    forwarder: PrivateForwarder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (GOLDEN / "v1model.p4info.txtpb").read_text()
    other = tmp_path / "other.txtpb"
    other.write_text(text.replace("size: 16384", "size: 16385", 1))
    caplog.set_level(logging.CRITICAL, "finsy")
    options = {"p4info": other, "p4blob": GOLDEN / "v1model.json", "p4force": True, "fail_fast": True}
    with pytest.raises(SwitchFailFastError):
        async with connected(forwarder, **options):
            pass
    (refused,) = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert isinstance(refused, fy.P4ClientError)
    assert refused.code.name == "INVALID_ARGUMENT"
    assert "tables[0].size: 16384 -> 16385" in refused.message
