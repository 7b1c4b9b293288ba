"""What a guest writes is memory of its own, and bounded: no disk of the host is filled by it."""

from pathlib import Path

import pytest
from guest_net import guest_bed

from vrc.guest.enclosure import MAX_FILES

pytestmark = pytest.mark.root

OF_THE_KERNEL = {"proc", "devpts"}
"""File systems that hold no octet of anybody's."""


def writable(pid: int) -> dict[str, tuple[str, set[str]]]:
    """The mounts of a process that can be written to: the kind of file system and its options, by place."""
    found = {}
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        mount, _, file_system = line.partition(" - ")
        place, options = mount.split()[4:6]
        kind, _, own = file_system.split()
        found[place] = (kind, {*options.split(","), *own.split(",")})
    # Of several mounts on one place the last one counts.
    return {place: (kind, options) for place, (kind, options) in found.items() if "ro" not in options}


async def test_all_that_a_guest_writes_to_has_a_size_and_a_number_of_files() -> None:
    async with guest_bed() as bed:
        status = await bed.started(bed.spec())
        found = writable(status.pid)
        memory = {place: options for place, (kind, options) in found.items() if kind not in OF_THE_KERNEL}
        assert {kind for kind, _ in found.values()} == {"tmpfs", *OF_THE_KERNEL}
        assert {"/run", "/tmp", "/run/frr", "/var/log", "/dev/shm"} <= memory.keys()
        for place, options in memory.items():
            assert {f"nr_inodes={MAX_FILES}"} <= options, place
            assert [option for option in options if option.startswith("size=")], place


async def test_a_guest_that_fills_all_it_can_leaves_the_disk_and_its_own_daemons_alone() -> None:
    async with guest_bed() as bed:
        spec = bed.spec()
        status = await bed.started(spec)
        places = " ".join(place for place, (kind, _) in writable(status.pid).items() if kind == "tmpfs")
        fill = f"for place in {places}; do cat /dev/zero >$place/fill; done"
        assert "No space left" in bed.run(status, "sh", "-c", fill).stderr
        on_disk = sum(path.lstat().st_size for path in spec.directory.rglob("*"))
        assert on_disk < 1 << 20
        bed.driver = bed.new_driver()
        assert (await bed.started(spec)).restarts == 0
