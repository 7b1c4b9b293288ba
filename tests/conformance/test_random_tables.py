"""Random tables and packets: every plane does what the model does. What once differed is replayed."""

from pathlib import Path
from random import Random

import pytest
from differences import FOUND, difference, first_difference, keep, kept, shrink
from planes_wired import PLANES
from random_tables import Trial, random_arrival, random_table
from wired import WiredPlane

TABLES, PACKETS = 10, 50


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.kinds(*PLANES)
@pytest.mark.parametrize("seed", range(TABLES))
async def test_a_random_table(wired: WiredPlane, seed: int) -> None:
    found = await first_difference(wired, seed, PACKETS)
    assert found is None, found


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.kinds(*PLANES)
@pytest.mark.parametrize("path", sorted(FOUND.glob("*.json")), ids=lambda path: path.stem)
async def test_what_was_found(wired: WiredPlane, path: Path) -> None:
    found = await difference(wired, kept(path))
    assert found is None, found


async def test_a_difference_is_shrunk_to_what_it_needs_and_kept(tmp_path: Path, monkeypatch) -> None:
    draw = Random(5)
    entries = random_table(draw)
    port, frame = random_arrival(draw, entries)
    interface = next(iter(entries.router_interfaces))

    async def differs(trial: Trial) -> bool:
        """As a plane would that forgets one interface, and only for frames with an octet 0x02 in front."""
        return interface in trial.entries.router_interfaces and trial.frame[:1] == frame[:1]

    smallest = await shrink(Trial(entries, port, frame), differs)
    assert list(smallest.entries.router_interfaces) == [interface]
    assert not smallest.entries.nexthops
    assert not any(smallest.entries.routes.values())
    assert smallest.frame == frame[:1].ljust(len(smallest.frame), b"\0")
    monkeypatch.setattr("differences.FOUND", tmp_path)
    assert kept(keep(smallest, "fake")) == smallest


def test_a_seed_is_a_table() -> None:
    assert random_table(Random(3)) == random_table(Random(3))
    assert random_table(Random(3)) != random_table(Random(4))
