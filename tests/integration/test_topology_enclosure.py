"""Nothing of a topology stays behind, however it ends."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.guests import limits

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
PROGRAM = """
import asyncio, signal, subprocess, sys
from pathlib import Path
from controller.guests import limits
from lab.enclosure import STATE, outer_pid, run_enclosed

GUEST = STATE / "guests/left-over"

def program():
    GUEST.mkdir(parents=True)
    limits.make(GUEST, limits.Limits(memory_bytes=1 << 30, cpus=0, pids=1000))
    Path("/run/left-over").write_text("x")
    Path("/var/tmp/left-over").write_text("x")
    subprocess.run(["ip", "netns", "add", "left-over"], check=True)
    subprocess.Popen(["setsid", "sleep", "1000"])
    try:
        return asyncio.run(told())
    except asyncio.CancelledError:
        return 130

async def told():
    # So that an interrupt wakes the event loop at any time: one that comes just before a blocking call ends nothing.
    loop, line = asyncio.get_running_loop(), asyncio.StreamReader()
    loop.add_signal_handler(signal.SIGINT, asyncio.current_task().cancel)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(line), sys.stdin)
    print(outer_pid(), flush=True)
    return int(await line.readline() or 9)

if __name__ == "__main__":
    sys.exit(run_enclosed("enclosed", "enclosed_program", program))
"""


def guest_of(process: asyncio.subprocess.Process) -> Path:
    """Return the directory of the program's guest, which lies in its own mount namespace."""
    return Path(f"/run/splitplane-state-{process.pid}/guests/left-over")


def groups_of(process: asyncio.subprocess.Process) -> set[Path]:
    """Return the control groups of the program's guest."""
    return set(limits.groups(guest_of(process)))


def members(namespace: str) -> list[int]:
    """Return the processes of a PID namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "ns/pid") == namespace:
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return found


@asynccontextmanager
async def enclosed(directory: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Start the program; yields the process at the outside and its PID namespace."""
    (directory / "enclosed_program.py").write_text(PROGRAM)
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{directory}"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "enclosed_program", env=environment, start_new_session=True, **pipes
    )
    try:
        first = int(await asyncio.wait_for(process.stdout.readline(), DEADLINE_S))
        namespace = os.readlink(f"/proc/{first}/ns/pid")
        assert namespace != os.readlink("/proc/self/ns/pid")
        assert len(members(namespace)) >= 3
        assert groups_of(process)
        yield process, namespace
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        limits.remove(guest_of(process))


async def gone(namespace: str) -> bool:
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while members(namespace):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def leftovers() -> list[Path]:
    places = ("/run/left-over", "/var/tmp/left-over", "/run/netns/left-over")
    return [path for path in map(Path, places) if path.exists()]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_to_the_outer_process_ends_everything(tmp_path, end):
    async with enclosed(tmp_path) as (process, namespace):
        process.send_signal(end)
        await asyncio.wait_for(process.wait(), DEADLINE_S)
        assert process.returncode != 0
        assert await gone(namespace)
        assert not groups_of(process) or end is signal.SIGKILL
    assert leftovers() == []


async def test_ctrl_c_at_the_terminal_reaches_the_program(tmp_path):
    async with enclosed(tmp_path) as (process, namespace):
        os.killpg(process.pid, signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 130
        assert await gone(namespace)
        assert not groups_of(process)
    assert leftovers() == []


async def test_two_at_the_same_time_have_control_groups_of_their_own(tmp_path):
    async with enclosed(tmp_path) as (process, _), enclosed(tmp_path) as (other, _):
        assert groups_of(process).isdisjoint(groups_of(other))


@pytest.mark.parametrize("status", [0, 3])
async def test_the_exit_status_is_the_programs(tmp_path, status):
    async with enclosed(tmp_path) as (process, namespace):
        process.stdin.write(f"{status}\n".encode())
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == status
        assert await gone(namespace)
    assert leftovers() == []
