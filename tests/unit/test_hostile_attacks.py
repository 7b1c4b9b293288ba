"""What bench/hostile's attacker says is what a session takes: else it would measure refusals."""

from itertools import islice
from pathlib import Path

import pytest

from bench.attacks import BEFORE, OF_ROUTERS
from bench.watched_controller import StallFile
from wire import MAX_MESSAGE_BYTES, MAX_ROUTES_PER_MESSAGE
from wire import splitplane_pb2 as pb

SAID = 12


@pytest.mark.parametrize("name", [*OF_ROUTERS, *BEFORE])
def test_messages_are_as_long_as_a_session_takes(name: str) -> None:
    defined: dict[int, bytes] = {}
    for body in islice((OF_ROUTERS | BEFORE)[name](1), SAID):
        message = pb.VrcMessage(sequence=1 << 40, **body)
        assert message.ByteSize() <= MAX_MESSAGE_BYTES
        assert len(message.routes.sets) <= 4 * MAX_ROUTES_PER_MESSAGE
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
    for stall_s in (0.1, 0.3, 0.2):
        watched.note(stall_s)
    assert reader.longest_s() == 0.3
    reader.forget()
    watched.note(0.05)
    assert reader.longest_s() == 0.05
