"""VRCs of another version: the one before is understood, others are refused with the remedy."""

import pytest
from peers import refusals
from session_streams import FOLDER, Recording, quiet, record, replay_controller, replay_vrc

from controller.diagnostics.describe import router_view
from wire import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from wire import splitplane_pb2 as pb

SPOKEN = range(OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION + 1)
NEXT = range(PROTOCOL_VERSION, PROTOCOL_VERSION + 2)  # what a controller after the next bump speaks


def recorded(version: int) -> Recording:
    return Recording.read(FOLDER / f"{version}.json")


def told(recording: Recording) -> list[bytes]:
    """What the controller said but for acknowledgements, of which several may become one."""
    said = recording.octets("controller")
    return [octets for octets in said if pb.ControllerMessage.FromString(octets).WhichOneof("body") != "ack"]


def test_two_versions_are_spoken_at_most_and_streams_of_each_are_kept():
    assert len(SPOKEN) in (1, 2)
    assert {path.name for path in FOLDER.iterdir()} == {f"{version}.json" for version in SPOKEN}


@pytest.mark.parametrize("version", SPOKEN)
async def test_what_a_vrc_of_a_spoken_version_says_is_learned(version):
    kept = recorded(version)
    learned, said = await replay_vrc(kept)
    assert ("of the version before" in learned.pop("remark")) == (version < PROTOCOL_VERSION)
    assert learned == kept.learned
    first, *_, last = said
    assert first.declaration.protocol == version
    assert len(first.declaration.frame_ticket) == 16
    assert last.ack.sequence == len(kept.octets("vrc"))


@pytest.mark.parametrize("version", SPOKEN)
async def test_what_a_controller_of_a_spoken_version_says_is_understood(version):
    kept = recorded(version)
    heard, said = await replay_controller(kept)
    assert heard == kept.heard
    assert said[0] == "interfaces"
    assert {"snapshot", "resync_end"} <= set(said)


async def test_the_wire_has_not_changed_under_its_version():
    """Where this fails either the change is undone, or PROTOCOL_VERSION goes up and scripts/record-streams is run."""
    kept, made = recorded(PROTOCOL_VERSION), await record()
    assert made.octets("vrc") == kept.octets("vrc")
    assert told(made) == told(kept)
    assert (made.learned, made.heard) == (kept.learned, kept.heard)


async def test_a_controller_after_the_next_bump_takes_today_s_vrc_and_says_so():
    kept = recorded(PROTOCOL_VERSION)
    learned, said = await replay_vrc(kept, NEXT)
    remark = f"its VRC speaks protocol {PROTOCOL_VERSION}, of the version before; restart the guest"
    assert learned.pop("remark") == remark
    assert learned == kept.learned
    assert said[0].declaration.protocol == PROTOCOL_VERSION


async def test_the_list_of_routers_says_whose_vrc_is_of_the_version_before(service, red):
    world, server, _ = service
    server._protocols = NEXT
    await red.begin()
    await quiet()
    view = router_view(world.router(), None)
    [remark] = view.remarks
    assert remark.startswith(f"its VRC speaks protocol {PROTOCOL_VERSION}, of the version before")


async def test_a_newer_vrc_that_speaks_our_version_too_is_answered_in_it(service, red):
    await red.hello(protocol=PROTOCOL_VERSION + 1, oldest=PROTOCOL_VERSION)
    declaration = (await red.control.read()).declaration
    assert declaration.protocol == PROTOCOL_VERSION


@pytest.mark.parametrize(
    ("protocol", "oldest"),
    [
        (OLDEST_PROTOCOL_VERSION - 1, 0),
        (OLDEST_PROTOCOL_VERSION - 1, 1),
        (PROTOCOL_VERSION + 1, 0),
        (PROTOCOL_VERSION + 2, PROTOCOL_VERSION + 1),
        (PROTOCOL_VERSION, PROTOCOL_VERSION + 1),
        (0, 0),
    ],
)
async def test_a_version_that_is_not_spoken_is_refused_with_the_remedy(service, red, protocol, oldest):
    world, _, _ = service
    await red.hello(protocol=protocol, oldest=oldest)
    spoken = " and ".join(map(str, SPOKEN))
    reason = (
        f"protocol {protocol}; this controller speaks {spoken}: "
        "restart the guest, whose VRC is of another version (docs/operations.md, Upgrade)"
    )
    assert await red.refusal() == reason
    assert refusals(world) == [reason]
    assert world.router().vrc is None
